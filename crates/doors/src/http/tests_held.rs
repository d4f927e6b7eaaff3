//! A disk that is held up: what waits for it, and what must not.

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use base::{Around, AroundFiles, Handle};
use holdfast::series::Rows;
use tempfile::TempDir;

use super::tests_client::{Answer, Door};
use super::*;

/// What a test waits for comes within this, or the test fails.
const TIME_MAX: Duration = Duration::from_secs(60);

/// What is held up now, and how many wait for it.
#[derive(Default)]
struct State {
    syncs: bool,
    reads: bool,
    waiting: usize,
}

#[derive(Default)]
struct Gate(Mutex<State>, Condvar);

/// Lets everything through when a test ends, however it does: closing a store waits for its disk.
struct Opened(Arc<Gate>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.set(|state| *state = State { waiting: state.waiting, ..State::default() });
    }
}

impl Gate {
    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        self.1.notify_all();
    }

    fn pass(&self, is_held: impl Fn(&State) -> bool) {
        let mut state = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.waiting += 1;
        self.1.notify_all();
        let mut state = self.1.wait_while(state, |state| is_held(state)).unwrap();
        state.waiting -= 1;
    }

    /// Returns when so many wait.
    fn until_waiting(&self, count: usize) {
        let end = Instant::now() + TIME_MAX;
        let mut state = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        while state.waiting < count {
            assert!(Instant::now() < end, "{} of {count} wait", state.waiting);
            state = self.1.wait_timeout(state, Duration::from_secs(1)).unwrap().0;
        }
    }
}

impl Around for Gate {
    fn read_at(&self, handle: &Handle, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if handle.path.components().any(|part| part.as_os_str() == "series") {
            self.pass(|state| state.reads);
        }
        handle.file.read_at(buffer, offset)
    }

    fn sync(&self, handle: &Handle) -> io::Result<()> {
        self.pass(|state| state.syncs);
        handle.file.sync()
    }
}

fn store(gate: &Arc<Gate>, dir: &Path) -> holdfast::Store {
    // Wide, so that no write needs another segment, or a sealing, which the held disk would keep waiting.
    let limits = holdfast::Limits::default();
    let mut world = holdfast::World::real(dir, &limits);
    world.files = Arc::new(AroundFiles::new(world.files, Arc::clone(gate)));
    holdfast::Store::open_in(&world, dir, holdfast::Options { limits, partitions: 2, ..Default::default() }).unwrap()
}

/// A store whose disk can be held up, with a point of `cpu` sealed in it, and a door on it.
fn open(limits: Limits) -> (Arc<Gate>, Door, TempDir) {
    let (gate, folder) = (Arc::<Gate>::default(), TempDir::new().unwrap());
    let before = store(&gate, folder.path());
    let mut rows = Rows::new("default");
    let row = rows.row(b"cpu", |_| Ok(("cpu".to_owned(), Vec::new()))).unwrap();
    let slot = rows.field(row, 0, b"v", |_| Ok("v".to_owned())).unwrap();
    rows.push_float(slot, 1_000_000_000, 1.0);
    before.series().write(&mut rows).unwrap();
    // Closing seals.
    before.close().unwrap();
    let store = store(&gate, folder.path());
    let options = Options { limits, ..Options::new("127.0.0.1:0".parse().unwrap()) };
    (gate, Door::of(serve(store.clone(), options).unwrap(), store), folder)
}

fn post(door: &Door, path: &str, body: &str) -> Answer {
    door.send(&format!("POST {path}"), &[], Some(body.as_bytes()))
}

fn wide() -> Limits {
    Limits { answer_timeout: TIME_MAX, ..Limits::default() }
}

