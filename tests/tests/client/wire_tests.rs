//! What only a server can do wrong, and what only a wire can be asked for.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, ConnectOptions, Tls, TransactionOptions};
use holdfast::space::{Definition, Document, Order, ReadOptions, Value, Wanted, WriteMode, WriteOptions};
use holdfast::{Durability, ErrorKind, PutOptions};
use holdfast_tests::{Launch, say};
use tempfile::TempDir;

use crate::scene::{connect, declare, document, number, order, orders, upsert};

const WRITES: i64 = 10_000;

#[test]
fn ten_thousand_writes_are_on_the_way_together_and_stay_in_order() {
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).durability("written").start();
    let client = connect(&server);
    let queue = declare(&client, Definition { order: Order::Fifo, ..Definition::new("shop", "queue") });
    let begun = Instant::now();
    let calls: Vec<_> = (0..WRITES).map(|id| queue.write(&order(id, id), &upsert()).begin()).collect();
    let versions: Vec<_> = calls.into_iter().map(|call| call.wait().unwrap().version).collect();
    say!("{WRITES} pipelined writes in {:?}", begun.elapsed());
    assert!(versions.windows(2).all(|pair| pair[0] < pair[1]), "in the order of asking");
    let taken = queue.take_many(&Wanted::all(), 20_000, &ReadOptions::default()).wait().unwrap();
    let ids: Vec<i64> = taken.iter().map(|entry| number(&entry.document, "id")).collect();
    assert_eq!(ids, (0..WRITES).collect::<Vec<_>>());
    // The same when they are awaited, through a queue that holds a few hundred at a time.
    let options = ConnectOptions { queue_bytes_max: 64 << 10, ..ConnectOptions::new(&server.resp().to_string()) };
    let narrow = Client::connect(options).wait().unwrap().space("shop").entries("queue").wait().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let writes = (0..WRITES).map(|id| narrow.write(&order(id, id), &upsert()));
    let written = runtime.block_on(futures_util::future::join_all(writes));
    assert!(written.iter().all(Result::is_ok));
    let taken = queue.take_many(&Wanted::all(), 20_000, &ReadOptions::default()).wait().unwrap();
    let ids: Vec<i64> = taken.iter().map(|entry| number(&entry.document, "id")).collect();
    assert_eq!(ids, (0..WRITES).collect::<Vec<_>>());
}

#[test]
fn sixty_four_takers_get_each_entry_once() {
    const TAKERS: usize = 64;
    const ENTRIES: i64 = 3_000;
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).durability("written").start();
    let client = connect(&server);
    let jobs = orders(&client);
    let taken = AtomicUsize::new(0);
    let all: Vec<Vec<i64>> = thread::scope(|scope| {
        let takers: Vec<_> = (0..TAKERS)
            .map(|_| {
                scope.spawn(|| {
                    let options = ReadOptions { wait: Some(Duration::from_secs(30)), ..ReadOptions::default() };
                    let mut mine = Vec::new();
                    while taken.load(Ordering::SeqCst) < ENTRIES as usize {
                        let Some(entry) = jobs.take(&Wanted::all(), &options).wait().unwrap() else { break };
                        let id = number(&entry.document, "id");
                        if id < 0 {
                            break;
                        }
                        mine.push(id);
                        taken.fetch_add(1, Ordering::SeqCst);
                    }
                    mine
                })
            })
            .collect();
        for id in 0..ENTRIES {
            jobs.write(&order(id, id), &upsert()).wait().unwrap();
        }
        let begun = Instant::now();
        while taken.load(Ordering::SeqCst) < ENTRIES as usize {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} of {ENTRIES}", taken.load(Ordering::SeqCst));
            thread::yield_now();
        }
        // Those who still wait are sent home.
        for number in 1..=TAKERS {
            jobs.write(&order(-i64::try_from(number).unwrap(), 0), &upsert()).wait().unwrap();
        }
        takers.into_iter().map(|taker| taker.join().unwrap()).collect()
    });
    let mut ids: Vec<i64> = all.into_iter().flatten().collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..ENTRIES).collect::<Vec<_>>());
}

