//! Entries of spaces, in the process and on a server.

use std::time::{Duration, Instant};

use client::{Client, TransactionOptions};
use holdfast::space::{
    AtLimit, Change, Definition, Direction, Document, EvictBy, Hears, IndexDefinition, IndexKind, Lease, Listen,
    ListenName, NoticeKind, Order, Path, Placement, PreparedQuery, ReadOptions, Reason, SpaceUsage, Storage, Value,
    Wanted, WriteMode, WriteOptions,
};
use holdfast::{Condition, ErrorKind, PutOptions};

use crate::scene::{both, connect, declare, document, impatient, number, order, orders, upsert};

fn kind<T>(result: holdfast::Result<T>) -> ErrorKind {
    result.map(|_| ()).unwrap_err().kind()
}

fn mode(mode: WriteMode) -> WriteOptions {
    WriteOptions { mode, ..upsert() }
}

fn now() -> ReadOptions {
    ReadOptions::default()
}

fn waiting(millis: u64) -> ReadOptions {
    ReadOptions { wait: Some(Duration::from_millis(millis)), ..now() }
}

#[test]
fn every_mode_of_writing_has_its_outcome() {
    both(|client| {
        let orders = orders(client);
        let first = orders.write(&order(1, 10), &mode(WriteMode::Insert)).wait().unwrap();
        assert_eq!((first.id, first.previous), (1.into(), None));
        assert_eq!(kind(orders.write(&order(1, 11), &mode(WriteMode::Insert)).wait()), ErrorKind::Conflict);
        assert_eq!(kind(orders.write(&order(2, 11), &mode(WriteMode::Update)).wait()), ErrorKind::Conflict);
        let partial = document([("id", 1.into()), ("note", "new".into())]);
        let written = orders.write(&partial, &mode(WriteMode::Partial)).wait().unwrap();
        let previous = written.previous.unwrap();
        assert_eq!((previous.document, previous.version), (order(1, 10), first.version));
        assert!(written.version > first.version);
        let entry = orders.read(&Wanted::id(1), &now()).wait().unwrap().unwrap();
        assert_eq!(number(&entry.document, "total"), 10);
        assert_eq!(entry.version, written.version);
        let stale = WriteOptions { version: Some(first.version), ..upsert() };
        assert_eq!(kind(orders.write(&order(1, 12), &stale).wait()), ErrorKind::Conflict);
        let fits = WriteOptions { version: Some(entry.version), ..upsert() };
        orders.write(&order(1, 12), &fits).wait().unwrap();
        // An id is made, and is the one that finds it.
        let made = orders.write(&document([("total", 5.into())]), &upsert()).wait().unwrap();
        assert!(orders.read(&Wanted::id(made.id), &now()).wait().unwrap().is_some());
        let wrong = document([("id", Value::Bool(true))]);
        assert_eq!(kind(orders.write(&wrong, &upsert()).wait()), ErrorKind::Invalid);
    });
}

#[test]
fn ids_and_values_of_every_kind_come_back_as_they_were() {
    both(|client| {
        let orders = orders(client);
        let values = [
            Value::from("42"),
            Value::from("plain"),
            Value::from("{"),
            Value::from(""),
            Value::from("null"),
            Value::Bytes(vec![0, 255, 10]),
            Value::from(-7),
        ];
        for id in values {
            let all = document([
                ("id", id.clone()),
                ("float", Value::F64(3.0)),
                ("odd", Value::F64(f64::INFINITY)),
                ("decimal", Value::Decimal(holdfast::space::Decimal { mantissa: 1250, scale: 2 })),
                ("at", Value::Timestamp(1_700_000_000_123_456_789)),
                ("big", Value::U64(u64::MAX)),
                ("text", "línea\r\n\0".into()),
                ("list", Value::List(vec![1.into(), Value::Bool(true), "x".into()])),
                ("map", Value::Map([("$bytes".to_owned(), Value::from(1))].into())),
            ]);
            let written = orders.write(&all, &upsert()).wait().unwrap();
            assert_eq!(written.id, id);
            let read = orders.read(&Wanted::id(id.clone()), &now()).wait().unwrap().unwrap();
            assert_eq!(read.document, all);
            let by_template = Wanted::template(&document([("id", id.clone())]));
            assert_eq!(orders.count(&by_template).wait().unwrap(), 1, "{id:?}");
            let by_query = Wanted::query("id = ?", std::slice::from_ref(&id)).unwrap();
            assert_eq!(orders.count(&by_query).wait().unwrap(), 1, "{id:?}");
        }
    });
}

