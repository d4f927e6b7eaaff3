//! The state of one connection that commands see and change: database, user, transaction, durability.
//!
//! May use: the facade's positions, `clients`, `wire`, what FEED waits with. Must not know: sockets, handlers.

use std::sync::Arc;
use std::time::Duration;

use holdfast::series::Rows;
use holdfast::{Durability, Position, Stats, Transaction};

use super::call::Fail;
use super::clients::Client;
use super::commands::feed::Follow;
use super::commands::space::LastType;
use super::commands::space::listen::Listening;
use super::commands::space::wait::Wait;
use super::commands::xa::ConnectionOwner;
use super::counters::Counters;
use super::door::Door;
use super::effort::Effort;
use super::open::{Open, Waiting};
use super::script::{Deadline, Later};
use super::tracking::Tracked;
use super::wire::OwnedArgs;
use super::work::Work;
use crate::auth::User;
use crate::budget::Share;
use crate::ids;

/// Bytes that names of series may take which one connection remembers: those of a thousand or two, where there may be ten thousand
/// connections. One that writes to more has them looked up again.
const POINT_NAME_BYTES_MAX: usize = 1 << 20;

/// The name of a database's bucket, `db<n>`, on the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BucketName {
    bytes: [u8; 8],
    length: u8,
}

impl BucketName {
    pub(crate) fn of(database: u16) -> Self {
        let number = super::number::Decimal::of_u64(u64::from(database));
        let mut bytes = *b"db\0\0\0\0\0\0";
        // A u16 has five digits at most.
        for (slot, digit) in bytes.iter_mut().skip(2).zip(number.as_bytes()) {
            *slot = *digit;
        }
        BucketName { bytes, length: 2 + number.as_bytes().len() as u8 }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length as usize).unwrap_or_default()
    }
}

/// The newest positions that unsent replies show, by how durable they have to be before they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) synced: Position,
    pub(crate) window: Position,
    pub(crate) written: Position,
    /// The newest that was written off the event loop, for WAITAOF.
    pub(crate) own: Position,
}

impl Need {
    pub(crate) const NOTHING: Need =
        Need { synced: Position::ZERO, window: Position::ZERO, written: Position::ZERO, own: Position::ZERO };

    pub(crate) fn add(&mut self, durability: Durability, position: Position) {
        let slot = match durability {
            Durability::Synced => &mut self.synced,
            Durability::Window(_) => &mut self.window,
            _ => &mut self.written,
        };
        *slot = (*slot).max(position);
    }

    pub(crate) fn merge(&mut self, other: Need) {
        self.synced = self.synced.max(other.synced);
        self.window = self.window.max(other.window);
        self.written = self.written.max(other.written);
        self.own = self.own.max(other.own);
    }
}

/// Whether replies are sent: CLIENT REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    On,
    Off,
    /// Set by CLIENT REPLY SKIP: the next command is silent.
    SkipNext,
}

/// One queued command of a MULTI.
pub(crate) struct Queued {
    pub(crate) command: &'static super::table::Command,
    pub(crate) index: u16,
    pub(crate) args: OwnedArgs,
}

/// How much a transaction holds in memory before it commits.
#[derive(Default)]
pub(crate) struct Gathered {
    commands: usize,
    bytes: usize,
    /// Of values and documents besides.
    held_bytes: usize,
    /// Of the memory that all connections share.
    held: Share,
}

/// What is said of a transaction that reads, changes and locks more than this.
pub(crate) fn too_many(most: usize) -> String {
    format!("a transaction reads keys, changes and locks {most} keys and entries at the most")
}

impl Gathered {
    /// What one may hold beside the memory that all share.
    const FREE_BYTES: usize = 64 << 10;

    /// Makes room for one more command that holds so many bytes.
    ///
    /// # Errors
    /// When that is too much; then nothing has changed.
    pub(crate) fn add(&mut self, door: &Door, bytes: usize) -> Result<(), Fail> {
        let limits = &door.options.limits;
        let (commands, bytes) = (self.commands + 1, self.bytes + bytes);
        let (commands_max, bytes_max) = (limits.queue_commands_max, limits.queue_bytes_max);
        if commands > commands_max || bytes > bytes_max {
            let text = format!(
                "ERR the transaction has too many commands or bytes: {commands_max} commands and {bytes_max} bytes are the most, so do it \
                 in parts"
            );
            return Err(text.into());
        }
        let all = bytes + commands * size_of::<Queued>();
        if all > Self::FREE_BYTES && door.inputs.grow(&mut self.held, all).is_err() {
            let text = "ERR unfinished commands, queued ones and open transactions of all clients take all the memory that they may: try again later, or raise resp.input_bytes_max";
            return Err(text.into());
        }
        (self.commands, self.bytes) = (commands, bytes);
        Ok(())
    }

