//! Tasks as calls, over a store in the process: awaited they block nobody, and dropped they happen whole or not at all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use client::Client;
use holdfast::space::{Change, Definition, Document, Path, Task, Value, Wanted};
use holdfast::{Durability, Error, ErrorKind, Options, Result, Store};
use holdfast_tests::Launch;
use tempfile::TempDir;

use crate::scene::{connect, number, order, upsert};

struct Scene {
    client: Client,
    store: Store,
    _folder: TempDir,
}

/// One account of a hundred in each of a few partitions, and one beside which something can be done.
fn scene() -> Scene {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path(), Options::default()).unwrap();
    let client = Client::embedded(&store).unwrap();
    for definition in [
        Definition::new("bank", "accounts"),
        Definition { order: holdfast::space::Order::Fifo, ..Definition::new("bank", "orders") },
    ] {
        client.space("bank").declare(definition).wait().unwrap();
    }
    let accounts = store.space("bank").entries("accounts").unwrap();
    for id in 0..8 {
        accounts.write(&order(id, 100), &upsert()).unwrap();
    }
    Scene { client, store, _folder: folder }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

fn spend(task: &mut Task<'_>, id: i64, by: i64) -> Result<i64> {
    let less = Change::Increment { path: Path::parse("total")?, by: (-by).into() };
    let changed = task.change("accounts", id, &[less])?;
    let changed = changed.ok_or_else(|| Error::new(ErrorKind::Invalid, "there is no such account"))?;
    Ok(number(&changed, "total"))
}

fn left(scene: &Scene, id: i64) -> i64 {
    let accounts = scene.store.space("bank").entries("accounts").unwrap();
    let entry = accounts.read(&Wanted::id(id), &Default::default()).unwrap().unwrap();
    number(&entry.document, "total")
}

#[test]
fn a_task_is_awaited_and_waited_for_by_one_call() {
    let scene = scene();
    let bank = scene.client.space("bank");
    let spends = |id: i64, by| bank.execute(&id.into(), Some(Durability::Written), move |task| spend(task, id, by));
    assert_eq!(spends(1, 30).wait().unwrap(), 70);
    assert_eq!(runtime().block_on(spends(1, 30)).unwrap(), 40);
    let all = futures_util::future::try_join_all((0..100).map(|n| spends(n % 8, 1)));
    assert_eq!(runtime().block_on(all).unwrap().len(), 100);
    assert_eq!((0..8).map(|id| left(&scene, id)).sum::<i64>(), 800 - 60 - 100);
    // What fails has changed nothing.
    let fails = bank.execute(&1.into(), None, |task| {
        spend(task, 1, 1)?;
        Err::<(), _>(Error::new(ErrorKind::Conflict, "no"))
    });
    let before = left(&scene, 1);
    assert_eq!(runtime().block_on(fails).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(left(&scene, 1), before);
}

#[test]
fn a_task_beside_a_type_and_one_in_all_partitions_are_awaited() {
    let scene = scene();
    let bank = scene.client.space("bank");
    let queued = bank.execute_beside("orders", None, |task| {
        task.write("orders", &Document::from_pairs([("id", 1_i64)]), &upsert())?;
        Ok(task.read("orders", &Wanted::all(), 10)?.len())
    });
    assert_eq!(runtime().block_on(queued).unwrap(), 1);
    let elsewhere = bank.execute_beside("accounts", None, |_| Ok(()));
    assert_eq!(runtime().block_on(elsewhere).unwrap_err().kind(), ErrorKind::Invalid);
    let charge = |task: &mut Task<'_>| {
        let all = task.read("accounts", &Wanted::all(), 100)?;
        for entry in &all {
            spend(task, number(&entry.document, "id"), 1)?;
        }
        Ok(all.len())
    };
    let charged = runtime().block_on(bank.execute_all(Some(Durability::Synced), charge, |a, b| a + b)).unwrap();
    assert_eq!(charged, 8);
    assert_eq!(bank.execute_all(None, charge, |a, b| a + b).wait().unwrap(), 8);
    assert_eq!((0..8).map(|id| left(&scene, id)).sum::<i64>(), 800 - 16);
}