#[test]
fn a_put_that_is_not_durable_in_time_is_answered_as_opentsdb_does_it() {
    let (gate, door, _folder) = open(wide());
    assert_eq!(post(&door, "/api/put", "put m 1 1").status, 204);
    let _opened = Opened(Arc::clone(&gate));
    gate.set(|state| state.syncs = true);
    for (path, wanted) in [
        ("/api/put?sync&sync_timeout=20&summary", r#"{"success":0,"failed":0,"timeouts":1}"#),
        ("/api/put?sync&sync_timeout=20&details", r#"{"success":0,"failed":0,"timeouts":1,"errors":[]}"#),
        (
            "/api/put?sync&sync_timeout=20",
            r#"{"error":{"code":400,"details":"Please see the TSD logs or append \"details\" to the put request","message":"The put call has timedout with 0 successful writes, 0 failed writes and 1 timed out writes."}}"#,
        ),
    ] {
        let answer = post(&door, path, "put m 2 2");
        assert_eq!((answer.status, answer.text()), (400, wanted), "{path}");
    }
    // What needs no sync goes on meanwhile.
    assert_eq!(post(&door, "/api/put?durability=written&sync_timeout=60000", "put m 3 3").status, 204);
    assert_eq!(post(&door, "/write?durability=written", "m value=4i 4000000000").status, 204);
    let patient = std::thread::scope(|scope| {
        let patient = scope.spawn(|| post(&door, "/api/put?sync&sync_timeout=60000&summary", "put m 5 5"));
        gate.until_waiting(1);
        gate.set(|state| state.syncs = false);
        patient.join().unwrap()
    });
    assert_eq!((patient.status, patient.text()), (200, r#"{"success":1,"failed":0}"#));
    let wanted: Vec<String> = (1..=5).map(|at| format!("m{{}}value {at}000000000 {at}i")).collect();
    let there = super::ingest::tests::points(&door, "default");
    assert_eq!(there.get(1..).unwrap(), wanted, "late or not, they were written");
}

#[test]
fn heavy_questions_wait_for_each_other_and_no_write_waits_for_them() {
    let limits = Limits { queries_max: 1, queries_waiting_max: 2, ..wide() };
    let (gate, door, _folder) = open(limits);
    let _opened = Opened(Arc::clone(&gate));
    gate.set(|state| state.reads = true);
    let question = "/query?db=default&q=SELECT%20*%20FROM%20cpu";
    std::thread::scope(|scope| {
        let (answers, answered) = std::sync::mpsc::channel();
        for path in [question, question, "/api/query?start=0&m=sum:cpu", "/api/v1/query?query=cpu_v&time=2"] {
            let (door, answers) = (&door, answers.clone());
            scope.spawn(move || answers.send(door.get(path)).unwrap());
        }
        gate.until_waiting(1);
        // One is being answered, two wait, and there is no place for the fourth.
        let refused = answered.recv_timeout(TIME_MAX).unwrap();
        assert_eq!(refused.status, 503, "{}", refused.text());
        let kind = refused.header("content-type").unwrap_or_default();
        assert!(kind.starts_with("application/json"), "each language in its form: {kind}");
        assert!(refused.text().contains("too many queries at a time: 1 are being answered"), "{}", refused.text());
        for number in 1..=40 {
            let line = format!("mem,host=a v={number} {number}");
            assert_eq!(post(&door, "/write", &line).status, 204);
        }
        assert_eq!(door.get("/health").status, 200);
        gate.set(|state| state.reads = false);
        for _ in 0..3 {
            let answer = answered.recv_timeout(TIME_MAX).unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    });
    assert_eq!(door.get(question).status, 200);
}

#[test]
fn who_is_being_answered_keeps_its_place() {
    let limits = Limits { connections_max: 1, give_way_after: Duration::ZERO, ..wide() };
    let (gate, door, _folder) = open(limits);
    let _opened = Opened(Arc::clone(&gate));
    gate.set(|state| state.reads = true);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| door.get("/query?db=default&q=SELECT%20*%20FROM%20cpu"));
        gate.until_waiting(1);
        let request = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n";
        assert_eq!(door.say(request), "", "there is no place, and nobody to make room");
        gate.set(|state| state.reads = false);
        assert_eq!(asked.join().unwrap().status, 200);
    });
    // Its place is free as soon as its connection is gone, which is a moment after its answer.
    let end = Instant::now() + TIME_MAX;
    while door.say(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").is_empty() {
        assert!(Instant::now() < end, "nobody is let in any more");
    }
}
