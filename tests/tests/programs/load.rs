//! One client that writes and reads until its server is gone, and knows what it may find afterwards.
//!
//! May use: `oracle`, the harness. Must not know: when the server dies.

use std::io;

use holdfast_tests::{Client, Random, Value};

use crate::oracle::{Oracle, State, brief};

const KEYS: usize = 48;
/// Keys of a client that are put once and then only read: what compaction has to carry along.
const COLD_KEYS: usize = 400;
const PIPELINE_MAX: usize = 12;
const VALUE_MAX: usize = 2_000;
const LARGE: usize = 150_000;

/// Two keys that only ever change together, by any client.
const PAIR: [&str; 2] = ["pair:left", "pair:right"];
/// A number that only grows, by any client.
const COUNTER: &str = "counter";

/// What one command of a pipeline must answer, and whose writes that answer acknowledges.
struct Expected {
    keys: Vec<String>,
    answer: Answer,
}

enum Answer {
    Exactly(Value),
    /// The counter: more than this client saw before.
    Growing,
    /// The shared pair: two values that are equal.
    Equal,
    /// What a request to compact answers, whether or not one is under way.
    Asked,
}

/// A client's memory, which survives its connections.
#[derive(Debug)]
pub(crate) struct Load {
    name: usize,
    random: Random,
    oracle: Oracle,
    counter_seen: i64,
    pub(crate) counter_sent: i64,
    pub(crate) acknowledged: u64,
}

impl Load {
    pub(crate) fn new(name: usize, random: Random) -> Self {
        Self { name, random, oracle: Oracle::default(), counter_seen: 0, counter_sent: 0, acknowledged: 0 }
    }

