//! The monkey by itself: its script by thread, its log, and what survives it.

use std::fs;
use std::sync::Arc;

use holdfast_xa_monkey_rust::{Monkey, Opening};
use tm::{BranchName, Outcome, Pace, Recovery, ResourceManager, XaCode};

use super::scene::Stage;

fn name(text: &str) -> BranchName {
    BranchName::new(text).unwrap()
}

#[tokio::test]
async fn lines_for_a_thread_are_for_the_monkey_that_stands_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script");
    fs::write(&path, "start@2 XAER_RMERR\nstart XAER_DUPID # of all others\n").unwrap();
    let text = format!("script={}", path.display());
    let stage = Stage::new();
    let xid = stage.scene(&[]).begin().await.xid("one").unwrap();
    for (thread, code) in [(1, XaCode::Duplicate), (2, XaCode::ManagerError), (3, XaCode::Duplicate)] {
        let opening = Opening { text: &text, thread: Some(thread), ..Opening::default() };
        let monkey = Monkey::open(name("one"), &opening).unwrap();
        assert_eq!(monkey.start(&xid).unwrap_err().code, code);
    }
    // Who opens one without a number stands for itself, and goes on doing so elsewhere.
    let opened = |text: String| Monkey::open(name("one"), &Opening { text: &text, ..Opening::default() }).unwrap();
    let script = text.clone();
    let first = std::thread::spawn(move || (opened(script.clone()), opened(script))).join().unwrap();
    let second = std::thread::spawn(move || opened(text)).join().unwrap();
    let codes = [&first.0, &first.1, &second].map(|monkey| monkey.start(&xid).unwrap_err().code);
    assert_eq!(codes, [XaCode::Duplicate, XaCode::Duplicate, XaCode::ManagerError]);
}

#[tokio::test]
async fn the_log_has_what_xa_would_have_called() {
    let stage = Stage::new();
    let scene = stage.scene(&["commit XA_HEURMIX"]);
    let transaction = scene.begin().await;
    let branch = {
        let xid = tm::xa_h::XidData::of(&transaction.xid("monkey0").unwrap());
        let bytes: Vec<String> = xid.data.iter().map(|byte| format!("{:02x}", byte.cast_unsigned())).collect();
        let (gtrid, bqual) = (xid.gtrid_length as usize, xid.bqual_length as usize);
        format!("{:x}-{}-{}", xid.format, bytes[..gtrid].concat(), bytes[gtrid..gtrid + bqual].concat())
    };
    assert_eq!(transaction.commit().await.unwrap_err().outcome, Outcome::Mixed);
    let expected = ["open - 0 0", "start B 0 0", "end B 4000000 0", "commit B 40000000 5", "forget B 0 0"];
    assert_eq!(scene.log(), expected.map(|line| format!("1 0 {}", line.replace('B', &branch))));
}

#[tokio::test]
async fn one_that_is_dropped_is_rolled_back_and_closed() {
    let stage = Stage::new();
    let scene = stage.scene(&[""]);
    let xid = scene.begin().await.xid("monkey0").unwrap();
    let before = scene.verbs().len();
    drop(scene.monkeys[0].start(&xid).unwrap());
    let log = scene.log();
    let last: Vec<&str> = log.iter().rev().take(3).map(|line| line.split(' ').nth(2).unwrap()).collect();
    assert_eq!(last, ["rollback", "end", "start"]);
    assert_eq!(scene.verbs().len(), before + 2);
}

#[tokio::test]
async fn what_is_prepared_survives_the_monkey() {
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let text = format!("script={0}/script;state={0}/state", folder.path().display());
    fs::write(folder.path().join("script"), "commit XAER_RMFAIL XA_OK").unwrap();
    let opening = Opening { text: &text, thread: Some(1), ..Opening::default() };
    let monkey = Monkey::open(name("one"), &opening).unwrap().in_order(3);
    assert_eq!(monkey.order(), 3);
    let scene = stage.scene(&[""]);
    let mut transaction = scene.begin().await;
    let branch = monkey.start(&transaction.xid("one").unwrap()).unwrap();
    transaction.enlist(monkey.name(), branch).await.unwrap();
    assert_eq!(transaction.commit().await.unwrap().pending, [name("one")]);
    drop(monkey);
    // A new one begins its script from the start.
    let monkey = Monkey::open(name("one"), &opening).unwrap();
    let mut recovery = Recovery::new(&stage.coordinator, vec![Arc::new(monkey.clone())], Pace::default());
    assert!(!recovery.run().await.is_clean());
    assert!(recovery.run().await.is_clean());
    assert!(monkey.in_doubt().await.unwrap().branches.is_empty());
}

#[test]
fn what_cannot_be_opened_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script");
    let text = format!("script={}", path.display());
    for (script, what) in [("dance XA_OK", "`dance` is no verb"), ("open XAER_RMERR", "xa_open answered XAER_RMERR")] {
        fs::write(&path, script).unwrap();
        let opening = Opening { text: &text, thread: Some(1), ..Opening::default() };
        let refused = Monkey::open(name("one"), &opening).unwrap_err();
        assert!(refused.ends_with(what), "{refused}");
    }
}