/// One thread, in which a task is awaited that cannot go on before something else that is awaited there has come.
#[test]
fn a_task_that_waits_holds_up_nothing_else_of_the_thread_that_awaits_it() {
    let scene = scene();
    let (go_on, told) = mpsc::channel::<()>();
    let waits = scene.client.space("bank").execute(&1.into(), None, move |task| {
        told.recv().map_err(|_| Error::new(ErrorKind::Internal, "nobody told it"))?;
        spend(task, 1, 1)
    });
    let tells = async {
        tokio::task::yield_now().await;
        go_on.send(()).unwrap();
    };
    let (left, ()) = runtime().block_on(async { futures_util::future::join(waits, tells).await });
    assert_eq!(left.unwrap(), 99);
    // So is whatever else blocks, over a server too.
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).start();
    for client in [scene.client, connect(&server)] {
        let (go_on, told) = mpsc::channel::<()>();
        let waits = client.elsewhere(move || Ok(told.recv().is_ok()));
        let tells = async {
            tokio::task::yield_now().await;
            go_on.send(()).unwrap();
        };
        let (is_told, ()) = runtime().block_on(async { futures_util::future::join(waits, tells).await });
        assert!(is_told.unwrap());
        assert!(client.elsewhere(|| Ok(true)).wait().unwrap());
        let panics = client.elsewhere(|| -> Result<()> { panic!("on purpose") });
        assert_eq!(runtime().block_on(panics).unwrap_err().kind(), ErrorKind::Internal);
    }
}

#[test]
fn a_task_whose_call_is_dropped_before_it_has_begun_does_not_happen() {
    let scene = scene();
    let bank = scene.client.space("bank");
    let ran = Arc::new(AtomicBool::new(false));
    let notes = || {
        let ran = Arc::clone(&ran);
        move |task: &mut Task<'_>| {
            ran.store(true, Ordering::SeqCst);
            spend(task, 1, 1)
        }
    };
    drop(bank.execute(&1.into(), None, notes()));
    drop(bank.execute_beside("orders", None, notes()));
    drop(bank.execute_all(None, notes(), |a, b| a + b));
    drop(scene.client.elsewhere({
        let ran = Arc::clone(&ran);
        move || {
            ran.store(true, Ordering::SeqCst);
            Ok(())
        }
    }));
    assert_eq!(bank.execute(&1.into(), None, |task| spend(task, 1, 1)).wait().unwrap(), 99);
    assert!(!ran.load(Ordering::SeqCst));
}

#[test]
fn a_task_whose_call_is_dropped_when_it_has_begun_goes_on_to_its_end() {
    let scene = scene();
    let bank = scene.client.space("bank");
    let (go_on, told) = mpsc::channel::<()>();
    let (says, said) = mpsc::channel::<()>();
    let begun = bank.execute(&1.into(), Some(Durability::Written), move |task| {
        says.send(()).unwrap();
        told.recv().map_err(|_| Error::new(ErrorKind::Internal, "nobody told it"))?;
        spend(task, 1, 1)
    });
    let begun = begun.begin();
    said.recv().unwrap();
    drop(begun);
    go_on.send(()).unwrap();
    // It has the partition until it ends, and so is over when this has its turn.
    assert_eq!(bank.execute(&1.into(), None, |task| spend(task, 1, 1)).wait().unwrap(), 98);
    // All partitions are free again, and so is the store.
    assert!(bank.execute_all(None, |_| Ok(1), |a: i32, b| a + b).wait().unwrap() > 0);
}

#[test]
fn a_task_that_panics_while_it_is_awaited_is_an_error_and_has_changed_nothing() {
    let scene = scene();
    let bank = scene.client.space("bank");
    let panics = |task: &mut Task<'_>| -> Result<i64> {
        spend(task, 1, 1)?;
        panic!("on purpose");
    };
    let error = runtime().block_on(bank.execute(&1.into(), None, panics)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
    // In the partition that has it, when others have run.
    let panics =
        |task: &mut Task<'_>| -> Result<i64> { if spend(task, 1, 1).is_ok() { panic!("on purpose") } else { Ok(0) } };
    let error = runtime().block_on(bank.execute_all(None, panics, |a, b| a + b)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
    assert_eq!(left(&scene, 1), 100);
    assert_eq!(bank.execute(&1.into(), None, |task| spend(task, 1, 1)).wait().unwrap(), 99);
}

#[test]
fn over_a_server_a_task_is_refused_and_says_what_there_is_instead() {
    let folder = TempDir::new().unwrap();
    let server = Launch::new(folder.path()).start();
    let bank = connect(&server).space("bank");
    let refused = [
        bank.execute(&Value::from(1), None, |_| Ok(())).wait().unwrap_err(),
        bank.execute_beside("orders", None, |_| Ok(())).wait().unwrap_err(),
        bank.execute_all(None, |_| Ok(()), |(), ()| ()).wait().unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("Space::call"), "{error}");
    }
}
