//! `holdfast xa` with coordinators in directories and switches in libraries; with databases it is in `tests/`.

use std::path::Path;

use tm::{Begin, BranchName, Decisions, Embedded, TransactionId};

use crate::program::holdfast;

/// How it ended, and all it said.
fn xa(words: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = holdfast(["xa"].iter().chain(words));
    command.env_remove("HOLDFAST_XA_PROFILE").env_remove("HOLDFAST_XA_PROFILE_NAME");
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

fn open(dir: &Path) -> Embedded {
    Embedded::open(dir, holdfast::Options::default()).unwrap()
}

/// A transaction that is decided, and of whose branch nobody told.
fn decided(dir: &Path, branch: &str) -> TransactionId {
    let coordinator = open(dir);
    let id = coordinator.begin(Begin::default()).unwrap();
    coordinator.commit(id, &[BranchName::new(branch).unwrap()], None).unwrap();
    id
}

/// A profile file with a coordinator in `dir`, and a switch.
fn profile(file: &Path, dir: &Path, more: &str) -> String {
    let text = format!(
        "[profiles.bank.coordinator]\ndirectory = \"{}\"\n[[profiles.bank.resource_managers]]\nname = \"queue\"\n\
         kind = \"xa\"\nlibrary = \"/etc/passwd\"\nsymbol = \"nope\"\n{more}",
        dir.display()
    );
    std::fs::write(file, text).unwrap();
    file.display().to_string()
}

/// With the environment set, `holdfast xa rollback --profile test.toml` was about another coordinator, without a word.
#[test]
fn options_win_over_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let [own, other] = ["own", "other"].map(|name| folder.path().join(name));
    let (own_id, other_id) = (decided(&own, "a").to_string(), decided(&other, "b").to_string());
    let own_file = profile(&folder.path().join("own.toml"), &own, "");
    let other_file =
        profile(&folder.path().join("other.toml"), &other, "[profiles.far.coordinator]\nservers = [\"a:1\"]\n");
    let environment = [("HOLDFAST_XA_PROFILE", other_file.as_str()), ("HOLDFAST_XA_PROFILE_NAME", "bank")];
    for (words, wanted, not) in [
        (&["list"][..], &other_id, &own_id),
        (&["list", "--profile", &own_file], &own_id, &other_id),
        (&["list", "--dir", &own.display().to_string()], &own_id, &other_id),
    ] {
        let (code, text) = xa(words, &environment);
        assert!(code == Some(0) && text.contains(wanted) && !text.contains(not), "{words:?}: {text}");
    }
    let strange = [("HOLDFAST_XA_PROFILE", other_file.as_str()), ("HOLDFAST_XA_PROFILE_NAME", "far")];
    let (code, text) = xa(&["list", "--name", "bank"], &strange);
    assert!(code == Some(0) && text.contains(&other_id), "{text}");
    let (code, text) = xa(&["list", "--profile", &own_file], &strange);
    assert!(code == Some(1) && text.contains("HOLDFAST_XA_PROFILE_NAME names it, and --name wins over that"), "{text}");
}

/// `list` asks no database, and wanted its password.
#[test]
fn a_coordinator_is_asked_without_the_passwords_of_resource_managers() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("own");
    let id = decided(&dir, "shop").to_string();
    let more = "[[profiles.bank.resource_managers]]\nname = \"shop\"\nkind = \"postgres\"\nopen = \"host=/none\"\n\
                password_env = \"HOLDFAST_TEST_THAT_NOBODY_SETS\"\n";
    let file = profile(&folder.path().join("xa.toml"), &dir, more);
    for words in [&["list"][..], &["show", &id]] {
        let (code, text) = xa(&[words, &["--profile", &file]].concat(), &[]);
        assert!(code == Some(0) && text.contains(&id), "{text}");
    }
    let (code, text) = xa(&["recover", "--profile", &file], &[]);
    assert!(code == Some(1) && text.contains("the environment has no HOLDFAST_TEST_THAT_NOBODY_SETS"), "{text}");
}

/// It was called good, whatever stood there.
#[test]
fn a_check_looks_at_switches_and_directories() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("own");
    let file = profile(&folder.path().join("xa.toml"), &dir, "");
    let (code, text) = xa(&["check", "--profile", &file], &[]);
    assert!(code == Some(1) && text.contains("queue        cannot load the library `/etc/passwd`"), "{text}");
    assert!(text.contains("coordinator  good: ") && text.contains("is not there yet, and can be made"), "{text}");
    assert!(!dir.exists());

    let held = open(&dir);
    let shown = dir.display().to_string();
    for words in [&["check", "--profile", &file][..], &["check", "--dir", &shown]] {
        let (code, text) = xa(words, &[]);
        let wanted = format!("coordinator  {shown} is in use by process {}", std::process::id());
        assert!(code == Some(1) && text.contains(&wanted), "{text}");
    }
    drop(held);
    // The directory alone, whatever profiles there are.
    let (code, text) = xa(&["check", "--dir", &shown], &[("HOLDFAST_XA_PROFILE", "/no/such/file")]);
    assert!(code == Some(0) && text.starts_with("coordinator  good: no process has the store"), "{text}");
    for (words, wanted) in [
        (&["check", "--dir", "/proc/x"][..], "cannot be made in /proc"),
        (&["check", "--address", "foo"], "\"foo\" is not of the form HOST:PORT"),
        (&["list", "--address", "foo"], "\"foo\" is not of the form HOST:PORT"),
        (&["recover", "--dir", "/d"], "names none: say --profile"),
    ] {
        let (code, text) = xa(words, &[]);
        assert!(code == Some(1) && text.contains(wanted), "{text}");
    }
}