#[test]
fn a_wrong_password_and_a_name_without_rights_are_told() {
    let folder = TempDir::new().unwrap();
    let hash = holdfast_tests::run(
        std::process::Command::new(holdfast_tests::holdfast()).arg("hash-password"),
        b"secret\n",
        Duration::from_secs(60),
    );
    let hash = hash.text.lines().last().unwrap().trim().to_owned();
    let config = folder.path().join("holdfast.toml");
    let text = format!(
        "[[users]]\nname = \"ada\"\npassword_hash = \"{hash}\"\nbuckets = [{{ pattern = \"shop\", right = \"admin\" }}]\n"
    );
    std::fs::write(&config, text).unwrap();
    let server =
        Launch::new(&folder.path().join("data")).argument("--config").argument(config.to_str().unwrap()).start();
    let with = |login: Option<(&str, &str)>| {
        let login = login.map(|(user, password)| (user.to_owned(), password.to_owned()));
        Client::connect(ConnectOptions { login, ..ConnectOptions::new(&server.resp().to_string()) }).wait()
    };
    for login in [None, Some(("ada", "wrong")), Some(("eve", "secret"))] {
        let refused = with(login).map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert!(refused.to_string().contains("does not let this client in"), "{refused}");
    }
    let ada = with(Some(("ada", "secret"))).unwrap();
    let refused = ada.kv().put(b"other", b"k", b"v", &PutOptions::default(), None).wait().unwrap_err();
    assert!(refused.to_string().contains("NOPERM"), "{refused}");
    ada.kv().put(b"shop", b"k", b"v", &PutOptions::default(), None).wait().unwrap();
    let mut command = std::process::Command::new(holdfast_tests::holdfast());
    command.args(["xa", "list", "--address", &server.resp().to_string()]).env_remove("HOLDFAST_XA_PROFILE");
    let listed = holdfast_tests::run(&mut command, b"", Duration::from_secs(60));
    assert!(listed.code != Some(0) && listed.text.contains("--user, and --password-file"), "{}", listed.text);
    assert_eq!(ada.kv().get_value(b"shop", b"k").wait().unwrap(), Some(b"v".to_vec()));
}

#[test]
fn a_connection_is_encrypted_and_its_server_is_who_it_says() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let certificate = file("certificate.pem", &made.cert.pem());
    let key = file("key.pem", &made.signing_key.serialize_pem());
    let stranger = file("stranger.pem", &other.cert.pem());
    let text = format!("[resp.tls]\ncertificate = {certificate:?}\nkey = {key:?}\n");
    let config = file("holdfast.toml", &text);
    let launch = Launch::new(&folder.path().join("data")).argument("--config").argument(config.to_str().unwrap());
    let server = launch.start();
    let address = format!("localhost:{}", server.resp().port());
    let with = |authorities: Option<&std::path::PathBuf>, address: &str| {
        let tls = authorities.map(|authorities| Tls { authorities: authorities.clone() });
        let timeout = Duration::from_millis(2_000);
        Client::connect(ConnectOptions { tls, timeout, ..ConnectOptions::new(address) }).wait()
    };
    let client = with(Some(&certificate), &address).unwrap();
    let long = vec![7; 3 << 20];
    client.kv().put(b"b", b"k", &long, &PutOptions::default(), None).wait().unwrap();
    assert_eq!(client.kv().get_value(b"b", b"k").wait().unwrap(), Some(long));
    let jobs = orders(&client);
    let waits = ReadOptions { wait: Some(Duration::from_secs(20)), ..ReadOptions::default() };
    let waits = jobs.take(&Wanted::all(), &waits).begin();
    let calls: Vec<_> = (0..500).map(|id| jobs.write(&order(id, id), &upsert()).begin()).collect();
    calls.into_iter().for_each(|call| drop(call.wait().unwrap()));
    assert!(waits.wait().unwrap().is_some());
    let by_number = format!("127.0.0.1:{}", server.resp().port());
    for (authorities, address) in [(Some(&stranger), &address), (Some(&certificate), &by_number)] {
        let refused = with(authorities, address).map(|_| ()).unwrap_err();
        assert!(refused.kind() == ErrorKind::Invalid && refused.to_string().contains("certificate"), "{refused}");
    }
    let plain = with(None, &address).map(|_| ()).unwrap_err();
    assert_eq!(plain.kind(), ErrorKind::Unavailable, "{plain}");
    let nothing = with(Some(&config), &address).map(|_| ()).unwrap_err();
    assert!(nothing.kind() == ErrorKind::Invalid && nothing.to_string().contains("there are none"), "{nothing}");
}

