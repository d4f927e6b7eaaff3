//! Work beside the data: functions by name, in the process or on a server, and scripts, which only servers run.
//!
//! A function of a program, [`holdfast::space::Space::register`], and one of a library on a server do the same for whoever calls
//! them. Scripts call commands, and commands are in the server's door: a store alone has nothing to run them by.
//!
//! May use: `call`, `remote`, `space`, the facade. Must not know: sockets, what scripts are made of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast::space::Value;
use holdfast::{Durability, Error, ErrorKind, Result};

use crate::call::Call;
use crate::client::Place;
use crate::remote::{Again, Remote, Reply, Words, strange};
use crate::space::Space;
use crate::words::durability_name;

/// The shortest and the longest pause before a function is called again that found something locked.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// A server's scripts, in Luau: from [`Client::scripts`](crate::Client::scripts). Each is all or nothing, as one batch.
///
/// What a script answers comes as a [`Value`]: texts as `String`, or as `Bytes` where they are no UTF-8, and documents as the JSON that scripts
/// have them in.
///
/// # Errors
/// Everything fails with `Invalid` over a store in the process, which runs functions of the program: [`Space::call`].
#[derive(Clone)]
pub struct Scripts {
    place: Place,
}

impl Scripts {
    pub(crate) fn new(place: Place) -> Self {
        Self { place }
    }

    /// Runs the text of a script. `keys` are its `KEYS`, of the bucket `db0`, which it then finds locked; `arguments` its `ARGV`.
    ///
    /// # Errors
    /// The script's, and then nothing has happened: an error reply's code is the kind, `Invalid` where it is none of the
    /// server's own, with the code in the text. `Timeout` at once when an entry that it needs is locked, also by another script: call
    /// again. `Unknown` when the connection broke before the answer came.
    pub fn eval(&self, script: &str, keys: &[&[u8]], arguments: &[&[u8]]) -> Call<Value> {
        self.run("EVAL", script, keys, arguments)
    }

    /// Has the server know a script, so that running it sends its hash and not its text.
    ///
    /// # Errors
    /// `Invalid` when it does not compile.
    pub fn prepare(&self, script: &str) -> Call<Script> {
        let Place::There(there) = &self.place else { return only_there() };
        if let Err(error) = there.check_bytes("script", script.len()) {
            return Call::done(Err(error));
        }
        let (scripts, text) = (self.clone(), script.to_owned());
        let words = Words::new("SCRIPT").and("LOAD").and(script);
        // Known twice it is the same.
        there.call_alone(&words, Again::May, Some(Duration::ZERO), |reply| {
            let sha = reply.text()?.into_owned();
            Ok(Script { scripts, text, sha })
        })
    }

    /// Runs a function of a library that was loaded, as [`Scripts::eval`] runs a script.
    ///
    /// # Errors
    /// As there; `Invalid` when there is no such function.
    pub fn call(&self, function: &str, keys: &[&[u8]], arguments: &[&[u8]]) -> Call<Value> {
        self.run("FCALL", function, keys, arguments)
    }

    /// Keeps a library of functions on the server, in the place of the one of that name if there is one; its name. Its text begins with
    /// `#!luau name=NAME`. The user must be an administrator.
    ///
    /// # Errors
    /// `Invalid` when the text is no library, or has a function of another one's.
    pub fn load(&self, library: &str) -> Call<String> {
        let Place::There(there) = &self.place else { return only_there() };
        if let Err(error) = there.check_bytes("library", library.len()) {
            return Call::done(Err(error));
        }
        let words = Words::new("FUNCTION").and("LOAD").and("REPLACE").and(library);
        // Loaded twice it is the same.
        there.call_alone(&words, Again::May, Some(Duration::ZERO), |reply| Ok(reply.text()?.into_owned()))
    }

    fn run(&self, command: &str, what: &str, keys: &[&[u8]], arguments: &[&[u8]]) -> Call<Value> {
        let Place::There(there) = &self.place else { return only_there() };
        there.call_alone(&words(command, what, keys, arguments), Again::MustNot, Some(Duration::ZERO), value)
    }
}

/// A script that the server was told: from [`Scripts::prepare`].
#[derive(Clone)]
pub struct Script {
    scripts: Scripts,
    text: String,
    sha: String,
}

impl Script {
    /// Runs it, as [`Scripts::eval`] does. A server that does not know it any more, since it was started again, is sent the text.
    ///
    /// # Errors
    /// As there.
    pub fn run(&self, keys: &[&[u8]], arguments: &[&[u8]]) -> Call<Value> {
        let known = self.scripts.run("EVALSHA", &self.sha, keys, arguments);
        // Made now, because the arguments are borrowed, and sent only if it is awaited.
        let unknown = self.scripts.run("EVAL", &self.text, keys, arguments);
        Call::running(async move {
            match known.await {
                // Nothing has happened then, also when the script said so itself.
                Err(error) if error.kind() == ErrorKind::Invalid && error.to_string().starts_with("NOSCRIPT") => {
                    unknown.await
                }
                answer => answer,
            }
        })
    }
}

