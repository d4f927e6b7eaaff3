//! `/metrics`: the numbers in Prometheus' text format, version 0.0.4.
//!
//! Names begin with `holdfast_`, units are seconds and bytes, counters end in `_total` and begin at 0 when the server
//! starts. docs/operations/monitoring.md says what each means.
//!
//! May use: `shared`, `crate::numbers`. Must not know: HTTP.

use std::fmt::Display;
use std::fmt::Write;

use holdfast::series::SeriesStats;
use holdfast::{CompactionStats, Damage, DamageKind, Quantiles, QueryCacheStats, ScrubStats, SegmentLive, Stats};

use super::shared::Snapshot;
use crate::numbers::{ContinuousNumbers, DoorNumbers, DoorTotals, MirrorNumbers, PointTotals, TypeNumbers};

/// What the text is.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Segments that get time series of their own; a journal with more is described by the histogram alone, because
/// Prometheus keeps every series it ever saw.
const SEGMENT_SERIES_MAX: usize = 512;
/// Types of entries in spaces that get time series of their own.
const TYPE_SERIES_MAX: usize = 512;
/// Upper ends of the histogram's buckets.
const RATIOS: [f64; 5] = [0.1, 0.25, 0.5, 0.75, 0.9];
/// Every kind of damage, so that a series exists before the first damage does.
const KINDS: [(DamageKind, &str); 8] = [
    (DamageKind::Header, "header"),
    (DamageKind::Record, "record"),
    (DamageKind::Footer, "footer"),
    (DamageKind::Torn, "torn"),
    (DamageKind::Discarded, "discarded"),
    (DamageKind::Missing, "missing"),
    (DamageKind::Chain, "chain"),
    (DamageKind::Copy, "copy"),
];
const NANOS: f64 = 1e-9;

/// The whole text.
pub(crate) fn render(snapshot: &Snapshot) -> String {
    let mut text = Text(String::with_capacity(8 << 10));
    program(&mut text, snapshot);
    loss_window(&mut text, &snapshot.stats);
    journal(&mut text, &snapshot.stats);
    segments(&mut text, &snapshot.stats.segment_live);
    compaction(&mut text, &snapshot.stats.compaction);
    damage(&mut text, &snapshot.stats.damage);
    scrub(&mut text, &snapshot.stats.scrub);
    engine(&mut text, &snapshot.stats);
    transactions(&mut text, &snapshot.stats);
    xa(&mut text, snapshot);
    series(&mut text, &snapshot.stats.series);
    let continuous = snapshot.shared.options.continuous.as_ref().map(|numbers| numbers());
    continuous_queries(&mut text, continuous.unwrap_or_default());
    spaces(&mut text, &snapshot.types);
    query_cache(&mut text, snapshot.stats.query_cache);
    let mirrors = snapshot.shared.options.mirrors.as_ref().map(|numbers| numbers());
    self::mirrors(&mut text, &mirrors.unwrap_or_default(), snapshot.stats.watermarks.appended.get());
    doors(&mut text, snapshot);
    text.0
}

/// Text under construction. Writing to a string cannot fail, so results are dropped.
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP holdfast_{name} {help}\n# TYPE holdfast_{name} {kind}");
    }

    /// One line; `labels` is empty or `{...}`. Label values are our own words and need no escaping.
    fn line(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.0, "holdfast_{name}{labels} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.line(name, "", value);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "counter", help);
        self.line(name, "", value);
    }

    fn summary(&mut self, name: &str, help: &str, quantiles: &Quantiles, unit: f64) {
        self.family(name, "summary", help);
        for (quantile, value) in [("0.5", quantiles.p50), ("0.99", quantiles.p99), ("1", quantiles.max)] {
            self.line(name, &format!("{{quantile=\"{quantile}\"}}"), value as f64 * unit);
        }
        self.line(&format!("{name}_sum"), "", quantiles.sum as f64 * unit);
        self.line(&format!("{name}_count"), "", quantiles.count);
    }
}

