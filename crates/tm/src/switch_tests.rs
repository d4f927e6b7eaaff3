//! Tests of resource managers behind switches, over the scripted one.

use std::ffi::c_long;
use std::path::{Path, PathBuf};

use xa::{CoordinatorId, FORMAT_ID, OwnerId, TransactionId};

use super::*;

fn monkey() -> PathBuf {
    let path = std::env::current_exe().unwrap().with_file_name("libholdfast_xa_monkey.so");
    assert!(path.exists(), "cargo did not build {}", path.display());
    path
}

fn manager(library: &Path, symbol: &str, open: &str) -> SwitchManager {
    let place = SwitchPlace { library, symbol, open, close: "", number: 0 };
    SwitchManager::new(BranchName::new("queue").unwrap(), 3, &place).unwrap()
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// What the scripted one calls the file of a prepared branch.
fn file_of(xid: &Xid) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{:x}-{}-{}", xa::FORMAT_ID, hex(&xid.transaction.to_bytes()), hex(xid.branch.as_str().as_bytes()))
}

fn xid(sequence: u64) -> Xid {
    let (coordinator, owner) = (CoordinatorId(7), OwnerId(1));
    let transaction =
        TransactionId { coordinator, owner, sequence, shared: false, deadline_ms: 0, last_resource: None };
    Xid { transaction, branch: BranchName::new("queue").unwrap() }
}

/// `symbol = "nope"` and `library = "/etc/passwd"` were called good.
#[test]
fn what_is_no_switch_is_said_to_be_none() {
    let monkey = monkey();
    for symbol in ["holdfast_monkey_static", "holdfast_monkey_dynamic", "holdfast_monkey_async"] {
        let wrong = wait(manager(&monkey, symbol, "").check());
        assert_eq!(wrong, [""; 0], "{symbol}");
    }
    for (library, symbol, wanted) in [
        (monkey.as_path(), "nope", "has no symbol `nope`"),
        (Path::new("/etc/passwd"), "nope", "cannot load the library `/etc/passwd`: "),
        (Path::new("libno-such-thing.so.7"), "nope", "cannot load the library `libno-such-thing.so.7`: "),
        // Functions, not switches.
        (&monkey, "holdfast_monkey_work", "is no switch of XA: its version is"),
        (Path::new("libc.so.6"), "printf", "is no switch of XA: its version is"),
    ] {
        let wrong = wait(manager(library, symbol, "").check()).concat();
        assert!(wrong.contains(wanted), "{wrong}");
    }
    let place = SwitchPlace { library: &monkey, symbol: "s", open: "a\0b", close: "", number: 0 };
    let wrong = SwitchManager::new(BranchName::new("queue").unwrap(), 0, &place).unwrap_err();
    assert!(wrong.contains("`open` has a zero byte"), "{wrong}");
}

#[test]
fn what_its_functions_answer_is_told() {
    let folder = tempfile::tempdir().unwrap();
    for (script, wanted) in [
        ("open XAER_RMERR", "xa_open answered XAER_RMERR: look at `open`"),
        ("recover XAER_RMFAIL", "cannot list what is in doubt: xa_recover answered XAER_RMFAIL"),
    ] {
        let file = folder.path().join("script");
        std::fs::write(&file, script).unwrap();
        let open = format!("script={}", file.display());
        let wrong = wait(manager(&monkey(), "holdfast_monkey_static", &open).check()).concat();
        assert!(wrong.starts_with(wanted), "{wrong}");
    }
}

#[test]
fn what_is_prepared_is_found_and_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (state, script) = (folder.path().join("state"), folder.path().join("script"));
    std::fs::write(&script, "forget XAER_NOTA").unwrap();
    let open = format!("script={};state={}", script.display(), state.display());
    let manager = manager(&monkey(), "holdfast_monkey_static", &open);
    assert_eq!((manager.order(), wait(manager.in_doubt()).unwrap()), (3, InDoubt::default()));
    // More than are asked for at a time.
    let mut all: Vec<Xid> = (0..200).map(xid).collect();
    for xid in &all {
        std::fs::write(state.join(file_of(xid)), "").unwrap();
    }
    // A name of ours that is none, and one of somebody else.
    let ours = format!("{FORMAT_ID:x}");
    std::fs::write(state.join(format!("{ours}-6162-71")), "").unwrap();
    std::fs::write(state.join("1-6162-71"), "").unwrap();
    let InDoubt { branches: mut found, unreadable } = wait(manager.in_doubt()).unwrap();
    assert_eq!(unreadable, ["6162:71"]);
    found.sort_unstable_by_key(|xid| xid.transaction.sequence);
    assert_eq!(found, all);
    // Recovery calls about many at the same time.
    let some = all.split_off(all.len() - 20);
    let answers = wait(futures_util::future::join_all(some.iter().map(|xid| manager.rollback(xid))));
    assert!(answers.iter().all(|answer| answer.code == XaCode::Ok), "{answers:?}");
    let last = all.pop().unwrap();
    assert_eq!(wait(manager.rollback(&last)), XaCode::Ok.into());
    // Each call opens it anew, and so the script begins again.
    assert_eq!(wait(manager.commit(all.first().unwrap())), XaCode::Ok.into());
    assert_eq!(wait(manager.in_doubt()).unwrap().branches.len(), all.len() - 1);
    let answer = wait(manager.forget(&last));
    assert_eq!((answer.code, answer.reason.as_str()), (XaCode::NotKnown, "xa_forget answered XAER_NOTA"));
}

/// Who sees no branch of a decision may forget it: a list that was cut must not pass for all.
#[test]
fn a_list_that_is_cut_says_so() {
    unsafe extern "C" fn full(xids: *mut XidData, count: c_long, _: c_int, _: c_long) -> c_int {
        for at in 0..usize::try_from(count).unwrap() {
            // SAFETY: there is room for `count`.
            unsafe { xids.add(at).write(XidData::of(&xid(at as u64))) };
        }
        c_int::try_from(count).unwrap()
    }
    let good = load_switch(&monkey(), "holdfast_monkey_static").unwrap();
    let endless = XaSwitch { recover: Some(full), ..good };
    // SAFETY: the function is the one above.
    let listed = unsafe { endless.prepared(0, 200) }.unwrap();
    assert!(!listed.is_all && listed.found.len() >= 200);
}

#[test]
fn a_switch_has_the_version_and_the_functions_of_the_standard() {
    let good = load_switch(&monkey(), "holdfast_monkey_async").unwrap();
    assert_eq!(judge(&good, "s"), Ok(()));
    let wrong = |change: fn(&mut XaSwitch)| {
        let mut switch = good;
        change(&mut switch);
        judge(&switch, "s").unwrap_err()
    };
    assert!(wrong(|switch| switch.version = 1).contains("its version is 1,"));
    assert_eq!(wrong(|switch| switch.forget = None), "the switch `s` has no xa_forget_entry");
    assert_eq!(wrong(|switch| switch.complete = None), "the switch `s` has no xa_complete_entry");
}
