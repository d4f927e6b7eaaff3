//! What a script reaches of the door: commands, run as inside EXEC, with the user's rights.
//!
//! May use: `handle`, `table`, `value`, the crate `script`. Must not know: locks, who commits.

use std::borrow::Cow;
use std::sync::Arc;

use holdfast::space::ReadLock;
use holdfast::{Durability, Exclusive, Transaction};
use script::{Host, Value};

use super::value::read;
use crate::resp::call::{Fail, View};
use crate::resp::counters::add;
use crate::resp::door::Door;
use crate::resp::handle::{admit, keys_of, run_in, unknown_subcommand};
use crate::resp::open::{Way, way};
use crate::resp::reply::{Protocol, Reply};
use crate::resp::session::{Session, too_many};
use crate::resp::table::{BucketOf, Command, Found, find, flag};
use crate::resp::unsupported;
use crate::resp::wire::{Args, OwnedArgs};

/// What a command may not be that a script calls.
const REFUSED: u32 = flag::NOSCRIPT | flag::NO_MULTI | flag::IMMEDIATE | flag::NUMBERS | flag::SCRIPT;

/// The keys that are locked.
#[derive(Clone, Copy)]
pub(super) enum Held<'a> {
    All,
    /// These, of the database that was selected.
    Keys(&'a [(&'a [u8], &'a [u8])]),
}

/// Where the commands of a script happen.
pub(super) enum Ground<'r, 's> {
    Exclusive(&'r mut Exclusive<'s>),
    /// In a transaction that TX.BEGIN has begun.
    Open(Opened<'r>),
}

/// A transaction that TX.BEGIN has begun, its number, and how what is read is locked.
pub(super) struct Opened<'r> {
    pub(super) transaction: &'r mut Transaction,
    pub(super) of: &'r Arc<u64>,
    pub(super) isolation: ReadLock,
}

impl<'s> Ground<'_, 's> {
    fn view(&mut self) -> View<'_, 's> {
        match self {
            Self::Exclusive(exclusive) => View::Exclusive(exclusive),
            Self::Open(Opened { transaction, of, isolation }) => {
                View::Transaction { transaction, of, isolation: *isolation }
            }
        }
    }

    fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// How many keys and entries are read, changed or locked, as far as that is bounded; and the bytes of what is changed.
    fn held(&self) -> (usize, u64) {
        match self {
            Self::Exclusive(exclusive) => (0, exclusive.staged_bytes()),
            Self::Open(opened) => opened.transaction.held(),
        }
    }
}

/// One run of a script.
pub(super) struct Guest<'r, 's> {
    pub(super) door: &'s Door,
    pub(super) session: &'r mut Session,
    pub(super) ground: Ground<'r, 's>,
    pub(super) held: Held<'r>,
    /// Whether writing is refused.
    pub(super) is_reading: bool,
    pub(super) now_ms: u64,
    /// Where commands write.
    pub(super) reply: Reply,
    /// The most careful of what the commands ask for.
    pub(super) durability: Durability,
    /// A command was called: whatever the script ends with may show what it read.
    pub(super) called: bool,
    /// Something was changed.
    pub(super) wrote: bool,
    /// Why nothing of this may happen, whatever the script makes of it.
    pub(super) failed: Option<Fail>,
    /// It used a key that is not locked.
    pub(super) needs_all: bool,
    /// Bytes of arguments that are kept for the commit outside of the exclusive.
    pub(super) kept_bytes: u64,
    pub(super) lines: usize,
}

fn error(text: &str) -> Value {
    Value::Error(text.as_bytes().to_vec())
}

fn rank(durability: Durability) -> u8 {
    match durability {
        Durability::Synced => 2,
        Durability::Window(_) => 1,
        _ => 0,
    }
}

impl Guest<'_, '_> {
    fn is_held(&self, row: &Command, args: Args<'_>) -> bool {
        let Held::Keys(held) = self.held else { return true };
        if row.has(flag::WHOLE) {
            return false;
        }
        let mut named = Vec::new();
        keys_of(row, args, self.session.bucket, &mut named);
        let is_held = |bucket: &Cow<'_, [u8]>, key: &[u8]| held.iter().any(|(b, k)| *b == bucket.as_ref() && *k == key);
        named.iter().all(|(bucket, key)| is_held(bucket, key))
    }