fn program(text: &mut Text, snapshot: &Snapshot) {
    text.family("build_info", "gauge", "Always 1; the label is the version of the program.");
    text.line("build_info", &format!("{{version=\"{}\"}}", snapshot.shared.options.version), 1);
    let uptime = snapshot.shared.started.elapsed().as_secs_f64();
    text.gauge("uptime_seconds", "Time since the HTTP door was opened.", uptime);
    let help = "1 after a failed write or sync, when writes are refused until the server is restarted; else 0.";
    text.gauge("refuses_writes", help, u8::from(snapshot.stats.refuses_writes));
}

fn loss_window(text: &mut Text, stats: &Stats) {
    text.gauge(
        "unsynced_bytes",
        "Bytes in the journal that no sync has covered yet: what a power cut may take.",
        stats.unsynced_bytes,
    );
    text.gauge("unsynced_batches", "Batches in the journal that no sync has covered yet.", stats.unsynced_batches);
    text.gauge(
        "unsynced_age_seconds",
        "Age of the oldest batch that no sync has covered yet.",
        stats.unsynced_age.as_secs_f64(),
    );
}

fn journal(text: &mut Text, stats: &Stats) {
    let marks = [
        ("appended", stats.watermarks.appended),
        ("written", stats.watermarks.written),
        ("synced", stats.watermarks.synced),
    ];
    for (name, position) in marks {
        let help = format!("The journal position up to which batches are {name}.");
        text.gauge(&format!("journal_{name}_position"), &help, position);
    }
    text.counter("batches_total", "Batches committed.", stats.batches);
    text.counter(
        "journal_appended_bytes_total",
        "Bytes appended to the journal, headers included.",
        stats.journal_appended_bytes,
    );
    text.summary("sync_batches", "Batches that share one sync.", &stats.group_batches, 1.0);
    text.summary("sync_duration_seconds", "How long a sync takes.", &stats.sync_nanos, NANOS);
    text.gauge("journal_segments", "Segment files of the journal.", stats.segments);
    let stubs = stats.segment_live.iter().filter(|segment| segment.is_stub).count();
    text.gauge("journal_stubs", "Segment files whose records were let go: a header and a footer are left.", stubs);
    text.gauge("journal_bytes", "Disk space in segment files.", stats.journal_bytes);
    text.gauge("live_bytes", "Bytes of the journal that objects still need.", stats.live_bytes);
    let dead: u64 = stats.segment_live.iter().map(|segment| segment.dead_bytes).sum();
    text.gauge("dead_bytes", "Bytes of the journal that nothing needs any more: what compaction would win.", dead);
}

fn transactions(text: &mut Text, stats: &Stats) {
    let help = "Transactions that stay open, or have come to entries of spaces, and may hold locks.";
    text.gauge("open_transactions", help, stats.transactions.open);
    let now = &stats.transactions;
    let help = "How long the oldest open transaction has been open.";
    text.gauge("open_transactions_oldest_seconds", help, now.oldest_age.as_secs_f64());
    text.gauge("open_transactions_locks", "Entries that transactions have locked.", now.locks);
    text.gauge(
        "open_transactions_bytes",
        "Bytes that open transactions keep in memory until they end.",
        now.held_bytes,
    );
    text.counter("committed_transactions_total", "Such transactions that were committed.", now.committed);
    let help = "Such transactions that were rolled back, but for those whose lease was over.";
    text.counter("rolled_back_transactions_total", help, now.rolled_back);
    let help = "Transactions that were rolled back because their lease was over.";
    text.counter("expired_transactions_total", help, now.expired);
    let help = "How often a transaction was told that somebody else changed what it saw.";
    text.counter("transaction_conflicts_total", help, now.conflicts);
    let help = "How often a transaction was told of a deadlock.";
    text.counter("transaction_deadlocks_total", help, now.deadlocks);
    let help = "How often somebody waited in vain for an entry that a transaction had locked.";
    text.counter("transaction_lock_timeouts_total", help, now.lock_timeouts);
}