/// What runs a script or a function.
pub(crate) fn words(command: &str, what: &str, keys: &[&[u8]], arguments: &[&[u8]]) -> Words {
    let mut words = Words::new(command).and(what).and(keys.len().to_string());
    keys.iter().chain(arguments).for_each(|word| words.add(word));
    words
}

pub(crate) fn only_there<T: Send + 'static>() -> Call<T> {
    let text = "scripts run in a server, beside its commands: over a store in the process register a function, and call it by \
                Space::call";
    Call::done(Err(Error::new(ErrorKind::Invalid, text)))
}

impl Space {
    /// Runs a function by name, all or nothing, and waits until what it changed is as durable as asked.
    ///
    /// Over a store in the process it is one that the program has registered, [`holdfast::space::Space::register`], and runs in the
    /// partition of the routing value: [`holdfast::space::Space::call`]. On a server it is one of a library, without `KEYS`; its `ARGV`
    /// are the name of the space, the routing value as JSON, as `ID` and `ROUTING` want it, and the arguments, each of a list by itself and
    /// none for null: texts and bytes as they are, all else as JSON.
    ///
    /// # Errors
    /// `Invalid` when there is no such function; those of the function, and then nothing has happened.
    pub fn call(&self, name: &str, routing: &Value, arguments: &Value, durability: Option<Durability>) -> Call<Value> {
        match &self.place {
            Place::Here(here) => {
                let space = here.store().space(self.name());
                let (name, routing, arguments) = (name.to_owned(), routing.clone(), arguments.clone());
                here.elsewhere(move || space.call(&name, &routing, &arguments, durability))
            }
            Place::There(there) => {
                let mut words = Words::new("FCALL").and(name).and("0").and(self.name()).and(routing.to_json());
                match arguments {
                    Value::Null => {}
                    Value::List(all) => all.iter().for_each(|one| words.add(argument(one))),
                    one => words.add(argument(one)),
                }
                let there = there.clone();
                Call::running(async move { in_turn(&there, &words, durability).await })
            }
        }
    }
}

/// A value as an argument of a script.
fn argument(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Bytes(bytes) => bytes.clone(),
        other => other.to_json().into_bytes(),
    }
}

/// Calls a function until nothing that it needs is locked by others, as it would wait for its turn in the process. A server fails
/// it at once, with nothing done.
async fn in_turn(there: &Remote, words: &Words, durability: Option<Durability>) -> Result<Value> {
    let (begin, mut pause) = (Instant::now(), PAUSE.0);
    loop {
        match ask(there, words.clone(), durability).await? {
            Err(locked) if begin.elapsed() >= there.timeout() => return Err(locked),
            Err(_) => there.sleep(pause).await,
            Ok(value) => return Ok(value),
        }
        pause = PAUSE.1.min(pause * 2);
    }
}

/// Asks, and has the answer as durable as that: scripts have no option for it, so it is said to a connection, which is not used again.
/// That something is locked is an answer.
fn ask(there: &Remote, words: Words, durability: Option<Durability>) -> Call<Result<Value>> {
    let answer = |reply: Reply| match &reply {
        Reply::Error(text) if text.starts_with("TIMEOUT ") => Ok(reply.good().and_then(value)),
        _ => value(reply).map(Ok),
    };
    let Some(durability) = durability else {
        return there.call_alone(&words, Again::MustNot, Some(Duration::ZERO), answer);
    };
    let of = there.clone();
    let said = Words::new("CLIENT").and("DURABILITY").and(durability_name(durability));
    there.hold(&said, |reply| reply.good().map(drop)).and_then(move |(held, ())| {
        of.call_held(&Arc::new(held), &[words], Again::MustNot, move |replies| {
            answer(replies.into_iter().next().unwrap_or(Reply::Null))
        })
    })
}

/// What a script answered.
pub(crate) fn value(reply: Reply) -> Result<Value> {
    Ok(match reply.good()? {
        Reply::Null => Value::Null,
        Reply::Bool(truth) => Value::Bool(truth),
        Reply::Integer(number) => Value::I64(number),
        Reply::Double(number) => Value::F64(number),
        Reply::Bytes(bytes) => {
            String::from_utf8(bytes).map_or_else(|error| Value::Bytes(error.into_bytes()), Value::String)
        }
        Reply::List(all) => Value::List(all.into_iter().map(value).collect::<Result<_>>()?),
        Reply::Map(pairs) => {
            let pair = |(name, of): (Reply, Reply)| Ok((name.text()?.into_owned(), value(of)?));
            Value::Map(pairs.into_iter().map(pair).collect::<Result<BTreeMap<_, _>>>()?)
        }
        other => return Err(strange(&other)),
    })
}