#[test]
fn many_are_written_read_and_taken_each_with_its_outcome() {
    both(|client| {
        let orders = orders(client);
        let documents: Vec<_> = (0..2_500).map(|id| order(id % 2_400, id)).collect();
        let outcomes = orders.write_many(&documents, &mode(WriteMode::Insert)).wait().unwrap();
        let wrong = outcomes.iter().filter(|outcome| outcome.is_err()).count();
        assert_eq!((outcomes.len(), wrong), (2_500, 100));
        assert!(outcomes[2_400..].iter().all(Result::is_err), "each in its place");
        assert_eq!(orders.write_many(&[], &upsert()).wait().unwrap().len(), 0);
        let wanted = Wanted::query("total < ? ORDER BY total DESC LIMIT 3", &[100.into()]).unwrap();
        let read = orders.read_many(&wanted, 10).wait().unwrap();
        let totals: Vec<i64> = read.iter().map(|entry| number(&entry.document, "total")).collect();
        assert_eq!(totals, [99, 98, 97]);
        let ids = orders.read_ids(&[5.into(), 99_999.into(), 7.into()]).wait().unwrap();
        let found: Vec<_> = ids.iter().map(|entry| entry.as_ref().map(|it| number(&it.document, "id"))).collect();
        assert_eq!(found, [Some(5), None, Some(7)]);
        assert_eq!(orders.read_ids(&[]).wait().unwrap(), []);
        let some = Wanted::query("total < ?", &[10.into()]).unwrap();
        assert_eq!(orders.take_many(&some, 4, &now()).wait().unwrap().len(), 4);
        assert_eq!(orders.take_many(&some, 100, &waiting(50)).wait().unwrap().len(), 6);
        assert_eq!(orders.take_many(&some, 100, &waiting(50)).wait().unwrap(), []);
        assert_eq!(orders.take_many(&Wanted::all(), 0, &now()).wait().unwrap(), []);
        let mut iteration = orders.iterate(&Wanted::query("total >= ?", &[100.into()]).unwrap()).wait().unwrap();
        let mut seen = Vec::new();
        loop {
            let batch = iteration.next(333).wait().unwrap();
            if batch.is_empty() {
                break;
            }
            seen.extend(batch.iter().map(|entry| number(&entry.document, "id")));
        }
        assert_eq!(iteration.next(1).wait().unwrap(), []);
        seen.sort_unstable();
        assert_eq!(seen, (100..2_400).collect::<Vec<_>>());
        assert_eq!(orders.clear(&Wanted::query("total >= 2000", &[]).unwrap(), None).wait().unwrap(), 400);
        assert_eq!(orders.count(&Wanted::all()).wait().unwrap(), 1_990);
        assert_eq!(orders.usage().wait().unwrap().entries, 1_990);
    });
}

#[test]
fn changes_travel_and_fit_or_nothing_happens() {
    both(|client| {
        let orders = orders(client);
        orders.write(&order(1, 10), &upsert()).wait().unwrap();
        let path = |text: &str| Path::parse(text).unwrap();
        let changes = [
            Change::Increment { path: path("total"), by: 5.into() },
            Change::Set { path: path("at.city"), value: "Ulm".into() },
            Change::Append { path: path("tags"), value: "a".into() },
            Change::AddUnique { path: path("tags"), value: "a".into() },
            Change::PutKey { path: path("map"), key: "k".to_owned(), value: "42".into() },
        ];
        let changed = orders.change(&Wanted::id(1), &changes, &upsert()).wait().unwrap().unwrap();
        assert_eq!(changed.before.document, order(1, 10));
        let json = r#"{"at":{"city":"Ulm"},"id":1,"map":{"k":"42"},"tags":["a"],"total":15}"#;
        assert_eq!(changed.now.document.to_json(), json);
        let changes = [
            Change::RemoveItem { path: path("tags"), value: "a".into() },
            Change::RemoveKey { path: path("map"), key: "k".to_owned() },
            Change::Unset { path: path("at") },
        ];
        orders.change(&Wanted::id(1), &changes, &upsert()).wait().unwrap().unwrap();
        assert_eq!(orders.change(&Wanted::id(9), &changes, &upsert()).wait().unwrap(), None);
        assert_eq!(kind(orders.change(&Wanted::id(1), &[], &upsert()).wait()), ErrorKind::Invalid);
        let fixed = [Change::Set { path: path("id"), value: 2.into() }];
        assert_eq!(kind(orders.change(&Wanted::id(1), &fixed, &upsert()).wait()), ErrorKind::Invalid);
        let stale = WriteOptions { version: Some(changed.now.version), ..upsert() };
        assert_eq!(kind(orders.change(&Wanted::id(1), &changes, &stale).wait()), ErrorKind::Conflict);
        assert_eq!(kind(orders.change(&Wanted::all(), &changes, &upsert()).wait()), ErrorKind::Invalid);
        for id in 2..20 {
            orders.write(&order(id, id), &upsert()).wait().unwrap();
        }
        let more = [Change::Increment { path: path("total"), by: 100.into() }];
        let small = Wanted::query("total < 10", &[]).unwrap();
        assert_eq!(orders.change_many(&small, &more, &upsert()).wait().unwrap(), 8);
        assert_eq!(orders.count(&Wanted::query("total > 100", &[]).unwrap()).wait().unwrap(), 8);
    });
}

