//! INFO: sections of `name:value` lines. The loss window is in the section `persistence`.
//!
//! May use: `call`, `door`. Must not know: sockets, dispatch.

use std::fmt::{Display, Write};
use std::sync::atomic::Ordering::Relaxed;

use holdfast::TransactionStats;

use super::connection::REDIS_VERSION;
use crate::numbers::TypeNumbers;
use crate::resp::call::{Call, Fail};
use crate::resp::session::BucketName;

const SECTIONS: &[&str] =
    &["server", "clients", "memory", "persistence", "stats", "replication", "transactions", "xa", "spaces", "keyspace"];

/// The sections named, all of them for none, `default`, `all` or `everything`.
pub(crate) fn text(call: &mut Call<'_, '_>, names: &[String]) -> Result<String, Fail> {
    let all = names.is_empty() || names.iter().any(|name| matches!(name.as_str(), "default" | "all" | "everything"));
    let mut text = String::new();
    for section in SECTIONS {
        if !all && !names.iter().any(|name| name == section) {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let mut title = (*section).to_owned();
        title.get_mut(..1).into_iter().for_each(str::make_ascii_uppercase);
        text.push_str(&format!("# {title}\r\n"));
        match *section {
            "server" => server(call, &mut text),
            "clients" => clients(call, &mut text),
            "memory" => memory(&mut text),
            "persistence" => persistence(call, &mut text),
            "stats" => stats(call, &mut text),
            "replication" => replication(&mut text),
            "transactions" => transactions(call, &mut text),
            "xa" => xa(call, &mut text),
            "spaces" => spaces(call, &mut text),
            _ => keyspace(call, &mut text)?,
        }
    }
    Ok(text)
}

fn line(text: &mut String, name: &str, value: impl Display) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{name}:{value}\r\n");
}

fn server(call: &Call<'_, '_>, text: &mut String) {
    let uptime_s = call.now_ms.saturating_sub(call.door.started_ms) / 1000;
    line(text, "redis_version", REDIS_VERSION);
    line(text, "redis_mode", "standalone");
    line(text, "holdfast_version", env!("CARGO_PKG_VERSION"));
    line(text, "os", std::env::consts::OS);
    line(text, "arch_bits", usize::BITS);
    line(text, "process_id", std::process::id());
    line(text, "run_id", &call.door.run);
    line(text, "tcp_port", call.door.address.port());
    line(text, "server_time_usec", call.now_ms * 1000);
    line(text, "uptime_in_seconds", uptime_s);
    line(text, "uptime_in_days", uptime_s / 86_400);
    line(text, "io_threads", call.door.options.reactors);
}

fn clients(call: &Call<'_, '_>, text: &mut String) {
    line(text, "connected_clients", call.door.clients.len());
    line(text, "maxclients", call.door.settings.clients_max.load(Relaxed));
    line(text, "peak_clients", call.door.peak_clients.load(Relaxed));
    let (tracking, keys) = call.door.tracking.counts();
    line(text, "tracking_clients", tracking);
    line(text, "tracking_total_keys", keys);
    line(text, "tracking_total_prefixes", call.door.tracking.prefixes());
    line(text, "blocked_clients", call.door.clients.all().iter().filter(|client| client.is_blocked()).count());
}

fn memory(text: &mut String) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let rss = memory_bytes(&status, "VmRSS:").unwrap_or(0);
    line(text, "used_memory", rss);
    line(text, "used_memory_human", human_bytes(rss));
    line(text, "used_memory_rss", rss);
    line(text, "used_memory_rss_human", human_bytes(rss));
    let peak = memory_bytes(&status, "VmHWM:").unwrap_or(0);
    line(text, "used_memory_peak", peak);
    line(text, "used_memory_peak_human", human_bytes(peak));
    line(text, "maxmemory", 0);
    line(text, "maxmemory_policy", "noeviction");
}

/// A number of bytes from Linux' lines about a process; other systems have none to tell.
fn memory_bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Bytes as Redis writes them for people: `1.50M`.
fn human_bytes(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1024 => return format!("{bytes}B"),
        1024..1_048_576 => (1u64 << 10, 'K'),
        1_048_576..1_073_741_824 => (1 << 20, 'M'),
        _ => (1 << 30, 'G'),
    };
    format!("{:.2}{name}", bytes as f64 / unit as f64)
}

fn persistence(call: &Call<'_, '_>, text: &mut String) {
    let (marks, stats) = (call.door.store.watermarks(), call.stats());
    line(text, "loading", 0);
    line(text, "aof_enabled", 1);
    line(text, "durability", call.door.store.durability());
    line(text, "connection_durability", call.session.durability);
    line(text, "appended_position", marks.appended.get());
    line(text, "written_position", marks.written.get());
    line(text, "synced_position", marks.synced.get());
    line(text, "unsynced_bytes", stats.unsynced_bytes);
    line(text, "unsynced_batches", stats.unsynced_batches);
    line(text, "unsynced_age_ms", stats.unsynced_age.as_millis());
    line(text, "journal_segments", stats.segments);
    line(text, "journal_bytes", stats.journal_bytes);
    line(text, "live_bytes", stats.live_bytes);
    line(text, "dead_bytes", stats.segment_live.iter().map(|segment| segment.dead_bytes).sum::<u64>());
    line(text, "delayed_writes", stats.delayed_writes);
    line(text, "write_delay_ms", stats.write_delay.as_millis());
    line(text, "compaction_running", u8::from(stats.compaction.is_running));
    line(text, "compaction_segments", stats.compaction.segments);
    line(text, "compaction_reclaimed_bytes", stats.compaction.reclaimed_bytes);
    line(text, "compaction_read_bytes", stats.compaction.read_bytes);
    line(text, "compaction_moved_bytes", stats.compaction.moved_bytes);
    line(text, "compaction_waiting_segments", stats.compaction.waiting);
    line(text, "scrubbed_bytes", stats.scrub.bytes);
    line(text, "scrub_rounds", stats.scrub.rounds);
    line(text, "scrub_last_round_unix_ms", stats.scrub.last_round_ms);
    line(text, "damaged_ranges", stats.damage.len());
}