    /// Makes room for so many bytes more that a command holds.
    ///
    /// # Errors
    /// When that is too much.
    pub(crate) fn add_bytes(&mut self, door: &Door, bytes: u64) -> Result<(), Fail> {
        let commands = self.commands;
        self.add(door, usize::try_from(bytes).unwrap_or(usize::MAX / 2))?;
        self.commands = commands;
        Ok(())
    }

    /// Forgets a command that held so many bytes: it is begun again.
    pub(crate) fn take_back(&mut self, bytes: usize) {
        (self.commands, self.bytes) = (self.commands.saturating_sub(1), self.bytes.saturating_sub(bytes));
    }

    /// Gives back the memory: nothing is held any more.
    pub(crate) fn forget(&mut self) {
        *self = Gathered { commands: self.commands, ..Gathered::default() };
    }

    /// Bytes that it holds, of which it is known.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.held_bytes
    }

    /// How many commands there were.
    pub(crate) fn commands(&self) -> usize {
        self.commands
    }

    /// Makes room for what the transaction has come to hold besides, so many things and bytes.
    ///
    /// # Errors
    /// When that is too much.
    pub(crate) fn hold(&mut self, door: &Door, things: usize, bytes: u64) -> Result<(), Fail> {
        if things > door.options.limits.transaction_entries_max {
            let most = door.options.limits.transaction_entries_max;
            return Err(format!("LIMIT {}", too_many(most)).into());
        }
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes > door.options.limits.queue_bytes_max {
            return Err("LIMIT the transaction holds too many bytes".into());
        }
        self.held_bytes = bytes;
        let all = self.bytes();
        if all > Self::FREE_BYTES && door.inputs.grow(&mut self.held, all).is_err() {
            return Err("LIMIT open transactions and unfinished commands of all clients take all the memory that they may (resp.input_bytes_max)".into());
        }
        Ok(())
    }
}

/// A MULTI before its EXEC.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) commands: Vec<Queued>,
    /// The database that the last SELECT among them names.
    pub(crate) selected: Option<BucketName>,
    /// A command was refused: EXEC will refuse all.
    pub(crate) broken: bool,
    pub(crate) gathered: Gathered,
}

impl Queue {
    /// Forgets what was queued: EXEC will refuse it.
    pub(crate) fn give_up(&mut self) {
        self.broken = true;
        self.commands = Vec::new();
        self.gathered = Gathered::default();
    }
}

/// A watched key and its version when the watch began.
pub(crate) struct Watched {
    pub(crate) bucket: BucketName,
    pub(crate) key: Vec<u8>,
    pub(crate) version: Option<Position>,
}

/// What the connection has to wait for before it handles its next command.
pub(crate) enum Pending {
    /// A password is to be verified off the event loop; then the rest of HELLO, if it was one.
    Auth { name: Vec<u8>, password: Vec<u8>, hello: Option<Hello> },
    /// A backup is to be made in this folder, off the event loop.
    Backup { dir: std::path::PathBuf },
    /// A command is to be run off the event loop.
    Work(Work),
    /// An entry is waited for, or looked for off the event loop.
    Entry(Box<Wait>),
    /// SPACE.LISTEN: events are to be read off the event loop, when there are some.
    Listen(Box<Listening>),
    /// FEED: the next changes are to be read off the event loop, when there are some.
    Feed(Follow),
    /// A script is to be run off the event loop.
    Script(Box<Later>),
    /// A command of an open transaction is to wait off the event loop.
    Within(Box<Waiting>),
    /// The command is too much for the event loop, and is to be begun again off it; its reply will be of so many bytes at least.
    Heavy { owed: u64 },
    /// WAITAOF: until `position` is synced or the time is over. Answers [local, 0].
    Sync { position: Position, timeout: Option<Duration> },
}

/// The part of HELLO that happens after authentication.
pub(crate) struct Hello {
    pub(crate) protocol: Option<super::reply::Protocol>,
    pub(crate) name: Option<Vec<u8>>,
}