#[test]
fn queries_are_answered_and_explained() {
    both(|client| {
        let definition = Definition::new("shop", "lines").index("city", IndexKind::Hash).unwrap();
        let lines = declare(client, definition);
        for (id, city) in ["Ulm", "Bonn", "Ulm", "Köln"].iter().enumerate() {
            let id = i64::try_from(id).unwrap();
            let line = document([("id", id.into()), ("city", (*city).into()), ("n", (id * 10).into())]);
            lines.write(&line, &upsert()).wait().unwrap();
        }
        let sql = "SELECT city, SUM(n) AS n FROM lines WHERE n >= ? GROUP BY city ORDER BY city";
        let rows = lines.select(sql, &[0.into()]).wait().unwrap();
        let rows: Vec<String> = rows.iter().map(|row| row.to_json()).collect();
        assert_eq!(rows, [r#"{"city":"Bonn","n":10}"#, r#"{"city":"Köln","n":30}"#, r#"{"city":"Ulm","n":20}"#]);
        assert_eq!(kind(lines.select("SELECT FROM", &[]).wait()), ErrorKind::Invalid);
        let query = PreparedQuery::new(sql).unwrap();
        let of_prepared = |from: i64| lines.select(&query, &[from.into()]).wait().unwrap();
        assert_eq!(of_prepared(20), lines.select(sql, &[20.into()]).wait().unwrap());
        assert_eq!(of_prepared(0).iter().map(|row| row.to_json()).collect::<Vec<_>>(), rows);
        let of_text = lines.select(sql, &[]).wait().unwrap_err();
        let error = lines.select(&query, &[]).wait().unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (of_text.kind(), of_text.to_string()));
        let by_city = PreparedQuery::new("city = ?").unwrap();
        for (city, count) in [("Ulm", 2), ("Jena", 0), ("Bonn", 1)] {
            let wanted = Wanted::query(&by_city, &[city.into()]).unwrap();
            assert_eq!(lines.count(&wanted).wait().unwrap(), count, "{city}");
            assert_eq!(lines.read_many(&wanted, 10).wait().unwrap().len() as u64, count, "{city}");
        }
        let mut transaction = client.begin(&Default::default()).wait().unwrap();
        let within = transaction.select(&lines, &query, &[0.into()]).wait().unwrap();
        assert_eq!(within.iter().map(|row| row.to_json()).collect::<Vec<_>>(), rows);
        assert_eq!(kind(transaction.select(&lines, &query, &[]).wait()), ErrorKind::Invalid);
        transaction.abort().wait().unwrap();
        let others: Vec<_> = (100..900).map(|id| document([("id", id.into()), ("city", "Jena".into())])).collect();
        lines.write_many(&others, &upsert()).wait().unwrap();
        let plans = lines.explain(&Wanted::query("city = 'Ulm'", &[]).unwrap()).wait().unwrap();
        assert_eq!(plans.len(), 16);
        assert!(plans.iter().all(|plan| plan.index.as_deref() == Some("city")), "{plans:?}");
        assert_eq!(plans.iter().map(|plan| plan.candidates).sum::<u64>(), 2);
        let plans = lines.explain(&Wanted::all()).wait().unwrap();
        assert!(plans.iter().all(|plan| plan.index.is_none()), "{plans:?}");
    });
}

#[test]
fn types_are_declared_changed_found_and_dropped() {
    both(|client| {
        let full = Definition {
            id: "key".to_owned(),
            routing: Some(Path::parse("group.name").unwrap()),
            lease_ms: Some(60_000),
            order: Order::Groups(Path::parse("group.name").unwrap()),
            history: true,
            memory_bytes_max: 64 << 20,
            at_limit: AtLimit::Evict,
            evict_by: Some(EvictBy { path: Path::parse("a").unwrap(), direction: Direction::Descending }),
            indexes: vec![IndexDefinition {
                name: "two".to_owned(),
                kind: IndexKind::Ordered,
                unique: false,
                paths: vec![Path::parse("a").unwrap(), Path::parse("at.b").unwrap()],
            }],
            ..Definition::new("shop", "full")
        };
        let declared = declare(client, full.clone());
        assert_eq!(*declared.definition(), full);
        let space = client.space("shop");
        assert_eq!(*space.entries("full").wait().unwrap().definition(), full);
        assert_eq!(space.types().wait().unwrap(), ["full"]);
        let fewer = Definition { indexes: Vec::new(), evict_by: None, ..full.clone() };
        space.declare(fewer.clone()).wait().unwrap();
        assert_eq!(*space.entries("full").wait().unwrap().definition(), fewer);
        let other = Definition { id: "other".to_owned(), ..full.clone() };
        assert_eq!(kind(space.declare(other).wait()), ErrorKind::Invalid);
        let elsewhere = Definition::new("elsewhere", "t");
        assert_eq!(kind(space.declare(elsewhere).wait()), ErrorKind::Invalid);
        assert_eq!(kind(space.entries("none").wait()), ErrorKind::Invalid);
        // Nobody has another's address, where all lie together.
        let email = IndexDefinition {
            name: "email".to_owned(),
            kind: IndexKind::Hash,
            unique: true,
            paths: vec![Path::parse("email").unwrap()],
        };
        let definition = Definition { indexes: vec![email], ..Definition::new("shop", "user") };
        assert_eq!(kind(space.declare(definition.clone()).wait()), ErrorKind::Invalid);
        let users = declare(client, Definition { placement: Placement::Together, ..definition });
        assert_eq!(users.definition().placement, Placement::Together);
        let user = |id: i64| Document::from_pairs([("id", Value::from(id)), ("email", "ada@x".into())]);
        users.write(&user(1), &upsert()).wait().unwrap();
        assert_eq!(kind(users.write(&user(2), &upsert()).wait()), ErrorKind::Conflict);
        assert!(space.drop_type("user").wait().unwrap());
        // The space's limit is of all of its types.
        assert_eq!(space.memory().wait().unwrap(), SpaceUsage { bytes: 0, bytes_max: None });
        space.limit_memory(Some(100)).wait().unwrap();
        assert_eq!(space.memory().wait().unwrap(), SpaceUsage { bytes: 0, bytes_max: Some(100) });
        // A type may evict for the space alone.
        let definition = Definition { at_limit: AtLimit::Evict, ..Definition::new("shop", "cache") };
        let cache = declare(client, definition.clone());
        assert_eq!(*cache.definition(), definition);
        let write = |id: &str| cache.write(&Document::from_pairs([("id", id)]), &upsert()).wait();
        assert_eq!(kind(write(&"x".repeat(100))), ErrorKind::Limit);
        ["a", "b"].iter().for_each(|id| drop(write(id).unwrap()));
        assert_eq!(cache.count(&Wanted::all()).wait().unwrap(), 1);
        space.limit_memory(None).wait().unwrap();
        assert!(space.drop_type("cache").wait().unwrap());
        assert!(space.drop_type("full").wait().unwrap());
        assert!(!space.drop_type("full").wait().unwrap());
        assert_eq!(kind(declared.count(&Wanted::all()).wait()), ErrorKind::Invalid);
    });
}

#[test]
fn leases_end_and_are_renewed() {
    both(|client| {
        let orders = orders(client);
        let short = WriteOptions { lease: Lease::For(Duration::from_millis(150)), ..upsert() };
        orders.write(&order(1, 1), &short).wait().unwrap();
        orders.write(&order(2, 2), &short).wait().unwrap();
        let begun = Instant::now();
        assert!(orders.renew(&Wanted::id(2), Lease::Forever, None).wait().unwrap());
        assert!(!orders.renew(&Wanted::id(3), Lease::Forever, None).wait().unwrap());
        while orders.read(&Wanted::id(1), &now()).wait().unwrap().is_some() {
            assert!(begun.elapsed() < Duration::from_secs(20));
        }
        assert!(begun.elapsed() >= Duration::from_millis(100), "never early");
        let left = orders.read(&Wanted::id(2), &now()).wait().unwrap().unwrap();
        assert_eq!(left.expires_ms, None);
    });
}

#[test]
fn who_waits_gets_the_entry_and_who_waits_too_long_nothing() {
    both(|client| {
        let orders = orders(client);
        let begun = Instant::now();
        assert_eq!(orders.take(&Wanted::all(), &waiting(80)).wait().unwrap(), None);
        assert!(begun.elapsed() >= Duration::from_millis(80));
        let waits = orders.take(&Wanted::template(&document([("total", 7.into())])), &waiting(20_000)).begin();
        while orders.waiters().wait().unwrap() == 0 {
            assert!(begun.elapsed() < Duration::from_secs(20));
        }
        orders.write(&order(1, 6), &upsert()).wait().unwrap();
        orders.write(&order(2, 7), &upsert()).wait().unwrap();
        let taken = waits.wait().unwrap().unwrap();
        assert_eq!(number(&taken.document, "id"), 2);
        assert_eq!(orders.count(&Wanted::all()).wait().unwrap(), 1);
        // Nothing is there, or nothing that is locked: no waiting.
        let if_exists = ReadOptions { if_exists: true, ..waiting(20_000) };
        assert_eq!(orders.take(&Wanted::id(99), &if_exists).wait().unwrap(), None);
        let of_version = ReadOptions { version: Some(taken.version), ..now() };
        assert_eq!(kind(orders.take(&Wanted::id(1), &of_version).wait()), ErrorKind::Conflict);
        let ordered = Wanted::query("total > 0 ORDER BY total", &[]).unwrap();
        assert_eq!(kind(orders.take(&ordered, &now()).wait()), ErrorKind::Invalid);
    });
}

#[test]
fn a_call_that_is_dropped_while_it_waits_takes_nothing() {
    both(|client| {
        let orders = orders(client);
        let waits = orders.take(&Wanted::all(), &waiting(60_000)).begin();
        let begun = Instant::now();
        while orders.waiters().wait().unwrap() == 0 {
            assert!(begun.elapsed() < Duration::from_secs(20));
        }
        drop(waits);
        while orders.waiters().wait().unwrap() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(20));
        }
        orders.write(&order(1, 1), &upsert()).wait().unwrap();
        assert_eq!(orders.count(&Wanted::all()).wait().unwrap(), 1);
    });
}

