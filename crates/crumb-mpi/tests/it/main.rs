//! Runs by several ranks under a real MPI: as one generator, as replicas, and when ranks, hosts or networks are lost.
//!
//! `golden_records` is a program of its own: timed runs want the CPUs to themselves.

// How long each end took is shown by a failing test.
#![allow(clippy::print_stderr)]

mod job;
mod lost;
mod mpi_end;
mod namespaces;
mod replicas;
mod together;
mod unannounced;
