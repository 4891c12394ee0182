//! Predictions against real file systems: ext4 in images that are filled until a name is refused.

mod ext4;
