//! Listeners that go on over restarts of their server: one by a bookmark that it keeps, one by its name, whose bookmark the store keeps.
//!
//! Both are to hear the same: each event once and in order. What was in an answer that got lost is told again, for neither has heard it.
//!
//! May use: `lease_clients`, `lease_oracle`, the harness. Must not know: when the server dies.

use holdfast_tests::{Client, Value};

use crate::lease_clients::{Done, Shared, Stop, call, lock};
use crate::lease_oracle::Check;

/// The name of the one that the store knows.
const NAME: &str = "audit";
const COUNT: &str = "50";

/// Where an event stands: the position of its batch, and its place in that.
type Place = (u64, u64);

/// One event as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Event {
    kind: String,
    place: Place,
    now: Option<String>,
    before: Option<String>,
    why: Option<String>,
}

fn place(bookmark: &str) -> Check<Place> {
    let numbers = bookmark.split_once('.').and_then(|(at, within)| Some((at.parse().ok()?, within.parse().ok()?)));
    numbers.ok_or_else(|| format!("a bookmark is {bookmark}"))
}

impl Event {
    fn of(value: &Value) -> Check<Self> {
        let text = |value: &Value| value.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let Value::Array(parts) = value else { return Err(format!("an event is {value:?}")) };
        let [kind, bookmark, now, before, why] = parts.as_slice() else { return Err(format!("an event is {value:?}")) };
        let (Some(kind), Some(bookmark)) = (text(kind), text(bookmark)) else {
            return Err(format!("an event is {value:?}"));
        };
        Ok(Self { kind, place: place(&bookmark)?, now: text(now), before: text(before), why: text(why) })
    }
}

/// How a listener goes on.
#[derive(Debug)]
enum By {
    Bookmark,
    Name,
}

/// One listener, which outlives its connections.
#[derive(Debug)]
pub(crate) struct Listener {
    by: By,
    bookmark: String,
    /// Where the newest event that it heard stands.
    newest: Place,
    /// What it heard, for who compares; of the one by bookmark the oracle is told instead.
    heard: Vec<Event>,
}

impl Listener {
    /// Both, from now on, of a type to which nothing has happened.
    pub(crate) fn both(client: &mut Client) -> Done<[Self; 2]> {
        let Value::Array(reply) = call(client, &["SPACE.LISTEN", "shop", "jobs", "ANY", "NAME", NAME])? else {
            return Err(Stop::Wrong("a listener is told no bookmark".to_owned()));
        };
        let bookmark = reply.first().and_then(Value::bytes).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let bookmark = bookmark.ok_or_else(|| "a listener is told no bookmark".to_owned())?;
        let newest = place(&bookmark)?;
        Ok([By::Bookmark, By::Name].map(|by| Self { by, bookmark: bookmark.clone(), newest, heard: Vec::new() }))
    }

    /// Listens until the connection ends.
    pub(crate) fn listen_on(&mut self, client: &mut Client, oracle: &Shared) -> Done {
        loop {
            self.once(client, oracle, "5000")?;
        }
    }

    /// Hears all that has happened.
    pub(crate) fn catch_up(&mut self, client: &mut Client, oracle: &Shared) -> Done {
        while self.once(client, oracle, "0")? {}
        Ok(())
    }

    /// Asks once; whether there may be more.
    fn once(&mut self, client: &mut Client, oracle: &Shared, block: &str) -> Done<bool> {
        let mut words = vec!["SPACE.LISTEN", "shop", "jobs", "ANY", "COUNT", COUNT, "DETAILS"];
        match self.by {
            By::Bookmark => words.extend(["FROM", &self.bookmark]),
            By::Name => words.extend(["NAME", NAME, "ACK", &self.bookmark]),
        }
        if block != "0" {
            words.extend(["BLOCK", block]);
        }
        let reply = call(client, &words)?;
        let wrong = || Stop::Wrong(format!("a listener is answered {reply:?}"));
        let Value::Array(parts) = &reply else { return Err(wrong()) };
        let [bookmark, Value::Array(events), Value::Integer(more)] = parts.as_slice() else { return Err(wrong()) };
        for event in events {
            self.hear(Event::of(event)?, oracle)?;
        }
        self.bookmark = bookmark.bytes().map(|it| String::from_utf8_lossy(it).into_owned()).ok_or_else(wrong)?;
        Ok(*more == 1)
    }

    fn hear(&mut self, event: Event, oracle: &Shared) -> Check {
        if event.place <= self.newest {
            return Err(format!("{:?}: told {event:?} behind {:?}", self.by, self.newest));
        }
        self.newest = event.place;
        let why = match event.kind.as_str() {
            "taken" | "expired" => Some(event.kind.clone()),
            _ => None,
        };
        if event.why != why {
            return Err(format!("{event:?} has another reason"));
        }
        self.heard.push(event.clone());
        match self.by {
            By::Bookmark => lock(oracle).hear(&event.kind, event.before, event.now),
            By::Name => Ok(()),
        }
    }

    /// Both have caught up one after the other: the second has heard what the first has, in the same order, and what came since.
    pub(crate) fn compare([first, second]: &mut [Self; 2]) -> Check {
        let same = first.heard.iter().zip(&second.heard).take_while(|(one, other)| one == other).count();
        if same < first.heard.len() {
            return Err(format!(
                "told {:?} by bookmark, and {:?} by name",
                first.heard.get(same),
                second.heard.get(same)
            ));
        }
        first.heard.clear();
        second.heard.drain(..same);
        Ok(())
    }
}
