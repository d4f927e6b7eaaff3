//! A server of entries beside Redis: 800 operations a second, and as many as fifty connections send.
//!
//! Both servers run all the time and are asked in turn, so that at any moment one is busy. The client is this program, a thread
//! that waits for each answer, and for what is flat out redis-benchmark.
//!
//! May use: servers, clients, redis-benchmark. Must not know: how figures are shown.

use std::thread;
use std::time::{Duration, Instant};

use super::paced::paced;
use super::sheet::{Sheet, Times, record, times};
use super::{Kept, Line};
use crate::client::{Answer, Client};
use crate::figures::Bar;
use crate::process::Server;
use crate::report::Report;
use crate::resp::redis_benchmark::{Run, Test};
use crate::resp::{OURS, Pair, THEIRS, load_alike, load_space, measure_alike, measure_space, tell};
use crate::workload::{Failure, Result};

const SIDES: &[&str] = &[OURS, THEIRS];
/// At or below the other side.
const AT_MOST: Option<Bar> = Some(Bar::RatioBelow(1.0));
/// Entries and keys that are there.
const KEYS: u64 = 20_000;
/// A task that finds one entry, and one that finds one value.
const READS: [&str; 2] = [
    "return redis.call('SPACE.READ','bench','entry','ID','key:000000000007')[1] and 1",
    "return redis.call('GET','key:000000000007') and 1",
];

/// Both servers, with entries and keys.
pub(super) fn start(line: &Line, kept: Kept) -> Result<Pair> {
    let pair = match kept {
        Kept::Synced => Pair::synced(&line.programs, &line.common)?,
        Kept::Volatile | Kept::Written => Pair::written(&line.programs, &line.common)?,
    };
    let keys = KEYS.min(line.entries);
    Client::connect(pair.theirs.address)?.load(crate::client::Load { keys, value_bytes: line.payload })?;
    load_space(&pair, keys, line.payload)?;
    Ok(pair)
}

/// One connection, 800 operations a second: a write, and tasks.
pub(super) fn execute(line: &Line, pair: &Pair, repetition: u32, report: &mut Report) -> Result<()> {
    let value = "x".repeat(line.payload);
    let document = |number: u64| format!("{{\"id\":\"key:{:012}\",\"value\":\"{value}\"}}", number % KEYS);
    type Words<'a> = Box<dyn Fn(u64) -> Vec<String> + 'a>;
    let words = |words: &'static [&'static str]| -> Words<'_> {
        Box::new(move |_| words.iter().map(|word| (*word).to_owned()).collect())
    };
    let [our_read, their_read] = READS;
    let eval =
        |script: &'static str| -> Words<'_> { Box::new(move |_| ["EVAL", script, "0"].map(str::to_owned).to_vec()) };
    let write = |side: &str| -> Words<'_> {
        if side == OURS {
            Box::new(move |number| ["SPACE.WRITE", "bench", "entry", &document(number)].map(str::to_owned).to_vec())
        } else {
            let value = &value;
            Box::new(move |number| ["SET", &format!("key:{:012}", number % KEYS), value].map(str::to_owned).to_vec())
        }
    };
    const LIBRARY: &str = "#!lua name=bench\nredis.register_function('empty', function() return 1 end)";
    let pacer = format!("{:?}", line.pacer).to_lowercase();
    for (name, is_barred) in
        [("write", true), ("EVAL, empty", true), ("FCALL, empty", false), ("EVAL, reads one", false)]
    {
        let work = format!("remote, 800/s, {pacer}, {} B, {}", line.payload, pair.name);
        for (side, server) in pair.sides(repetition) {
            let words = match (name, side == OURS) {
                ("write", _) => write(side),
                ("EVAL, empty", _) => words(&["EVAL", "return 1", "0"]),
                ("FCALL, empty", _) => words(&["FCALL", "empty", "0"]),
                (_, true) => eval(our_read),
                (_, false) => eval(their_read),
            };
            let mut client = Client::connect(server.address)?;
            if name.starts_with("FCALL") {
                client.ask(&[b"FUNCTION", b"LOAD", b"REPLACE", LIBRARY.as_bytes()])?;
            }
            let latency = paced(line.pacer, line.time(), |number| {
                let words = words(number);
                let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
                let began = Instant::now();
                let answer = client.ask(&words)?;
                let took = began.elapsed();
                if answer == Answer::Nil {
                    return Err(Failure::from(format!("{side} answered nothing to {name}")));
                }
                Ok(took)
            })?;
            let bar = AT_MOST.filter(|_| is_barred);
            Sheet { report, work: &work, sides: SIDES }.latency(side, name, &latency.service, bar);
        }
    }
    Ok(())
}