fn hear(client: &Client) {
    let orders = orders(client);
    let mut heard = orders.listen(&Wanted::all(), Listen::default()).wait().unwrap();
    let begin = heard.bookmark();
    orders.write(&order(1, 1), &upsert()).wait().unwrap();
    orders.write(&order(1, 2), &upsert()).wait().unwrap();
    orders.take(&Wanted::id(1), &now()).wait().unwrap();
    orders.write(&order(2, 1), &upsert()).wait().unwrap();
    orders.clear(&Wanted::all(), None).wait().unwrap();
    let soon = Duration::from_secs(20);
    let kinds = [NoticeKind::Written, NoticeKind::Updated, NoticeKind::Taken, NoticeKind::Written, NoticeKind::Taken];
    let mut all = Vec::new();
    for kind in kinds {
        let notice = heard.next(soon).wait().unwrap().unwrap();
        assert_eq!(notice.kind, kind);
        assert_eq!(heard.bookmark(), notice.bookmark);
        all.push(notice);
    }
    let (updated, taken, cleared) = (&all[1], &all[2], &all[4]);
    assert_eq!((updated.before.clone(), updated.after.clone()), (Some(order(1, 1)), Some(order(1, 2))));
    assert_eq!((taken.removed, cleared.removed), (Some(Reason::Taken), Some(Reason::Cleared)));
    assert_eq!(heard.next(Duration::from_millis(20)).wait().unwrap(), None);
    // Another one goes on behind any of them.
    let from = Listen { from: Some(all[1].bookmark), ..Listen::default() };
    let mut again = orders.listen(&Wanted::all(), from).wait().unwrap();
    for notice in &all[2..] {
        assert_eq!(again.next(soon).wait().unwrap().as_ref(), Some(notice));
    }
    let entered = Listen { from: Some(begin), hears: Hears::MATCHING, ..Listen::default() };
    let twos = Wanted::query("total = 2", &[]).unwrap();
    let mut matching = orders.listen(&twos, entered).wait().unwrap();
    let heard = [matching.next(soon), matching.next(soon)].map(|next| next.wait().unwrap().unwrap().kind);
    assert_eq!(heard, [NoticeKind::Entered, NoticeKind::Left]);
    let ahead: holdfast::space::Bookmark = "99999999999999.0".parse().unwrap();
    let wrong = Listen { from: Some(ahead), ..Listen::default() };
    assert_eq!(kind(orders.listen(&Wanted::all(), wrong).wait()), ErrorKind::Invalid);
}

