//! A store as the workloads see it.
//!
//! May use: nothing. Must not know: workloads.

/// Why a benchmark cannot go on. It is told to a person and ends the run.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a step of a benchmark returns.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A store that is being measured. Each method is called from many threads at once and blocks until it is done, a put
/// until it is acknowledged at the durability the store was opened with.
pub(crate) trait Driver: Sync {
    /// Puts one value over whatever was there.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Length of the value that is there, which was made readable as this store does it at the least cost.
    fn get(&self, key: &[u8]) -> Result<Option<usize>>;

    /// Whether the key is there: the cheapest look-up the store has.
    fn head(&self, key: &[u8]) -> Result<bool>;
}
