//! Continuous queries are kept as whatever else is kept: over restarts, power cuts and backups, and they go with their database.
#![allow(clippy::unwrap_used, reason = "tests stand outside the wall")]

use std::path::Path;
use std::sync::Arc;

use base::memory::Disk;
use holdfast::series::influxql::{self, ContinuousQuery, Document, Env, Epoch, Layout, Parameters};
use holdfast::series::{Retention, Rows, SeriesOptions, Source, ValueRef};
use holdfast::{Durability, ErrorKind, Limits, MemoryLedgers, Options, Store, World};

fn open(disk: &Disk, ledgers: &MemoryLedgers, dir: &str) -> Store {
    open_with(disk, ledgers, dir, Vec::new())
}

fn open_with(disk: &Disk, ledgers: &MemoryLedgers, dir: &str, retention: Vec<Retention>) -> Store {
    let world = World {
        files: Arc::new(disk.process()),
        clock: Arc::new(base::ManualClock::at(1_700_000_000_000)),
        ledgers: Arc::new(ledgers.clone()),
        threads: false,
        entropy: 42,
    };
    let options = Options {
        durability: Durability::Written,
        limits: Limits::tiny(),
        partitions: 4,
        series: SeriesOptions { retention, ..SeriesOptions::default() },
        ..Options::default()
    };
    Store::open_in(&world, Path::new(dir), options).unwrap()
}

fn query(database: &str, name: &str, text: &str) -> ContinuousQuery {
    ContinuousQuery { database: database.into(), name: name.into(), text: text.into(), through: 7 }
}

/// Names and how far they have come.
fn names(store: &Store) -> Vec<(String, i64)> {
    let all = store.series().continuous_queries().unwrap();
    assert_eq!(store.series().reader().continuous_queries().unwrap(), all);
    all.iter().map(|query| (format!("{}/{}", query.database, query.name), query.through)).collect()
}

fn wanted(all: &[(&str, i64)]) -> Vec<(String, i64)> {
    all.iter().map(|(name, through)| ((*name).to_owned(), *through)).collect()
}

#[test]
fn queries_survive_what_the_store_survives() {
    let (disk, ledgers) = (Disk::new(1), MemoryLedgers::default());
    let store = open(&disk, &ledgers, "/store");
    let series = store.series();
    assert_eq!(names(&store), []);
    let one = query("db", "one", "CREATE one");
    let created = series.create_continuous_query(&one).unwrap();
    series.create_continuous_query(&query("d", "b/one", "CREATE")).unwrap();
    // The same once more is nothing new, another of the name is refused.
    assert_eq!(series.create_continuous_query(&ContinuousQuery { through: 99, ..one.clone() }).unwrap(), created);
    let other = series.create_continuous_query(&query("db", "one", "CREATE other")).unwrap_err();
    assert_eq!((other.kind(), other.to_string().as_str()), (ErrorKind::Conflict, "continuous query already exists"));
    let noted = series.note_continuous_query(&one, 12).unwrap().unwrap();
    // Not of one that is not there, nor of one that is not any more what ran.
    assert_eq!(series.note_continuous_query(&query("db", "none", "CREATE"), 12).unwrap(), None);
    assert_eq!(series.note_continuous_query(&one, 13).unwrap(), None);
    assert!(!series.keeps_continuous_query(&one).unwrap());
    assert!(series.keeps_continuous_query(&ContinuousQuery { through: 12, ..one }).unwrap());
    store.wait(noted, Durability::Synced).unwrap();
    series.create_continuous_query(&query("db", "late", "CREATE")).unwrap();
    store.backup(Path::new("/backup")).unwrap();
    series.drop_continuous_query("db", "late").unwrap().unwrap();
    assert_eq!(series.drop_continuous_query("db", "late").unwrap(), None);
    let kept = wanted(&[("d/b/one", 7), ("db/one", 12)]);
    assert_eq!(names(&store), kept);
    disk.power_cut();
    drop((store, series));
    disk.power_on();
    ledgers.kill_process();
    let store = open(&disk, &ledgers, "/store");
    let found = names(&store);
    let with_late = wanted(&[("d/b/one", 7), ("db/late", 7), ("db/one", 12)]);
    assert!(found == kept || found == with_late, "{found:?}");
    assert_eq!(store.kv().buckets().unwrap().value, Vec::<Vec<u8>>::new(), "users see nothing of it");
    store.series().drop_continuous_query("db", "late").unwrap();
    store.close().unwrap();
    drop(store);
    let store = open(&disk, &ledgers, "/store");
    assert_eq!(names(&store), kept);
    let text = &store.series().continuous_queries().unwrap()[1].text;
    assert_eq!(text, "CREATE one");
    let (from, to) = (Path::new("/backup"), Path::new("/restored"));
    holdfast::restore_in(&disk, (from, to), holdfast::Restore::default(), &mut |_| ()).unwrap();
    assert_eq!(names(&open(&disk, &MemoryLedgers::default(), "/restored")), with_late);
}