fn xa(text: &mut Text, snapshot: &Snapshot) {
    let xa = &snapshot.stats.xa;
    text.counter("xa_decisions_total", "Distributed transactions decided to be committed.", xa.decisions);
    text.counter("xa_aborts_total", "Distributed transactions decided never to be committed, by a record.", xa.aborts);
    text.counter("xa_recovered_total", "Verdicts to commit or roll back that recovery was given.", xa.verdicts);
    text.gauge("xa_outstanding", "Committed distributed transactions of which not every branch knows.", xa.outstanding);
    text.gauge("xa_heuristic", "Transactions with a branch that decided by itself.", xa.heuristic);
    text.gauge("xa_owners", "Owners of distributed transactions that are alive.", xa.owners);
    let recovery = snapshot.shared.options.recovery.as_ref().map(|numbers| numbers()).unwrap_or_default();
    text.gauge("xa_recovery_managers", "Resource managers that the server recovers by itself.", recovery.managers);
    let help = "Those of them that did not answer when they were asked last.";
    text.gauge("xa_recovery_managers_down", help, recovery.managers_down);
    let help = "Branches that were prepared and not settled when their resource manager was asked last.";
    text.gauge("xa_recovery_in_doubt", help, recovery.in_doubt);
    let help = "How often the server asked resource managers what is in doubt.";
    text.counter("xa_recovery_rounds_total", help, recovery.rounds);
    text.family("xa_recovery_branches_total", "counter", "Branches that the server settled, by what became of them.");
    for (fate, count) in
        [("committed", recovery.committed), ("rolled_back", recovery.rolled_back), ("heuristic", recovery.heuristic)]
    {
        text.line("xa_recovery_branches_total", &format!("{{fate=\"{fate}\"}}"), count);
    }
}

fn spaces(text: &mut Text, types: &[TypeNumbers]) {
    type Value = fn(&TypeNumbers) -> u64;
    let each: [(&str, &str, Value); 5] = [
        ("space_entries", "Entries in memory, by type.", |of| of.entries),
        ("space_bytes", "Bytes of memory that entries and their indexes take, by type.", |of| of.bytes),
        ("space_index_bytes", "Bytes of memory that indexes of entries take, by type.", |of| of.index_bytes),
        ("space_waiters", "Clients and threads that wait for entries, by type.", |of| of.waiters as u64),
        ("space_type_limit_bytes", "Most bytes of memory that a type may take, 0 without a limit.", |of| {
            of.limit_bytes
        }),
    ];
    for (name, help, value) in each {
        text.family(name, "gauge", help);
        for of in types.iter().take(TYPE_SERIES_MAX) {
            let labels = format!("{{space=\"{}\",type=\"{}\"}}", escaped(&of.space), escaped(&of.name));
            text.line(name, &labels, value(of));
        }
    }
    text.family(
        "space_limit_bytes",
        "gauge",
        "Most bytes of memory that all types of a space may take, where there is a limit.",
    );
    let mut limited: Vec<_> = types.iter().filter(|of| of.space_limit_bytes > 0).collect();
    limited.dedup_by_key(|of| &of.space);
    for of in limited.into_iter().take(TYPE_SERIES_MAX) {
        text.line("space_limit_bytes", &format!("{{space=\"{}\"}}", escaped(&of.space)), of.space_limit_bytes);
    }
}

fn query_cache(text: &mut Text, cache: QueryCacheStats) {
    let help = "Queries of spaces whose text had been parsed before.";
    text.counter("space_query_cache_hits_total", help, cache.hits);
    text.counter("space_query_cache_misses_total", "Queries of spaces whose text had to be parsed.", cache.misses);
    text.gauge("space_query_cache_queries", "Queries of spaces that are remembered as parsed.", cache.queries);
    text.gauge("space_query_cache_bytes", "Bytes of memory that these take, roughly.", cache.bytes);
}

/// Names are the users' own, and have no line ends.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"")
}

