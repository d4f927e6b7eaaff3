//! The room that the unfinished commands of all connections of a door share.
//!
//! A command is handled when it is whole, so a large one lies in memory until then, for as long as its client likes.
//!
//! May use: std. Must not know: connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What a connection may hold beside the room: no more than its buffers take anyway.
const FREE_BYTES: usize = 128 << 10;

/// The room. Clones share it.
#[derive(Clone)]
pub(crate) struct Inputs(Arc<Room>);

struct Room {
    held: AtomicUsize,
    bytes_max: usize,
}

/// What one connection holds of it; dropping it gives it back.
#[derive(Default)]
pub(crate) struct Held {
    bytes: usize,
    room: Option<Inputs>,
}

impl Inputs {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Inputs(Arc::new(Room { held: AtomicUsize::new(0), bytes_max }))
    }
}

impl Held {
    /// Makes it at least so large; false when that is not there, and then it is what it was.
    pub(crate) fn grow(&mut self, room: &Inputs, bytes: usize) -> bool {
        if bytes <= self.bytes.max(FREE_BYTES) {
            return true;
        }
        let more = bytes - self.bytes;
        let fits = |held: usize| held.checked_add(more).filter(|held| *held <= room.0.bytes_max);
        let is_held = room.0.held.fetch_update(Relaxed, Relaxed, fits).is_ok();
        if is_held {
            self.bytes = bytes;
            self.room.get_or_insert_with(|| room.clone());
        }
        is_held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(room) = &self.room {
            room.0.held.fetch_sub(self.bytes, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_share_the_room_and_give_it_back() {
        let room = Inputs::new(1 << 20);
        let (mut one, mut two) = (Held::default(), Held::default());
        assert!(one.grow(&room, 64 << 10) && room.0.held.load(Relaxed) == 0, "a little is free");
        assert!(one.grow(&room, 700 << 10) && one.grow(&room, 600 << 10));
        assert!(!two.grow(&room, 400 << 10) && two.grow(&room, 300 << 10));
        assert!(!one.grow(&room, usize::MAX));
        assert_eq!(room.0.held.load(Relaxed), 1000 << 10);
        one = Held::default();
        assert!(two.grow(&room, 1 << 20) && one.bytes == 0);
        drop((one, two));
        assert_eq!(room.0.held.load(Relaxed), 0);
    }
}