#[test]
fn queries_go_with_their_database() {
    let (disk, ledgers) = (Disk::new(2), MemoryLedgers::default());
    let store = open(&disk, &ledgers, "/store");
    let series = store.series();
    let mut rows = Rows::new("db");
    let slot = rows.series(b"m", |_| Ok(("m".to_owned(), Vec::new()))).unwrap();
    rows.push(slot, 1, ValueRef::Float(1.0));
    series.write(&mut rows).unwrap();
    series.create_database("other").unwrap();
    for (database, name) in [("db", "a"), ("db", "b"), ("other", "a"), ("d", "b")] {
        series.create_continuous_query(&query(database, name, "CREATE")).unwrap();
    }
    assert_eq!(series.drop_database("db").unwrap().1, 1);
    assert_eq!(names(&store), wanted(&[("d/b", 7), ("other/a", 7)]));
    drop((store, series));
    let store = open(&disk, &ledgers, "/store");
    assert_eq!(names(&store), wanted(&[("d/b", 7), ("other/a", 7)]));
    assert_eq!(store.series().reader().databases().unwrap(), ["other"]);
}

#[test]
fn there_are_at_most_so_many_queries() {
    let (disk, ledgers) = (Disk::new(3), MemoryLedgers::default());
    let store = open(&disk, &ledgers, "/store");
    let create = |number: u32| store.series().create_continuous_query(&query("db", &number.to_string(), "CREATE"));
    for number in 0..1000 {
        create(number).unwrap();
    }
    assert_eq!(create(1000).unwrap_err().kind(), ErrorKind::Limit);
    create(999).unwrap();
    store.series().drop_continuous_query("db", "5").unwrap();
    create(1000).unwrap();
}

/// Retention is by pattern here; InfluxDB's clients are shown it as policies.
#[test]
fn retention_is_told_as_it_is_configured() {
    let keep = |database: &str, metric: &str, hours: u64| Retention {
        database: database.into(),
        metric: metric.into(),
        keep: std::time::Duration::from_secs(3600 * hours),
    };
    let retention = vec![keep("a*", "cpu.*", 24), keep("b", "x", 1), keep("*", "*", 24 * 7), keep("a*", "never", 1)];
    let (disk, ledgers) = (Disk::new(4), MemoryLedgers::default());
    for (retention, database, wanted) in [
        (vec![], "ab", "autogen,0s,168h0m0s,1,true"),
        (retention.clone(), "ab", "autogen,168h0m0s,24h0m0s,1,true\n,,cpu.*,24h0m0s,1h0m0s,1,false"),
        (retention.clone(), "b", "autogen,168h0m0s,24h0m0s,1,true\n,,x,1h0m0s,1h0m0s,1,false"),
        (retention[..2].to_vec(), "b", "autogen,0s,168h0m0s,1,true\n,,x,1h0m0s,1h0m0s,1,false"),
    ] {
        let store = open_with(&disk, &ledgers, "/store", retention);
        store.series().create_database(database).unwrap();
        let reader = store.series().reader();
        let statement = influxql::parse("SHOW RETENTION POLICIES", &Parameters::new()).unwrap().remove(0);
        let env = Env { source: &reader, database, now: 0, may_see: &|_| true };
        let mut document = Document::new(Layout::Csv, Epoch::Text, 1 << 20);
        document.begin(&statement);
        influxql::read(&env, &statement, &mut document).unwrap();
        let text = String::from_utf8(document.finish()).unwrap();
        assert_eq!(text, format!("name,tags,name,duration,shardGroupDuration,replicaN,default\n,,{wanted}\n"));
        store.close().unwrap();
    }
}
