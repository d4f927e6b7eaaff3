//! Every limit of the line door, by name, with a default, a reason and a tiny set for tests.
//!
//! May use: `std`. Must not know: anything else of the door.

use std::time::Duration;

/// What one line door allows its clients. A bound that is reached is an error line, a closed connection, or a client that
/// has to wait; never growth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections of the whole door; the next one is told so and closed.
    pub connections_max: usize,
    /// Bytes of one line; a longer one is skipped, and its sender told.
    pub line_bytes_max: usize,
    /// How long a text that was opened, and holds back the lines behind it, may take to be ended; then the line that opened it is bad.
    pub text_timeout: Duration,
    /// Bytes that are read from one connection before the next one has its turn.
    pub turn_bytes: usize,
    /// Points of all connections of a thread that are gathered before they are written.
    pub batch_points_max: usize,
    /// Bytes of lines that are gathered before their points are written: texts are as long as lines.
    pub batch_bytes_max: usize,
    /// How long nothing may have come before a client is told of bad lines. One that writes and does not read resets its connection
    /// when it closes with an error line in its socket, and loses what it has not sent; one that reads waits so much longer.
    pub complaint_delay: Duration,
    /// Bytes of answers that wait for one client. Beyond half of it error lines are counted and left out; beyond all of it
    /// nothing more is read from the client.
    pub output_bytes_max: usize,
    /// How long a client may take none of its answers, when so much waits that it is not read from, before it is
    /// disconnected.
    pub stall_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 1_000,
            line_bytes_max: 64 << 10,
            text_timeout: Duration::from_secs(1),
            turn_bytes: 16 << 10,
            batch_points_max: 32 << 10,
            batch_bytes_max: 8 << 20,
            complaint_delay: Duration::from_millis(50),
            output_bytes_max: 64 << 10,
            stall_timeout: Duration::from_secs(60),
        }
    }
}

impl Limits {
    /// Bounds so small that tests reach every one of them in milliseconds.
    pub fn tiny() -> Self {
        Limits {
            connections_max: 4,
            line_bytes_max: 128,
            text_timeout: Duration::from_millis(200),
            turn_bytes: 256,
            batch_points_max: 8,
            batch_bytes_max: 1 << 10,
            complaint_delay: Duration::from_millis(5),
            output_bytes_max: 4 << 10,
            stall_timeout: Duration::from_millis(200),
        }
    }
}