fn mirrors(text: &mut Text, mirrors: &[MirrorNumbers], appended: u64) {
    type Value = fn(&MirrorNumbers, u64) -> u64;
    let behind: Value = |of, appended| appended.saturating_sub(of.position);
    let each: [(&str, &str, &str, Value); 7] = [
        ("mirror_up", "gauge", "1 while a mirror follows its type and its target answers; else 0.", |of, _| {
            u64::from(of.is_up)
        }),
        ("mirror_behind_bytes", "gauge", "Bytes of journal behind a mirror's bookmark in its target.", behind),
        ("mirror_transactions_total", "counter", "Transactions that mirrors committed in their targets.", |of, _| {
            of.transactions
        }),
        ("mirror_events_total", "counter", "Events that mirrors applied to their targets.", |of, _| of.events),
        ("mirror_set_aside_total", "counter", "Transactions that mirrors set aside, as a row was refused.", |of, _| {
            of.set_aside
        }),
        ("mirror_failures_total", "counter", "Times that a mirror's target failed, or the mirror ended.", |of, _| {
            of.failures
        }),
        ("mirror_loaded_total", "counter", "Entries that were loaded from rows of a mirror's table.", |of, _| {
            of.loaded
        }),
    ];
    for (name, kind, help, value) in each {
        text.family(name, kind, help);
        for of in mirrors {
            text.line(name, &format!("{{mirror=\"{}\"}}", escaped(&of.name)), value(of, appended));
        }
    }
}

fn segments(text: &mut Text, segments: &[SegmentLive]) {
    let segments: Vec<&SegmentLive> = segments.iter().filter(|segment| !segment.is_stub).collect();
    let name = "segment_live_ratio";
    let ratio = |segment: &&SegmentLive| segment.live_bytes as f64 / segment.bytes.max(1) as f64;
    let sealed: Vec<f64> = segments.iter().filter(|segment| segment.sealed).map(ratio).collect();
    text.family(name, "histogram", "Sealed segments by the part of them that is still needed.");
    for end in RATIOS {
        let count = sealed.iter().filter(|ratio| **ratio <= end).count();
        text.line(&format!("{name}_bucket"), &format!("{{le=\"{end}\"}}"), count);
    }
    text.line(&format!("{name}_bucket"), "{le=\"+Inf\"}", sealed.len());
    text.line(&format!("{name}_sum"), "", sealed.iter().sum::<f64>());
    text.line(&format!("{name}_count"), "", sealed.len());
    if segments.len() > SEGMENT_SERIES_MAX {
        return;
    }
    type Value = fn(&SegmentLive) -> u64;
    let each: [(&str, &str, Value); 2] = [
        ("segment_bytes", "Disk space of each segment.", |segment| segment.bytes),
        ("segment_live_bytes", "Bytes of each segment that objects still need.", |segment| segment.live_bytes),
    ];
    for (name, help, value) in each {
        text.family(name, "gauge", help);
        for segment in &segments {
            text.line(name, &format!("{{segment=\"{:016x}\"}}", segment.base.get()), value(segment));
        }
    }
}

fn compaction(text: &mut Text, stats: &CompactionStats) {
    let CompactionStats { is_running, segments, reclaimed_bytes, read_bytes, moved_bytes, waiting } = *stats;
    let help = "1 while a compaction run is under way that a schedule or somebody asked for; else 0.";
    text.gauge("compaction_running", help, u8::from(is_running));
    text.counter("compaction_segments_total", "Segments that compaction let go.", segments);
    let help = "Bytes of the files of segments that compaction let go.";
    text.counter("compaction_reclaimed_bytes_total", help, reclaimed_bytes);
    text.counter("compaction_read_bytes_total", "Bytes of journal that compaction read.", read_bytes);
    let help = "Bytes that compaction appended again because something needs them.";
    text.counter("compaction_moved_bytes_total", help, moved_bytes);
    let help = "Segments that hold nothing needed but for snapshots that are older.";
    text.gauge("compaction_waiting_segments", help, waiting);
}

