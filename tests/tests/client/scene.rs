//! A store in the process and one on a server, for tests that ask the same of both.

use client::{Client, ConnectOptions, Entries};
use holdfast::space::{Definition, Document, Value, WriteOptions};
use holdfast::{Options, Store};
use holdfast_tests::{Launch, Server, say};
use tempfile::TempDir;

/// Runs the test over a store in the process, then over a server.
pub(crate) fn both(test: impl Fn(&Client)) {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path(), Options::default()).unwrap();
    say!("in the process");
    test(&Client::embedded(&store).unwrap());
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).start();
    say!("on a server");
    test(&connect(&server));
}

pub(crate) fn connect(server: &Server) -> Client {
    Client::connect(ConnectOptions::new(&server.resp().to_string())).wait().unwrap()
}

/// A server of its own configuration; one that is about scripts lets them take long, because machines may be busy.
pub(crate) fn configured(folder: &TempDir, configuration: &str) -> Launch {
    let file = folder.path().join("holdfast.toml");
    std::fs::write(&file, configuration).unwrap();
    Launch::new(&folder.path().join("data")).argument("--config").argument(file.to_str().unwrap())
}

/// A client of a server that will be gone: as patient as a busy machine needs while it is there, and no more.
pub(crate) fn impatient(address: &str) -> Client {
    let timeout = std::time::Duration::from_secs(3);
    Client::connect(ConnectOptions { timeout, ..ConnectOptions::new(address) }).wait().unwrap()
}

pub(crate) fn declare(client: &Client, definition: Definition) -> Entries {
    client.space(&definition.space.clone()).declare(definition).wait().unwrap()
}

pub(crate) fn orders(client: &Client) -> Entries {
    declare(client, Definition { history: true, ..Definition::new("shop", "orders") })
}

pub(crate) fn document<const N: usize>(pairs: [(&str, Value); N]) -> Document {
    Document::from_pairs(pairs)
}

pub(crate) fn order(id: i64, total: i64) -> Document {
    document([("id", id.into()), ("total", total.into())])
}

pub(crate) fn upsert() -> WriteOptions {
    WriteOptions::default()
}

/// The integer at a field.
pub(crate) fn number(document: &Document, field: &str) -> i64 {
    match document.get(field).map(|value| value.to_value()) {
        Some(Value::I64(number)) => number,
        other => panic!("{field} is {other:?} in {}", document.to_json()),
    }
}