fn stats(call: &Call<'_, '_>, text: &mut String) {
    let door = call.door;
    line(text, "total_connections_received", door.total(|counters| &counters.connections));
    line(text, "total_commands_processed", door.total(|counters| &counters.commands));
    line(text, "total_net_input_bytes", door.total(|counters| &counters.input_bytes));
    line(text, "total_net_output_bytes", door.total(|counters| &counters.output_bytes));
    line(text, "rejected_connections", door.rejected.load(Relaxed));
    line(text, "keyspace_hits", door.total(|counters| &counters.hits));
    line(text, "keyspace_misses", door.total(|counters| &counters.misses));
    let queries = call.stats().query_cache;
    line(text, "space_query_cache_hits", queries.hits);
    line(text, "space_query_cache_misses", queries.misses);
    line(text, "space_query_cache_queries", queries.queries);
    line(text, "space_query_cache_bytes", queries.bytes);
    line(text, "total_error_replies", door.total(|counters| &counters.errors));
    line(text, "failed_logins", door.options.users.failed_logins());
    line(text, "evicted_keys", 0);
}

fn replication(text: &mut String) {
    line(text, "role", "master");
    line(text, "connected_slaves", 0);
}

fn transactions(call: &Call<'_, '_>, text: &mut String) {
    let now: TransactionStats = call.stats().transactions;
    line(text, "open_transactions", now.open);
    line(text, "open_transactions_oldest_ms", now.oldest_age.as_millis());
    line(text, "open_transactions_locks", now.locks);
    line(text, "open_transactions_bytes", now.held_bytes);
    line(text, "committed_transactions", now.committed);
    line(text, "rolled_back_transactions", now.rolled_back);
    line(text, "expired_transactions", now.expired);
    line(text, "transaction_conflicts", now.conflicts);
    line(text, "transaction_deadlocks", now.deadlocks);
    line(text, "transaction_lock_timeouts", now.lock_timeouts);
}

fn xa(call: &Call<'_, '_>, text: &mut String) {
    let (xa, coordinator) = (call.stats().xa, call.door.store.xa().coordinator());
    line(text, "xa_coordinator", format_args!("{:016x}", coordinator.0));
    line(text, "xa_owners", xa.owners);
    line(text, "xa_decisions", xa.decisions);
    line(text, "xa_aborts", xa.aborts);
    line(text, "xa_outstanding", xa.outstanding);
    line(text, "xa_heuristic", xa.heuristic);
    line(text, "xa_recovered", xa.verdicts);
    let recovery = call.door.options.recovery.as_ref().map(|numbers| numbers()).unwrap_or_default();
    line(text, "xa_recovery_managers", recovery.managers);
    line(text, "xa_recovery_managers_down", recovery.managers_down);
    line(text, "xa_recovery_in_doubt", recovery.in_doubt);
    line(text, "xa_recovery_rounds", recovery.rounds);
    line(text, "xa_recovery_committed", recovery.committed);
    line(text, "xa_recovery_rolled_back", recovery.rolled_back);
    line(text, "xa_recovery_heuristic", recovery.heuristic);
}

/// A line for each type of entries in spaces that the user may read.
fn spaces(call: &Call<'_, '_>, text: &mut String) {
    let user = call.session.user.as_ref();
    for of in crate::numbers::types(&call.door.store) {
        if user.is_none_or(|user| user.may(crate::auth::Right::Read, of.space.as_bytes())) {
            let TypeNumbers { space, name, entries, bytes, index_bytes, waiters, limit_bytes, space_limit_bytes } = of;
            let value = format_args!(
                "entries={entries},bytes={bytes},index_bytes={index_bytes},waiters={waiters},limit_bytes={limit_bytes},space_limit_bytes={space_limit_bytes}"
            );
            line(text, &format!("{space}/{name}"), value);
        }
    }
}

/// How many objects each database has. How many of them expire is not counted, and not said; clients expect two numbers at least, and
/// Redis too says 0 where it has not looked.
fn keyspace(call: &mut Call<'_, '_>, text: &mut String) -> Result<(), Fail> {
    for database in 0..call.door.options.databases {
        let bucket = BucketName::of(database);
        let may_read = |user: &std::sync::Arc<crate::auth::User>| user.may(crate::auth::Right::Read, bucket.as_bytes());
        if !call.session.user.as_ref().is_none_or(may_read) {
            continue;
        }
        let keys = call.view.count(bucket.as_bytes())?;
        if keys > 0 {
            line(text, &format!("db{database}"), format_args!("keys={keys},avg_ttl=0"));
        }
    }
    Ok(())
}