/// Fifty connections, one command at a time and many in the pipe: write, read, take, and tasks.
pub(super) fn throughput(line: &Line, pair: &Pair, repetition: u32, report: &mut Report) -> Result<()> {
    for run in runs(line) {
        let pipeline = run.pipeline;
        measure_space(pair, run, repetition, report)?;
        let [our_read, their_read] = READS;
        for (name, ours, theirs) in [("EVAL, empty", "return 1", "return 1"), ("EVAL, reads one", our_read, their_read)]
        {
            let work = format!("{name} P={pipeline}, {}", pair.name);
            for (side, server) in pair.sides(repetition) {
                let script = if side == OURS { ours } else { theirs };
                let measured = run.command(&["EVAL", script, "0"].map(str::to_owned), server.address)?;
                tell(report, &work, side, measured);
            }
        }
    }
    Ok(())
}

/// One command at a time, and many in the pipe.
fn runs(line: &Line) -> [Run; 2] {
    [(1, line.requests), (16, line.requests * 3)].map(|(pipeline, requests)| Run {
        test: Test::Set,
        requests,
        pipeline,
        clients: line.clients,
        keys: KEYS.min(line.entries),
        value_bytes: line.payload,
    })
}

/// As many connections: objects by their fields, in an order, and many at once.
pub(super) fn alike(line: &Line, pair: &Pair, repetition: u32, report: &mut Report) -> Result<()> {
    load_alike(pair, KEYS.min(line.entries), line.payload)?;
    runs(line).into_iter().try_for_each(|run| measure_alike(pair, run, repetition, report))
}

/// What tells of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Events of a type of entries: resumable, in order, none lost.
    Listen,
    /// Messages to whoever is there.
    PubSub,
    /// Entries of a stream of Redis.
    Stream,
}

/// From before the write on one connection to the event on another, 800 a second.
pub(super) fn notify(line: &Line, pair: &Pair, repetition: u32, report: &mut Report) -> Result<()> {
    let work = format!("remote notification, 800/s, {}", pair.name);
    let mut ways = [(Way::Listen, "holdfast"), (Way::PubSub, "redis pub/sub"), (Way::Stream, "redis stream")];
    if repetition % 2 == 1 {
        ways.reverse();
    }
    for (way, side) in ways {
        let server = if way == Way::Listen { &pair.ours } else { &pair.theirs };
        let latency = from_write_to_event(line, server, way)?;
        let sides = &["holdfast", "redis pub/sub", "redis stream"];
        Sheet { report, work: &work, sides }.latency(side, "event", &latency, AT_MOST);
    }
    Ok(())
}

fn from_write_to_event(line: &Line, server: &Server, way: Way) -> Result<Times> {
    let mut writer = Client::connect(server.address)?;
    let hearer = Hearer::begin(Client::connect(server.address)?, way)?;
    let count = (line.time().as_secs_f64() * 800.0) as u64 + 1;
    thread::scope(|scope| {
        let hearing = scope.spawn(move || hearer.hear(count));
        let mut began = Vec::new();
        let value = "x".repeat(100);
        // One past the end, so that as many begin as are waited for whatever rounding does.
        paced(line.pacer, line.time() + Duration::from_millis(2), |number| {
            if number >= count {
                return Ok(Duration::ZERO);
            }
            let id = number.to_string();
            let document = format!("{{\"id\":{id},\"value\":\"{value}\"}}");
            let words: &[&[u8]] = match way {
                Way::Listen => &[b"SPACE.WRITE", b"bench", b"told", document.as_bytes()],
                Way::PubSub => &[b"PUBLISH", b"told", document.as_bytes()],
                Way::Stream => &[b"XADD", b"told", b"*", b"id", id.as_bytes(), b"value", value.as_bytes()],
            };
            began.push(Instant::now());
            writer.ask(words)?;
            Ok(Duration::ZERO)
        })?;
        let heard = hearing.join().map_err(|_| Failure::from("the listener panicked"))??;
        if heard.len() != began.len() {
            return Err(Failure::from(format!("{} events of {}", heard.len(), began.len())));
        }
        let mut latency = times();
        for (number, (came, began)) in heard.into_iter().zip(began).enumerate() {
            if came.0 != number.to_string() {
                return Err(Failure::from(format!("event {number} was of {}", came.0)));
            }
            record(&mut latency, came.1.saturating_duration_since(began));
        }
        Ok(latency)
    })
}