#[test]
fn events_are_heard_once_in_order_and_again_from_a_bookmark() {
    both(hear);
}

/// A name was left out on a server without a word, and its listener began anew each time.
#[test]
fn a_listener_by_name_goes_on_behind_what_was_acknowledged() {
    both(|client| {
        let orders = orders(client);
        let soon = Duration::from_secs(20);
        let named = |retain_bytes| {
            let name = Some(ListenName { name: "mailer".to_owned(), retain_bytes });
            orders.listen(&Wanted::all(), Listen { name, ..Listen::default() }).wait()
        };
        let begin = named(Some(1 << 20)).unwrap().bookmark();
        for id in 1..=4 {
            orders.write(&order(id, 1), &upsert()).wait().unwrap();
        }
        let heard = |from: i64| {
            let mut mailer = named(None).unwrap();
            // Where it stands is before what it has not told yet.
            let stands = mailer.bookmark();
            assert!(stands < mailer.next(soon).wait().unwrap().unwrap().bookmark);
            let mut mailer = named(None).unwrap();
            let notices: Vec<_> = (from..=4).map(|_| mailer.next(soon).wait().unwrap().unwrap()).collect();
            let ids: Vec<_> = notices.iter().map(|notice| notice.after.clone().unwrap()).collect();
            assert_eq!(ids, (from..=4).map(|id| order(id, 1)).collect::<Vec<_>>());
            notices
        };
        let all = heard(1);
        assert!(begin < all[0].bookmark);
        assert_eq!(heard(1), all, "nothing was acknowledged");
        orders.acknowledge("mailer", all[1].bookmark).wait().unwrap();
        assert_eq!(heard(3), all[2..]);
        orders.acknowledge("mailer", all[0].bookmark).wait().unwrap();
        assert_eq!(heard(3), all[2..], "what was acknowledged is not taken back");
        assert_eq!(kind(orders.acknowledge("nosuch", all[0].bookmark).wait()), ErrorKind::Invalid);
        // Together with what was done about it, or not at all.
        let kv = client.kv();
        let get = |key: &str| kv.get(b"b", key.as_bytes()).wait().unwrap().is_some();
        let mut batch = client.batch();
        let _ = batch.put(b"b", b"3", b"done", &PutOptions::default());
        let acknowledged = batch.acknowledge(&orders, "mailer", all[2].bookmark);
        batch.commit().wait().unwrap().take(acknowledged).unwrap();
        assert_eq!((heard(4), get("3")), (all[3..].to_vec(), true));
        let mut batch = client.batch();
        let _ = batch.acknowledge(&orders, "mailer", all[3].bookmark);
        let _ = batch.put(b"b", b"3", b"again", &PutOptions { condition: Condition::Absent, ..PutOptions::default() });
        assert_eq!(kind(batch.commit().wait()), ErrorKind::Conflict);
        let mut batch = client.batch();
        let _ = batch.put(b"b", b"4", b"done", &PutOptions::default());
        let _ = batch.acknowledge(&orders, "nosuch", all[3].bookmark);
        assert_eq!(kind(batch.commit().wait()), ErrorKind::Invalid);
        let mut transaction = client.begin(&TransactionOptions::default()).wait().unwrap();
        transaction.put(b"b", b"4", b"done", &PutOptions::default()).wait().unwrap();
        transaction.acknowledge(&orders, "mailer", all[3].bookmark).wait().unwrap();
        assert_eq!((heard(4), get("4")), (all[3..].to_vec(), false), "nothing has happened yet");
        // Two that acknowledge exclude each other.
        let mut other = client.begin(&TransactionOptions::default()).wait().unwrap();
        other.acknowledge(&orders, "mailer", all[3].bookmark).wait().unwrap();
        transaction.commit(None).wait().unwrap();
        assert!(get("4") && named(None).unwrap().next(Duration::ZERO).wait().unwrap().is_none());
        assert_eq!(kind(other.commit(None).wait()), ErrorKind::Conflict);
        assert_eq!(kind(named(Some(u64::MAX))), ErrorKind::Limit);
    });
}