/// A server that does this with its first connections, and what connecting to it says.
fn strange(serve: impl Fn(std::net::TcpStream) + Send + 'static) -> (ErrorKind, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = thread::spawn(move || serve(listener.accept().unwrap().0));
    let options = ConnectOptions { timeout: Duration::from_millis(300), ..ConnectOptions::new(&address) };
    let error = Client::connect(options).wait().map(|_| ()).unwrap_err();
    serving.join().unwrap();
    (error.kind(), error.to_string())
}

#[test]
fn what_is_no_holdfast_is_told_from_one() {
    let (kind, text) = strange(|mut socket| {
        let mut request = [0; 64];
        let _ = socket.read(&mut request).unwrap();
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    assert!(kind == ErrorKind::Unavailable && text.contains("does not speak RESP3"), "{text}");
    let (kind, text) = strange(drop);
    assert!(kind == ErrorKind::Unavailable && text.contains("127.0.0.1"), "{text}");
    let (kind, text) = strange(|mut socket| {
        let mut request = [0; 64];
        // It reads until the client gives up.
        while socket.read(&mut request).is_ok_and(|bytes| bytes > 0) {}
    });
    assert!(kind == ErrorKind::Unavailable && text.contains("does not answer within 300ms"), "{text}");
    let (kind, text) = strange(|mut socket| {
        let mut request = [0; 64];
        let _ = socket.read(&mut request).unwrap();
        socket.write_all(b"+HELLO\r\n").unwrap();
    });
    assert!(kind == ErrorKind::Invalid && text.contains("does not greet as a Holdfast server does"), "{text}");
    let nobody = Client::connect(ConnectOptions::new("127.0.0.1:1")).wait().map(|_| ()).unwrap_err();
    assert!(nobody.kind() == ErrorKind::Unavailable && nobody.to_string().contains("cannot reach"), "{nobody}");
    for (options, what) in [
        (ConnectOptions::new("127.0.0.1"), "host:port"),
        (ConnectOptions { servers: Vec::new(), ..ConnectOptions::new("") }, "no server is named"),
        (ConnectOptions { timeout: Duration::ZERO, ..ConnectOptions::new("a:1") }, "10 ms"),
        (ConnectOptions { connections_max: 0, ..ConnectOptions::new("a:1") }, "connections_max"),
        (ConnectOptions { name: Some("a b".to_owned()), ..ConnectOptions::new("a:1") }, "without spaces"),
    ] {
        let refused = Client::connect(options).wait().map(|_| ()).unwrap_err();
        assert!(refused.kind() == ErrorKind::Invalid && refused.to_string().contains(what), "{refused}");
    }
}

#[test]
fn what_is_too_long_is_refused_and_harms_nobody() {
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).durability("written").start();
    let client = connect(&server);
    let orders = orders(&client);
    let long = document([("id", 1.into()), ("text", "x".repeat((64 << 20) + 1).into())]);
    let refused = orders.write(&long, &upsert()).wait().unwrap_err();
    assert!(refused.kind() == ErrorKind::Limit && refused.to_string().contains("the limit is 67108864"), "{refused}");
    let outcomes = orders.write_many(&[order(1, 1), long.clone(), order(2, 2)], &upsert()).wait().unwrap();
    let kinds: Vec<_> = outcomes.iter().map(|it| it.as_ref().map(|_| ()).map_err(holdfast::Error::kind)).collect();
    assert_eq!(kinds, [Ok(()), Err(ErrorKind::Limit), Ok(())]);
    let value = vec![0; (64 << 20) + 1];
    let refused = client.kv().put(b"b", b"k", &value, &PutOptions::default(), None).wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Limit);
    // One who does not know the server's limit is told, and goes on with another connection.
    let options = ConnectOptions { value_bytes_max: 1 << 30, ..ConnectOptions::new(&server.resp().to_string()) };
    let bold = Client::connect(options).wait().unwrap();
    let refused = bold.kv().put(b"b", b"k", &value, &PutOptions::default(), None).wait().unwrap_err();
    say!("{:?}: {refused}", refused.kind());
    assert!(matches!(refused.kind(), ErrorKind::Invalid | ErrorKind::Unknown), "{refused}");
    assert_eq!(bold.kv().get_value(b"b", b"k").wait().unwrap(), None);
    // The largest that may be goes through.
    client.kv().put(b"b", b"k", &value[..64 << 20], &PutOptions::default(), None).wait().unwrap();
    assert_eq!(client.kv().get_value(b"b", b"k").wait().unwrap().map(|it| it.len()), Some(64 << 20));
}

