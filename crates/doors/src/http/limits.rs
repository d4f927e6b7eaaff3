//! Every limit of the HTTP door, by name, with a default, a reason and a tiny set for tests.
//!
//! May use: nothing. Must not know: anything else of the door.

use std::time::Duration;

/// What one HTTP door allows its clients. A bound that is reached is an answer with a status or a closed connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections of the whole door. For one more, the one whose client lets the server wait longest is closed; if none does,
    /// the new one is, at once.
    pub connections_max: usize,
    /// How long a client must have let the server wait, within a request or between two, before its connection may be closed for
    /// another one.
    pub give_way_after: Duration,
    /// Bytes of a request's line and headers together; more is answered with 431. At least 8 KiB, which is `hyper`'s least.
    pub header_bytes_max: usize,
    /// Headers of a request; more is answered with 431.
    pub headers_max: usize,
    /// Bytes of a request's body; more is answered with 413. The store's longest value bounds it too.
    pub body_bytes_max: u64,
    /// Bytes of bodies that are being received, and of large values that are being sent, of the whole door together; more
    /// is answered with 503. At least one body of the largest size always fits.
    pub bodies_bytes_max: u64,
    /// How long a client may send nothing of a body that it has begun; then it is 408.
    pub body_idle_timeout: Duration,
    /// How long a client may take for a whole body; then it is 408.
    pub body_timeout: Duration,
    /// Bytes of a body of JSON that is no document: a batch of operations, a question about entries, changes of one, a type. The door's
    /// longest body bounds it too. More is answered with 413.
    pub json_body_bytes_max: u64,
    /// Operations of one batch, and keys and entries that a transaction holds which stays open; more is answered with 413.
    pub batch_operations_max: usize,
    /// Transactions that stay open from one request to the next; one more is answered with 503.
    pub transactions_max: usize,
    /// The longest time that such a transaction may hold locks.
    pub transaction_lease_max: Duration,
    /// Bytes of memory that what such a transaction changes may take; more is answered with 413, and rolls it back. They count as
    /// bodies that are being received, too.
    pub transaction_bytes_max: usize,
    /// Bytes of entries and objects in one answer of a batch, of events and of an iteration, which lie in memory until it is sent. To a
    /// batch that reads more the answer is 413, the others end behind the one that exceeds it.
    pub documents_bytes_max: usize,
    /// Clients that wait for events of entries; one more is answered with 503. A few thousand events may be in memory for each.
    pub listeners_max: usize,
    /// How long one request may go through entries, if that is less than `answer_timeout`.
    pub space_time_max: Duration,
    /// How long one question about time series may work; then it fails. While a client takes a part of its answer does not count.
    pub series_time_max: Duration,
    /// Iterations through entries that the door remembers; the oldest is forgotten first.
    pub iterations_max: usize,
    /// Entries that all of these together keep in memory; the oldest is forgotten first. One alone may keep more, which are those of
    /// one partition.
    pub iterations_entries_max: usize,
    /// Entries of a listing that are fetched and sent at a time.
    pub page_entries_max: usize,
    /// Bytes of a regular expression; more is answered with 400.
    pub regex_bytes_max: usize,
    /// Threads that ask the store. At `synced` so many writers share one sync.
    pub threads_max: usize,
    /// Threads that read and write the points of small bodies.
    pub write_threads: usize,
    /// Bytes of a body of points, decompressed, that is small. Larger ones are written by threads that ask the store, so that the
    /// small ones need not wait for them.
    pub small_body_bytes: usize,
    /// Larger ones that are read and written at a time; the next ones wait.
    pub large_writes_max: usize,
    /// Questions about points that are answered at a time: each may take much memory, and all the time of a processor. However many
    /// are allowed here, it is no more than half of `threads_max`, and at least one.
    pub queries_max: usize,
    /// Questions that wait for their turn, in order; one more is answered with 503.
    pub queries_waiting_max: usize,
    /// How long a client may take to send the headers of a request, and to be idle between two.
    pub header_timeout: Duration,
    /// How long an answer may take to be made; then it is 503.
    pub answer_timeout: Duration,
    /// How long a request may wait for an entry of a space to take, whatever it asks for.
    pub take_wait_max: Duration,
    /// How long a client may take nothing of an answer before it is disconnected.
    pub stall_timeout: Duration,
    /// How long a TLS client may take to introduce itself.
    pub handshake_timeout: Duration,
}