/// A connection that hears.
struct Hearer {
    client: Client,
    way: Way,
    from: String,
}

impl Hearer {
    fn begin(mut client: Client, way: Way) -> Result<Self> {
        let mut from = String::from("$");
        match way {
            Way::Listen => {
                client.ask(&[b"SPACE.DROP", b"bench", b"told"])?;
                client.ask(&[b"SPACE.DECLARE", b"bench", b"told"])?;
                let answer = client.ask(&[b"SPACE.LISTEN", b"bench", b"told", b"ANY"])?;
                from = bookmark(&answer)?;
            }
            Way::PubSub => drop(client.ask(&[b"SUBSCRIBE", b"told"])?),
            Way::Stream => {
                client.ask(&[b"DEL", b"told"])?;
                from = "0".to_owned();
            }
        }
        Ok(Self { client, way, from })
    }

    /// What each event was of and when it came.
    fn hear(mut self, count: u64) -> Result<Vec<(String, Instant)>> {
        let mut heard = Vec::new();
        while (heard.len() as u64) < count {
            let came = self.some()?;
            let now = Instant::now();
            heard.extend(came.into_iter().map(|id| (id, now)));
        }
        Ok(heard)
    }

    fn some(&mut self) -> Result<Vec<String>> {
        let odd = |answer: &Answer| Failure::from(format!("not an event: {answer:?}"));
        match self.way {
            Way::Listen => {
                let from = self.from.clone();
                let answer = self.client.ask(&[
                    b"SPACE.LISTEN",
                    b"bench",
                    b"told",
                    b"ANY",
                    b"FROM",
                    from.as_bytes(),
                    b"HEARS",
                    b"written",
                    b"BLOCK",
                    b"10000",
                ])?;
                self.from = bookmark(&answer)?;
                let Some(Answer::Many(events)) = answer.part(1) else { return Err(odd(&answer)) };
                events.iter().map(|event| id_of(event.part(2)).ok_or_else(|| odd(event))).collect()
            }
            Way::PubSub => {
                let message = self.client.answer()?;
                Ok(vec![id_of(message.part(2)).ok_or_else(|| odd(&message))?])
            }
            Way::Stream => {
                let from = self.from.clone();
                let words: [&[u8]; 6] = [b"XREAD", b"BLOCK", b"10000", b"STREAMS", b"told", from.as_bytes()];
                let answer = self.client.ask(&words)?;
                let entries = answer.part(0).and_then(|stream| stream.part(1));
                let Some(Answer::Many(entries)) = entries else { return Err(odd(&answer)) };
                let mut ids = Vec::new();
                for entry in entries {
                    let text = |at| entry.part(at).and_then(Answer::text);
                    self.from = text(0).ok_or_else(|| odd(entry))?.to_owned();
                    let id = entry.part(1).and_then(|fields| fields.part(1)).and_then(Answer::text);
                    ids.push(id.ok_or_else(|| odd(entry))?.to_owned());
                }
                Ok(ids)
            }
        }
    }
}

fn bookmark(answer: &Answer) -> Result<String> {
    let text = answer.part(0).and_then(Answer::text);
    Ok(text.ok_or_else(|| Failure::from(format!("no bookmark: {answer:?}")))?.to_owned())
}

/// The integer id in a document's JSON.
fn id_of(document: Option<&Answer>) -> Option<String> {
    let document: serde_json::Value = serde_json::from_str(document?.text()?).ok()?;
    Some(document.get("id")?.as_u64()?.to_string())
}
