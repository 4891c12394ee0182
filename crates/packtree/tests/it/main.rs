//! A tree from outside: the seam's contract, what an opening finds, and what crashes and damage leave.

mod ahead;
mod crash;
mod creation;
mod damage;
mod file_system;
mod format;
mod full;
mod hostile;
mod locking;
mod no_room;
mod nodes;
mod requests;
mod scenario;
mod threads;