    /// Works until the connection ends. Anything else that goes wrong is a failure, returned as text.
    pub(crate) fn run(&mut self, client: &mut Client) -> Result<(), String> {
        loop {
            let mut expected = Vec::new();
            for _ in 0..=self.random.below(PIPELINE_MAX) {
                self.add_one(client, &mut expected);
            }
            if client.flush().is_err() {
                return Ok(());
            }
            for one in expected {
                match client.answer() {
                    Ok(answer) => self.take(one, answer)?,
                    Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::WouldBlock) => {
                        return Err(format!("client {}: {error}", self.name));
                    }
                    Err(_) => return Ok(()),
                }
            }
        }
    }

    /// Adds one operation, of one command or several, to the pipeline.
    fn add_one(&mut self, client: &mut Client, expected: &mut Vec<Expected>) {
        let key = format!("client:{}:{}", self.name, self.random.below(KEYS));
        let latest = self.oracle.latest(&key);
        let mut write = |oracle: &mut Oracle, words: &[&[u8]], state: State, answer: Value| {
            client.add(words);
            oracle.send(&key, state);
            expected.push(Expected { keys: vec![key.clone()], answer: Answer::Exactly(answer) });
        };
        let name = key.clone();
        let name = name.as_bytes();
        match self.random.below(100) {
            0..26 => {
                let value = self.value();
                write(&mut self.oracle, &[b"SET", name, &value], Some(value.clone()), Value::Simple("OK".into()));
            }
            26..30 => self.add_cold(client, expected),
            30..40 => {
                let existed = i64::from(latest.is_some());
                write(&mut self.oracle, &[b"DEL", name], None, Value::Integer(existed));
            }
            40..50 => {
                let mut whole = latest.unwrap_or_default();
                let value = self.value();
                if whole.len() > VALUE_MAX {
                    write(&mut self.oracle, &[b"SET", name, &value], Some(value.clone()), Value::Simple("OK".into()));
                } else {
                    whole.extend(&value);
                    let length = i64::try_from(whole.len()).expect("a short value");
                    write(&mut self.oracle, &[b"APPEND", name, &value], Some(whole), Value::Integer(length));
                }
            }
            50..60 => {
                let key = format!("client:{}:number", self.name);
                let latest = self.oracle.latest(&key).and_then(|text| String::from_utf8(text).ok()?.parse().ok());
                let next = latest.unwrap_or(0_i64) + 1;
                client.add(&["INCR", &key]);
                self.oracle.send(&key, Some(next.to_string().into_bytes()));
                expected.push(Expected { keys: vec![key], answer: Answer::Exactly(Value::Integer(next)) });
            }
            60..68 => {
                client.add(&["INCR", COUNTER]);
                self.counter_sent += 1;
                expected.push(Expected { keys: Vec::new(), answer: Answer::Growing });
            }
            68..78 => self.add_pair(client, expected),
            78 => {
                client.add(&["KV.COMPACT"]);
                expected.push(Expected { keys: Vec::new(), answer: Answer::Asked });
            }
            79..84 => {
                client.add(&["MGET", PAIR[0], PAIR[1]]);
                expected.push(Expected { keys: Vec::new(), answer: Answer::Equal });
            }
            _ => {
                client.add(&[b"GET", name]);
                let answer = latest.map_or(Value::Nil, Value::Bytes);
                expected.push(Expected { keys: Vec::new(), answer: Answer::Exactly(answer) });
            }
        }
    }

    /// Puts an object that is never changed again, or looks at it.
    fn add_cold(&mut self, client: &mut Client, expected: &mut Vec<Expected>) {
        let key = format!("client:{}:cold:{}", self.name, self.random.below(COLD_KEYS));
        if let Some(value) = self.oracle.latest(&key) {
            client.add(&["GET", &key]);
            expected.push(Expected { keys: Vec::new(), answer: Answer::Exactly(Value::Bytes(value)) });
            return;
        }
        let value = self.value();
        client.add(&[b"SET", key.as_bytes(), &value]);
        self.oracle.send(&key, Some(value));
        expected.push(Expected { keys: vec![key], answer: Answer::Exactly(Value::Simple("OK".into())) });
    }

    /// Changes this client's own pair or the shared one, in one transaction.
    fn add_pair(&mut self, client: &mut Client, expected: &mut Vec<Expected>) {
        let own = self.random.below(2) == 0;
        let keys = if own {
            ["left", "right"].map(|side| format!("client:{}:{side}", self.name))
        } else {
            PAIR.map(str::to_owned)
        };
        let value = self.value();
        client.add(&["MULTI"]);
        client.add(&[b"SET", keys[0].as_bytes(), &value]);
        client.add(&[b"SET", keys[1].as_bytes(), &value]);
        client.add(&["EXEC"]);
        for answer in ["OK", "QUEUED", "QUEUED"] {
            expected.push(Expected { keys: Vec::new(), answer: Answer::Exactly(Value::Simple(answer.into())) });
        }
        // Nobody else writes a client's own pair, so its contents are known exactly; of the shared one only that it is a pair.
        let known = if own { keys.to_vec() } else { Vec::new() };
        for key in &known {
            self.oracle.send(key, Some(value.clone()));
        }
        let both = vec![Value::Simple("OK".into()), Value::Simple("OK".into())];
        expected.push(Expected { keys: known, answer: Answer::Exactly(Value::Array(both)) });
    }

    fn take(&mut self, expected: Expected, answer: Value) -> Result<(), String> {
        let wrong = |what: String| Err(format!("client {}: {:?}: {what}", self.name, expected.keys));
        match &expected.answer {
            Answer::Exactly(wanted) if *wanted != answer => {
                return wrong(format!("answered {}, wanted {}", show(&answer), show(wanted)));
            }
            Answer::Growing => match answer {
                Value::Integer(number) if number > self.counter_seen => self.counter_seen = number,
                other => return wrong(format!("the counter answered {other:?} after {}", self.counter_seen)),
            },
            Answer::Equal => equal(&answer)?,
            Answer::Asked if !matches!(answer.bytes(), Some(b"started" | b"running")) => {
                return wrong(format!("asked to compact it answered {}", show(&answer)));
            }
            Answer::Asked => {}
            Answer::Exactly(_) => {}
        }
        for key in &expected.keys {
            self.oracle.acknowledge(key);
            self.acknowledged += 1;
        }
        Ok(())
    }

    /// After a restart: every key of this client is what it must be. Returns how many were looked at.
    pub(crate) fn verify(&mut self, client: &mut Client) -> Result<usize, String> {
        let keys = self.oracle.keys();
        for key in &keys {
            client.add(&["GET", key]);
        }
        client.flush().map_err(|error| format!("verify: {error}"))?;
        for key in &keys {
            let found = match client.answer().map_err(|error| format!("verify {key}: {error}"))? {
                Value::Nil => None,
                Value::Bytes(value) => Some(value),
                other => return Err(format!("client {}: GET {key} answers {}", self.name, show(&other))),
            };
            self.oracle.settle(key, found)?;
        }
        let [left, right] = ["left", "right"].map(|side| self.oracle.latest(&format!("client:{}:{side}", self.name)));
        if left != right {
            return Err(format!("client {}: one half of a transaction: {left:?} and {right:?}", self.name));
        }
        Ok(keys.len())
    }

    /// After a restart: the counter is no less than any client saw.
    pub(crate) fn counter_seen(&self) -> i64 {
        self.counter_seen
    }

    /// Mostly short, sometimes longer than anything that is kept inline, and never the same twice.
    fn value(&mut self) -> Vec<u8> {
        let length = match self.random.below(200) {
            0 => LARGE,
            1..20 => self.random.below(VALUE_MAX),
            _ => self.random.below(64),
        };
        let mut value = format!("{:016x}", self.random.number()).into_bytes();
        value.extend(self.random.bytes(length));
        value
    }
}

/// The number in the counter and whether the shared pair is whole.
pub(crate) fn shared(client: &mut Client) -> Result<i64, String> {
    let pair = client.call(&["MGET", PAIR[0], PAIR[1]]).map_err(|error| error.to_string())?;
    equal(&pair)?;
    match client.call(&["GET", COUNTER]).map_err(|error| error.to_string())? {
        Value::Nil => Ok(0),
        Value::Bytes(digits) => {
            String::from_utf8_lossy(&digits).parse().map_err(|_| format!("the counter holds {}", brief(&digits)))
        }
        other => Err(format!("the counter answers {other:?}")),
    }
}

fn equal(answer: &Value) -> Result<(), String> {
    match answer {
        Value::Array(pair) if pair.len() == 2 && pair[0] == pair[1] => Ok(()),
        other => Err(format!("the two keys of a transaction differ: {}", show(other))),
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::Bytes(bytes) => brief(bytes),
        Value::Array(items) => items.iter().map(show).collect::<Vec<_>>().join(", "),
        other => format!("{other:?}"),
    }
}
