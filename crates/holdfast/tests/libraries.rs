//! Libraries of scripts are kept by name, over restarts and backups, and no bucket of the users'.

use holdfast::{Durability, ErrorKind, Options, Store};

#[test]
fn a_library_survives_reopening_and_is_hidden_from_users() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options { durability: Durability::Written, ..Options::default() };
    let store = Store::open(dir.path(), options()).unwrap();
    let before = store.digest().unwrap();
    store.libraries().put("stock", b"first").unwrap();
    store.libraries().put("audit", b"second").unwrap();
    store.libraries().put("stock", b"third").unwrap();
    let both = [("audit".to_owned(), b"second".to_vec()), ("stock".to_owned(), b"third".to_vec())];
    assert_eq!(store.libraries().list().unwrap(), both);
    assert!(store.kv().buckets().unwrap().value.is_empty());
    assert_ne!(store.digest().unwrap(), before);
    drop(store);

    let store = Store::open(dir.path(), options()).unwrap();
    assert_eq!(store.libraries().list().unwrap(), both);
    let backup = tempfile::tempdir().unwrap();
    store.backup(backup.path().join("b")).unwrap();
    store.libraries().remove(&["stock", "nosuch"]).unwrap();
    assert_eq!(store.libraries().list().unwrap(), both[..1]);
    drop(store);
    let store = Store::open(dir.path(), options()).unwrap();
    assert_eq!(store.libraries().list().unwrap(), both[..1]);

    let restored = dir.path().join("restored");
    holdfast::restore(backup.path().join("b"), &restored, holdfast::Restore::default(), &mut |_| ()).unwrap();
    let store = Store::open(&restored, options()).unwrap();
    assert_eq!(store.libraries().list().unwrap(), both);
}

#[test]
fn a_library_that_is_too_large_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options::default()).unwrap();
    let too_long = vec![b'x'; store.limits().value_bytes_max + 1];
    assert_eq!(store.libraries().put("big", &too_long).unwrap_err().kind(), ErrorKind::Limit);
    let name = "x".repeat(store.limits().key_bytes_max + 1);
    assert_eq!(store.libraries().put(&name, b"text").unwrap_err().kind(), ErrorKind::Limit);
    assert!(store.libraries().list().unwrap().is_empty());
}
