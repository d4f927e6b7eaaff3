//! Profiles that make sense, and those that do not.

use std::path::Path;
use std::time::Duration;

use super::{CoordinatorPlace, Profile, ResourceManagerKind};

const WHOLE: &str = r#"
default = "bank"

[profiles.bank]
timeout_ms = 30000

[profiles.bank.coordinator]
directory = "/var/lib/bank"
durability = "written"

[[profiles.bank.resource_managers]]
name = "ledger"
kind = "postgres"
open = "host=/run/postgresql user=bank"
password_env = "LEDGER"
order = 1

[[profiles.bank.resource_managers]]
name = "shop"
kind = "mariadb"
open = "mysql://bank@localhost:3306/shop"
password = "p@ss"

[[profiles.bank.resource_managers]]
name = "queue"
kind = "xa"
library = "/usr/lib/libqueue_xa.so"
symbol = "queue_switch"
open = "queue=orders"

[profiles.far.coordinator]
servers = ["a:1", "b:2"]
user = "bank"
password = "hidden"
lease_ms = 5000
shared_wait_ms = 45000
"#;

fn read(text: &str, name: Option<&str>) -> Result<Profile, String> {
    let environment = |variable: &str| (variable == "LEDGER").then(|| "it's".to_owned());
    Profile::of_text(text, name, &environment).map_err(|error| error.to_string())
}

#[test]
fn a_whole_profile_is_read() {
    let bank = read(WHOLE, None).unwrap();
    assert_eq!((bank.name.as_str(), bank.timeout), ("bank", Some(Duration::from_secs(30))));
    assert!(matches!(
        &bank.coordinator,
        CoordinatorPlace::Directory { directory, durability: holdfast::Durability::Written, shared_wait }
            if directory == Path::new("/var/lib/bank") && *shared_wait == Duration::from_secs(30)
    ));
    let [ledger, shop, queue] = &bank.resource_managers[..] else { panic!("three were named") };
    assert_eq!(ledger.open.expose(), r"host=/run/postgresql user=bank password='it\'s'");
    assert_eq!((ledger.order, shop.order), (1, 0));
    assert_eq!(shop.open.expose(), "mysql://bank:%70%40%73%73@localhost:3306/shop");
    assert!(matches!(&queue.kind, ResourceManagerKind::Xa { symbol, .. } if symbol == "queue_switch"));
    let far = read(WHOLE, Some("far")).unwrap();
    let CoordinatorPlace::Servers(options) = &far.coordinator else { panic!("servers were named") };
    assert_eq!((options.servers.len(), options.lease), (2, Duration::from_secs(5)));
}

#[test]
fn the_dial_has_the_words_of_the_server() {
    let read_with = |words: &str| {
        read(&format!("[profiles.p.coordinator]\ndirectory = \"d\"\n{words}"), None).map(|profile| profile.coordinator)
    };
    let window = holdfast::Durability::window(Duration::from_millis(1), Duration::from_millis(10));
    for (words, wanted) in [
        ("", holdfast::Durability::Synced),
        ("durability = \"synced\"", holdfast::Durability::Synced),
        ("durability = \"written\"", holdfast::Durability::Written),
        ("durability = \"window:1ms,10ms\"", window),
    ] {
        let place = read_with(words).unwrap();
        assert!(matches!(place, CoordinatorPlace::Directory { durability, .. } if durability == wanted), "{place:?}");
    }
    for (words, wanted) in [
        (
            "durability = \"window\"",
            "profile p: durability: `window` is no durability; use synced, written or window:MIN,MAX",
        ),
        ("durability = \"window:2s,1s\"", "profile p: durability: MIN 2s is above MAX 1s"),
    ] {
        let error = read_with(words).unwrap_err();
        assert!(error.starts_with(wanted), "{error}");
    }
}

#[test]
fn how_long_a_commit_waits_for_others_is_said_of_either_kind() {
    let CoordinatorPlace::Servers(far) = read(WHOLE, Some("far")).unwrap().coordinator else {
        panic!("it has servers")
    };
    assert_eq!(far.shared_wait, Duration::from_secs(45));
    for (words, wanted) in [("", 30_000), ("shared_wait_ms = 0", 0), ("shared_wait_ms = 60000", 60_000)] {
        let text = format!("[profiles.p.coordinator]\ndirectory = \"d\"\n{words}");
        let place = read(&text, None).unwrap().coordinator;
        let wanted = Duration::from_millis(wanted);
        assert!(matches!(place, CoordinatorPlace::Directory { shared_wait, .. } if shared_wait == wanted), "{place:?}");
    }
}

