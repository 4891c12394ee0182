//! What is done to a store as a whole, beside the components: each of these reads and changes several of them.
//!
//! | procedure | when |
//! |---|---|
//! | `writer` | always, a thread for each volume |
//! | `make_room` | the writer needs a file to fill: a new one, one with room again, or one that is made room in |
//! | `cycle` | the same, in a cyclic store |
//! | `rewrite_index` | a segment is filled again, or its index was damaged |
//! | `expire` | room is needed where objects have a time to live; when a user asks for it |
//! | `rebuild` | at the opening, after a stop that was not clean |
//! | `recover` | at the opening and in a check, where an index is damaged or missing |
//! | `table_file` | at the opening and at a clean stop |
//! | `compact`, `check`, `repair`, `members` | when a user asks for it |
//!
//! Always holds: they take the locks in the order that `store` lists.

pub(crate) mod check;
pub(crate) mod compact;
mod cycle;
pub(crate) mod expire;
pub(crate) mod make_room;
mod members;
pub(crate) mod rebuild;
pub(crate) mod recover;
pub(crate) mod repair;
pub(crate) mod rewrite_index;
pub(crate) mod table_file;
pub(crate) mod writer;
