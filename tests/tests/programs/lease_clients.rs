//! Clients that write, update, count, renew, cancel, read and take entries with leases until their server is gone.
//!
//! A client asks for one thing at a time, tells the oracle before it sends and when it is answered, and stops without an answer when
//! the connection ends. Any answer that nobody may get is a failure.
//!
//! May use: `lease_oracle`, the harness. Must not know: when the server dies.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast_tests::{Client, Random, Value};

use crate::lease_oracle::{Check, NEVER, Oracle, Sight, now_ms, number_of};

/// More entries are not written.
const ENTRIES_MAX: usize = 400;
/// Of its own entries a client goes on with so many, the newest.
const OWN_MAX: usize = 40;
const NUMBERS_EACH: u64 = 1_000_000_000;
const BLOCK_MAX_MILLIS: usize = 60;

/// What all clients of one type know.
pub(crate) type Shared = Mutex<Oracle>;

pub(crate) fn lock(oracle: &Shared) -> MutexGuard<'_, Oracle> {
    oracle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a client's work went on: its connection has ended, or something is wrong.
pub(crate) enum Stop {
    Lost,
    Wrong(String),
}

impl From<String> for Stop {
    fn from(what: String) -> Self {
        Self::Wrong(what)
    }
}

pub(crate) type Done<T = ()> = Result<T, Stop>;

/// Asks, and is answered or cut off.
pub(crate) fn call(client: &mut Client, words: &[&str]) -> Done<Value> {
    match client.call(words) {
        Ok(Value::Error(text)) if !text.contains("no entry with this id is there") => {
            Err(Stop::Wrong(format!("{words:?} answers {text}")))
        }
        Ok(answer) => Ok(answer),
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::WouldBlock) => {
            Err(Stop::Wrong(format!("{words:?}: {error}")))
        }
        Err(_) => Err(Stop::Lost),
    }
}

/// The entry in an answer, if there is one.
pub(crate) fn sight(answer: &Value) -> Check<Option<Sight>> {
    let Value::Array(parts) = answer else {
        return if *answer == Value::Nil { Ok(None) } else { Err(format!("an entry is {answer:?}")) };
    };
    let (Some(document), Some(expires)) = (parts.first().and_then(Value::bytes), parts.get(2)) else {
        return Err(format!("an entry is {answer:?}"));
    };
    let expires_ms = match expires {
        Value::Nil => NEVER,
        Value::Integer(at) => u64::try_from(*at).map_err(|_| format!("a lease ends at {at}"))?,
        other => return Err(format!("a lease ends at {other:?}")),
    };
    Ok(Some(Sight { document: String::from_utf8_lossy(document).into_owned(), expires_ms }))
}

/// All entries, by their numbers.
pub(crate) fn all(client: &mut Client) -> Done<BTreeMap<u64, Sight>> {
    let answer = call(client, &["SPACE.MREAD", "shop", "jobs", "ANY", "COUNT", "10000"])?;
    let Value::Array(items) = &answer else { return Err(Stop::Wrong(format!("all entries are {answer:?}"))) };
    let mut all = BTreeMap::new();
    for item in items {
        let shown = sight(item)?.ok_or_else(|| "an entry is null".to_owned())?;
        let number = number_of(&shown.document)?;
        if all.insert(number, shown).is_some() {
            return Err(Stop::Wrong(format!("entry {number} is there twice")));
        }
    }
    Ok(all)
}

