//! Mirrors that a server runs, as its configuration says: clients that never heard of them, kills of either side, and repair while it
//! serves.

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_tests::{Client, Launch, Random, Server, Value, http_get, say, until};

use super::databases::Postgres;
use super::scene::{Database, LONG, SCHEMA};

pub(crate) const DECLARE: &str = "SPACE.DECLARE shop order HISTORY";

/// A configuration with this in it, whose mirror `orders` is of the type `order`, and the folder of the store.
pub(crate) fn scene(folder: &Path, postgres: &Postgres, more: &str) -> (PathBuf, Launch) {
    let config = folder.join("holdfast.toml");
    std::fs::write(folder.join("address"), format!("{}\n", postgres.connection())).unwrap();
    let orders = "[[mirrors]]\nname = \"orders\"\nspace = \"shop\"\ntype = \"order\"\naddress_file = \"address\"\n";
    std::fs::write(&config, format!("durability = \"written\"\n{orders}{more}")).unwrap();
    let launch = Launch::new(&folder.join("data")).argument("--config").argument(&config.display().to_string());
    (config, launch)
}

fn write(client: &mut Client, id: i64, total: i64) {
    let answer = client.say(&format!(r#"SPACE.WRITE shop order {{"id":{id},"customer":"ada","total":{total}}}"#));
    assert!(answer.error().is_none(), "{answer:?}");
}

/// The JSON of an entry.
pub(crate) fn document_of(entry: &Value) -> String {
    let Value::Array(parts) = entry else { panic!("{entry:?}") };
    let json = parts.iter().filter_map(Value::bytes).find(|bytes| bytes.starts_with(b"{")).unwrap();
    String::from_utf8(json.to_vec()).unwrap()
}

/// What the space has, as the table has it.
pub(crate) fn entries(server: &Server) -> Vec<(i64, i64)> {
    let answer = server.client().say("SPACE.MREAD shop order ANY COUNT 10000");
    let Value::Array(all) = &answer else { panic!("{answer:?}") };
    let number = |json: &str, field: &str| -> i64 {
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        value[field].as_i64().unwrap()
    };
    let texts = all.iter().map(document_of);
    let mut all: Vec<(i64, i64)> = texts.map(|json| (number(&json, "id"), number(&json, "total"))).collect();
    all.sort_unstable();
    all
}

pub(crate) fn is_the_same(database: &Database, server: &Server) -> bool {
    let wanted = entries(server);
    until(LONG, || (database.table() == wanted).then_some(())).is_some()
}

pub(crate) fn metric(server: &Server, name: &str) -> u64 {
    let line = format!("holdfast_mirror_{name}{{mirror=\"orders\"}} ");
    let text = http_get(server.http(), "/metrics");
    let found = text.lines().find_map(|it| it.strip_prefix(&line));
    found.unwrap_or_else(|| panic!("no {line} in {text}")).parse().unwrap()
}

pub(crate) fn is_said(server: &Server, words: &str) -> bool {
    server.output().wait_for(LONG, |line| line.contains(words).then_some(())).is_some()
}

#[test]
fn what_clients_write_is_in_the_table_once_whoever_is_killed() {
    let mut postgres = Postgres::start(0);
    Database::connect(&postgres).run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (_, launch) = scene(folder.path(), &postgres, "");
    let mut server = launch.start();
    assert!(is_said(&server, "mirror orders: "), "it says what it waits for");
    assert_eq!(metric(&server, "up"), 0);
    assert_eq!(server.client().say(DECLARE), Value::Simple("OK".to_owned()));
    // What happens during the copy that it begins with is in the copy, and applied to it.
    assert!(is_said(&server, "and follows"));
    let mut random = Random::new(7);
    let mut newest: i64 = 0;
    for round in 0..8 {
        let mut client = server.client();
        for _ in 0..100 {
            newest += 1;
            // Totals grow, so that what is applied to a row shows its order, and nothing twice.
            write(&mut client, (newest * 7) % 40, newest);
            if newest % 9 == 0 {
                let id = (newest * 7) % 40;
                assert!(client.say(&format!("SPACE.TAKE shop order ID {id}")).error().is_none());
            }
        }
        match random.below(3) {
            0 => {
                server.kill();
                server = launch.start_again();
            }
            1 => {
                postgres.kill();
                write(&mut client, 1, newest);
                postgres.run(0);
            }
            _ if round % 2 == 0 => {
                let (status, text) = server.terminate();
                assert!(status.success(), "{text}");
                server = launch.start_again();
            }
            _ => {}
        }
    }
    let database = Database::connect(&postgres);
    assert!(is_the_same(&database, &server), "{:?} {:?}", database.table(), entries(&server));
    for (id, applied) in database.applied() {
        let puts: Vec<i64> = applied.iter().copied().filter(|total| *total >= 0).collect();
        assert!(puts.is_sorted(), "{id}: {applied:?}");
        // The one that is written twice with one total is number 1.
        assert!(id == 1 || puts.windows(2).all(|two| two[0] < two[1]), "{id}: {applied:?}");
    }
    assert!(until(LONG, || (metric(&server, "up") == 1).then_some(())).is_some());
    say(format_args!("mirror by a server: {newest} writes, {} applied", database.applied().len()));
}

#[test]
fn rows_become_entries_at_the_start_and_what_was_taken_stays_away() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    let rows = (0..1200).map(|id| format!(r#"({id}, '{{"id":{id},"customer":"ada","total":{id}}}')"#));
    database.run(&format!(r#"INSERT INTO "order" VALUES {}"#, rows.collect::<Vec<_>>().join(", ")));
    let folder = tempfile::tempdir().unwrap();
    let (_, launch) = scene(folder.path(), &postgres, "load = true\n");
    let server = launch.start();
    let mut client = server.client();
    assert_eq!(client.say(DECLARE), Value::Simple("OK".to_owned()));
    assert!(is_said(&server, "its table has 1200 rows, of which 1200 were no entries and are now"));
    assert_eq!(metric(&server, "loaded_total"), 1200);
    assert!(client.say("SPACE.TAKE shop order ID 7").error().is_none());
    write(&mut client, 8, 88);
    assert!(is_the_same(&database, &server));
    server.kill();
    let server = launch.start_again();
    assert!(is_said(&server, "its table has 1199 rows, of which 0 were no entries"));
    assert_eq!(entries(&server).len(), 1199);
    let (status, text) = server.terminate();
    assert!(status.success(), "{text}");
}

#[test]
fn a_mirror_that_ended_begins_anew_while_the_server_serves() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let volatile = "[[mirrors]]\nname = \"quotes\"\nspace = \"shop\"\ntype = \"quote\"\naddress = \"user=shop\"\n";
    let (_, launch) = scene(folder.path(), &postgres, volatile);
    let server = launch.start();
    let mut client = server.client();
    assert_eq!(client.say("SPACE.DECLARE shop quote VOLATILE"), Value::Simple("OK".to_owned()));
    assert!(is_said(&server, "mirror quotes: the type quote is volatile"));
    assert_eq!(client.say(DECLARE), Value::Simple("OK".to_owned()));
    write(&mut client, 1, 10);
    assert!(is_the_same(&database, &server));
    let (status, _) = server.terminate();
    assert!(status.success());
    // As a store finds it that was put in the place of another one.
    database.run("UPDATE holdfast_mirror SET follows = 'type order of another store'");
    let server = launch.start_again();
    write(&mut server.client(), 2, 20);
    assert!(is_said(&server, "delete the row orders of holdfast_mirror"));
    assert_eq!(
        (metric(&server, "up"), database.table()),
        (0, vec![(1, 10)]),
        "it begins again now and then, and is not up"
    );
    database.run("DELETE FROM holdfast_mirror");
    assert!(is_the_same(&database, &server));
    assert!(until(LONG, || (metric(&server, "up") == 1).then_some(())).is_some());
    assert!(metric(&server, "failures_total") > 0);
}

#[test]
fn a_server_stops_though_its_database_does_not_answer() {
    let mut postgres = Postgres::start(0);
    let folder = tempfile::tempdir().unwrap();
    let (_, launch) = scene(folder.path(), &postgres, "load = true\n");
    let server = launch.start();
    let mut client = server.client();
    assert_eq!(client.say(DECLARE), Value::Simple("OK".to_owned()));
    assert!(is_said(&server, "its table has everything of order in space shop, and follows"));
    postgres.kill();
    // An address that takes connections and says nothing.
    let silent = std::net::TcpListener::bind(("127.0.0.1", postgres.port())).unwrap();
    // The connection that the mirror has outlives the server for a moment: what is written then may be in the table.
    let is_told = until(LONG, || {
        write(&mut client, 1, 10);
        let heard = |line: &str| line.contains("tried again until it goes").then_some(());
        server.output().wait_for(Duration::from_secs(1), heard)
    });
    assert!(is_told.is_some());
    let (status, text) = server.terminate();
    assert!(status.success() && text.contains("stopped"), "{text}");
    drop(silent);
    postgres.run(0);
    let server = launch.start_again();
    let database = Database::connect(&postgres);
    assert!(
        until(Duration::from_secs(60), || (database.texts("SELECT document->>'total' FROM \"order\"") == ["10"])
            .then_some(()))
        .is_some()
    );
    assert_eq!(entries(&server), [(1, 10)]);
}

/// The server waited for it for ever when it was to stop, and the mirror was up meanwhile.
#[test]
fn a_table_that_is_locked_is_told_of_and_holds_up_no_stop() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (_, launch) = scene(folder.path(), &postgres, "load = true\n");
    let server = launch.start();
    assert_eq!(server.client().say(DECLARE), Value::Simple("OK".to_owned()));
    assert!(is_said(&server, "and follows"));
    let (status, _) = server.terminate();
    assert!(status.success());
    database.run(r#"BEGIN; LOCK TABLE "order" IN ACCESS EXCLUSIVE MODE"#);
    let server = launch.start_again();
    write(&mut server.client(), 1, 10);
    // By what follows, or by the load, whichever comes to it first; a load that has begun before the entry was written waits a minute for what follows.
    let is_told = |line: &str| line.contains("something there has locked it").then_some(());
    assert!(server.output().wait_for(2 * LONG, is_told).is_some());
    assert_eq!(metric(&server, "up"), 0);
    database.run("ROLLBACK");
    assert!(is_the_same(&database, &server));
    database.run(r#"BEGIN; LOCK TABLE "order" IN ACCESS EXCLUSIVE MODE"#);
    // Whether it is the load that waits now, or what follows.
    write(&mut server.client(), 2, 20);
    let (status, text) = server.terminate();
    assert!(status.success() && text.contains("stopped"), "{text}");
}

/// The new one went on from the old one's bookmark, and rows of the old one became its entries.
#[test]
fn a_type_that_is_declared_anew_is_another_one() {
    let mut postgres = Postgres::start(0);
    Database::connect(&postgres).run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (_, launch) = scene(folder.path(), &postgres, "load = true\n");
    let server = launch.start();
    let mut client = server.client();
    assert_eq!(client.say(DECLARE), Value::Simple("OK".to_owned()));
    write(&mut client, 1, 10);
    assert!(is_the_same(&Database::connect(&postgres), &server));
    postgres.kill();
    assert_eq!(client.say("SPACE.DROP shop order"), Value::Integer(1));
    assert_eq!(client.say(DECLARE), Value::Simple("OK".to_owned()));
    server.kill();
    postgres.run(0);
    let server = launch.start_again();
    assert!(is_said(&server, "delete the row orders of holdfast_mirror"));
    assert_eq!(entries(&server), []);
    let database = Database::connect(&postgres);
    database.run("TRUNCATE \"order\"; DELETE FROM holdfast_mirror");
    write(&mut server.client(), 2, 20);
    assert!(is_the_same(&database, &server));
}

/// How HTTP answers for an entry, and the body.
fn got(server: &Server, id: &str) -> (String, String) {
    let answer = http_get(server.http(), &format!("/spaces/shop/types/order/entries/{id}"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[test]
fn what_was_evicted_is_read_from_the_table_and_what_was_taken_is_not() {
    let mut postgres = Postgres::start(0);
    Database::connect(&postgres).run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (_, launch) = scene(folder.path(), &postgres, "read_through = true\n");
    let server = launch.start();
    let mut client = server.client();
    let declare = format!("{DECLARE} MEMORY 32768 EVICT");
    assert_eq!(client.say(&declare), Value::Simple("OK".to_owned()));
    assert!(is_said(&server, "and follows"));
    for id in 0..600 {
        write(&mut client, id, id * 10);
    }
    let database = Database::connect(&postgres);
    assert!(until(LONG, || (database.table().len() == 600).then_some(())).is_some());
    assert!(entries(&server).len() < 600, "some were evicted");
    for id in 0..600 {
        let json = document_of(&client.say(&format!("SPACE.READ shop order ID {id}")));
        assert!(json.contains(&format!("\"total\":{}}}", id * 10)), "{id}: {json}");
    }
    assert!(metric(&server, "loaded_total") > 0);
    let (status, body) = got(&server, "3");
    assert!(status.contains("200") && body.contains("\"total\":30"), "{status} {body}");
    // Many at a time, each to whom it belongs.
    let some = (0..600).step_by(7);
    for id in some.clone() {
        client.add(&["SPACE.READ", "shop", "order", "ID", &id.to_string()]);
    }
    client.flush().unwrap();
    for id in some {
        let json = document_of(&client.answer().unwrap());
        assert!(json.contains(&format!("\"id\":{id},")), "{id}: {json}");
    }
    // What is not there, is of another kind, or was taken a moment ago.
    for id in ["7000", "\"7\"", "-1"] {
        assert_eq!(client.say(&format!("SPACE.READ shop order ID {id}")), Value::Nil, "{id}");
    }
    assert!(got(&server, "7000").0.contains("404"));
    for id in 0..50 {
        let there = client.say(&format!("SPACE.READ shop order ID {id}"));
        assert_ne!(there, Value::Nil, "{id}");
        assert_ne!(client.say(&format!("SPACE.TAKE shop order ID {id}")), Value::Nil, "{id}");
        assert_eq!(client.say(&format!("SPACE.READ shop order ID {id}")), Value::Nil, "{id}");
    }
    assert!(got(&server, "3").0.contains("404"));
    // Transactions, and who names a version, read what the space has.
    client.say("SPACE.READ shop order ID 599");
    assert_eq!(client.say("TX.BEGIN").error(), None);
    let within: Vec<Value> = (50..600).map(|id| client.say(&format!("SPACE.READ shop order ID {id}"))).collect();
    assert!(within.contains(&Value::Nil) && within.iter().all(|answer| answer.error().is_none()));
    assert_eq!(client.say("TX.ABORT").error(), None);
    // A row that is none of the type is its reader's trouble alone.
    database.run(r#"INSERT INTO "order" VALUES (9000, '{"id": 9001}'), (9002, '{"id": 9002, "total": 1}')"#);
    let mut other = server.client();
    for (client, id) in [(&mut client, "9000"), (&mut other, "9002")] {
        client.add(&["SPACE.READ", "shop", "order", "ID", id]);
        client.flush().unwrap();
    }
    let answer = client.answer().unwrap();
    let error = answer.error().unwrap_or_default();
    assert!(error.contains("the document of the row 9000 has another id"), "{answer:?}");
    assert!(document_of(&other.answer().unwrap()).contains("9002"));
    // The database is away: nobody is told that there is nothing.
    let missing = (50..600).find(|id| within[*id as usize - 50] == Value::Nil).unwrap();
    // Of those that were missing then, one that nobody has asked for since.
    postgres.kill();
    let answer = client.say("SPACE.READ shop order ID 8000");
    let error = answer.error().unwrap_or_default().to_owned();
    assert!(error.contains("its table cannot be asked now") && !error.contains("127.0.0.1"), "{answer:?}");
    assert_ne!(client.say("SPACE.READ shop order ID 9002"), Value::Nil, "what is there needs no table");
    assert!(got(&server, "8000").0.contains("503"));
    postgres.run(0);
    let back = until(LONG, || {
        let answer = client.say(&format!("SPACE.READ shop order ID {missing}"));
        (answer != Value::Nil && answer.error().is_none()).then_some(())
    });
    assert!(back.is_some());
    let (status, text) = server.terminate();
    assert!(status.success(), "{text}");
}

/// What was evicted before the mirror had begun was in no table, and gone.
#[test]
fn what_was_evicted_before_its_table_was_there_comes_into_it() {
    let mut postgres = Postgres::start(0);
    let folder = tempfile::tempdir().unwrap();
    let (_, launch) = scene(folder.path(), &postgres, "read_through = true\n");
    postgres.kill();
    let server = launch.start();
    let mut client = server.client();
    let declare = format!("{DECLARE} MEMORY 32768 EVICT");
    assert_eq!(client.say(&declare), Value::Simple("OK".to_owned()));
    for id in 0..600 {
        write(&mut client, id, id);
    }
    for id in 0..20 {
        write(&mut client, id, id + 1000);
    }
    assert!(client.say("SPACE.READ shop order ID 30").error().is_some_and(|text| text.starts_with("UNAVAILABLE")));
    postgres.run(0);
    assert!(is_said(&server, "and follows"));
    let database = Database::connect(&postgres);
    let wanted: Vec<(i64, i64)> = (0..600).map(|id| (id, if id < 20 { id + 1000 } else { id })).collect();
    assert!(until(LONG, || (database.table() == wanted).then_some(())).is_some(), "{:?}", database.table());
    let json = document_of(&client.say("SPACE.READ shop order ID 30"));
    assert!(json.contains("\"total\":30"), "{json}");
    let answer = client.say("SPACE.READ shop order ID 30 ROUTING 31");
    assert_eq!(answer, Value::Nil, "another routing value than its own");
}

/// The row that was on its way was older than what had been written and evicted meanwhile, and stood over it.
#[test]
fn a_row_that_comes_late_does_not_stand_over_what_was_written_meanwhile() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (_, launch) = scene(folder.path(), &postgres, "read_through = true\n");
    let server = launch.start();
    let mut client = server.client();
    assert_eq!(client.say(&format!("{DECLARE} MEMORY 32768 EVICT")), Value::Simple("OK".to_owned()));
    assert!(is_said(&server, "and follows"));
    for id in 0..600 {
        write(&mut client, id, id);
    }
    assert!(until(LONG, || (database.table().len() == 600).then_some(())).is_some());
    let absent = (0..600).find(|id| !entries(&server).iter().any(|(there, _)| there == id)).unwrap();
    database.run(r#"BEGIN; LOCK TABLE "order" IN ACCESS EXCLUSIVE MODE"#);
    let mut reader = server.client();
    reader.add(&["SPACE.READ", "shop", "order", "ID", &absent.to_string()]);
    reader.flush().unwrap();
    // The reader's question waits for the table by now; what is written then is not in it.
    let other = Database::connect(&postgres);
    let asks = "SELECT 'x' FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'SELECT%ANY%'";
    assert!(until(LONG, || (!other.texts(asks).is_empty()).then_some(())).is_some());
    write(&mut client, absent, 999);
    for id in 1000..1600 {
        write(&mut client, id, id);
    }
    database.run("ROLLBACK");
    let json = document_of(&reader.answer().unwrap());
    assert!(json.contains("\"total\":999"), "{json}");
    let json = document_of(&client.say(&format!("SPACE.READ shop order ID {absent}")));
    assert!(json.contains("\"total\":999"), "{json}");
}
