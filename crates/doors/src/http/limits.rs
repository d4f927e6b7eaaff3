//! Every limit of the HTTP door, by name, with a default, a reason and a tiny set for tests.
//!
//! May use: nothing. Must not know: anything else of the door.

use std::time::Duration;

/// What one HTTP door allows its clients. A bound that is reached is an answer with a status or a closed connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections of the whole door; one more is closed at once.
    pub connections_max: usize,
    /// Bytes of a request's line and headers together; more is answered with 431. At least 8 KiB, which is `hyper`'s least.
    pub header_bytes_max: usize,
    /// Headers of a request; more is answered with 431.
    pub headers_max: usize,
    /// Bytes of a request's body; more is answered with 413.
    pub body_bytes_max: u64,
    /// How long a client may take to send the headers of a request, and to be idle between two.
    pub header_timeout: Duration,
    /// How long an answer may take to be made; then it is 503.
    pub answer_timeout: Duration,
    /// How long a client may take nothing of an answer before it is disconnected.
    pub stall_timeout: Duration,
    /// How long a TLS client may take to introduce itself.
    pub handshake_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 256,
            header_bytes_max: 16 << 10,
            headers_max: 64,
            body_bytes_max: 64 << 10,
            header_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// Bounds so small that tests reach every one of them in milliseconds.
    pub fn tiny() -> Self {
        Limits {
            connections_max: 3,
            header_bytes_max: 8 << 10,
            headers_max: 8,
            body_bytes_max: 16,
            header_timeout: Duration::from_millis(200),
            answer_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_millis(200),
            handshake_timeout: Duration::from_millis(200),
        }
    }
}
