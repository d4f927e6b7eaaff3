//! What a door tells about itself: the words in which one door counts and another one publishes, so that neither
//! needs to know the other.
//!
//! May use: nothing. Must not know: protocols, how numbers are shown.

/// What a door counts, for `/metrics` and `/stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoorNumbers {
    /// Connections that are open now.
    pub connections: u64,
    /// What it has counted, if it is a door that counts.
    pub totals: Option<DoorTotals>,
}

/// What a door has counted since it was opened. Nothing of it survives a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoorTotals {
    /// Connections that were let in, those that then failed at TLS included.
    pub connections_accepted: u64,
    /// Connections that were turned away because there were too many.
    pub connections_rejected: u64,
    /// Commands that arrived whole, unknown and refused ones included.
    pub commands: u64,
    /// Commands that were answered with an error.
    pub errors: u64,
    /// Lookups of a key that found it.
    pub hits: u64,
    /// Lookups of a key that did not find it.
    pub misses: u64,
    /// Bytes that clients have sent, without what TLS adds.
    pub received_bytes: u64,
    /// Bytes that were sent to clients, without what TLS adds.
    pub sent_bytes: u64,
}