/// The state of one connection.
pub(crate) struct Session {
    pub(crate) client: Arc<Client>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) database: u16,
    pub(crate) bucket: BucketName,
    /// Who it is; nobody before authentication, and nobody when no users are configured.
    pub(crate) user: Option<Arc<User>>,
    pub(crate) durability: Durability,
    pub(crate) multi: Option<Queue>,
    pub(crate) watched: Vec<Watched>,
    /// Of the room for unfinished commands.
    pub(crate) held: Share,
    pub(crate) reply_mode: ReplyMode,
    pub(crate) need: Need,
    /// What the command under way has done, and may.
    pub(crate) effort: Effort,
    /// The store's numbers from just before the last EXEC locked it, if it was to show them.
    pub(crate) numbers: Option<Stats>,
    /// The type that its last command about entries named.
    pub(crate) last_type: LastType,
    /// What EXEC does in spaces, while it runs.
    pub(crate) joined: Option<Transaction>,
    /// What TX.BEGIN has begun.
    pub(crate) open: Option<Open>,
    /// Points of the transaction under way; and names of series that this connection has written to.
    pub(crate) points: Rows,
    /// How long the scripts of the transaction under way may go on, from the first of them on.
    pub(crate) deadline: Option<Deadline>,
    /// Whether it is that of a script.
    pub(crate) is_script: bool,
    /// The newest position this connection wrote: WAITAOF waits for it.
    pub(crate) last_write: Position,
    pub(crate) pending: Option<Pending>,
    /// No more commands are read; the connection closes when its replies are sent.
    pub(crate) closing: bool,
    /// Replies written since the connection took them last.
    pub(crate) replies: usize,
    pub(crate) random: u64,
    /// The owner that this connection is for XA.BEGIN.
    pub(crate) xa_owner: Option<ConnectionOwner>,
    /// Commits of distributed transactions since it was last looked whether they are a habit.
    pub(crate) commits: u8,
    /// What it hears of keys that change.
    pub(crate) tracked: Option<Tracked>,
}

impl Session {
    pub(crate) fn new(client: Arc<Client>, counters: Arc<Counters>, durability: Durability) -> Self {
        // Numbers that are made of it (TX.BEGIN's) are not to come again after a restart.
        let random = ids::fresh() | 1;
        Session {
            client,
            counters,
            database: 0,
            bucket: BucketName::of(0),
            user: None,
            durability,
            multi: None,
            watched: Vec::new(),
            held: Share::default(),
            reply_mode: ReplyMode::On,
            need: Need::NOTHING,
            effort: Effort::ANY,
            numbers: None,
            last_type: LastType::default(),
            joined: None,
            open: None,
            points: Rows::default(),
            deadline: None,
            is_script: false,
            last_write: Position::ZERO,
            pending: None,
            closing: false,
            replies: 0,
            random,
            xa_owner: None,
            commits: 0,
            tracked: None,
        }
    }

    /// Hears of keys that change from now on, or no more.
    pub(crate) fn track(&mut self, tracked: Option<Tracked>) {
        self.client.set_tracking(tracked.is_some());
        self.tracked = tracked;
    }

    /// A session for a script of the same client: what it selects ends with it. Points and what is done in spaces go over
    /// to it.
    pub(crate) fn for_script(&mut self) -> Self {
        let mut session = Session::new(self.client.clone(), self.counters.clone(), self.durability);
        (session.database, session.bucket) = (self.database, self.bucket);
        session.user.clone_from(&self.user);
        session.random = self.next_random();
        session.joined = self.joined.take();
        session.effort = self.effort.clone();
        session.points = std::mem::take(&mut self.points);
        session.tracked = self.tracked.as_ref().map(Tracked::lent);
        session
    }

    /// Takes back what [`Session::for_script`] gave away.
    pub(crate) fn end_script(&mut self, session: Session) {
        self.joined = session.joined;
        self.points = session.points;
        self.effort = session.effort;
        if session.database != self.database {
            self.client.set_database(self.database);
        }
    }

    /// Takes back points that were written, or nothing came of, for the names in them; these are forgotten when they take more memory
    /// than one of very many connections may keep.
    pub(crate) fn keep_points(&mut self, mut points: Rows) {
        points.clear();
        self.points = if points.name_bytes() > POINT_NAME_BYTES_MAX { Rows::default() } else { points };
    }

    /// Ends the open transaction, if there is one: rolled back, unless it was taken out to be committed.
    pub(crate) fn end_open(&mut self) {
        if self.open.take().is_some() {
            self.forget_points();
            self.client.set_transaction(-1, self.watched.len());
        }
    }

    /// Forgets the points of a transaction of which nothing came.
    pub(crate) fn forget_points(&mut self) {
        let points = std::mem::take(&mut self.points);
        self.keep_points(points);
    }

    pub(crate) fn select(&mut self, database: u16) {
        self.database = database;
        self.bucket = BucketName::of(database);
        self.client.set_database(database);
    }

    /// A number that is different each time; good enough to pick a key.
    pub(crate) fn next_random(&mut self) -> u64 {
        // xorshift64*: the quality of RANDOMKEY, not of secrets.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_names_are_the_decimal_number_behind_db() {
        assert_eq!(BucketName::of(0).as_bytes(), b"db0");
        assert_eq!(BucketName::of(15).as_bytes(), b"db15");
        assert_eq!(BucketName::of(u16::MAX).as_bytes(), b"db65535");
    }
}
