//! The example in Python: a program without a library of Holdfast's, by redis-py and the two-phase calls of DB-API.

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

fn xa_list(address: &str) -> String {
    let mut command = Command::new(holdfast());
    command.args(["xa", "list", "--address", address]);
    run(&mut command, b"", TIME_MAX).text
}