/// It said that nothing was decided, which only the other coordinator knows.
#[test]
fn of_another_coordinators_transaction_it_is_said_whom_to_ask() {
    let folder = tempfile::tempdir().unwrap();
    let [own, other] = ["own", "other"].map(|name| folder.path().join(name));
    drop(open(&own));
    let id = decided(&other, "a");
    let (code, text) = xa(&["show", &id.to_string(), "--dir", &own.display().to_string()], &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(&format!("coordinator {:016x}, and ", id.coordinator.0)), "{text}");
    assert!(text.contains("meaning     it is another coordinator's") && !text.contains("nothing is decided"), "{text}");
}

/// As [`profile`], with a switch that is there, and is opened so.
fn monkeys_profile(file: &Path, dir: &Path, open: &str) -> String {
    let monkey = std::env::current_exe().unwrap().with_file_name("libholdfast_xa_monkey.so");
    let text = std::fs::read_to_string(profile(file, dir, &format!("open = \"{open}\"\n"))).unwrap();
    let text = text.replace("/etc/passwd", &monkey.display().to_string()).replace("nope", "holdfast_monkey_static");
    std::fs::write(file, text).unwrap();
    file.display().to_string()
}

/// Has the monkey's branch of a transaction lie prepared in the folder that is its state.
fn prepared(state: &Path, id: TransactionId) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let name = format!("{:x}-{}-{}", tm::FORMAT_ID, hex(&id.to_bytes()), hex(b"queue"));
    std::fs::write(state.join(name), "").unwrap();
}

/// It named switches as nobody that it could ask.
#[test]
fn recovery_ends_what_is_prepared_behind_a_switch() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, state) = (folder.path().join("own"), folder.path().join("state"));
    std::fs::create_dir(&state).unwrap();
    let file = monkeys_profile(&folder.path().join("xa.toml"), &dir, &format!("state={}", state.display()));
    let committed = decided(&dir, "queue");
    let left = open(&dir).begin(Begin::default()).unwrap();
    prepared(&state, committed);
    prepared(&state, left);
    let (code, text) = xa(&["recover", "--profile", &file], &[]);
    assert!(code == Some(0) && text.contains("asked      queue") && text.ends_with("nothing is in doubt\n"), "{text}");
    for (id, fate) in [(committed, "committed"), (left, "rolled back")] {
        assert!(text.contains(&format!("{id}.queue: {fate}")), "{text}");
    }
    assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0, "{text}");
    let (code, text) = xa(&["check", "--profile", &file], &[]);
    assert!(code == Some(0) && text.contains("queue        good"), "{text}");
}

/// A library that is not on this machine is nobody's fault: the others are recovered.
#[test]
fn a_switch_that_cannot_be_loaded_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("own");
    let file = profile(&folder.path().join("xa.toml"), &dir, "");
    drop(open(&dir));
    let (code, text) = xa(&["recover", "--profile", &file], &[]);
    assert!(code == Some(1) && text.contains("no answer  queue: cannot load the library `/etc/passwd`"), "{text}");
    assert!(text.contains("something may be in doubt: see above"), "{text}");
}

/// What had been committed against a rollback was forgotten by the resource manager at once, and listed nowhere.
#[test]
fn what_a_resource_manager_did_by_itself_is_listed_until_a_person_forgets_it() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, state, script) = (folder.path().join("own"), folder.path().join("state"), folder.path().join("script"));
    std::fs::create_dir(&state).unwrap();
    std::fs::write(&script, "rollback XA_HEURCOM\ncommit XA_HEURRB\n").unwrap();
    let file = monkeys_profile(
        &folder.path().join("xa.toml"),
        &dir,
        &format!("state={};script={}", state.display(), script.display()),
    );
    let committed = decided(&dir, "queue");
    let left = open(&dir).begin(Begin::default()).unwrap();
    prepared(&state, committed);
    prepared(&state, left);
    let (code, text) = xa(&["recover", "--profile", &file], &[]);
    assert!(code == Some(0) && text.ends_with("nothing is in doubt\n"), "{text}");
    assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0, "it forgot them: {text}");
    for (id, state, did) in [(left, "aborted", "heuristic-commit"), (committed, "committed", "heuristic-rollback")] {
        assert!(text.contains(&format!("{id}.queue: ended by the resource manager itself")), "{text}");
        let (_, text) = xa(&["list", "--profile", &file], &[]);
        let line = text.lines().find(|line| line.starts_with(&id.to_string())).unwrap_or_default();
        assert!(line.contains(state) && line.ends_with(&format!("queue={did}")), "{text}");
        let id = id.to_string();
        let (_, text) = xa(&["show", &id, "--profile", &file], &[]);
        assert!(text.contains(&format!("branch      queue {did}")) && text.contains("forget"), "{text}");
        let (code, text) = xa(&["forget", &id, "--profile", &file], &[]);
        assert!(code == Some(1) && text.contains("has decided by itself"), "{text}");
        let (code, text) = xa(&["forget", &id, "--force", "--profile", &file], &[]);
        assert_eq!(code, Some(0), "{text}");
    }
    let (_, text) = xa(&["list", "--profile", &file], &[]);
    assert!(!text.contains("heuristic"), "{text}");
}

#[test]
fn of_what_nothing_is_remembered_it_is_said_what_that_means() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("own");
    let id = open(&dir).begin(Begin::default()).unwrap().to_string();
    let (code, text) = xa(&["show", &id, "--dir", &dir.display().to_string()], &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("state       unknown -") && text.contains("it was never decided to be committed"), "{text}");
    let (_, text) = xa(&["list", "--dir", &dir.display().to_string()], &[]);
    assert!(text.starts_with("nothing is remembered"), "{text}");
}
