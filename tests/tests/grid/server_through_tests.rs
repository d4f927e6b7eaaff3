//! Clients of a server that commit through the tables of its mirrors: by RESP, by HTTP and with the client library.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use client::{Client as Program, ConnectOptions, Through, TransactionOptions};
use holdfast::space::{Document, Wanted, WriteOptions};
use holdfast::{ErrorKind, Position};
use holdfast_tests::{Client, Launch, Random, Server, Value, say, until};
use tempfile::TempDir;

use super::databases::Postgres;
use super::scene::{Database, LONG, SCHEMA, order};
use super::server_tests::{DECLARE, entries, is_said, is_the_same, metric, scene};
use super::through_tests::{GATE, stands_at_gate};

fn ok(answer: &Value) {
    assert!(answer.error().is_none(), "{answer:?}");
}

fn json(id: i64, total: i64) -> String {
    format!(r#"{{"id":{id},"customer":"ada","total":{total}}}"#)
}

/// Sends a transaction that writes one entry, and commits it with these words.
fn commit(client: &mut Client, id: i64, total: i64, words: &str) -> Value {
    ok(&client.say("TX.BEGIN"));
    ok(&client.say(&format!("SPACE.WRITE shop order {}", json(id, total))));
    client.say(&format!("TX.COMMIT {words}"))
}

/// What an error says, and the code before it.
fn told(answer: &Value) -> &str {
    answer.error().unwrap_or_else(|| panic!("{answer:?}"))
}

/// The status of an answer, and its body.
fn post(address: SocketAddr, path: &str, body: &str) -> (u16, serde_json::Value) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let length = body.len();
    let head = "Host: x\r\nConnection: close\r\nContent-Type: application/json\r\n";
    write!(stream, "POST {path} HTTP/1.1\r\n{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}")))
}

