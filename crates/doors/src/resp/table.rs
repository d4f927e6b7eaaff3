//! What a row of the command table is, and how a command is found. The rows themselves are in `rows.rs`.
//!
//! One row drives dispatch, arity errors, access rights, COMMAND and its subcommands, and the reference page.
//!
//! May use: `call` for the type of a handler, `wire`. Must not know: what commands do.

use std::sync::LazyLock;

use super::call::{Answer, Call};
use super::rows::COMMANDS;
use super::wire::Args;

/// A command's handler: writes one reply, or nothing and fails.
pub(crate) type Handler = fn(&mut Call<'_, '_>) -> Answer;

/// Flags of a row. Those that Redis has are named by COMMAND INFO; the others are for dispatch.
pub(crate) mod flag {
    /// May change data: runs in an exclusive of its keys and commits it.
    pub(crate) const WRITE: u32 = 1;
    /// Looks at data.
    pub(crate) const READONLY: u32 = 1 << 1;
    pub(crate) const DENYOOM: u32 = 1 << 2;
    /// Concerns the whole server: needs an administrator.
    pub(crate) const ADMIN: u32 = 1 << 3;
    pub(crate) const NOSCRIPT: u32 = 1 << 4;
    pub(crate) const LOADING: u32 = 1 << 5;
    pub(crate) const STALE: u32 = 1 << 6;
    pub(crate) const FAST: u32 = 1 << 7;
    /// Allowed before authentication.
    pub(crate) const NO_AUTH: u32 = 1 << 8;
    /// Refused inside MULTI.
    pub(crate) const NO_MULTI: u32 = 1 << 9;
    pub(crate) const ALLOW_BUSY: u32 = 1 << 10;
    pub(crate) const SKIP_MONITOR: u32 = 1 << 11;
    pub(crate) const SKIP_SLOWLOG: u32 = 1 << 12;
    pub(crate) const DANGEROUS: u32 = 1 << 13;
    /// Own: runs at once inside MULTI instead of being queued.
    pub(crate) const IMMEDIATE: u32 = 1 << 20;
    /// Own: looks at or changes more than named keys: inside MULTI and for writing it locks the whole store.
    pub(crate) const WHOLE: u32 = 1 << 21;
    /// Own: has subcommands, which are rows named `command|subcommand`.
    pub(crate) const CONTAINER: u32 = 1 << 22;
    /// Own: its arguments are secrets and are shown nowhere.
    pub(crate) const SECRET: u32 = 1 << 23;
    /// Own: empties buckets, which needs the right to administer them.
    pub(crate) const CLEARS: u32 = 1 << 24;
    /// Own: shows the store's numbers, for which EXEC takes them before it locks anything.
    pub(crate) const NUMBERS: u32 = 1 << 25;
    /// Own: runs a script, which may do whatever the user may.
    pub(crate) const SCRIPT: u32 = 1 << 26;
    /// Own: a call with as few arguments as there may be puts one key, whatever is there and without looking: it needs no
    /// exclusive.
    pub(crate) const BLIND: u32 = 1 << 27;
}

/// Where a command names its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BucketOf {
    /// Nowhere: the connection's selected database.
    Selected,
    /// Its first argument.
    First,
    /// The source is in the selected database, the destination in the one named by the option DB: COPY.
    Copy,
    /// Several, which the handler checks one by one.
    Each,
    /// No bucket: its first argument names a space, which is a right as a bucket of that name is.
    Space,
    /// No bucket: a database of time series, which is a right as a bucket of that name is. The handler checks it.
    Series,
    /// It touches no bucket.
    None,
}

/// Where a command's keys are among its arguments, as Redis counts: the name is 0, a negative last counts from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) first: i32,
    pub(crate) last: i32,
    pub(crate) step: i32,
    pub(crate) bucket: BucketOf,
}

/// The shapes of key arguments that occur.
pub(crate) mod keys {
    use super::{BucketOf, Keys};

    const fn of(first: i32, last: i32, step: i32, bucket: BucketOf) -> Keys {
        Keys { first, last, step, bucket }
    }