fn damage(text: &mut Text, damage: &[Damage]) {
    type Value = fn(&Damage) -> u64;
    let each: [(&str, &str, Value); 2] = [
        ("damaged_ranges", "Ranges of journal files that are not what was written, by kind.", |_| 1),
        ("damaged_bytes", "Bytes in damaged ranges, by kind.", |damage| damage.bytes),
    ];
    for (name, help, value) in each {
        text.family(name, "gauge", help);
        for (kind, word) in KINDS {
            let sum: u64 = damage.iter().filter(|damage| damage.kind == kind).map(value).sum();
            text.line(name, &format!("{{kind=\"{word}\"}}"), sum);
        }
    }
}

fn series(text: &mut Text, stats: &SeriesStats) {
    text.gauge("series", "Time series.", stats.series);
    text.gauge("series_memory_bytes", "Bytes of points in memory, which the journal keeps.", stats.memory_bytes);
    text.gauge("series_query_bytes", "Bytes of memory that questions hold now.", stats.query_bytes);
    text.gauge("series_names_bytes", "Bytes of series' names and their index in memory, nearly.", stats.names_bytes);
    text.gauge("series_files", "Sealed files of points.", stats.files);
    text.gauge("series_file_bytes", "Bytes in sealed files of points.", stats.file_bytes);
    text.gauge("series_blocks", "Blocks in sealed files.", stats.blocks);
    text.gauge("series_sealed_points", "Points in sealed files; one in several files counts in each.", stats.points);
    text.counter("series_points_written_total", "Points written.", stats.written);
    text.counter("series_points_refused_total", "Points refused because of their type or a limit.", stats.refused);
    text.counter("series_merges_total", "Files of points that merging made.", stats.merges);
    text.counter("series_merged_bytes_total", "Bytes of files of points that merging read.", stats.merged_bytes);
    text.counter("series_seal_failures_total", "Attempts to write points to files that failed.", stats.seal_failures);
    text.counter("series_merge_failures_total", "Attempts to merge files of points that failed.", stats.merge_failures);
    let help = "Points that queries needed not read, because a rollup said enough of them.";
    text.counter("series_rolled_up_points_total", help, stats.summarized);
    let help = "Ranges of time that were deleted and of which files still have points.";
    text.gauge("series_deleted_ranges", help, stats.erased);
    let help = "1 while points are refused because the disk is nearly full; else 0.";
    text.gauge("series_disk_low", help, u8::from(stats.is_disk_low));
}

fn continuous_queries(text: &mut Text, numbers: ContinuousNumbers) {
    let ContinuousNumbers { queries, runs, failed, rows, missed, nanos } = numbers;
    text.gauge("continuous_queries", "Continuous queries that are kept.", queries);
    text.counter("continuous_runs_total", "Runs of continuous queries that came to an end.", runs);
    text.counter("continuous_failures_total", "Runs of continuous queries that failed.", failed);
    text.counter("continuous_rows_total", "Rows that continuous queries wrote.", rows);
    let help = "Runs of continuous queries that later ones made up for.";
    text.counter("continuous_missed_total", help, missed);
    let help = "How long runs of continuous queries took, all together.";
    text.counter("continuous_run_seconds_total", help, nanos as f64 * NANOS);
}

fn scrub(text: &mut Text, stats: &ScrubStats) {
    text.counter(
        "scrubbed_bytes_total",
        "Bytes of sealed segments and files that the scrubber read and checked.",
        stats.bytes,
    );
    text.counter("scrub_rounds_total", "Rounds of the scrubber through all of them.", stats.rounds);
    let help = "How long the scrubber's last round took; 0 before the first.";
    text.gauge("scrub_round_seconds", help, stats.last_round.as_secs_f64());
    let help = "When the scrubber's last round ended, as a Unix time; 0 before the first.";
    text.gauge("scrub_round_end_seconds", help, stats.last_round_ms as f64 / 1000.0);
}

fn engine(text: &mut Text, stats: &Stats) {
    text.gauge("partitions", "Partitions of the store.", stats.partitions);
    text.gauge(
        "ledger_memory_bytes",
        "Bytes of the ledger in memory that are not written out yet.",
        stats.ledger_memory_bytes,
    );
    let help = "Writes that were held back because a ledger had much in memory, or compaction was far behind.";
    text.counter("delayed_writes_total", help, stats.delayed_writes);
    let help = "How long writes were held back, all together.";
    text.counter("write_delay_seconds_total", help, stats.write_delay.as_secs_f64());
    text.counter("expired_objects_total", "Objects that expired and were removed.", stats.expired);
}

