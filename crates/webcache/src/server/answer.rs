//! How a request is answered: the loop that decides and executes, and the replies that it makes.

pub(super) mod background;
pub(super) mod driver;
pub(super) mod handler;
pub(super) mod reply;
pub(super) mod stored;
