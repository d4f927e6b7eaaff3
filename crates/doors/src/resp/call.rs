//! What a handler works with: the arguments, the connection, a view of the data, and why a command fails.
//!
//! Every command is written once, against [`View`]: outside EXEC a reading command looks without locks and a writing one
//! has an exclusive of its own; inside EXEC both work in the exclusive of the transaction, and between TX.BEGIN and TX.COMMIT
//! in a transaction of the store.
//!
//! May use: the facade, `session`, `door`, `reply`, `wire`. Must not know: sockets, the table's rows.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use holdfast::space::ReadLock;
use holdfast::{
    Durability, ErrorKind, Exclusive, Head, Object, Page, PageOut, Position, PutOptions, ScanCursor, Snapshot, Stats,
    Store, Transaction, UpTo,
};

use super::door::Door;
use super::effort::Use;
use super::number;
use super::reply::Reply;
use super::session::{Need, Pending, ReplyMode, Session};
use super::table::Command;
use super::wire::Args;
use super::work::{Turn, Work};
use crate::setting;

/// What a handler answers: it wrote its reply, or it fails and what it wrote is taken back.
pub(crate) type Answer = Result<(), Fail>;

/// Why a command fails.
#[derive(Debug)]
pub(crate) enum Fail {
    /// A text for the client, with its code in front. Nothing was changed.
    Text(Cow<'static, str>),
    /// The store refused. Inside EXEC this discards the transaction.
    Store(holdfast::Error),
    /// The reply has more bytes than this. Inside EXEC this discards the transaction.
    TooBig(usize),
    /// It is too much for where it runs. Nothing was changed, and it is begun again elsewhere, with room for a reply of so many bytes
    /// of values at least.
    Heavy { owed: u64 },
    /// It was found off the event loop, and is told when that is as durable as it has to be.
    Resting { fail: Box<Fail>, need: Need },
}

impl From<holdfast::Error> for Fail {
    fn from(error: holdfast::Error) -> Self {
        Fail::Store(error)
    }
}

impl From<&'static str> for Fail {
    fn from(text: &'static str) -> Self {
        Fail::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Fail {
    fn from(text: String) -> Self {
        Fail::Text(Cow::Owned(text))
    }
}

impl Fail {
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            Fail::Text(text) => Cow::Borrowed(text),
            Fail::Store(error) => Cow::Owned(store_error_text(error)),
            // Nobody is told: it is begun again.
            Fail::Heavy { .. } => Cow::Borrowed("ERR internal error: it is too much for where it runs"),
            Fail::TooBig(bytes_max) => Cow::Owned(format!("ERR the reply would exceed {bytes_max} bytes")),
            Fail::Resting { fail, .. } => fail.text(),
        }
    }

    /// What has to be how durable before it is told to who wants answers as durable as `asked`.
    pub(crate) fn need(&self, asked: Durability) -> Need {
        let mut need = Need::NOTHING;
        match self {
            Fail::Store(error) => error.rests_on().into_iter().for_each(|at| need.add(error.told_at(asked), at)),
            Fail::Resting { need: found, .. } => need = *found,
            Fail::Text(_) | Fail::TooBig(_) | Fail::Heavy { .. } => {}
        }
        need
    }

    /// The same from off the event loop, where nobody knows any more what its command asked for; it rests on that too.
    pub(crate) fn resting(self, asked: Durability, shown: Position) -> Self {
        let mut need = self.need(asked);
        need.add(asked, shown);
        if need == Need::NOTHING { self } else { Fail::Resting { fail: Box::new(self), need } }
    }
}

/// The error reply for an error of the store: the code says what the client does next.
pub(crate) fn store_error_text(error: &holdfast::Error) -> String {
    let code = match error.kind() {
        ErrorKind::Conflict => "CONFLICT",
        ErrorKind::Limit => "LIMIT",
        ErrorKind::Timeout => "TIMEOUT",
        ErrorKind::Unavailable | ErrorKind::Closed | ErrorKind::Unknown => "UNAVAILABLE",
        ErrorKind::Aborted => "ABORTED",
        ErrorKind::Corrupt => "CORRUPT",
        _ => "ERR",
    };
    format!("{code} {}", setting::told(error))
}

/// As Redis says it, and what it is called here.
pub(crate) const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len, which is limits.value_bytes_max of the server's configuration)";
pub(crate) const SYNTAX: &str = "ERR syntax error";
pub(crate) const NOT_INTEGER: &str = "ERR value is not an integer or out of range";