fn doors(text: &mut Text, snapshot: &Snapshot) {
    text.family("connections", "gauge", "Open connections, by door.");
    for (door, numbers) in &snapshot.doors {
        text.line("connections", &format!("{{door=\"{door}\"}}"), numbers.connections);
    }
    for (door, numbers) in &snapshot.doors {
        if let Some(totals) = &numbers.totals {
            door_totals(text, door, totals);
        }
    }
    points(text, &snapshot.doors);
    let help = "Logins that failed, at all doors.";
    text.counter("failed_logins_total", help, snapshot.shared.options.users.failed_logins());
    text.family("http_answers_total", "counter", "Answers of the HTTP door, by class of status.");
    for (class, count) in snapshot.shared.answers.classes() {
        text.line("http_answers_total", &format!("{{class=\"{class}\"}}"), count);
    }
}

fn points(text: &mut Text, doors: &[(String, DoorNumbers)]) {
    type Value = fn(&PointTotals) -> u64;
    let each: [(&str, &str, Value); 7] = [
        ("points_written_total", "Points that were written, by door.", |of| of.written),
        ("points_refused_total", "Points that limits and types refused, by door.", |of| of.refused),
        ("points_lost_total", "Points that came in and could not be written, by door.", |of| of.lost),
        ("points_malformed_total", "Lines and data points that were not understood, by door.", |of| of.malformed),
        ("points_batches_total", "Batches of points, by door.", |of| of.batches),
        ("points_datagrams_total", "Datagrams that arrived, by door.", |of| of.datagrams),
        ("points_datagrams_dropped_total", "Datagrams without room for them, by door.", |of| of.datagrams_dropped),
    ];
    for (name, help, value) in each {
        text.family(name, "counter", help);
        for (door, points) in doors.iter().filter_map(|(door, numbers)| Some((door, numbers.points?))) {
            text.line(name, &format!("{{door=\"{door}\"}}"), value(&points));
        }
    }
}

