//! The durability dial.
//!
//! May use: `journal`. Must not know: engines.

use std::fmt;
use std::time::Duration;

use journal::{Level, Window};

/// When a change is acknowledged, and so what survives once it was. Chosen per store, and per request.
///
/// | durability | acknowledged when | process killed | power lost |
/// |---|---|---|---|
/// | `Synced` | the batch is on stable storage | nothing lost | nothing lost |
/// | `Window` | the batch is with the operating system, and a sync will start within the window | nothing lost | about `max` of acknowledged batches, the newest ones |
/// | `Written` | the batch is with the operating system | nothing lost | what it had not written |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// On stable storage. The default.
    #[default]
    Synced,
    /// With the operating system, and synced within the window.
    Window(Window),
    /// With the operating system.
    Written,
}

impl Durability {
    /// The window `min`..`max`.
    ///
    /// # Panics
    /// When `min` is above `max`.
    #[must_use]
    pub fn window(min: Duration, max: Duration) -> Self {
        assert!(min <= max, "a window's min is at most its max");
        Self::Window(Window { min, max })
    }

    pub(crate) fn level(self) -> Level {
        match self {
            Self::Synced => Level::Synced,
            Self::Window(window) => Level::Window(window),
            Self::Written => Level::Written,
        }
    }

    /// What a read has to wait for before it shows something: it must not show what this durability would not have
    /// acknowledged. A window's sync was scheduled by the writer.
    pub(crate) fn read_level(self) -> Level {
        match self {
            Self::Synced => Level::Synced,
            Self::Window(_) | Self::Written => Level::Written,
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Synced => "synced",
            Self::Window(_) => "window",
            Self::Written => "written",
        })
    }
}