#[test]
fn all_entries_that_match_are_reduced_to_one_value() {
    both(|client| {
        let orders = orders(client);
        let documents: Vec<_> = (0..12_000).map(|id| order(id, id % 7)).collect();
        orders.write_many(&documents, &upsert()).wait().unwrap();
        let sum = |query: &str| {
            let wanted = if query.is_empty() { Wanted::all() } else { Wanted::query(query, &[]).unwrap() };
            let add = |(count, sum): &mut (u64, i64), document: &Document| {
                *count += 1;
                *sum += number(document, "total");
            };
            orders.reduce(&wanted, || (0, 0), add, |a, b| (a.0 + b.0, a.1 + b.1))
        };
        let total = (0..12_000).map(|id| id % 7).sum();
        assert_eq!(sum("").wait().unwrap(), (12_000, total));
        assert_eq!(sum("total = 3").wait().unwrap(), (1_714, 3 * 1_714));
        assert_eq!(sum("total > 7").wait().unwrap(), (0, 0));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let both = runtime.block_on(async { futures_util::join!(sum(""), sum("id < 10")) });
        assert_eq!((both.0.unwrap(), both.1.unwrap()), ((12_000, total), (10, 24)));
        for query in ["total = 3 LIMIT 5", "total = 3 ORDER BY id", "total = 3 ORDER BY id LIMIT 5 OFFSET 2"] {
            assert_eq!(kind(sum(query).wait()), ErrorKind::Invalid, "{query}");
        }
        assert!(client.space("shop").drop_type("orders").wait().unwrap());
        assert_eq!(kind(sum("").wait()), ErrorKind::Invalid);
    });
}