#[test]
fn many_calls_on_the_way_are_not_too_late_while_answers_come() {
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).durability("written").start();
    let timeout = Duration::from_secs(1);
    orders(&connect(&server));
    let options =
        ConnectOptions { timeout, queue_bytes_max: 1 << 30, ..ConnectOptions::new(&server.resp().to_string()) };
    let jobs = Client::connect(options).wait().unwrap().space("shop").entries("orders").wait().unwrap();
    let text = "x".repeat(2_000);
    let begun = Instant::now();
    let calls: Vec<_> = (0..60_000_i64)
        .map(|id| jobs.write(&document([("id", id.into()), ("text", text.as_str().into())]), &upsert()).begin())
        .collect();
    calls.into_iter().for_each(|call| drop(call.wait().unwrap()));
    say!("60,000 calls in {:?}, {timeout:?} for each answer", begun.elapsed());
    assert_eq!(orders(&connect(&server)).count(&Wanted::all()).wait().unwrap(), 60_000);
}

#[test]
fn what_a_server_cannot_be_told_is_refused_and_not_passed_over() {
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).start();
    let orders = orders(&connect(&server));
    let timed = WriteOptions { lock_timeout: Some(Duration::from_secs(1)), ..upsert() };
    let canceled = ReadOptions { cancel: Some(holdfast::space::Cancel::new()), ..ReadOptions::default() };
    let error = orders.take(&Wanted::all(), &canceled).wait().map(|_| ()).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("leave"), "{error}");
    for lease in [Duration::ZERO, Duration::from_secs(3_601)] {
        let error = orders.iterate(&Wanted::all()).wait().unwrap().with_lease(lease).map(|_| ()).unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("3600000"), "{error}");
    }
    // How long to wait for a lock is told for one, and for many.
    orders.write(&order(1, 1), &timed).wait().unwrap();
    orders.write_many(&[order(1, 1)], &timed).wait().unwrap().pop().unwrap().unwrap();
}

#[test]
fn where_one_is_in_an_iteration_is_remembered_as_long_as_it_says() {
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).start();
    let client = connect(&server);
    let orders = orders(&client);
    (1..=3).for_each(|id| drop(orders.write(&order(id, 1), &upsert()).wait().unwrap()));
    let with = |ms| orders.iterate(&Wanted::all()).wait().unwrap().with_lease(Duration::from_millis(ms)).unwrap();
    let (mut short, mut long) = (with(1), with(3_600_000));
    assert_eq!((short.next(1).wait().unwrap().len(), long.next(1).wait().unwrap().len()), (1, 1));
    let until = Instant::now() + Duration::from_millis(2);
    while Instant::now() < until {
        std::thread::yield_now();
    }
    assert_eq!(short.next(1).wait().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(long.next(5).wait().unwrap().len(), 2);
    let mut open = client.begin(&TransactionOptions::default()).wait().unwrap();
    let mut within = open.iterate(&orders, &Wanted::all()).with_lease(Duration::from_secs(60)).unwrap();
    assert_eq!(open.next_of(&mut within, 2).wait().unwrap().len(), 2);
    assert_eq!(open.next_of(&mut within, 2).wait().unwrap().len(), 1);
}

#[test]
fn a_durability_is_asked_for_and_a_value_that_is_no_json_number_survives() {
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).start();
    let orders = orders(&connect(&server));
    for durability in [Durability::Synced, Durability::Written] {
        let options = WriteOptions { durability: Some(durability), mode: WriteMode::Upsert, ..WriteOptions::default() };
        let odd = Document::from_pairs([("id", Value::from(1)), ("odd", Value::F64(-0.0))]);
        orders.write(&odd, &options).wait().unwrap();
        let read = orders.read(&Wanted::id(1), &ReadOptions::default()).wait().unwrap().unwrap();
        assert_eq!(read.document, odd);
    }
}
