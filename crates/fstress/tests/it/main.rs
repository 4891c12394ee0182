//! Runs of Fstress on storage whose behaviour is known, and its workloads.

/// The methods of `Transport` that a test leaves to the transport in its field `inner`.
macro_rules! left_to_inner {
    ($($method:ident)*) => { $(left_to_inner!(@ $method);)* };
    (@ submit) => {
        fn submit(
            &mut self,
            ticket: files::Ticket,
            request: &files::Request<'_>,
        ) -> Result<(), files::SubmitError> {
            self.inner.submit(ticket, request)
        }
    };
    (@ flush) => {
        fn flush(&mut self) -> Result<(), files::TransportError> {
            self.inner.flush()
        }
    };
    (@ poll) => {
        fn poll(
            &mut self,
            until: Option<quanta::Instant>,
            deliver: &mut dyn FnMut(files::Completion<'_>),
        ) -> Result<usize, files::TransportError> {
            self.inner.poll(until, deliver)
        }
    };
    (@ in_flight) => {
        fn in_flight(&self) -> usize {
            self.inner.in_flight()
        }
    };
    (@ root) => {
        fn root(&self) -> files::HandleRef<'_> {
            self.inner.root()
        }
    };
    (@ io_bytes_max) => {
        fn io_bytes_max(&self) -> u32 {
            self.inner.io_bytes_max()
        }
    };
    (@ is_local) => {
        fn is_local(&self) -> bool {
            self.inner.is_local()
        }
    };
    (@ counters) => {
        fn counters(&self) -> files::TransportCounters {
            self.inner.counters()
        }
    };
}

mod chains;
mod file_set;
mod interrupted;
mod known_latency;
mod ranks;
mod silent;
mod split;
mod valid_means_right;
mod verdicts;
mod workload_builtin;
mod workload_deck;
mod workload_derive;
mod workload_mistakes;
mod workload_objects;