fn door_totals(text: &mut Text, door: &str, totals: &DoorTotals) {
    let DoorTotals {
        connections_accepted,
        connections_rejected,
        commands,
        errors,
        hits,
        misses,
        received_bytes,
        sent_bytes,
    } = totals;
    for (name, help, value) in [
        ("connections_accepted", "Connections that were let in.", connections_accepted),
        ("connections_rejected", "Connections turned away because there were too many.", connections_rejected),
        ("commands", "Commands that arrived, unknown and refused ones included.", commands),
        ("errors", "Commands that were answered with an error.", errors),
        ("keyspace_hits", "Lookups of a key that found it.", hits),
        ("keyspace_misses", "Lookups of a key that did not find it.", misses),
        ("received_bytes", "Bytes that clients have sent, without what TLS adds.", received_bytes),
        ("sent_bytes", "Bytes that were sent to clients, without what TLS adds.", sent_bytes),
    ] {
        text.counter(&format!("{door}_{name}_total"), help, value);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use holdfast::Position;

    use super::*;

    fn rendered(act: impl FnOnce(&mut Text)) -> String {
        let mut text = Text(String::new());
        act(&mut text);
        text.0
    }

    #[test]
    fn a_summary_is_in_base_units() {
        let quantiles =
            Quantiles { count: 3, sum: 1_500_000_000, p50: 250_000_000, p99: 500_000_000, max: 750_000_000 };
        let text = rendered(|text| text.summary("x_seconds", "Help.", &quantiles, NANOS));
        let wanted = "# HELP holdfast_x_seconds Help.\n# TYPE holdfast_x_seconds summary\n\
            holdfast_x_seconds{quantile=\"0.5\"} 0.25\nholdfast_x_seconds{quantile=\"0.99\"} 0.5\n\
            holdfast_x_seconds{quantile=\"1\"} 0.75\nholdfast_x_seconds_sum 1.5\nholdfast_x_seconds_count 3\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn a_long_journal_gets_a_histogram_and_no_series_of_its_own() {
        let segment = |n| SegmentLive {
            base: Position::new(n),
            bytes: 100,
            live_bytes: n % 101,
            dead_bytes: 0,
            sealed: true,
            is_stub: false,
        };
        let stub = SegmentLive { is_stub: true, ..segment(0) };
        let few = rendered(|text| segments(text, &[segment(10), stub, segment(100)]));
        assert!(!few.contains("0000000000000000"), "a stub is no segment that is empty: {few}");
        for line in [
            "holdfast_segment_live_ratio_bucket{le=\"0.1\"} 1\n",
            "holdfast_segment_live_ratio_bucket{le=\"+Inf\"} 2\n",
            "holdfast_segment_live_ratio_sum 1.1\n",
            "holdfast_segment_live_bytes{segment=\"000000000000000a\"} 10\n",
        ] {
            assert!(few.contains(line), "no {line} in\n{few}");
        }
        let many: Vec<_> = (0..=SEGMENT_SERIES_MAX as u64).map(segment).collect();
        let many = rendered(|text| segments(text, &many));
        assert!(many.contains("_count 513\n") && !many.contains("holdfast_segment_live_bytes"), "{many}");
    }

    #[test]
    fn compaction_is_told_in_counters_and_what_is_under_way_in_gauges() {
        let stats = CompactionStats {
            is_running: true,
            segments: 2,
            reclaimed_bytes: 3,
            read_bytes: 4,
            moved_bytes: 5,
            waiting: 6,
        };
        let text = rendered(|text| compaction(text, &stats));
        for line in [
            "# TYPE holdfast_compaction_running gauge\nholdfast_compaction_running 1\n",
            "# TYPE holdfast_compaction_segments_total counter\nholdfast_compaction_segments_total 2\n",
            "\nholdfast_compaction_reclaimed_bytes_total 3\n",
            "\nholdfast_compaction_read_bytes_total 4\n",
            "\nholdfast_compaction_moved_bytes_total 5\n",
            "# TYPE holdfast_compaction_waiting_segments gauge\nholdfast_compaction_waiting_segments 6\n",
        ] {
            assert!(text.contains(line), "no {line} in\n{text}");
        }
    }

    #[test]
    fn what_is_dead_is_summed_and_delays_are_in_seconds() {
        let segment = |dead_bytes, is_stub| SegmentLive {
            base: Position::new(0),
            bytes: 100,
            live_bytes: 0,
            dead_bytes,
            sealed: true,
            is_stub,
        };
        let stats = Stats {
            segment_live: vec![segment(7, false), segment(0, true), segment(5, false)],
            write_delay: Duration::from_millis(1500),
            delayed_writes: 9,
            ..Stats::default()
        };
        let text = rendered(|text| {
            journal(text, &stats);
            engine(text, &stats);
        });
        for line in ["dead_bytes 12", "journal_stubs 1", "write_delay_seconds_total 1.5", "delayed_writes_total 9"] {
            assert!(text.contains(&format!("\nholdfast_{line}\n")), "no {line} in\n{text}");
        }
    }

    #[test]
    fn damage_is_counted_by_kind_and_kinds_without_any_are_there() {
        let one = |kind, bytes| {
            let (path, position) = (PathBuf::from("x"), Position::new(0));
            Damage { kind, path, offset: 0, bytes, position, reason: "tests" }
        };
        let all = [one(DamageKind::Record, 10), one(DamageKind::Record, 5), one(DamageKind::Torn, 1)];
        let text = rendered(|text| damage(text, &all));
        for line in [
            "ranges{kind=\"record\"} 2",
            "bytes{kind=\"record\"} 15",
            "ranges{kind=\"torn\"} 1",
            "ranges{kind=\"chain\"} 0",
        ] {
            assert!(text.contains(&format!("holdfast_damaged_{line}\n")), "no {line} in\n{text}");
        }
    }
}
