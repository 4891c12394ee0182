//! Files and archives into a store and out of it, a store as a file system, and the list of a store's directories.

mod archives;
mod file_system;
mod volumes;