pub(crate) fn arity(name: &str) -> Fail {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// A view of the data: direct, in an exclusive, in an open transaction, or as it was.
pub(crate) enum View<'c, 's> {
    /// Without locks; `shown` is the newest position that anything read, or put, here depends on.
    Direct { store: &'s Store, shown: Position },
    /// Inside an exclusive, which sees its own staged writes; its commit knows the position.
    Exclusive(&'c mut Exclusive<'s>),
    /// Inside a transaction that TX.BEGIN has begun, which sees its own changes.
    Transaction { transaction: &'c mut Transaction, of: &'c Arc<u64>, isolation: ReadLock },
    /// As the option SNAPSHOT asks for; inside EXEC too, which neither sees nor changes it.
    Snapshot(Arc<Snapshot>),
}

/// The commands that get here do not have the option SNAPSHOT.
fn reads_no_snapshot<T>() -> Result<T, Fail> {
    Err("ERR internal error: this command reads no snapshots".into())
}

/// Runs the same call on each kind of view, and notes what the direct one showed.
macro_rules! on_view {
    ($view:expr, $kv:ident => $direct:expr, $exclusive:ident => $staged:expr, $transaction:ident => $within:expr) => {
        on_view!(
            $view, $kv => $direct, $exclusive => $staged, _snapshot => reads_no_snapshot(), $transaction => $within
        )
    };
    (
        $view:expr, $kv:ident => $direct:expr, $exclusive:ident => $staged:expr, $snapshot:ident => $was:expr,
        $transaction:ident => $within:expr
    ) => {
        match $view {
            View::Direct { store, shown } => {
                let $kv = store.kv();
                let answer = $direct?;
                *shown = (*shown).max(answer.position);
                Ok(answer.value)
            }
            View::Exclusive($exclusive) => Ok($staged?),
            View::Transaction { transaction: $transaction, .. } => Ok($within?),
            View::Snapshot($snapshot) => Ok($was?),
        }
    };
}

impl<'s> View<'_, 's> {
    pub(crate) fn direct(store: &'s Store) -> Self {
        View::Direct { store, shown: Position::ZERO }
    }

    fn get_up_to(&mut self, bucket: &[u8], key: &[u8], bytes_max: u64) -> Result<Option<UpTo>, Fail> {
        on_view!(self, kv => kv.peek_up_to(bucket, key, bytes_max), exclusive => exclusive.get_up_to(bucket, key, bytes_max),
            was => was.get_up_to(bucket, key, bytes_max), transaction => transaction.get_up_to(bucket, key, bytes_max))
    }

    pub(crate) fn head(&mut self, bucket: &[u8], key: &[u8]) -> Result<Option<Head>, Fail> {
        on_view!(self, kv => kv.peek_head(bucket, key), exclusive => exclusive.head(bucket, key),
            was => was.head(bucket, key), transaction => transaction.head(bucket, key))
    }

    pub(crate) fn count(&mut self, bucket: &[u8]) -> Result<u64, Fail> {
        on_view!(self, kv => kv.count(bucket), exclusive => exclusive.count(bucket),
            transaction => transaction.count_unwatched(bucket))
    }

    pub(crate) fn buckets(&mut self) -> Result<Vec<Vec<u8>>, Fail> {
        on_view!(self, kv => kv.buckets(), exclusive => exclusive.buckets(), transaction => transaction.buckets_unwatched())
    }

    pub(crate) fn page(&mut self, page: &Page<'_>) -> Result<PageOut, Fail> {
        on_view!(self, kv => kv.page(page), exclusive => exclusive.page(page), was => was.page(page),
            transaction => transaction.page_unwatched(page))
    }

    pub(crate) fn scan(
        &mut self,
        bucket: &[u8],
        cursor: Option<&ScanCursor>,
        limit: usize,
    ) -> Result<(Vec<Vec<u8>>, Option<ScanCursor>), Fail> {
        on_view!(self, kv => kv.scan(bucket, cursor, limit), exclusive => exclusive.scan(bucket, cursor, limit),
            transaction => transaction.scan_unwatched(bucket, cursor, limit))
    }

    pub(crate) fn random_key(&mut self, bucket: &[u8], random: u64) -> Result<Option<Vec<u8>>, Fail> {
        on_view!(self, kv => kv.random_key(bucket, random), exclusive => exclusive.random_key(bucket, random),
            transaction => transaction.random_key_unwatched(bucket, random))
    }

    /// The exclusive to write in. Rows with the flag WRITE always have one.
    pub(crate) fn exclusive(&mut self) -> Result<&mut Exclusive<'s>, Fail> {
        match self {
            View::Exclusive(exclusive) => Ok(exclusive),
            _ => Err("ERR internal error: a writing command without an exclusive".into()),
        }
    }
}

