//! The example in Python: a program without a library of Holdfast's, by redis-py and the two-phase calls of DB-API.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use holdfast_tests::{Client, Finished, Launch, Value, holdfast, python, run};
use tokio_postgres::NoTls;

use crate::databases::Postgres;

const TIME_MAX: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_example_moves_money_and_notes_it_or_neither() {
    let postgres = Postgres::start(10);
    let folder = tempfile::tempdir().unwrap();
    let server = Launch::new(&folder.path().join("data")).start();
    let (client, connection) = tokio_postgres::connect(&postgres.connection(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let accounts = "CREATE TABLE accounts (name TEXT PRIMARY KEY, money INT CHECK (money >= 0));
                    INSERT INTO accounts VALUES ('ada', 10), ('bo', 0)";
    client.batch_execute(accounts).await.unwrap();
    let conninfo = postgres.connection();
    let port = server.resp().port().to_string();
    let transfer_between = |source: &str, target: &str, amount: &str| -> Finished {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/python/transfer.py");
        let mut command = Command::new(python());
        command.arg(script).args([port.as_str(), conninfo.as_str(), source, target, amount]);
        run(&mut command, b"", TIME_MAX)
    };
    let transfer = |amount: &str| transfer_between("ada", "bo", amount);

    // The answer to EXEC is lost, and redis-py sends all of it once more: that is no failure, and happens once.
    let losing = loses_an_answer(server.resp());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/python/transfer.py");
    let mut command = Command::new(python());
    command.arg(script).args([losing.to_string().as_str(), conninfo.as_str(), "ada", "bo", "0"]);
    let repeated = run(&mut command, b"", TIME_MAX);
    assert_eq!(repeated.code, Some(0), "{}", repeated.text);
    let prepared = client.query_one("SELECT count(*) FROM pg_prepared_xacts", &[]).await.unwrap();
    assert_eq!(prepared.get::<_, i64>(0), 0);

    let moved = transfer("7");
    assert_eq!(moved.code, Some(0), "{}", moved.text);
    let refused = transfer("4");
    assert!(refused.code != Some(0) && refused.text.contains("violates check"), "{}", refused.text);

    // It made money: an update of no row is no error.
    for (source, target) in [("nobody", "bo"), ("ada", "nobody")] {
        let refused = transfer_between(source, target, "1");
        assert!(refused.code != Some(0) && refused.text.contains("there is no account nobody"), "{}", refused.text);
    }

    let money = client.query("SELECT money FROM accounts ORDER BY name", &[]).await.unwrap();
    assert_eq!(money.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [3, 7]);
    let prepared = client.query_one("SELECT count(*) FROM pg_prepared_xacts", &[]).await.unwrap();
    assert_eq!(prepared.get::<_, i64>(0), 0);
    let mut holdfast = Client::connect(server.resp()).unwrap();
    let note = holdfast.say(&format!("KV.GET transfers {}", moved.text.trim()));
    let value = matches!(&note, Value::Array(reply) if reply.first() == Some(&Value::from("ada gave bo 7")));
    assert!(value, "{note:?}");
    let listed = xa_list(&server.resp().to_string());
    assert!(!listed.contains("=open"), "{listed}");
}

/// A port behind which the server is, but for the answer to the first EXEC: there the connection breaks. Serves two connections.
fn loses_an_answer(server: SocketAddr) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for is_lost in [true, false] {
            let (client, server) = (listener.accept().unwrap().0, TcpStream::connect(server).unwrap());
            for stream in [&client, &server] {
                stream.set_read_timeout(Some(TIME_MAX)).unwrap();
            }
            let (mut from_server, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            let answers = std::thread::spawn(move || std::io::copy(&mut from_server, &mut to_client));
            let (mut from_client, mut to_server, mut bytes) = (client, server, [0; 4096]);
            while let Ok(count @ 1..) = from_client.read(&mut bytes) {
                if is_lost && bytes[..count].windows(4).any(|word| word == b"EXEC") {
                    // Nothing more comes through; the server has it all the same.
                    from_client.shutdown(Shutdown::Both).unwrap();
                    to_server.write_all(&bytes[..count]).unwrap();
                    to_server.shutdown(Shutdown::Write).unwrap();
                    break;
                }
                if to_server.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            // Either side may have closed.
            let _ = (to_server.shutdown(Shutdown::Write), answers.join());
        }
    });
    port
}

fn xa_list(address: &str) -> String {
    let mut command = Command::new(holdfast());
    command.args(["xa", "list", "--address", address]);
    run(&mut command, b"", TIME_MAX).text
}