    fn run(&mut self, args: Args<'_>) -> Result<(), Fail> {
        let (row, _) = match find(args) {
            Found::Row { row, index } => (row, index),
            Found::UnknownSubcommand { container } => return Err(unknown_subcommand(container, args)),
            Found::Unknown => return Err(unsupported::unknown_command(self.session, args)),
        };
        if row.has(REFUSED) {
            let name = row.name.replace('|', " ").to_uppercase();
            let why = if row.name.starts_with("xa.") {
                ": a script is one batch of this store; the client calls it, beside the other branches"
            } else {
                ""
            };
            return Err(format!("ERR {name} is not allowed in a script{why}").into());
        }
        if self.ground.is_open() && way(row) == Way::Refused {
            let name = row.name.replace('|', " ").to_uppercase();
            return Err(format!("ERR {name} is not possible within a transaction").into());
        }
        if self.is_reading && row.has(flag::WRITE) {
            return Err("ERR Write commands are not allowed from read-only scripts.".into());
        }
        admit(self.door, self.session, row, args)?;
        if !self.is_held(row, args) {
            self.needs_all = true;
            return Err(Fail::Store(holdfast::Error::new(
                holdfast::ErrorKind::Internal,
                "a script used a key that is not locked, and begins again",
            )));
        }
        add(&self.session.counters.commands, 1);
        self.called = true;
        if row.keys.bucket == BucketOf::Space && self.session.joined.is_none() && !self.ground.is_open() {
            self.session.joined = Some(self.door.store.begin().joining());
        }
        let view = self.ground.view();
        let durability = run_in(self.door, self.session, row, args, &mut self.reply, self.now_ms, true, view)?;
        self.wrote |= row.has(flag::WRITE);
        if rank(durability) > rank(self.durability) {
            self.durability = durability;
        }
        if self.session.pending.take().is_some() {
            let text = "a script waits for nothing, and this would have to";
            return Err(Fail::Store(holdfast::Error::new(holdfast::ErrorKind::Invalid, text)));
        }
        let (things, bytes) = self.ground.held();
        let things_max = self.door.options.limits.transaction_entries_max;
        if things > things_max {
            return Err(Fail::Store(holdfast::Error::new(holdfast::ErrorKind::Limit, too_many(things_max))));
        }
        if row.has(flag::WRITE) {
            // Of an open transaction entries are among what it holds.
            let is_apart = match row.keys.bucket {
                BucketOf::Series => true,
                BucketOf::Space => !self.ground.is_open(),
                _ => false,
            };
            if is_apart {
                self.kept_bytes += args.bytes_len() as u64;
            }
            let bytes_max = self.door.options.limits.queue_bytes_max as u64;
            if bytes + self.kept_bytes > bytes_max {
                let text = format!("a script changes more than {bytes_max} bytes");
                return Err(Fail::Store(holdfast::Error::new(holdfast::ErrorKind::Limit, text)));
            }
        }
        Ok(())
    }
}

impl Host for Guest<'_, '_> {
    fn call(&mut self, arguments: &[Vec<u8>]) -> Value {
        if let Some(fail) = &self.failed {
            return error(&fail.text());
        }
        let mut owned = OwnedArgs::default();
        arguments.iter().for_each(|argument| owned.push(argument));
        self.reply.truncate(0);
        let protocol = self.reply.protocol;
        let ran = self.run(owned.args());
        self.reply.protocol = protocol;
        match ran {
            Ok(()) => read(&self.reply).unwrap_or_else(|| error("ERR internal error: no reply")),
            Err(Fail::Text(text)) => {
                add(&self.session.counters.errors, 1);
                error(&text)
            }
            Err(Fail::TooBig(bytes_max)) => {
                self.reply.take_overflow();
                let fail = Fail::TooBig(bytes_max.min(self.door.options.script.memory_bytes_max));
                let value = error(&fail.text());
                self.failed = Some(fail);
                value
            }
            // As inside EXEC: it may have happened in part.
            Err(fail) => {
                let value = error(&fail.text());
                self.failed = Some(fail);
                value
            }
        }
    }

    fn set_protocol(&mut self, version: u8) {
        self.reply.protocol = if version == 3 { Protocol::Resp3 } else { Protocol::Resp2 };
    }

    fn log(&mut self, level: u8, text: &str) {
        self.lines += 1;
        if self.lines > self.door.options.limits.script_lines_max {
            return;
        }
        let client = self.session.client.address;
        match level {
            0 | 1 => tracing::debug!(%client, text, "a script says"),
            2 => tracing::info!(%client, text, "a script says"),
            _ => tracing::warn!(%client, text, "a script says"),
        }
    }
}