/// What is to be run off the event loop, and write its reply as `reply` would be.
pub(crate) fn work(
    door: &Door,
    session: &Session,
    reply: &Reply,
    run: impl FnOnce(&mut Reply) -> Result<Need, Fail> + Send + 'static,
) -> Work {
    let is_silent = session.reply_mode != ReplyMode::On;
    Work::new(reply.form(), door.options.limits.output_bytes_max, is_silent, run)
}

/// One run of one command.
pub(crate) struct Call<'c, 's> {
    pub(crate) door: &'s Door,
    pub(crate) session: &'c mut Session,
    pub(crate) command: &'static Command,
    pub(crate) args: Args<'c>,
    pub(crate) view: View<'c, 's>,
    pub(crate) reply: &'c mut Reply,
    /// Unix milliseconds, read once for everything that arrived together.
    pub(crate) now_ms: u64,
    /// How durable what this command shows must be; the connection's own unless an option says otherwise.
    pub(crate) durability: Durability,
    /// Whether this runs inside EXEC, or in a transaction that TX.BEGIN has begun: what it changes is changed by the commit.
    pub(crate) in_exec: bool,
}

impl<'c> Call<'c, '_> {
    /// The object at a key of the selected database, counted as a hit or a miss.
    pub(crate) fn get(&mut self, key: &[u8], to: Use) -> Result<Option<Object>, Fail> {
        let bucket = self.session.bucket;
        self.get_in(bucket.as_bytes(), key, to)
    }

    /// The same in any bucket.
    pub(crate) fn get_in(&mut self, bucket: &[u8], key: &[u8], to: Use) -> Result<Option<Object>, Fail> {
        let effort = &mut self.session.effort;
        let object = match self.view.get_up_to(bucket, key, effort.value_max(to))? {
            None => None,
            Some(UpTo::Object(object)) => {
                effort.add(object.head.value_bytes, to)?;
                Some(object)
            }
            Some(UpTo::Larger(head)) => {
                effort.add(head.value_bytes, to)?;
                return Err("ERR internal error: a value is too large that is not".into());
            }
        };
        self.session.counters.looked_up(object.is_some());
        Ok(object)
    }

    /// The head at a key of the selected database, counted as a hit or a miss.
    pub(crate) fn head(&mut self, key: &[u8]) -> Result<Option<Head>, Fail> {
        let bucket = self.session.bucket;
        let head = self.view.head(bucket.as_bytes(), key)?;
        self.session.counters.looked_up(head.is_some());
        Ok(head)
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], options: &PutOptions) -> Answer {
        let bucket = self.session.bucket;
        self.put_in(bucket.as_bytes(), key, value, options)
    }

    /// Stages a value. An expiry that has passed already deletes the key instead, as it would the next moment. Without an
    /// exclusive, which is the case of [`flag::BLIND`](super::table::flag), the value is put at once: write the reply before.
    pub(crate) fn put_in(&mut self, bucket: &[u8], key: &[u8], value: &[u8], options: &PutOptions) -> Answer {
        if value.len() > self.door.value_bytes_max() {
            return Err(TOO_LONG.into());
        }
        if let View::Direct { store, shown } = &mut self.view {
            // What is put here is not taken back: the reply has to be there, and to fit.
            if self.reply.take_overflow() {
                return Err(Fail::TooBig(self.door.options.limits.output_bytes_max));
            }
            let committed = store.kv().put_no_wait(bucket, key, value, options)?;
            *shown = (*shown).max(committed.position);
            return Ok(());
        }
        let expired = options.expires_ms.is_some_and(|at| at <= self.now_ms) && !options.keep_expiry;
        if expired && matches!(options.condition, holdfast::Condition::None) {
            return self.delete_in(bucket, key).map(|_| ());
        }
        match &mut self.view {
            View::Transaction { transaction, .. } => transaction.put(bucket, key, value, options)?,
            view => view.exclusive()?.put(bucket, key, value, options)?,
        }
        Ok(())
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<bool, Fail> {
        let bucket = self.session.bucket;
        self.delete_in(bucket.as_bytes(), key)
    }

    pub(crate) fn delete_in(&mut self, bucket: &[u8], key: &[u8]) -> Result<bool, Fail> {
        Ok(match &mut self.view {
            View::Transaction { transaction, .. } => transaction.delete(bucket, key)?,
            view => view.exclusive()?.delete(bucket, key)?,
        })
    }

    pub(crate) fn set_expiry(&mut self, key: &[u8], expires_ms: Option<u64>) -> Result<bool, Fail> {
        let bucket = self.session.bucket;
        Ok(match &mut self.view {
            View::Transaction { transaction, .. } => transaction.expire(bucket.as_bytes(), key, expires_ms)?,
            view => view.exclusive()?.expire(bucket.as_bytes(), key, expires_ms)?,
        })
    }

    pub(crate) fn clear(&mut self, bucket: &[u8]) -> Answer {
        Ok(self.view.exclusive()?.clear(bucket)?)
    }

    /// The argument at `index` as an integer.
    pub(crate) fn integer(&self, index: usize) -> Result<i64, Fail> {
        number::parse_i64(self.args.at(index)).ok_or_else(|| NOT_INTEGER.into())
    }

    /// The store's numbers. Taking them takes locks, which EXEC holds: there they are from just before.
    pub(crate) fn stats(&self) -> Stats {
        match &self.session.numbers {
            Some(numbers) if self.in_exec => numbers.clone(),
            _ => self.door.store.stats(),
        }
    }

    /// The snapshot of this connection with the number that the argument says.
    pub(crate) fn snapshot(&self, id: &[u8]) -> Result<Arc<Snapshot>, Fail> {
        let snapshot =
            number::parse_u64(id).and_then(|id| self.door.snapshots().get(self.session.client.id, id, Instant::now()));
        snapshot.ok_or_else(|| {
            "ERR no such snapshot: it is closed, its time is over, or another connection opened it".into()
        })
    }

    /// Has the rest of the command run off the event loop; it writes the reply there.
    pub(crate) fn defer(&mut self, run: impl FnOnce(&mut Reply) -> Result<Need, Fail> + Send + 'static) {
        let asked = self.durability;
        let run = move |reply: &mut Reply| run(reply).map_err(|fail| fail.resting(asked, Position::ZERO));
        self.session.pending = Some(Pending::Work(work(self.door, self.session, self.reply, run)));
    }

    /// As [`Call::defer`], for what changes nothing and may have a large reply: it may be done again.
    pub(crate) fn defer_reading(&mut self, run: impl FnMut(&mut Reply) -> Result<Need, Fail> + Send + 'static) {
        let is_silent = self.session.reply_mode != ReplyMode::On;
        let bytes_max = self.door.options.limits.output_bytes_max;
        self.session.pending = Some(Pending::Work(Work::again(self.reply.form(), bytes_max, is_silent, run)));
    }

    /// As [`Call::defer`], for a write of points that is held back.
    pub(crate) fn hold_back(&mut self, run: impl FnOnce(&mut Reply) -> Result<Need, Fail> + Send + 'static) {
        self.session.pending = Some(Pending::Work(work(self.door, self.session, self.reply, run).of(Turn::HeldWrite)));
    }

    /// As [`Call::defer`], for what waits until a transaction lets go of an entry.
    pub(crate) fn defer_for_lock(&mut self, run: impl FnOnce(&mut Reply) -> Result<Need, Fail> + Send + 'static) {
        let asked = self.durability;
        let run = move |reply: &mut Reply| run(reply).map_err(|fail| fail.resting(asked, Position::ZERO));
        self.session.pending = Some(Pending::Work(work(self.door, self.session, self.reply, run).of(Turn::Lock)));
    }

    /// The arguments, free of the borrow of `self`.
    pub(crate) fn args(&self) -> Args<'c> {
        self.args
    }

    /// The error for a wrong number of arguments, where the table's arity says too little.
    pub(crate) fn wrong_arity(&self) -> Fail {
        arity(self.command.name)
    }

    /// The durability with this name, in any case.
    pub(crate) fn parse_durability(&self, name: &[u8]) -> Result<Durability, Fail> {
        if name.eq_ignore_ascii_case(b"synced") {
            Ok(Durability::Synced)
        } else if name.eq_ignore_ascii_case(b"window") {
            Ok(Durability::Window(self.door.options.window))
        } else if name.eq_ignore_ascii_case(b"written") {
            Ok(Durability::Written)
        } else {
            Err("ERR durability is one of synced, window, written".into())
        }
    }
}