/// A transaction over HTTP that writes one entry, and how its commit is answered.
fn post_commit(server: &Server, id: i64, total: i64, query: &str) -> (u16, serde_json::Value) {
    let (status, begun) = post(server.http(), "/transactions", "{}");
    assert_eq!(status, 201, "{begun}");
    let path = format!("/transactions/{}", begun["transaction"].as_str().unwrap());
    let write = format!(r#"{{"write":{{"space":"shop","type":"order","document":{}}}}}"#, json(id, total));
    let (status, answer) = post(server.http(), &path, &format!(r#"{{"operations":[{write}]}}"#));
    assert_eq!(status, 200, "{answer}");
    post(server.http(), &format!("{path}/commit{query}"), "")
}

/// A server whose mirror follows, and a client of it.
fn following(postgres: &Postgres) -> (TempDir, Launch, Server, Client) {
    let folder = tempfile::tempdir().unwrap();
    let (_, launch) = scene(folder.path(), postgres, "");
    let server = launch.start();
    let mut client = server.client();
    ok(&client.say(DECLARE));
    assert!(is_said(&server, "and follows"));
    (folder, launch, server, client)
}

fn connected(server: &Server) -> Program {
    Program::connect(ConnectOptions::new(&server.resp().to_string())).wait().unwrap()
}

/// What a program with the client library is answered.
fn program_commit(program: &Program, document: &Document, wait: Duration) -> holdfast::Result<Through> {
    let orders = program.space("shop").entries("order").wait()?;
    let mut transaction = program.begin(&TransactionOptions::default()).wait()?;
    transaction.write(&orders, document, &WriteOptions::default()).wait()?;
    transaction.commit_through(None, wait).wait()
}

#[test]
fn the_table_has_what_clients_were_answered() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    let (_folder, _, server, mut client) = following(&postgres);
    ok(&client.say("SPACE.DECLARE shop note"));
    let program = connected(&server);
    for round in 0..10 {
        let total = round * 10;
        let position = match commit(&mut client, 1, total, "THROUGH 60000") {
            Value::Integer(position) => position,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            database.pairs(r#"SELECT id, (document->>'total')::bigint FROM "order" WHERE id = 1"#),
            [(1, total)]
        );
        let (status, answer) = post_commit(&server, 2, total, "?through_ms=5000");
        assert_eq!((status, &answer["behind"]), (200, &serde_json::Value::Null), "{answer}");
        assert_eq!(
            database.table(),
            [(1, total), (2, total)].into_iter().chain((round > 0).then_some((3, total - 10))).collect::<Vec<_>>()
        );
        let through = program_commit(&program, &order(3, total), LONG).unwrap();
        assert_eq!(through.behind, None);
        assert!(through.position > Position::new(u64::try_from(position).unwrap()));
        assert_eq!(database.table(), [(1, total), (2, total), (3, total)]);
    }
    // What it does to keys, and to types that nobody follows, is committed with it; and what goes is gone in both.
    ok(&client.say("TX.BEGIN"));
    ok(&client.say("SET done yes"));
    ok(&client.say(r#"SPACE.WRITE shop note {"id":"a"}"#));
    assert_ne!(client.say("SPACE.TAKE shop order ID 2"), Value::Nil);
    ok(&client.say("TX.COMMIT THROUGH 60000 DURABILITY synced"));
    assert_eq!(database.table(), [(1, 90), (3, 90)]);
    assert_ne!(client.say("SPACE.READ shop note ID \"a\""), Value::Nil);
    assert_eq!(client.say("GET done").bytes(), Some(&b"yes"[..]));
    // What changes no entries needs no table.
    ok(&client.say("TX.BEGIN"));
    ok(&client.say("SET done twice"));
    ok(&client.say("TX.COMMIT THROUGH 1"));
    assert_eq!(client.say("GET done").bytes(), Some(&b"twice"[..]));
    // A script is a part of it like any other command.
    ok(&client.say("TX.BEGIN"));
    let script = format!("return redis.call('SPACE.WRITE', 'shop', 'order', '{}')", json(1, 95));
    client.add(&["EVAL", &script, "0"]);
    client.flush().unwrap();
    ok(&client.answer().unwrap());
    ok(&client.say("TX.COMMIT THROUGH 60000"));
    assert_eq!(database.table(), [(1, 95), (3, 90)]);
    assert!(is_the_same(&database, &server));
}

#[test]
fn what_cannot_be_written_through_changes_nothing() {
    let mut postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    database.run(r#"ALTER TABLE "order" ADD CHECK ((document->>'total')::bigint >= 0)"#);
    let folder = tempfile::tempdir().unwrap();
    let more = "[[mirrors]]\nname = \"notes\"\nspace = \"shop\"\ntype = \"note\"\nid = \"string\"\naddress_file = \"address\"\n";
    let (_, launch) = scene(folder.path(), &postgres, more);
    let server = launch.start();
    let mut client = server.client();
    for declare in [DECLARE, "SPACE.DECLARE shop note HISTORY", "SPACE.DECLARE shop other"] {
        ok(&client.say(declare));
    }
    assert!(is_said(&server, "everything of order in space shop, and follows"));
    assert!(is_said(&server, "everything of note in space shop, and follows"));
    ok(&commit(&mut client, 1, 10, "THROUGH 60000"));
    let program = connected(&server);
    // In the database's words.
    for answer in [commit(&mut client, 1, -5, "THROUGH 60000"), commit(&mut client, 2, -5, "THROUGH 60000")] {
        let told = told(&answer);
        assert!(told.starts_with("ERR nothing was changed: ") && told.contains("check constraint"), "{told}");
    }
    let (status, answer) = post_commit(&server, 2, -5, "?through_ms=5000");
    let text = answer["error"].as_str().unwrap();
    assert!(
        status == 400 && text.starts_with("nothing was changed: ") && text.contains("check constraint"),
        "{answer}"
    );
    let error = program_commit(&program, &order(2, -5), LONG).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("check constraint"), "{error}");
    // Of what nobody follows, or several do.
    ok(&client.say("TX.BEGIN"));
    ok(&client.say(r#"SPACE.WRITE shop other {"id":"a"}"#));
    assert!(told(&client.say("TX.COMMIT THROUGH 60000")).contains("no mirror follows the type other"));
    ok(&client.say("TX.BEGIN"));
    ok(&client.say(r#"SPACE.WRITE shop note {"id":"a"}"#));
    ok(&client.say(&format!("SPACE.WRITE shop order {}", json(2, 20))));
    let answer = client.say("TX.COMMIT THROUGH 60000");
    assert!(told(&answer).contains("several mirrors follow what is changed"), "{answer:?}");
    // It is over, and what was wrong with the words is told before.
    assert!(told(&client.say("TX.COMMIT THROUGH 60000")).starts_with("NOTX"));
    for (words, says) in [
        ("THROUGH 0", "1 to 60000"),
        ("THROUGH 60001", "1 to 60000"),
        ("THROUGH", "syntax"),
        ("THROUGH 1 THROUGH 1", "syntax"),
    ] {
        let answer = commit(&mut client, 2, 20, words);
        assert!(told(&answer).contains(says), "{words}: {answer:?}");
        // A failure has rolled it back.
        assert!(told(&client.say("TX.COMMIT")).starts_with("EXECABORT"));
    }
    for query in ["?through_ms=0", "?through_ms=3600000", "?through_ms=soon", "?through=3000", "?THROUGH_MS=3000"] {
        let (status, answer) = post_commit(&server, 2, 20, query);
        assert!(status == 400 && answer["error"].as_str().unwrap().contains("through_ms"), "{query}: {answer}");
        assert_eq!(answer["open"], true, "the transaction goes on: {answer}");
    }
    assert_eq!(entries(&server), [(1, 10)]);
    // The database is away.
    postgres.kill();
    let answer = commit(&mut client, 1, 11, "THROUGH 3000");
    let text = told(&answer);
    assert!(
        text.starts_with("UNAVAILABLE nothing was changed: ") || text.starts_with("TIMEOUT nothing was changed: "),
        "{text}"
    );
    let (status, answer) = post_commit(&server, 1, 11, "?through_ms=3000");
    assert!(status == 503 || status == 409, "{status} {answer}");
    let error = program_commit(&program, &order(1, 11), Duration::from_secs(3)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout), "{error}");
    assert_eq!(entries(&server), [(1, 10)]);
    // Who does not ask for it is not kept waiting.
    ok(&commit(&mut client, 3, 30, ""));
    postgres.run(0);
    let through = until(LONG, || commit(&mut client, 1, 11, "THROUGH 60000").error().is_none().then_some(()));
    assert!(through.is_some());
    let database = Database::connect(&postgres);
    assert_eq!(database.table(), [(1, 11), (3, 30)]);
}

#[test]
fn between_the_two_commits_clients_are_told_that_the_table_is_behind() {
    let postgres = Postgres::start(0);
    let gate = Database::connect(&postgres);
    gate.run(SCHEMA);
    let (_folder, _, server, mut client) = following(&postgres);
    gate.run(GATE);
    let program = connected(&server);
    let behind: [&dyn Fn(&mut Client) -> String; 3] = [
        &|client| {
            let answer = commit(client, 1, 10, "THROUGH 1000");
            let (position, why) = told(&answer).strip_prefix("BEHIND ").unwrap().split_once(' ').unwrap();
            assert!(position.parse::<u64>().unwrap() > 0);
            why.to_owned()
        },
        &|_| {
            let (status, answer) = post_commit(&server, 2, 20, "?through_ms=1000");
            assert_eq!(status, 202, "{answer}");
            assert!(u64::from_str_radix(answer["position"].as_str().unwrap(), 16).unwrap() > 0);
            answer["behind"].as_str().unwrap().to_owned()
        },
        &|_| program_commit(&program, &order(3, 30), Duration::from_secs(1)).unwrap().behind.unwrap(),
    ];
    for (number, commit) in (1..).zip(behind) {
        gate.run("SELECT pg_advisory_lock(7)");
        let why = commit(&mut client);
        assert!(why.contains("the target did not answer within"), "{why}");
        assert_eq!((entries(&server).len(), gate.table().len()), (number, number - 1), "{why}");
        stands_at_gate(&gate);
        gate.run("SELECT pg_advisory_unlock(7)");
        assert!(is_the_same(&gate, &server));
    }
    assert_eq!(gate.applied().into_values().map(|applied| applied.len()).collect::<Vec<_>>(), [1, 1, 1], "each once");
}

/// The answer was BEHIND, and the mirror failed: it waited for an event that there is not.
#[test]
fn another_lease_needs_no_table() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    let (_folder, _, server, mut client) = following(&postgres);
    ok(&client.say("SPACE.DECLARE shop other"));
    ok(&commit(&mut client, 1, 10, "THROUGH 60000"));
    for more in ["", r#"SPACE.WRITE shop other {"id":"a"}"#, r#"SPACE.CHANGE shop order 1 SET total 11"#] {
        ok(&client.say("TX.BEGIN"));
        assert_eq!(client.say("SPACE.RENEW shop order 1 LEASE 600000"), Value::Integer(1));
        if !more.is_empty() {
            ok(&client.say(more));
        }
        let answer = client.say("TX.COMMIT THROUGH 60000");
        // What changes no entry that anybody follows is refused only if it changes others.
        match more.contains("other") {
            true => assert!(told(&answer).contains("no mirror follows the type other"), "{answer:?}"),
            false => ok(&answer),
        }
    }
    assert_eq!(database.table(), [(1, 11)]);
    assert_eq!((metric(&server, "failures_total"), metric(&server, "up")), (0, 1));
}

/// Its statement waited on, and with it everybody behind, for as long as somebody else had the row locked.
#[test]
fn who_gave_up_on_a_locked_row_holds_up_nobody() {
    let postgres = Postgres::start(0);
    let (database, other) = (Database::connect(&postgres), Database::connect(&postgres));
    database.run(SCHEMA);
    let (_folder, _, server, mut client) = following(&postgres);
    ok(&commit(&mut client, 1, 10, "THROUGH 60000"));
    other.run(r#"BEGIN; SELECT * FROM "order" WHERE id = 1 FOR UPDATE"#);
    for round in 0..3 {
        let answer = commit(&mut client, 1, 11, "THROUGH 300");
        assert!(told(&answer).starts_with("TIMEOUT nothing was changed: "), "{answer:?}");
        // The other row is not locked.
        ok(&commit(&mut client, 2, round, "THROUGH 60000"));
        assert_eq!(database.table(), [(1, 10), (2, round)]);
    }
    other.run("ROLLBACK");
    ok(&commit(&mut client, 1, 12, "THROUGH 60000"));
    assert_eq!(database.table(), [(1, 12), (2, 2)]);
    assert_eq!(metric(&server, "failures_total"), 0);
}

/// Nobody made it anew while all that came was written through, and it was the row's fault.
#[test]
fn a_table_that_was_dropped_is_made_anew_for_who_writes_through() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    let (_folder, _, _server, mut client) = following(&postgres);
    ok(&commit(&mut client, 1, 10, "THROUGH 60000"));
    database.run(r#"DROP TABLE "order""#);
    let through = until(LONG, || {
        let answer = commit(&mut client, 2, 20, "THROUGH 60000");
        let told = answer.error().map(str::to_owned);
        assert!(told.as_ref().is_none_or(|told| told.starts_with("UNAVAILABLE nothing was changed: ")), "{told:?}");
        told.is_none().then_some(())
    });
    assert!(through.is_some());
    assert_eq!(database.table(), [(1, 10), (2, 20)]);
}

/// It was told that nobody follows, for good, while the mirror was about to begin.
#[test]
fn a_mirror_that_has_not_begun_yet_is_not_none() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (_, launch) = scene(folder.path(), &postgres, "");
    let server = launch.start();
    let mut client = server.client();
    for round in 0..3 {
        ok(&client.say(DECLARE));
        let through = until(LONG, || {
            let answer = commit(&mut client, 1, round, "THROUGH 60000");
            let told = answer.error().map(str::to_owned);
            assert!(told.as_ref().is_none_or(|told| told.starts_with("UNAVAILABLE ")), "{told:?}");
            told.is_none().then_some(())
        });
        assert!(through.is_some());
        assert_eq!(database.table(), [(1, round)]);
        ok(&client.say("SPACE.DROP shop order"));
        // As the documents say of a type that is another one.
        assert!(until(LONG, || (metric(&server, "up") == 0).then_some(())).is_some());
        database.run(r#"DELETE FROM holdfast_mirror; DELETE FROM "order""#);
    }
}

/// An answer that came counts, whoever is killed behind it; and what had none is in both or in neither, in the end.
#[test]
fn whatever_is_killed_the_table_has_once_what_clients_were_answered() {
    let mut postgres = Postgres::start(0);
    Database::connect(&postgres).run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (_, launch) = scene(folder.path(), &postgres, "");
    let mut server = launch.start();
    ok(&server.client().say(DECLARE));
    assert!(is_said(&server, "and follows"));
    let mut random = Random::new(Random::seed());
    let (mut total, mut answered, mut behind, mut kills) = (0, Vec::new(), 0, 0);
    for round in 0..12 {
        let address = server.resp();
        let writer = std::thread::spawn(move || {
            let (mut told, mut number) = (Vec::new(), 0);
            let Ok(mut client) = Client::connect(address) else { return told };
            while number < 150 {
                number += 1;
                let id = number % 5;
                let mine = total + number;
                client.add(&["TX.BEGIN"]);
                client.add(&["SPACE.WRITE", "shop", "order", &json(id, mine)]);
                client.add(&["TX.COMMIT", "THROUGH", "5000"]);
                if client.flush().is_err() {
                    break;
                }
                let answers: Vec<_> = (0..3).map_while(|_| client.answer().ok()).collect();
                let Some(last) = answers.get(2) else { break };
                told.push((id, mine, last.error().map(str::to_owned)));
            }
            told
        });
        std::thread::sleep(Duration::from_millis(random.below(150) as u64));
        let told = if random.below(2) == 0 {
            kills += 1;
            server.kill();
            let told = writer.join().unwrap();
            server = launch.start_again();
            told
        } else {
            postgres.kill();
            let told = writer.join().unwrap();
            postgres.run(0);
            told
        };
        // All of the round are below: what had no answer may have happened.
        total += 150;
        for (id, mine, error) in told {
            match error {
                None => answered.push((id, mine)),
                Some(error) if error.starts_with("BEHIND ") => behind += 1,
                Some(error) => assert!(error.contains("nothing was changed"), "{round}: {error}"),
            }
        }
        let database = Database::connect(&postgres);
        assert!(is_the_same(&database, &server), "{round}: {:?} {:?}", database.table(), entries(&server));
        let applied = database.applied();
        for (id, mine) in &answered {
            let count = applied.get(id).map_or(0, |all| all.iter().filter(|total| *total == mine).count());
            assert_eq!(count, 1, "{round}: {id} {mine}");
        }
        for (id, all) in &applied {
            assert!(all.windows(2).all(|two| two[0] < two[1]), "{id}: in order, and each once: {all:?}");
        }
    }
    assert!(!answered.is_empty());
    say(format_args!("written through a server: {} answered, {behind} behind, {kills} kills of 12", answered.len()));
}

/// In the process a transaction finds the mirror by the types that it changes, and is told when that is no more.
#[test]
fn a_program_commits_through_its_own_mirror_without_knowing_it() {
    use std::sync::Arc;

    use grid::{DocumentTable, IdKind, Mirror, NotThrough};
    use holdfast::Durability;

    use super::scene::{mirror, open, quick};

    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    let folder = tempfile::tempdir().unwrap();
    let (store, orders) = open(folder.path());
    let commit = |id: i64| {
        let mut transaction = store.begin();
        orders.within(&mut transaction).write(&order(id, id), &WriteOptions::default()).unwrap();
        transaction.commit_through(Durability::Written, LONG)
    };
    let nothing = |answer: Result<holdfast::Committed, NotThrough>, kind: ErrorKind, says: &str| match answer {
        Err(NotThrough::Nothing(error)) => assert!(error.kind() == kind && error.to_string().contains(says), "{error}"),
        other => panic!("{other:?}"),
    };
    nothing(commit(1), ErrorKind::Invalid, "no mirror follows the type order");
    let first = mirror(&orders, &postgres);
    commit(1).unwrap();
    assert_eq!(database.table(), [(1, 1)]);
    // The client library, on the same store.
    let program = Program::embedded(&store).unwrap();
    assert_eq!(program_commit(&program, &order(2, 2), LONG).unwrap().behind, None);
    assert_eq!(database.table(), [(1, 1), (2, 2)]);
    let mapping = DocumentTable::of(&orders.definition(), IdKind::Integer).in_table("copy");
    let options = grid::MirrorOptions { name: "copies".to_owned(), ..quick(postgres.connection()) };
    let second = Mirror::start(&orders, Arc::new(mapping), options).unwrap();
    nothing(commit(3), ErrorKind::Invalid, "several mirrors");
    second.stop();
    commit(3).unwrap();
    first.stop();
    nothing(commit(4), ErrorKind::Unavailable, "has stopped");
    let again = mirror(&orders, &postgres);
    commit(4).unwrap();
    assert_eq!(database.table(), [(1, 1), (2, 2), (3, 3), (4, 4)]);
    assert_eq!(orders.read_many(&Wanted::all(), 10).unwrap().len(), 4);
    again.stop();
}

#[test]
fn a_server_stops_though_a_commit_waits_for_its_table() {
    let postgres = Postgres::start(0);
    let gate = Database::connect(&postgres);
    gate.run(SCHEMA);
    let (_folder, launch, server, mut client) = following(&postgres);
    gate.run(GATE);
    gate.run("SELECT pg_advisory_lock(7)");
    ok(&client.say("TX.BEGIN"));
    ok(&client.say(&format!("SPACE.WRITE shop order {}", json(1, 10))));
    client.add(&["TX.COMMIT", "THROUGH", "60000"]);
    client.flush().unwrap();
    stands_at_gate(&gate);
    let mut late = server.client();
    ok(&late.say("TX.BEGIN"));
    ok(&late.say(&format!("SPACE.WRITE shop order {}", json(2, 20))));
    late.add(&["TX.COMMIT", "THROUGH", "60000"]);
    late.flush().unwrap();
    let begun = Instant::now();
    let (status, text) = server.terminate();
    assert!(status.success() && text.contains("stopped"), "{text}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    // Whoever is told something is told what is so.
    let told = |client: &mut Client| client.answer().ok().map(|answer| told(&answer).to_owned());
    let (first, second) = (told(&mut client), told(&mut late));
    assert!(first.as_deref().is_none_or(|told| told.starts_with("BEHIND ")), "{first:?}");
    assert!(second.as_deref().is_none_or(|told| told.contains("nothing was changed: ")), "{second:?}");
    gate.run("SELECT pg_advisory_unlock(7)");
    let server = launch.start_again();
    assert!(is_the_same(&gate, &server));
    assert_eq!(gate.table(), [(1, 10)]);
    assert_eq!(gate.applied().into_values().collect::<Vec<_>>(), [[10]], "once");
}