#[test]
fn no_secret_is_shown() {
    for name in ["bank", "far"] {
        let shown = format!("{:?}", read(WHOLE, Some(name)).unwrap());
        for secret in ["it's", "p@ss", "%70", "hidden", "orders"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_said_with_its_place() {
    let coordinator = "[profiles.p.coordinator]\ndirectory = \"d\"\n";
    let manager = |lines: &str| format!("{coordinator}[[profiles.p.resource_managers]]\n{lines}");
    let last = "kind = \"postgres\"\nlast_resource = true";
    let servers = |servers: &str, more: &str| format!("[profiles.p.coordinator]\nservers = {servers}\n{more}\n");
    let cases = [
        (WHOLE.replace("timeout_ms", "timeout"), "line 5: unknown field `timeout`"),
        ("default = 1".to_owned(), "line 1: invalid type"),
        (
            WHOLE.replace("default = \"bank\"", ""),
            "several profiles, bank, far, and no `default`: say which, with `default`",
        ),
        (String::new(), "there is no profile in it"),
        ("default = \"bank\"".to_owned(), "there is no profile in it"),
        (WHOLE.replace("default = \"bank\"", "default = \"x\""), "there is no profile x, only: bank, far"),
        ("[profiles.p.coordinator]".to_owned(), "either a `directory` or `servers`"),
        ("[profiles.p.coordinator]\nservers = []".to_owned(), "`servers` is empty"),
        (servers("[\"a:1\", \"127.0.0.1\"]", ""), "profile p: `servers`: \"127.0.0.1\" is not of the form HOST:PORT"),
        (servers("[\":1\"]", ""), "is not of the form HOST:PORT"),
        (servers("[\"a:0\"]", ""), "is not of the form HOST:PORT"),
        (servers("[\"a:1\"]", "patience_ms = 0"), "profile p: `patience_ms` is 1 at least, not 0"),
        (servers("[\"a:1\"]", "lease_ms = 999"), "profile p: `lease_ms` is 1000 to 600000, not 999"),
        (servers("[\"a:1\"]", "lease_ms = 600001"), "`lease_ms` is 1000 to 600000, not 600001"),
        (servers("[\"a:1\"]", "shared_wait_ms = 60001"), "profile p: `shared_wait_ms` is 60000 at most, not 60001"),
        (format!("{coordinator}shared_wait_ms = 60001"), "profile p: `shared_wait_ms` is 60000 at most, not 60001"),
        (servers("[\"a:1\"]", "shared_wait_ms = -1"), "line 3: invalid value"),
        // A transaction was too late as soon as it began.
        (format!("[profiles.p]\ntimeout_ms = 0\n{coordinator}"), "profile p: `timeout_ms` is 1 at least"),
        (manager("name = \"a\"\nkind = \"mariadb\"\npassword = \"y\""), "resource manager a: `open` is missing"),
        (manager("name = \"a\"\nkind = \"postgres\"\npassword = \"y\""), "resource manager a: `open` is missing"),
        ("[profiles.p.coordinator]\nservers = [\"a:1\"]\nuser = \"u\"".to_owned(), "a user needs a `password`"),
        (manager("name = \"a b\"\nkind = \"postgres\""), "cannot be called \"a b\""),
        (manager("name = \"a\"\nkind = \"oracle\""), "line 5: unknown variant `oracle`"),
        (
            manager("name = \"a\"\nkind = \"mariadb\"\nlast_resource = true"),
            "resource manager a: `last_resource` is for kind = \"postgres\"",
        ),
        (
            manager("name = \"a\"\nkind = \"postgres\"\nlast_resource = true\norder = 1"),
            "resource manager a: the last resource is never prepared, and commits before all others",
        ),
        (
            manager("name = \"a\"\nkind = \"postgres\"\nlast_resource = true\nasks_read_only = true"),
            "it has neither `asks_read_only` nor `order`",
        ),
        (
            manager(&format!("name = \"a\"\n{last}\n[[profiles.p.resource_managers]]\nname = \"b\"\n{last}")),
            "a and b cannot both be the last resource",
        ),
        (
            manager("name = \"a\"\nkind = \"mariadb\"\nasks_read_only = true"),
            "resource manager a: `asks_read_only` is for kind = \"postgres\"",
        ),
        (manager("name = \"a\"\nkind = \"xa\""), "resource manager a: a switch needs `library` and `symbol`"),
        (manager("name = \"a\"\nkind = \"postgres\"\nlibrary = \"l\""), "are for kind = \"xa\""),
        (manager("name = \"a\"\nkind = \"postgres\"\npassword_env = \"NONE\""), "the environment has no NONE"),
        (manager("name = \"a\"\nkind = \"mariadb\"\nopen = \"x\"\npassword = \"y\""), "mysql://user@host"),
        (WHOLE.replace("\"shop\"", "\"ledger\""), "two resource managers are called ledger"),
        (manager("name = \"a\"\nkind = \"postgres\"\ncertificate = \"c\""), "stand together"),
        (
            manager("name = \"a\"\nkind = \"postgres\"\ncertificate = \"c\"\ncertificate_key = \"k\""),
            "beside a `certificate` there are `authorities`",
        ),
        (
            manager("name = \"a\"\nkind = \"xa\"\nlibrary = \"l\"\nsymbol = \"s\"\nauthorities = \"a\""),
            "a switch takes certificates in `open`",
        ),
        // A line with a password in it is not quoted.
        (manager("name = \"a\"\nkind = \"postgres\"\npassword = [\"hidden\"]"), "line 6: a text in quotes"),
        (manager("name = \"a\"\nkind = \"postgres\"\npassword = hidden"), "line 6: "),
        // Nor is a value that has the wrong type.
        (manager("name = \"a\"\nkind = \"postgres\"\npassword = 271828"), "line 6: a text in quotes is expected"),
        (manager("name = \"a\"\nkind = \"postgres\"\nopen = 271828"), "line 6: a text in quotes is expected"),
        (
            "[profiles.p.coordinator]\nservers = [\"a:1\"]\npassword = 271828".to_owned(),
            "line 3: a text in quotes is expected",
        ),
    ];
    for (text, expected) in cases {
        let error = read(&text, None).unwrap_err();
        let is_shown = ["hidden", "271828"].iter().any(|secret| error.contains(secret));
        assert!(error.contains(expected) && !is_shown, "{error}\nfor {expected}");
    }
}

/// `MAXINFOSIZE` of the standard is 256 with the zero at the end. A switch that copies more writes beyond its array.
#[test]
fn a_switch_takes_strings_of_255_bytes_at_most() {
    let with = |kind: &str, key: &str, length: usize| {
        let text = "x".repeat(length);
        read(
            &format!(
                "[profiles.p.coordinator]\ndirectory = \"d\"\n[[profiles.p.resource_managers]]\nname = \"a\"\n{kind}\n\
                 {key} = \"{text}\"\n"
            ),
            None,
        )
    };
    let switch = "kind = \"xa\"\nlibrary = \"l\"\nsymbol = \"s\"";
    for key in ["open", "close"] {
        assert!(with(switch, key, 255).is_ok());
        let error = with(switch, key, 256).unwrap_err();
        let wanted = format!("profile p: resource manager a: `{key}` has 256 bytes; a switch takes 255 at most");
        assert_eq!(error, wanted);
        assert!(with("kind = \"postgres\"", key, 256).is_ok());
    }
}

/// `holdfast xa list` wanted the passwords of databases that it does not ask.
#[test]
fn a_coordinator_is_read_without_what_resource_managers_need() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("xa.toml");
    let variable = "HOLDFAST_TEST_THAT_NOBODY_SETS";
    std::fs::write(&file, WHOLE.replace("\"LEDGER\"", &format!("\"{variable}\""))).unwrap();
    let place = CoordinatorPlace::of_file(&file, None).unwrap();
    assert!(matches!(place, CoordinatorPlace::Directory { .. }), "{place:?}");
    assert!(matches!(CoordinatorPlace::of_file(&file, Some("far")), Ok(CoordinatorPlace::Servers(_))));
    let whole = Profile::of_file(&file, None).unwrap_err().to_string();
    assert!(whole.contains(&format!("the environment has no {variable}")), "{whole}");
    let error = CoordinatorPlace::of_file(&file, Some("near")).unwrap_err().to_string();
    assert!(error.ends_with("xa.toml: there is no profile near, only: bank, far"), "{error}");
}
