//! Mirrors and loaders by TLS: both databases verified, and what is said when they are not who they should be.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use grid::{Database, DatabaseTls, DocumentTable, IdKind, Loaded, Loader, Mirror, MirrorOptions};
use holdfast::space::{Entries, WriteOptions};
use holdfast::{ErrorKind, Store};
use holdfast_tests::until;
use mysql_async::prelude::Queryable;

use super::certificates::{Authority, Signed};
use super::databases::{MariaDb, Postgres};
use super::scene::{LONG, entries, open, order, quick};

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}

fn trusting(authorities: &Path) -> DatabaseTls {
    DatabaseTls { authorities: authorities.to_owned(), identity: None }
}

fn started(orders: &Entries, database: Database, in_mariadb: bool) -> Mirror {
    let mapping = DocumentTable::of(&orders.definition(), IdKind::Integer);
    let mapping = if in_mariadb { mapping.in_mariadb() } else { mapping };
    Mirror::start(orders, Arc::new(mapping), MirrorOptions { target: database, ..quick("") }).unwrap()
}

/// A mirror and a loader of this database work by TLS, and say what is wrong with certificates.
fn works(address: &str, in_mariadb: bool, (authority, stranger): (&Path, &Path)) {
    let folder = tempfile::tempdir().unwrap();
    let (store, orders): (Store, Entries) = open(folder.path());
    orders.write(&order(1, 10), &WriteOptions::default()).unwrap();
    let database = |address: &str, tls: Option<DatabaseTls>| Database { address: address.to_owned(), tls };
    let trouble = |database: Database| {
        let mirror = started(&orders, database, in_mariadb);
        until(LONG, || mirror.stats().trouble).unwrap()
    };
    let strange = trouble(database(address, Some(trusting(stranger))));
    assert!(strange.contains("signed by nobody who is trusted"), "{strange}");
    let elsewhere = trouble(database(&address.replace("127.0.0.1", "localhost"), Some(trusting(authority))));
    assert!(elsewhere.contains("is for another name than the one that was connected to"), "{elsewhere}");
    // The server lets nobody in without.
    let plain = trouble(database(address, None));
    assert!(plain.contains("no encryption") || plain.contains("Access denied"), "{plain}");
    let running = started(&orders, database(address, Some(trusting(authority))), in_mariadb);
    assert!(running.flush(LONG), "{:?}", running.stats());
    let mut transaction = store.begin();
    orders.within(&mut transaction).write(&order(2, 20), &WriteOptions::default()).unwrap();
    running.commit(transaction, store.durability(), LONG).unwrap();
    let loader = Loader::beside(&store, &running).unwrap();
    assert_eq!(loader.load().unwrap(), Loaded { rows: 2, written: 0 });
    assert!(loader.read(&3.into(), LONG).unwrap().is_none());
    assert_eq!(entries(&orders), [(1, 10), (2, 20)]);
    // What cannot be used is told at once.
    let nowhere = database(address, Some(trusting(Path::new("/nowhere/ca.pem"))));
    let mapping = Arc::new(DocumentTable::of(&orders.definition(), IdKind::Integer));
    let refused = Loader::new(&store, &orders, mapping, &nowhere).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("cannot use the certificates in /nowhere/ca.pem"), "{refused}");
}

fn certificates() -> (Authority, Signed, tempfile::TempDir) {
    let authority = Authority::new();
    let server = authority.sign(&["127.0.0.1"], "server", 2100);
    let folder = tempfile::tempdir().unwrap();
    file(folder.path(), "ca.pem", &authority.certificate);
    file(folder.path(), "stranger.pem", &Authority::new().certificate);
    (authority, server, folder)
}

#[test]
fn postgres_is_reached_by_tls() {
    let (_authority, server, folder) = certificates();
    let mut postgres = Postgres::start(0);
    let cert = postgres.give("tls-cert.pem", &server.certificate).display().to_string();
    let key = postgres.give("tls-key.pem", &server.key).display().to_string();
    let rules = postgres.give("rules", "hostssl all all 127.0.0.1/32 trust\n").display().to_string();
    postgres.restart_with(vec![
        "ssl=on".to_owned(),
        format!("ssl_cert_file={cert}"),
        format!("ssl_key_file={key}"),
        format!("hba_file={rules}"),
    ]);
    let files = (folder.path().join("ca.pem"), folder.path().join("stranger.pem"));
    works(&postgres.connection(), false, (&files.0, &files.1));
}

#[test]
fn mariadb_is_reached_by_tls() {
    let (_authority, server, folder) = certificates();
    let mut mariadb = MariaDb::start();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let cert = mariadb.give("tls-cert.pem", &server.certificate).display().to_string();
    let key = mariadb.give("tls-key.pem", &server.key).display().to_string();
    mariadb.restart_with(vec![format!("--port={port}"), format!("--ssl-cert={cert}"), format!("--ssl-key={key}")]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = Some(mariadb.socket().display().to_string());
        let options = mysql_async::OptsBuilder::default().user(Some("root")).socket(socket);
        let mut root = mysql_async::Conn::new(options).await.unwrap();
        root.query_drop("CREATE DATABASE shop").await.unwrap();
        for user in ["shop@'127.0.0.1'", "shop@localhost"] {
            root.query_drop(format!("CREATE USER {user} REQUIRE SSL")).await.unwrap();
            root.query_drop(format!("GRANT ALL ON shop.* TO {user}")).await.unwrap();
        }
        root.disconnect().await.unwrap();
    });
    let files = (folder.path().join("ca.pem"), folder.path().join("stranger.pem"));
    works(&format!("mysql://shop@127.0.0.1:{port}/shop"), true, (&files.0, &files.1));
}