/// More would wait for the one thread that speaks HTTP.
const WRITE_THREADS_MAX: usize = 4;

/// Each waits for a disk most of the time.
const THREADS_MAX: usize = 32;

/// What the machine has, as far as is known.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 512,
            give_way_after: Duration::from_secs(1),
            header_bytes_max: 128 << 10,
            headers_max: 256,
            body_bytes_max: 512 << 20,
            bodies_bytes_max: 256 << 20,
            body_idle_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(600),
            json_body_bytes_max: 8 << 20,
            batch_operations_max: 10_000,
            transactions_max: 256,
            transaction_lease_max: Duration::from_secs(3600),
            transaction_bytes_max: 16 << 20,
            documents_bytes_max: 16 << 20,
            listeners_max: 64,
            space_time_max: Duration::from_secs(60),
            series_time_max: Duration::from_secs(60),
            iterations_max: 256,
            iterations_entries_max: 2_000_000,
            page_entries_max: 1_000,
            regex_bytes_max: 1 << 10,
            threads_max: THREADS_MAX,
            write_threads: processors().min(WRITE_THREADS_MAX),
            small_body_bytes: 1 << 20,
            large_writes_max: 4,
            queries_max: (2 * processors()).min(THREADS_MAX / 2),
            queries_waiting_max: 256,
            header_timeout: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(10),
            take_wait_max: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// Questions about points that are answered at a time: they take at most half of the threads that ask the store, so that objects,
    /// entries and large writes never wait for them.
    pub(crate) fn queries(&self) -> usize {
        self.queries_max.min(self.threads_max / 2).max(1)
    }

    /// Bounds so small that tests reach every one of them in milliseconds.
    pub fn tiny() -> Self {
        Limits {
            connections_max: 3,
            give_way_after: Duration::from_secs(20),
            header_bytes_max: 8 << 10,
            headers_max: 16,
            body_bytes_max: 16,
            bodies_bytes_max: 4 << 10,
            body_idle_timeout: Duration::from_millis(200),
            body_timeout: Duration::from_secs(2),
            json_body_bytes_max: 1 << 10,
            batch_operations_max: 4,
            transactions_max: 2,
            transaction_lease_max: Duration::from_secs(5),
            transaction_bytes_max: 2 << 10,
            documents_bytes_max: 256,
            listeners_max: 1,
            space_time_max: Duration::from_secs(60),
            series_time_max: Duration::from_secs(60),
            iterations_max: 2,
            iterations_entries_max: 8,
            page_entries_max: 2,
            regex_bytes_max: 32,
            threads_max: 4,
            write_threads: 1,
            small_body_bytes: 1 << 10,
            large_writes_max: 1,
            queries_max: 1,
            queries_waiting_max: 2,
            header_timeout: Duration::from_millis(200),
            answer_timeout: Duration::from_secs(10),
            take_wait_max: Duration::from_millis(200),
            stall_timeout: Duration::from_millis(200),
            handshake_timeout: Duration::from_millis(200),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With 16 processors they took all 32 threads, and everything else waited for them.
    #[test]
    fn questions_leave_half_of_the_threads_to_others() {
        let of = |threads_max, queries_max| Limits { threads_max, queries_max, ..Limits::default() }.queries();
        assert_eq!([of(32, 4), of(32, 16), of(32, 128), of(3, 8), of(1, 8), of(0, 0)], [4, 16, 16, 1, 1, 1]);
        assert!(Limits::default().queries_max <= THREADS_MAX / 2);
    }
}
