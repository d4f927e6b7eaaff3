//! Groups keep their order whatever fails: workers that die with an entry in hand, leases of transactions that end, servers that are killed.
//!
//! Each worker takes the next entry of any group in a transaction, appends its number to its group's key in the same one, and commits. So the key holds
//! the numbers of the group's entries, each once and in the order of writing, or a group was taken from out of order.
//! `HOLDFAST_SEED` begins where a failed run began.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_tests::{Client, Launch, Random, Value, say};
use tempfile::TempDir;

const GROUPS: usize = 5;
const EACH: usize = 120;
const WORKERS: usize = 6;
const LIFE_MAX_MILLIS: usize = 200;
/// All has to be done by then.
const TIME_MAX: Duration = Duration::from_secs(120);

/// How often each kind of end befell a worker with an entry in hand.
#[derive(Debug, Default)]
struct Ends {
    committed: AtomicU64,
    vanished: AtomicU64,
    late: AtomicU64,
}

/// Takes entries one after the other until there is none, or the server is gone; true when there is none.
fn work(mut client: Client, server: std::net::SocketAddr, random: &mut Random, ends: &Ends) -> std::io::Result<bool> {
    loop {
        let may_hang = random.below(12) == 0;
        client.call(&["TX.BEGIN", "LEASE", if may_hang { "20" } else { "30000" }])?;
        let taken = client.call(&["SPACE.TAKE", "shop", "steps", "ANY", "BLOCK", "200"])?;
        let Value::Array(parts) = &taken else {
            // Another may have all that is left in hand.
            client.call(&["TX.ABORT"])?;
            let count = client.call(&["SPACE.COUNT", "shop", "steps", "ANY"])?;
            if count == Value::Integer(0) {
                return Ok(true);
            }
            continue;
        };
        let document = parts.first().and_then(Value::bytes).expect("an entry has a document");
        let json: serde_json::Value = serde_json::from_slice(document).expect("an entry is JSON");
        let (group, number) = (format!("done:{}", json["group"]), format!("{},", json["number"]));
        client.call(&["APPEND", &group, &number])?;
        if random.below(8) == 0 {
            // It dies: the connection closes in the midst of it.
            ends.vanished.fetch_add(1, Ordering::Relaxed);
            client = Client::connect(server)?;
            continue;
        }
        if may_hang {
            let until = Instant::now() + Duration::from_secs(20);
            // It hangs until others have what it had.
            while client.call(&["GET", "open"])?.error().is_none() && Instant::now() < until {}
        }
        let committed = client.call(&["TX.COMMIT"])?;
        match committed {
            Value::Integer(_) => ends.committed.fetch_add(1, Ordering::Relaxed),
            Value::Error(text) if may_hang && (text.starts_with("TIMEOUT") || text.starts_with("EXECABORT")) => {
                ends.late.fetch_add(1, Ordering::Relaxed)
            }
            other => panic!("a commit of {group} {number} answers {other:?}"),
        };
    }
}

#[test]
fn groups_are_done_in_order_and_once_whoever_dies_or_hangs_with_an_entry_in_hand() {
    let seed = Random::seed();
    let mut random = Random::new(seed);
    say!("groups: HOLDFAST_SEED={seed}");
    let folder = TempDir::new().expect("a temporary folder");
    let (ends, deadline) = (Ends::default(), Instant::now() + TIME_MAX);
    let mut kills = 0;
    let mut workers: Vec<Random> = (0..WORKERS).map(|_| Random::new(random.number())).collect();
    let written: BTreeMap<String, String> = {
        let server = Launch::new(folder.path()).durability("written").start();
        let mut client = server.client();
        assert_eq!(client.say("SPACE.DECLARE shop steps GROUPS group"), Value::Simple("OK".to_owned()));
        let mut written = BTreeMap::new();
        for number in 0..GROUPS * EACH {
            let group = random.below(GROUPS);
            let document = format!(r#"{{"id":{},"group":{group},"number":{number}}}"#, random.number() >> 1);
            assert!(matches!(client.say(&format!("SPACE.WRITE shop steps {document} INSERT")), Value::Array(_)));
            written.entry(format!("done:{group}")).or_insert_with(String::new).push_str(&format!("{number},"));
        }
        server.kill();
        written
    };
    loop {
        let durability = ["synced", "written", "window:1ms,20ms"][random.below(3)];
        let server = Launch::new(folder.path()).durability(durability).start();
        let address = server.resp();
        let life = Duration::from_millis(random.below(LIFE_MAX_MILLIS) as u64);
        let is_done = thread::scope(|scope| {
            let works = workers.iter_mut().map(|random| {
                let (client, ends) = (server.client(), &ends);
                scope.spawn(move || work(client, address, random, ends))
            });
            let works: Vec<_> = works.collect();
            thread::sleep(life);
            server.kill();
            kills += 1;
            let outcomes = works.into_iter().map(|work| work.join().expect("a worker does not panic"));
            outcomes.fold(false, |is_done, outcome| is_done | outcome.unwrap_or(false))
        });
        if is_done {
            break;
        }
        assert!(Instant::now() < deadline, "not done in time: {ends:?}, {kills} kills");
    }
    let server = Launch::new(folder.path()).start();
    let mut client = server.client();
    for (group, numbers) in &written {
        let done = client.say(&format!("GET {group}"));
        assert_eq!(done.bytes().map(String::from_utf8_lossy).as_deref(), Some(numbers.as_str()), "{group}");
    }
    assert_eq!(client.say("SPACE.COUNT shop steps ANY"), Value::Integer(0));
    say!("groups: {ends:?}, {kills} kills");
    assert!(
        kills > 1 && ends.vanished.load(Ordering::Relaxed) > 0 && ends.late.load(Ordering::Relaxed) > 0,
        "{ends:?}"
    );
}