/// Waits for entries and takes them.
pub(crate) fn take_on(client: &mut Client, oracle: &Shared, random: &mut Random) -> Done {
    loop {
        let block = random.below(BLOCK_MAX_MILLIS);
        let words = ["SPACE.TAKE", "shop", "jobs", "TEMPLATE", r#"{"who":"takers"}"#, "BLOCK", &block.to_string()];
        let asked = Instant::now();
        if take(client, oracle, &words)?.is_none()
            && (block == 0 || asked.elapsed() < Duration::from_millis(block as u64))
        {
            return Err(Stop::Wrong(format!("who waits {block} ms was answered nothing after {:?}", asked.elapsed())));
        }
    }
}

/// Takes one entry, if it gets one.
fn take(client: &mut Client, oracle: &Shared, words: &[&str]) -> Done<Option<()>> {
    let asked_ms = now_ms();
    let answer = match call(client, words) {
        Err(Stop::Lost) => {
            lock(oracle).lose_take();
            return Err(Stop::Lost);
        }
        answered => answered?,
    };
    let Some(shown) = sight(&answer)? else { return Ok(None) };
    lock(oracle).take(asked_ms, shown)?;
    Ok(Some(()))
}

/// A client that does everything else.
#[derive(Debug)]
pub(crate) struct Worker {
    random: Random,
    last: u64,
    own: Vec<u64>,
}

impl Worker {
    pub(crate) fn new(name: u64, random: Random) -> Self {
        Self { random, last: name * NUMBERS_EACH, own: Vec::new() }
    }

    /// Works until the connection ends.
    pub(crate) fn work_on(&mut self, client: &mut Client, oracle: &Shared) -> Done {
        loop {
            let own = (!self.own.is_empty()).then(|| self.own[self.random.below(self.own.len())]);
            let any = lock(oracle).any(&mut self.random);
            let is_full = lock(oracle).len() > ENTRIES_MAX;
            match (self.random.below(100), own, any) {
                (0..32, ..) if !is_full => self.write(client, oracle)?,
                (0..45, Some(own), _) => self.step(client, oracle, own)?,
                (45..58, Some(own), _) => self.renew(client, oracle, own)?,
                (58..63, Some(own), _) => self.give_lease(client, oracle, own, Some(1))?,
                (63..75, _, Some(any)) => count(client, oracle, any)?,
                (75..87, _, Some(any)) => read(client, oracle, any)?,
                (_, _, Some(any)) => take_one(client, oracle, any)?,
                _ => self.write(client, oracle)?,
            }
        }
    }

    /// Some end while they are worked with, some while the server is down, some never.
    fn lease(&mut self) -> Option<u64> {
        match self.random.below(4) {
            0 => Some(1 + self.random.below(30) as u64),
            1 => Some(50 + self.random.below(600) as u64),
            2 => Some(60_000),
            _ => None,
        }
    }

    fn write(&mut self, client: &mut Client, oracle: &Shared) -> Done {
        self.last += 1;
        let (number, lease) = (self.last, self.lease());
        let who = ["takers", "nobody"][self.random.below(2)];
        let document = format!(r#"{{"id":{number},"step":0,"count":0,"who":"{who}"}}"#);
        let sent_ms = lock(oracle).send_lease(number, lease);
        let mut words = vec!["SPACE.WRITE", "shop", "jobs", &document, "INSERT"];
        let millis = lease.unwrap_or_default().to_string();
        words.extend(["LEASE", if lease.is_some() { &millis } else { "FOREVER" }]);
        self.own.push(number);
        if self.own.len() > OWN_MAX {
            self.own.remove(0);
        }
        let answer = call(client, &words)?;
        if !matches!(&answer, Value::Array(parts) if parts.len() == 2) {
            return Err(Stop::Wrong(format!("{words:?} answers {answer:?}")));
        }
        Ok(lock(oracle).acknowledge_lease(number, lease, sent_ms)?)
    }

    /// Sets the step of an entry of its own, which nobody else does.
    fn step(&mut self, client: &mut Client, oracle: &Shared, number: u64) -> Done {
        let (known, step) = {
            let mut oracle = lock(oracle);
            let Ok(known) = oracle.ask(number) else {
                self.forget(number);
                return Ok(());
            };
            (known, oracle.send_step(number)?)
        };
        let document = format!(r#"{{"id":{number},"step":{step}}}"#);
        match call(client, &["SPACE.WRITE", "shop", "jobs", &document, "PARTIAL"])? {
            Value::Array(_) => lock(oracle).acknowledge_step(number, step)?,
            _ => {
                self.forget(number);
                lock(oracle).miss(known)?;
            }
        }
        Ok(())
    }

    fn renew(&mut self, client: &mut Client, oracle: &Shared, number: u64) -> Done {
        let lease = self.lease();
        self.give_lease(client, oracle, number, lease)
    }

    /// A lease of a millisecond cancels the one that there is.
    fn give_lease(&mut self, client: &mut Client, oracle: &Shared, number: u64, lease: Option<u64>) -> Done {
        let (known, sent_ms) = {
            let mut oracle = lock(oracle);
            let Ok(known) = oracle.ask(number) else {
                self.forget(number);
                return Ok(());
            };
            (known, oracle.send_lease(number, lease))
        };
        let millis = lease.unwrap_or_default().to_string();
        let millis = if lease.is_some() { millis.as_str() } else { "FOREVER" };
        match call(client, &["SPACE.RENEW", "shop", "jobs", &number.to_string(), "LEASE", millis])? {
            Value::Integer(1) => lock(oracle).acknowledge_lease(number, lease, sent_ms)?,
            Value::Integer(0) => {
                self.forget(number);
                lock(oracle).refuse_lease(known)?;
            }
            other => return Err(Stop::Wrong(format!("a renewal answers {other:?}"))),
        }
        Ok(())
    }

    fn forget(&mut self, number: u64) {
        self.own.retain(|other| *other != number);
    }
}

/// Adds one to the count of an entry of anybody.
fn count(client: &mut Client, oracle: &Shared, number: u64) -> Done {
    let known = {
        let mut oracle = lock(oracle);
        oracle.send_count(number)?;
        oracle.ask(number)?
    };
    let answer = call(client, &["SPACE.CHANGE", "shop", "jobs", &number.to_string(), "INCR", "count", "1"])?;
    let mut oracle = lock(oracle);
    match sight(&answer)? {
        Some(shown) => {
            oracle.acknowledge_count(number)?;
            oracle.show(known, &shown)?;
        }
        None => oracle.miss(known)?,
    }
    Ok(())
}

fn read(client: &mut Client, oracle: &Shared, number: u64) -> Done {
    let known = lock(oracle).ask(number)?;
    let answer = call(client, &["SPACE.READ", "shop", "jobs", "ID", &number.to_string()])?;
    let mut oracle = lock(oracle);
    match sight(&answer)? {
        Some(shown) => oracle.show(known, &shown)?,
        None => oracle.miss(known)?,
    }
    Ok(())
}

/// Takes an entry of anybody.
fn take_one(client: &mut Client, oracle: &Shared, number: u64) -> Done {
    let known = lock(oracle).ask(number)?;
    let words = ["SPACE.TAKE", "shop", "jobs", "ID", &number.to_string()];
    if take(client, oracle, &words)?.is_none() {
        lock(oracle).miss(known)?;
    }
    Ok(())
}