    pub(crate) const NONE: Keys = of(0, 0, 0, BucketOf::None);
    /// No keys, but what it shows depends on data; the handler asks for the right to each bucket itself.
    pub(crate) const NONE_READ: Keys = of(0, 0, 0, BucketOf::Each);
    /// No keys, but the selected database as a whole.
    pub(crate) const DATABASE: Keys = of(0, 0, 0, BucketOf::Selected);
    pub(crate) const ONE: Keys = of(1, 1, 1, BucketOf::Selected);
    pub(crate) const TWO: Keys = of(1, 2, 1, BucketOf::Selected);
    pub(crate) const ALL: Keys = of(1, -1, 1, BucketOf::Selected);
    pub(crate) const PAIRS: Keys = of(1, -1, 2, BucketOf::Selected);
    /// Behind a subcommand.
    pub(crate) const SECOND: Keys = of(2, 2, 1, BucketOf::Selected);
    pub(crate) const COPY: Keys = of(1, 2, 1, BucketOf::Copy);
    /// A bucket, then a key.
    pub(crate) const OWN: Keys = of(2, 2, 1, BucketOf::First);
    /// A space.
    pub(crate) const SPACE: Keys = of(0, 0, 0, BucketOf::Space);
    /// A database of time series.
    pub(crate) const SERIES: Keys = of(0, 0, 0, BucketOf::Series);
    /// A bucket as a whole.
    pub(crate) const BUCKET: Keys = of(0, 0, 0, BucketOf::First);
}

/// One row of the table.
pub(crate) struct Command {
    /// In lower case; a subcommand's is `command|subcommand`.
    pub(crate) name: &'static str,
    /// Arguments with the name: exactly so many, or at least so many if negative. Subcommands count their command too.
    pub(crate) arity: i32,
    pub(crate) flags: u32,
    pub(crate) keys: Keys,
    pub(crate) group: &'static str,
    /// The first version of Redis with this command, or of Holdfast for its own.
    pub(crate) since: &'static str,
    pub(crate) run: Handler,
    /// The arguments, as they are written in manuals.
    pub(crate) syntax: &'static str,
    pub(crate) complexity: &'static str,
    pub(crate) summary: &'static str,
}

impl Command {
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn accepts(&self, args: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity >= 0 { args == wanted } else { args >= wanted }
    }

    /// Whether a call with `args` arguments needs no exclusive, although it writes.
    pub(crate) fn is_blind(&self, args: usize) -> bool {
        self.has(flag::BLIND) && args == self.arity.unsigned_abs() as usize
    }

    /// Its number in the table.
    #[cfg(test)]
    pub(crate) fn index(&self) -> usize {
        COMMANDS.iter().position(|row| std::ptr::eq(row, self)).unwrap_or_default()
    }

    /// The rows of its subcommands.
    pub(crate) fn subcommands(&self) -> impl Iterator<Item = &'static Command> + use<> {
        let name = self.name;
        let is_container = self.has(flag::CONTAINER);
        COMMANDS
            .iter()
            .filter(move |row| is_container && row.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('|')))
    }

    /// The part of the name behind the `|`, or all of it.
    pub(crate) fn short_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, sub)| sub)
    }

    pub(crate) fn is_subcommand(&self) -> bool {
        self.name.contains('|')
    }

    /// The numbers of the key arguments of a call with `count` arguments.
    pub(crate) fn key_arguments(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let first = self.keys.first.max(0) as usize;
        let last = if self.keys.last >= 0 {
            self.keys.last as usize
        } else {
            count.saturating_sub(self.keys.last.unsigned_abs() as usize)
        };
        let last = last.min(count.saturating_sub(1));
        let last = if first == 0 { None } else { Some(last) };
        (first..last.map_or(first, |last| last + 1)).step_by(self.keys.step.max(1) as usize)
    }
}

/// What a name stands for.
pub(crate) enum Found {
    Row {
        row: &'static Command,
        index: u16,
    },
    /// A command that has subcommands, but not this one.
    UnknownSubcommand {
        container: &'static Command,
    },
    Unknown,
}

const SLOTS: usize = 1024;
const NAME_BYTES_MAX: usize = 32;

/// Open addressing over the rows; `u16::MAX` is an empty slot.
struct Index {
    slots: Box<[u16]>,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut slots = vec![u16::MAX; SLOTS].into_boxed_slice();
    for (number, row) in COMMANDS.iter().enumerate() {
        let mut slot = hash(row.name.as_bytes()) % SLOTS;
        while slots.get(slot).is_some_and(|taken| *taken != u16::MAX) {
            slot = (slot + 1) % SLOTS;
        }
        if let Some(free) = slots.get_mut(slot) {
            *free = number as u16;
        }
    }
    Index { slots }
});

/// FNV-1a: names are short.
fn hash(name: &[u8]) -> usize {
    let hash = name
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    (hash ^ hash >> 32) as usize
}

