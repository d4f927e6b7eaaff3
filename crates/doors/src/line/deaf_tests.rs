//! Clients that write and do not read what comes back: nothing of what they sent may be lost by that.

use super::*;

/// Waits until so many points were written.
fn wait_for(door: &Opened, points: u64) {
    let begin = Instant::now();
    while door.totals().written < points {
        assert!(begin.elapsed() < PATIENCE, "{:?}", door.totals());
        std::thread::yield_now();
    }
}

/// `cat file > /dev/tcp/...` with a bad line in it: the error line went out at once, the client closed with it in its socket, which
/// reset the connection, and its system threw away what it had not sent: of 20,000 lines 11,585 were stored.
#[test]
fn a_file_with_a_bad_line_is_taken_whole_from_a_client_that_closes_without_reading() {
    const LINES: u64 = 100_000;
    let door = open(|_| {});
    for round in 1..=5 {
        let mut client = door.connect();
        let good = |range: std::ops::Range<u64>| range.map(|at| format!("put cpu {at} 1 host=a\n")).collect::<String>();
        client.say(&format!("{}put cpu x 1\n{}", good(0..1000), good(1000..LINES)));
        drop(client);
        wait_for(&door, round * LINES);
    }
    assert_eq!((door.totals().written, door.totals().malformed), (5 * LINES, 5));
}

/// The answer to a question did not reach the client any more, and what lay behind the question was not read.
#[test]
fn lines_that_arrived_are_taken_when_answers_cannot_be_sent() {
    let door = open(|options| {
        options.limits = Limits { batch_points_max: 8, ..Limits::default() };
        options.delay = Duration::from_secs(60);
    });
    let mut client = door.connect();
    client.say("version\n");
    // It is there, and stays unread, so that closing resets the connection.
    client.socket.peek(&mut [0]).unwrap();
    let gate = door.fake.0.gate.lock().unwrap();
    client.say(&"put a 1 1\nversion\nput b x 1\n".repeat(800));
    drop(client);
    drop(gate);
    wait_for(&door, 800);
}

#[test]
fn a_client_that_pauses_is_told_soon_however_long_it_was_idle() {
    let door = open(|_| {});
    let mut client = door.connect();
    for pause_ms in [0, 200, 0] {
        let told = door.connect().line_after(Duration::from_millis(pause_ms), "put a x 1\n");
        assert!(told.1 < Duration::from_secs(2), "{told:?}");
        let told = client.line_after(Duration::from_millis(pause_ms), "put a x 1\n");
        assert!(told.0.starts_with("put: illegal argument") && told.1 < Duration::from_secs(2), "{told:?}");
    }
}

#[test]
fn a_client_that_never_pauses_is_told_when_it_asks_and_of_too_much_the_number() {
    let door = open(|options| {
        options.limits = Limits { complaint_delay: PATIENCE, output_bytes_max: 1 << 10, ..Limits::default() };
    });
    let mut client = door.connect();
    client.say("put a x 1\nput a 1 1\nversion\n");
    assert!(client.line().ends_with("(line 1: put a x 1)"));
    assert!(client.line().starts_with("holdfast "));
    client.say(&"put a x 1\n".repeat(100));
    client.say("checkpoint\n");
    let mut told = 0;
    let left_out = loop {
        match client.line() {
            line if line.starts_with("put: illegal argument") => told += 1,
            line => break line,
        }
    };
    assert_eq!(left_out, format!("error: {} more error lines were left out", 100 - told));
    assert!(told > 0);
    assert!(client.line().ends_with("lines 104 errors 101"));
    // The end is a good moment too.
    client.say("put a x 2\n");
    client.socket.shutdown(Shutdown::Write).unwrap();
    assert!(client.rest().ends_with("(line 105: put a x 2)\n"));
}

impl Client {
    /// Says something after a pause; what comes back, and after how long.
    fn line_after(&mut self, pause: Duration, text: &str) -> (String, Duration) {
        std::thread::park_timeout(pause);
        let begin = Instant::now();
        self.say(text);
        (self.line(), begin.elapsed())
    }
}