#[test]
fn entries_of_a_server_that_has_gone_are_not_reduced() {
    let folder = tempfile::TempDir::new().unwrap();
    let server = holdfast_tests::Launch::new(folder.path()).start();
    orders(&connect(&server)).write(&order(1, 1), &upsert()).wait().unwrap();
    let impatient = impatient(&server.resp().to_string());
    let orders = impatient.space("shop").entries("orders").wait().unwrap();
    server.kill();
    let count = orders.reduce(&Wanted::all(), || 0, |count, _| *count += 1, |a: i64, b| a + b);
    assert_eq!(kind(count.wait()), ErrorKind::Unavailable);
}

#[test]
fn an_event_wakes_who_waits_for_it() {
    both(|client| {
        let orders = orders(client);
        let mut heard = orders.listen(&Wanted::all(), Listen::default()).wait().unwrap();
        let next = heard.next(Duration::from_secs(30)).begin();
        let begun = Instant::now();
        orders.write(&order(1, 1), &upsert()).wait().unwrap();
        assert_eq!(next.wait().unwrap().unwrap().after, Some(order(1, 1)));
        assert!(begun.elapsed() < Duration::from_secs(10));
    });
}

#[test]
fn volatile_entries_are_written_and_taken_and_not_heard_of_from_afar() {
    both(|client| {
        let definition = Definition { storage: Storage::Volatile, ..Definition::new("shop", "sessions") };
        let sessions = declare(client, definition);
        sessions.write(&order(1, 1), &upsert()).wait().unwrap();
        let listening = sessions.listen(&Wanted::all(), Listen::default()).wait();
        assert_eq!(listening.is_err(), client.is_remote());
        assert!(sessions.take(&Wanted::id(1), &now()).wait().unwrap().is_some());
    });
}