fn find_name(name: &[u8]) -> Option<(&'static Command, u16)> {
    let mut slot = hash(name) % SLOTS;
    // The table is at most a quarter full, which a test checks: an empty slot always ends the search.
    loop {
        let number = *INDEX.slots.get(slot)?;
        let row = COMMANDS.get(number as usize)?;
        if row.name.as_bytes() == name {
            return Some((row, number));
        }
        slot = (slot + 1) % SLOTS;
    }
}

/// The row of a command by its name in any case, without its subcommand.
pub(crate) fn find_command(name: &[u8]) -> Option<(&'static Command, u16)> {
    let mut lower = [0u8; NAME_BYTES_MAX];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    find_name(lower)
}

/// The row of `command|sub`, in any case.
pub(crate) fn find_subcommand(container: &Command, sub: &[u8]) -> Option<(&'static Command, u16)> {
    let mut name = [0u8; NAME_BYTES_MAX];
    let length = container.name.len() + 1 + sub.len();
    let name = name.get_mut(..length)?;
    let (head, tail) = name.split_at_mut(container.name.len() + 1);
    head.get_mut(..container.name.len())?.copy_from_slice(container.name.as_bytes());
    *head.last_mut()? = b'|';
    tail.copy_from_slice(sub);
    tail.make_ascii_lowercase();
    find_name(name)
}

/// The row for these arguments.
pub(crate) fn find(args: Args<'_>) -> Found {
    let Some((row, index)) = find_command(args.at(0)) else {
        return Found::Unknown;
    };
    if row.is_subcommand() {
        return Found::Unknown;
    }
    if row.has(flag::CONTAINER)
        && let Some(sub) = args.get(1)
    {
        return match find_subcommand(row, sub) {
            Some((row, index)) => Found::Row { row, index },
            None => Found::UnknownSubcommand { container: row },
        };
    }
    Found::Row { row, index }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::wire::OwnedArgs;

    fn args(words: &[&str]) -> OwnedArgs {
        let mut owned = OwnedArgs::default();
        words.iter().for_each(|word| owned.push(word.as_bytes()));
        owned
    }

    #[test]
    fn every_row_is_found_by_its_own_name_in_any_case() {
        assert!(COMMANDS.len() * 4 <= SLOTS);
        for row in COMMANDS {
            let words: Vec<String> = row.name.to_uppercase().split('|').map(str::to_owned).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match find(args(&words).args()) {
                Found::Row { row: found, index } => {
                    assert_eq!(found.name, row.name);
                    assert_eq!(index as usize, row.index());
                }
                _ => panic!("{} is not found", row.name),
            }
        }
    }

    #[test]
    fn what_is_no_command_is_not_found() {
        for words in
            [vec!["nosuch"], vec!["client|id"], vec![""], vec!["a very long name that no command could ever have had"]]
        {
            assert!(matches!(find(args(&words).args()), Found::Unknown), "{words:?}");
        }
        assert!(matches!(find(args(&["client", "nosuch"]).args()), Found::UnknownSubcommand { .. }));
        assert!(matches!(find(args(&["client", "x".repeat(100).as_str()]).args()), Found::UnknownSubcommand { .. }));
    }

    #[test]
    fn rows_make_sense() {
        for row in COMMANDS {
            assert_eq!(row.name, row.name.to_lowercase());
            assert!(row.name.len() <= NAME_BYTES_MAX);
            assert!(row.summary.ends_with('.') && !row.complexity.is_empty(), "{}", row.name);
            assert!(!(row.has(flag::WRITE) && row.has(flag::READONLY)), "{}", row.name);
            assert!(!row.has(flag::WRITE | flag::READONLY) || row.keys.bucket != BucketOf::None, "{}", row.name);
            let fixed =
                row.syntax.split_whitespace().filter(|word| !word.contains(['[', ']', '.']) && *word != "|").count();
            let own = row.name.split('|').count();
            if row.arity > 0 && !row.syntax.contains('[') && !row.has(flag::CONTAINER) {
                assert_eq!(row.arity as usize, fixed + own, "{} {}", row.name, row.syntax);
            }
        }
        let mut names: Vec<_> = COMMANDS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COMMANDS.len());
    }

    #[test]
    fn key_arguments_are_those_of_redis() {
        let keys = |name: &[u8], count| find_command(name).unwrap().0.key_arguments(count).collect::<Vec<_>>();
        assert_eq!(keys(b"get", 2), [1]);
        assert_eq!(keys(b"mget", 4), [1, 2, 3]);
        assert_eq!(keys(b"mset", 5), [1, 3]);
        assert_eq!(keys(b"rename", 3), [1, 2]);
        assert_eq!(keys(b"ping", 2), [0usize; 0]);
        assert_eq!(keys(b"kv.put", 4), [2]);
    }
}
