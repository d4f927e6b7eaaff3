//! Every limit of a script, by name, with a default and a reason.
//!
//! May use: nothing. Must not know: anything else.

/// What one run may take. Time is the watch's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that the script's values may take, with those that were not collected yet and about 200 KiB that are always there.
    pub memory_bytes_max: usize,
    /// Steps of a run: each call of a function, each return, each turn of a loop, each step of a pattern. Other than its time they are the same
    /// on every machine and however much else it does. A few are those of the beginning.
    pub steps_max: u64,
    /// Bytes of source text: compiling is not watched.
    pub source_bytes_max: usize,
    /// How deep tables may lie in each other in what a script returns, and in what it is given.
    pub depth_max: usize,
    /// Values in what a script returns, with those inside of others.
    pub elements_max: usize,
    /// Bytes of text in what a script returns: one text may stand in many places.
    pub result_bytes_max: usize,
    /// Bytes of the text of an error; the rest is cut off.
    pub error_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory_bytes_max: 16 << 20,
            steps_max: 100_000_000,
            source_bytes_max: 256 << 10,
            depth_max: 32,
            elements_max: 1 << 20,
            result_bytes_max: 64 << 20,
            error_bytes_max: 1024,
        }
    }
}

impl Limits {
    /// Bounds so small that tests reach every one of them in milliseconds.
    #[must_use]
    pub fn tiny() -> Self {
        Limits {
            memory_bytes_max: 1 << 20,
            steps_max: 10_000,
            source_bytes_max: 4 << 10,
            depth_max: 8,
            elements_max: 100,
            result_bytes_max: 4 << 10,
            error_bytes_max: 64,
        }
    }
}

/// Text times pattern of one search, in bytes squared: about a quarter of a second at worst, in which nothing is watched.
pub(crate) const SCAN_MAX: u64 = 1 << 28;
/// From here on the watch is asked just before the search: sixteen of them would be long.
pub(crate) const SCAN_LONG: u64 = 1 << 20;
/// Elements of one `table.move`: some milliseconds.
pub(crate) const MOVE_MAX: u64 = 1 << 20;
/// Bytes of a text that `string.rep` is asked for: it counts to there.
pub(crate) const REP_MAX: u64 = 1 << 31;
/// The watch is asked once in so many interrupts: a clock costs as much as several turns of a loop.
pub(crate) const TICKS: u32 = 16;
/// Bytes of bytecode that a state keeps loaded: a tenth of a short run is loading its text.
pub(crate) const LOADED_BYTES_MAX: usize = 64 << 10;
/// Bytes of one line that a script logs.
pub(crate) const LOG_BYTES_MAX: usize = 1024;
