//! The floor by two transports, for `scripts/bench-transports.sh`: `/dev/fuse` read and written by one thread, or FUSE over io_uring with
//! threads of each CPU (Linux 6.14 and later, `echo 1 > /sys/module/fuse/parameters/enable_uring`).
//!
//!   transports device|ring MOUNTPOINT
//!
//! Serves until standard input ends.

use std::error::Error;
use std::io::{self, Write as _};
use std::path::Path;

use fuse::{Floor, Transport};

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().collect();
    let usage = "transports device|ring MOUNTPOINT";
    let [_, transport, place] = &arguments[..] else { return Err(usage.into()) };
    let transport: Transport = transport.parse().map_err(|()| usage)?;
    let floor = Floor::mount_over(Path::new(place), transport)?;
    writeln!(io::stdout(), "ready")?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    drop(floor);
    Ok(())
}
