//! The proxy over real sockets: with a real nginx and curl, with origins that misbehave, and with the public suite.

mod administration;
mod caching;
mod chaos;
mod destinations;
mod disk;
mod fills;
mod framing;
mod harness;
mod icp;
mod life;
mod nginx;
mod origins;
mod parts;
mod prefetch;
mod public_suite;
mod slow_misses;
mod squid;
mod tls;
mod tunnels;
mod versions;
mod wrk;
