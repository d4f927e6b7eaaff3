//! CONFIG: the parameters that exist, under the names Redis gave them.
//!
//! May use: `door`. Must not know: sockets, dispatch.

use std::sync::atomic::Ordering::Relaxed;

use holdfast::Durability;

use crate::resp::call::Fail;
use crate::resp::door::Door;
use crate::resp::number;

/// A parameter that can change while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variable {
    IdleTimeout,
    ClientsMax,
    SlowlogMicros,
    SlowlogEntries,
    LatencyMillis,
}

const VARIABLES: &[(&str, Variable)] = &[
    ("timeout", Variable::IdleTimeout),
    ("maxclients", Variable::ClientsMax),
    ("slowlog-log-slower-than", Variable::SlowlogMicros),
    ("slowlog-max-len", Variable::SlowlogEntries),
    ("latency-monitor-threshold", Variable::LatencyMillis),
];

/// One checked change.
pub(crate) struct Change {
    variable: Variable,
    value: i64,
}

/// All parameters and their values, in the order of their names.
pub(crate) fn all(door: &Door) -> Vec<(&'static str, String)> {
    let settings = &door.settings;
    // What Redis would be set to for the same promise.
    let (append, sync) = match door.durability() {
        Durability::Synced => ("yes", "always"),
        Durability::Window(_) => ("yes", "everysec"),
        _ => ("yes", "no"),
    };
    let limits = &door.options.limits;
    let mut all = vec![
        ("appendfsync", sync.to_owned()),
        ("appendonly", append.to_owned()),
        ("bind", door.address.ip().to_string()),
        ("client-query-buffer-limit", limits.command_bytes_max.to_string()),
        ("databases", door.options.databases.to_string()),
        ("durability", door.durability().to_string()),
        ("io-threads", door.options.reactors.to_string()),
        ("latency-monitor-threshold", settings.latency_ms.load(Relaxed).to_string()),
        ("maxclients", settings.clients_max.load(Relaxed).to_string()),
        ("maxmemory", "0".to_owned()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("port", door.address.port().to_string()),
        ("proto-max-bulk-len", door.value_bytes_max().to_string()),
        ("save", String::new()),
        ("slowlog-log-slower-than", settings.slowlog_us.load(Relaxed).to_string()),
        ("slowlog-max-len", settings.slowlog_entries.load(Relaxed).to_string()),
        ("timeout", settings.idle_timeout_s.load(Relaxed).to_string()),
    ];
    all.sort_unstable();
    all
}

/// Whether a parameter has this name that can change while the server runs.
pub(crate) fn is_variable(name: &[u8]) -> bool {
    VARIABLES.iter().any(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// Checks one change without making it.
pub(crate) fn check(door: &Door, name: &[u8], value: &[u8]) -> Result<Change, Fail> {
    let shown = String::from_utf8_lossy(name).into_owned();
    let lower = shown.to_ascii_lowercase();
    let refused =
        |why: &str| Fail::from(format!("ERR CONFIG SET failed (possibly related to argument '{shown}') - {why}"));
    let Some((_, variable)) = VARIABLES.iter().find(|(known, _)| *known == lower) else {
        return Err(match all(door).iter().any(|(known, _)| *known == lower) {
            true => refused("can't set immutable config"),
            false => format!("ERR Unknown option or number of arguments for CONFIG SET - '{shown}'").into(),
        });
    };
    let value = number::parse_i64(value).ok_or_else(|| refused("argument couldn't be parsed into an integer"))?;
    let limits = &door.options.limits;
    let (least, most) = match variable {
        Variable::IdleTimeout | Variable::LatencyMillis => (0, i64::from(i32::MAX)),
        Variable::ClientsMax => (1, limits.clients_max as i64),
        Variable::SlowlogMicros => (-1, i64::MAX),
        Variable::SlowlogEntries => (0, limits.slowlog_entries_max as i64),
    };
    if !(least..=most).contains(&value) {
        return Err(refused(&format!("argument must be between {least} and {most} inclusive")));
    }
    Ok(Change { variable: *variable, value })
}

/// Makes a checked change.
pub(crate) fn apply(door: &Door, change: Change) {
    let settings = &door.settings;
    let unsigned = change.value.unsigned_abs();
    match change.variable {
        Variable::IdleTimeout => settings.idle_timeout_s.store(unsigned, Relaxed),
        Variable::ClientsMax => settings.clients_max.store(unsigned, Relaxed),
        Variable::SlowlogMicros => settings.slowlog_us.store(change.value, Relaxed),
        Variable::SlowlogEntries => {
            settings.slowlog_entries.store(unsigned, Relaxed);
            door.slowlog.truncate(change.value as usize);
        }
        Variable::LatencyMillis => settings.latency_ms.store(unsigned, Relaxed),
    }
}
