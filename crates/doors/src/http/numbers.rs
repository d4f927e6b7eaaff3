//! `/stats`: the numbers as JSON, with what has no place in time series: each segment, each damaged range.
//!
//! May use: `shared`, `crate::numbers`. Must not know: HTTP.

use holdfast::{Damage, Durability, Quantiles, SegmentLive, Stats};
use serde_json::{Map, Value, json};

use super::shared::Snapshot;
use crate::numbers::{DoorNumbers, TypeNumbers};

/// The whole answer.
pub(crate) fn render(snapshot: &Snapshot) -> Value {
    let Snapshot { stats, types, shared, doors } = snapshot;
    let doors: Map<String, Value> = doors.iter().map(|(name, numbers)| (name.clone(), door(numbers))).collect();
    json!({
        "version": shared.options.version,
        "run_id": shared.options.run,
        "uptime_seconds": shared.started.elapsed().as_secs_f64(),
        "directory": shared.store.dir().display().to_string(),
        "durability": durability(shared.store.durability()),
        "refuses_writes": stats.refuses_writes,
        "partitions": stats.partitions,
        "unsynced": {
            "bytes": stats.unsynced_bytes,
            "batches": stats.unsynced_batches,
            "age_seconds": stats.unsynced_age.as_secs_f64(),
        },
        "positions": {
            "appended": stats.watermarks.appended.get(),
            "written": stats.watermarks.written.get(),
            "synced": stats.watermarks.synced.get(),
        },
        "batches": stats.batches,
        "appended_bytes": stats.journal_appended_bytes,
        "sync_batches": quantiles(&stats.group_batches),
        "sync_nanoseconds": quantiles(&stats.sync_nanos),
        "ledger_memory_bytes": stats.ledger_memory_bytes,
        "write_delay_seconds": stats.write_delay.as_secs_f64(),
        "delayed_writes": stats.delayed_writes,
        "expired_objects": stats.expired,
        "transactions": {
            "open": stats.transactions.open,
            "oldest_seconds": stats.transactions.oldest_age.as_secs_f64(),
            "locks": stats.transactions.locks,
            "held_bytes": stats.transactions.held_bytes,
            "committed": stats.transactions.committed,
            "rolled_back": stats.transactions.rolled_back,
            "expired": stats.transactions.expired,
            "conflicts": stats.transactions.conflicts,
            "deadlocks": stats.transactions.deadlocks,
            "lock_timeouts": stats.transactions.lock_timeouts,
        },
        "failed_logins": snapshot.shared.options.users.failed_logins(),
        "compaction": {
            "running": stats.compaction.is_running,
            "segments": stats.compaction.segments,
            "reclaimed_bytes": stats.compaction.reclaimed_bytes,
            "read_bytes": stats.compaction.read_bytes,
            "moved_bytes": stats.compaction.moved_bytes,
            "waiting_segments": stats.compaction.waiting,
        },
        "scrub": {
            "bytes": stats.scrub.bytes,
            "rounds": stats.scrub.rounds,
            "last_round_seconds": stats.scrub.last_round.as_secs_f64(),
            "last_round_unix_milliseconds": stats.scrub.last_round_ms,
        },
        "series": {
            "series": stats.series.series,
            "memory_bytes": stats.series.memory_bytes,
            "names_bytes": stats.series.names_bytes,
            "files": stats.series.files,
            "file_bytes": stats.series.file_bytes,
            "blocks": stats.series.blocks,
            "sealed_points": stats.series.points,
            "written": stats.series.written,
            "refused": stats.series.refused,
            "disk_low": stats.series.is_disk_low,
            "merges": stats.series.merges,
            "merged_bytes": stats.series.merged_bytes,
            "seal_failures": stats.series.seal_failures,
            "merge_failures": stats.series.merge_failures,
            "rolled_up_points": stats.series.summarized,
            "deleted_ranges": stats.series.erased,
        },
        "spaces": types.iter().map(of_type).collect::<Vec<_>>(),
        "doors": doors,
        "damage": stats.damage.iter().map(damage).collect::<Vec<_>>(),
        "journal": journal(stats),
    })
}

fn of_type(of: &TypeNumbers) -> Value {
    let TypeNumbers { space, name, entries, bytes, index_bytes, waiters, limit_bytes, space_limit_bytes } = of;
    json!({
        "space": space, "type": name, "entries": entries, "bytes": bytes, "index_bytes": index_bytes, "waiters": waiters,
        "limit_bytes": limit_bytes, "space_limit_bytes": space_limit_bytes,
    })
}

fn door(numbers: &DoorNumbers) -> Value {
    let DoorNumbers { connections, totals, points } = numbers;
    let mut all = json!({ "connections": connections });
    let mut add = |of: Value| {
        if let (Some(all), Value::Object(of)) = (all.as_object_mut(), of) {
            all.extend(of);
        }
    };
    if let Some(totals) = totals {
        add(json!({
            "connections_accepted": totals.connections_accepted,
            "connections_rejected": totals.connections_rejected,
            "commands": totals.commands,
            "errors": totals.errors,
            "keyspace_hits": totals.hits,
            "keyspace_misses": totals.misses,
            "received_bytes": totals.received_bytes,
            "sent_bytes": totals.sent_bytes,
        }));
    }
    if let Some(points) = points {
        add(json!({
            "points_written": points.written,
            "points_refused": points.refused,
            "points_lost": points.lost,
            "points_malformed": points.malformed,
            "points_batches": points.batches,
            "datagrams": points.datagrams,
            "datagrams_dropped": points.datagrams_dropped,
        }));
    }
    all
}

fn durability(durability: Durability) -> Value {
    let millis = |time: std::time::Duration| time.as_secs_f64() * 1000.0;
    match durability {
        Durability::Window(window) => json!({
            "name": durability.to_string(),
            "min_milliseconds": millis(window.min),
            "max_milliseconds": millis(window.max),
        }),
        Durability::Synced | Durability::Written => json!({ "name": durability.to_string() }),
    }
}

fn quantiles(quantiles: &Quantiles) -> Value {
    let Quantiles { count, sum, p50, p99, max } = quantiles;
    json!({ "count": count, "sum": sum, "p50": p50, "p99": p99, "max": max })
}

fn journal(stats: &Stats) -> Value {
    let segment = |segment: &SegmentLive| {
        json!({
            "file": format!("{:016x}.seg", segment.base.get()),
            "bytes": segment.bytes,
            "live_bytes": segment.live_bytes,
            "dead_bytes": segment.dead_bytes,
            "sealed": segment.sealed,
            "stub": segment.is_stub,
        })
    };
    json!({
        "bytes": stats.journal_bytes,
        "live_bytes": stats.live_bytes,
        "dead_bytes": stats.segment_live.iter().map(|segment| segment.dead_bytes).sum::<u64>(),
        "segments": stats.segment_live.iter().map(segment).collect::<Vec<_>>(),
    })
}

fn damage(damage: &Damage) -> Value {
    json!({
        "kind": format!("{:?}", damage.kind).to_lowercase(),
        "file": damage.path.display().to_string(),
        "offset": damage.offset,
        "bytes": damage.bytes,
        "position": damage.position.get(),
        "reason": damage.reason,
    })
}
