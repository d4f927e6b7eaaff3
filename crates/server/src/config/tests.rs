//! Good configurations, and each kind of bad one with its exact words.

use std::fs;

use doors::auth::hash_password;
use holdfast::{Durability, Schedule};
use tempfile::TempDir;

use super::*;

/// A folder with a configuration file in it.
struct Written {
    folder: TempDir,
    path: PathBuf,
}

fn write(text: &str) -> Written {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("holdfast.toml");
    fs::write(&path, text).unwrap();
    Written { folder, path }
}

impl Written {
    fn load_with(&self, arguments: ServeArguments) -> Result<Config, ConfigError> {
        Config::load(&ServeArguments { config: Some(self.path.clone()), ..arguments })
    }

    fn load(&self) -> Result<Config, ConfigError> {
        self.load_with(ServeArguments::default())
    }
}

/// Two that a server can look after, and others.
fn profiles() -> String {
    let profile = |name: &str, coordinator: &str, managers: &str| {
        format!("[profiles.{name}]\ncoordinator = {{ {coordinator} }}\nresource_managers = [{managers}]\n")
    };
    let (server, folder) = ("servers = [\"localhost:7411\"]", "directory = \"/var/lib/shop\"");
    let ledger = "{ name = \"ledger\", kind = \"postgres\", open = \"user=bank\" }";
    let queue = "{ name = \"queue\", kind = \"xa\", library = \"/l.so\", symbol = \"s\" }";
    let wrong = "{ name = \"shop\", kind = \"mariadb\", open = \"secret\" }";
    [
        profile("bank", server, &format!("{ledger}, {queue}")),
        profile("shop", server, ledger),
        profile("own", folder, ledger),
        profile("queues", server, queue),
        profile("wrong", server, wrong),
    ]
    .concat()
}

/// What a good one says.
pub(super) fn load(text: &str) -> Config {
    write(text).load().unwrap()
}

/// The error's text without the folder.
pub(super) fn error(text: &str) -> String {
    let written = write(text);
    let error = written.load().map(|_| ()).expect_err(text).to_string();
    error.replace(&format!("{}/", written.folder.path().display()), "")
}

#[test]
fn without_a_file_the_defaults_are_in_force() {
    let config = Config::load(&ServeArguments::default()).unwrap();
    assert_eq!(config.dir, Path::new("holdfast-data"));
    assert_eq!(config.durability, Dial(Durability::Synced));
    assert_eq!(config.resp.listen.to_string(), "127.0.0.1:7411");
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:7412");
    assert_eq!((config.partitions, config.limits), (16, Limits::default()));
    assert_eq!(config.resp.limits, doors::resp::Limits::default());
    assert_eq!(config.http.limits, doors::http::Limits::default());
    let defaults = holdfast::Options::default();
    assert_eq!((config.compression, config.tree), (defaults.compression, defaults.tree));
    assert_eq!(
        (config.compaction, config.scrub_bytes_per_second),
        (defaults.compaction, defaults.scrub_bytes_per_second)
    );
    assert!(!config.users.is_required() && config.warnings.is_empty() && config.resp.idle_timeout.is_none());
}

#[test]
fn every_key_arrives_where_it_belongs() {
    let hash = hash_password(b"secret").unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let written = write(&format!(
        r#"
        dir = "data"
        durability = "window:1ms,10ms"
        partitions = 4
        compression = "zstd"
        ledger_compression = "zstd"
        log = "debug"
        allow_insecure_bind = true
        scrub = {{ bytes_per_second = 0 }}
        script = {{ memory_bytes_max = 2_097_152, steps_max = 20_000, time_milliseconds_max = 7 }}

        [tree]
        leaves = 1_048_576

        [compaction]
        schedule = "hours 22-5"
        bytes_per_second = 1_000_000
        dead_percent = 35
        keep_bytes = 0

        [limits]
        value_bytes_max = 1_048_576
        segment_bytes = 8_388_608
        ledger_cache_bytes = 1_048_576
        ledger_memory_bytes = 65_536
        value_cache_bytes = 0
        listener_retain_bytes_max = 1_000_000

        [resp]
        listen = "0.0.0.0:1"
        reactors = 2
        pipeline_reactors = 5
        connections_max = 100
        idle_timeout_seconds = 300
        output_bytes_max = 1_048_576
        input_bytes_max = 2_097_152
        replies_bytes_max = 3_145_728
        tls = {{ certificate = "certificate.pem", key = "key.pem" }}

        [http]
        listen = "[::1]:2"
        connections_max = 7
        threads_max = 8
        queries_max = 3
        body_bytes_max = 1024
        bodies_bytes_max = 1_048_576
        tls = {{ certificate = "certificate.pem", key = "key.pem" }}

        [line]
        listen = "127.0.0.1:3"
        udp_listen = "[::1]:4"
        reactors = 3
        connections_max = 300
        idle_timeout_seconds = 60
        delay_milliseconds = 5
        durability = "written"
        database = "metrics"
        user = "default"

        [xa]
        profiles_file = "profiles.toml"
        profiles = ["bank", "shop"]
        interval_seconds = 3
        sweep_seconds = 3600

        [[users]]
        name = "ada"
        password_hash = "{hash}"
        doors = ["resp"]
        buckets = [{{ pattern = "orders-*", right = "write" }}, {{ pattern = "db0", right = "read" }}]

        [[users]]
        name = "default"
        password_hash = "{hash}"
        buckets = [{{ pattern = "*", right = "admin" }}]
        "#
    ));
    fs::write(written.folder.path().join("certificate.pem"), made.cert.pem()).unwrap();
    fs::write(written.folder.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    fs::write(written.folder.path().join("profiles.toml"), profiles()).unwrap();
    let config = written.load().unwrap();
    assert_eq!(config.xa.describe(), "bank (ledger, queue), shop (ledger)");
    assert_eq!((config.xa.interval, config.xa.sweep), (Duration::from_secs(3), Some(Duration::from_secs(3600))));
    assert_eq!(
        config.warnings,
        [
            "profile bank: queue is a switch in a library, which a server does not run: its branches are recovered by programs in C, and by `holdfast xa recover`"
        ]
    );
    assert_eq!(config.dir, written.folder.path().join("data"));
    assert_eq!(config.durability.to_string(), "window:1ms,10ms");
    assert_eq!((config.partitions, config.log), (4, LogLevel::Debug));
    assert_eq!((config.compression, config.tree.map(TreeSize::leaves)), (Compression::Zstd, Some(1 << 20)));
    let compaction = CompactionOptions {
        schedule: Schedule::Hours { from: 22, to: 5 },
        bytes_per_second: 1_000_000,
        dead_percent: 35,
        keep_bytes: 0,
    };
    assert_eq!((config.compaction, config.scrub_bytes_per_second), (compaction, 0));
    assert_eq!((config.script.memory_bytes_max, config.script.time_max), (2 << 20, Duration::from_millis(7)));
    assert_eq!(config.script.steps_max, 20_000);
    let limits = &config.limits;
    assert_eq!((limits.value_bytes_max, limits.segment_bytes), (1 << 20, 8 << 20));
    assert_eq!((limits.ledger_cache_bytes, limits.ledger_memory_bytes), (1 << 20, 64 << 10));
    assert_eq!((limits.value_cache_bytes, limits.listener_retain_bytes_max), (0, 1_000_000));
    let ratio = Limits::default().ledger_memory_bytes_max / Limits::default().ledger_memory_bytes;
    assert_eq!(limits.ledger_memory_bytes_max, ratio * (64 << 10));
    assert_eq!((config.resp.listen.port(), config.resp.reactors, config.resp.pipeline_reactors), (1, 2, 5));
    assert_eq!((config.resp.limits.clients_max, config.resp.limits.output_bytes_max), (100, 1 << 20));
    assert_eq!(config.resp.limits.input_bytes_max, 2 << 20);
    assert_eq!(config.resp.limits.replies_bytes_max, 3 << 20);
    assert_eq!(config.resp.idle_timeout, Some(Duration::from_secs(300)));
    assert_eq!(config.http.listen.to_string(), "[::1]:2");
    let http = &config.http.limits;
    assert_eq!((http.connections_max, http.threads_max, http.queries_max), (7, 8, 3));
    assert_eq!((http.body_bytes_max, http.bodies_bytes_max), (1024, 1 << 20));
    let line = &config.line;
    assert_eq!(line.listen.map(|listen| listen.to_string()).as_deref(), Some("127.0.0.1:3"));
    assert_eq!(line.udp_listen.map(|listen| listen.to_string()).as_deref(), Some("[::1]:4"));
    assert_eq!((line.reactors, line.limits.connections_max), (3, 300));
    assert_eq!((line.idle_timeout, line.delay), (Some(Duration::from_secs(60)), Duration::from_millis(5)));
    assert_eq!((line.durability, line.database.as_str()), (Some(Durability::Written), "metrics"));
    assert!(config.resp.tls.is_some());
    assert_eq!(config.http.tls.as_ref().unwrap().alpn_protocols, [b"http/1.1"]);
    let ada = config.users.get("ada").unwrap();
    assert!(ada.may_enter("resp") && !ada.may_enter("http"));
    assert!(ada.may(doors::auth::Right::Write, b"orders-1") && !ada.may(doors::auth::Right::Write, b"db0"));
    assert!(config.users.get("default").unwrap().is_admin());
    let described = config.describe();
    assert!(!described.concat().contains("argon2"));
    for line in [
        "compression = zstd",
        "ledger_compression = zstd",
        "tree.leaves = 1048576",
        "compaction.schedule = hours 22-5",
        "http.threads_max = 8",
    ] {
        assert!(described.iter().any(|one| one == line), "no {line} in {described:?}");
    }
}

#[test]
fn the_command_line_beats_the_file() {
    let written = write("dir = \"a\"\ndurability = \"written\"\npartitions = 4\n[resp]\nlisten = \"127.0.0.1:1\"\n");
    let arguments = ServeArguments {
        dir: Some("b".into()),
        resp: Some("127.0.0.1:0".parse().unwrap()),
        durability: Some(Dial::default()),
        partitions: Some(2),
        log: Some(LogLevel::Error),
        ..ServeArguments::default()
    };
    let config = written.load_with(arguments).unwrap();
    assert_eq!((config.dir.to_str(), config.partitions), (Some("b"), 2));
    assert_eq!((config.durability, config.log), (Dial::default(), LogLevel::Error));
    assert_eq!(config.resp.listen.port(), 0);
}

#[test]
fn lines_have_the_rights_of_a_user_who_is_named_or_do_not_come_in() {
    let hash = hash_password(b"secret").unwrap();
    let user = format!("[[users]]\nname = \"ada\"\npassword_hash = \"{hash}\"\nbuckets = ");
    let (writer, reader) = ("[{ pattern = \"default\", right = \"write\" }]\n", "[]\n");
    let off = write(&format!("{user}{writer}")).load().unwrap();
    assert!(off.line.listen.is_none() && off.line.place(&off.users).starts_with("off: there are users"));
    let on = write(&format!("[line]\nuser = \"ada\"\n{user}{writer}")).load().unwrap();
    assert_eq!(on.line.place(&on.users), "127.0.0.1:7413");
    assert_eq!(write("[line]\nlisten = \"off\"\n").load().unwrap().line.listen, None);
    for (text, wanted) in [
        (
            format!("[line]\nlisten = \"127.0.0.1:0\"\n{user}{writer}"),
            "line.user: there are users, and lines carry no password",
        ),
        (format!("[line]\nuser = \"bob\"\n{user}{writer}"), "line.user: there is no user `bob`"),
        (
            format!("[line]\nuser = \"ada\"\n{user}{reader}"),
            "line.user: ada may not write to default through this door",
        ),
        ("[line]\nuser = \"ada\"\n".to_owned(), "line.user: there is no user `ada`"),
        (
            "[line]\nlisten = \"off\"\nudp_listen = \"127.0.0.1:0\"\n".to_owned(),
            "line.udp_listen: datagrams come in through the line door",
        ),
        ("[line]\nlisten = \"0.0.0.0:0\"\n".to_owned(), "line.listen: 0.0.0.0:0 can be reached from other machines"),
        (
            "[line]\nudp_listen = \"0.0.0.0:0\"\n".to_owned(),
            "line.udp_listen: 0.0.0.0:0 can be reached from other machines",
        ),
        ("[line]\ndelay_milliseconds = 1001\n".to_owned(), "line.delay_milliseconds: 1001 is out of range"),
        ("[line]\ndatabase = \"\"\n".to_owned(), "line.database: this is empty"),
    ] {
        let error = error(&text);
        assert!(error.starts_with(&format!("holdfast.toml: {wanted}")), "{error}");
    }
}

#[test]
fn mistakes_of_form_are_named_with_file_line_and_key() {
    for (text, wanted) in [
        (
            "dirr = \"x\"",
            "holdfast.toml, line 1: dirr: there is no key `dirr`; there are `dir`, `durability`, `partitions`, `compression`, `ledger_compression`, `log`, `allow_insecure_bind`, `tree`, `compaction`, `scrub`, `limits`, `resp`, `http`, `line`, `series`, `space`, `script`, `xa`, `mirrors`, `users`",
        ),
        (
            "\n[resp]\nlisten = \"127.0.0.1:1\"\nport = 5\n",
            "holdfast.toml, line 4: resp.port: there is no key `port`; there are `listen`, `reactors`, `pipeline_reactors`, `connections_max`, `idle_timeout_seconds`, `output_bytes_max`, `input_bytes_max`, `replies_bytes_max`, `tls`",
        ),
        (
            "[resp]\nreactors = \"two\"",
            "holdfast.toml, line 2: resp.reactors: this must be a number, not a string in quotes",
        ),
        (
            "ledger_compression = \"snappy\"",
            "holdfast.toml, line 1: ledger_compression: it cannot be `snappy`; there are `none`, `lz4`, `zstd`",
        ),
        (
            "compression = \"gzip\"",
            "holdfast.toml, line 1: compression: it cannot be `gzip`; there are `none`, `lz4`, `zstd`",
        ),
        (
            "[compaction]\nspeed = 1",
            "holdfast.toml, line 2: compaction.speed: there is no key `speed`; there are `schedule`, `bytes_per_second`, `dead_percent`, `keep_bytes`",
        ),
        (
            "[resp]\nlisten = \"127.0.0.1:7000\"\n[http]\nlisten = \"127.0.0.1:7000\"",
            "holdfast.toml: http.listen: 127.0.0.1:7000 is where resp.listen has another door listen; choose another port",
        ),
        (
            "[http]\nlisten = \"127.0.0.1:7413\"",
            "holdfast.toml: line.listen: 127.0.0.1:7413 is where http.listen has another door listen; choose another port",
        ),
        ("scrub = 0", "holdfast.toml, line 1: scrub: this must be a table, not a number"),
        ("partitions = 1.5", "holdfast.toml, line 1: partitions: this must be a number, not a fraction"),
        ("dir = 5", "holdfast.toml, line 1: dir: this must be a string in quotes, not a number"),
        ("resp = 5", "holdfast.toml, line 1: resp: this must be a table, not a number"),
        ("users = 5", "holdfast.toml, line 1: users: this must be a list in [ ], not a number"),
        (
            "allow_insecure_bind = \"yes\"",
            "holdfast.toml, line 1: allow_insecure_bind: this must be true or false, not a string in quotes",
        ),
        (
            "log = \"loud\"",
            "holdfast.toml, line 1: log: it cannot be `loud`; there are `error`, `warn`, `info`, `debug`, `trace`",
        ),
        (
            "[[users]]\nbuckets = [{ pattern = \"*\", right = \"all\" }]",
            "holdfast.toml, line 2: users.buckets: it cannot be `all`; there are `read`, `write`, `admin`",
        ),
        ("dir = \"a\"\ndir = \"b\"", "holdfast.toml, line 2: dir: duplicate key"),
        (
            "[[users]]\npassword_hash = 123456789",
            "holdfast.toml, line 2: users.password_hash: this must be a string in quotes, not a number",
        ),
        (
            "[[users]]\ndoors = \"my password\"",
            "holdfast.toml, line 2: users.doors: this must be a list in [ ], not a string in quotes",
        ),
    ] {
        assert_eq!(error(text), wanted);
    }
    for text in ["dir = ", "dir", "[resp", "dir = \"a"] {
        let error = error(text);
        assert!(error.starts_with("holdfast.toml, line 1: "), "{error}");
    }
}

#[test]
fn mistakes_of_content_are_named_with_file_and_key_and_say_what_to_do() {
    for (text, wanted) in [
        (
            "durability = \"often\"",
            "holdfast.toml: durability: `often` is no durability; use synced, written or window:MIN,MAX, for example window:1ms,10ms",
        ),
        ("partitions = 0", "holdfast.toml: partitions: 0 is out of range; choose a number from 1 to 1024"),
        (
            "[tree]\nleaves = 1000",
            "holdfast.toml: tree.leaves: there is no tree of 1000 leaves; choose 1024, 4096, 16384, 65536, 262144, 1048576, or 0 for none",
        ),
        (
            "[tree]\nleaves = -1",
            "holdfast.toml: tree.leaves: there is no tree of -1 leaves; choose 1024, 4096, 16384, 65536, 262144, 1048576, or 0 for none",
        ),
        (
            "[compaction]\nschedule = \"daily\"",
            "holdfast.toml: compaction.schedule: `daily` is no schedule; use \"continuous\", \"hours 1-5\", \"4 per day\" or \"on demand\"",
        ),
        (
            "[compaction]\ndead_percent = 100",
            "holdfast.toml: compaction.dead_percent: 100 is out of range; choose a number from 1 to 99",
        ),
        (
            "[compaction]\nbytes_per_second = -1",
            "holdfast.toml: compaction.bytes_per_second: -1 is out of range; choose a number from 0 to 1099511627776",
        ),
        (
            "[scrub]\nbytes_per_second = -1",
            "holdfast.toml: scrub.bytes_per_second: -1 is out of range; choose a number from 0 to 1099511627776",
        ),
        (
            "[http]\nthreads_max = 0",
            "holdfast.toml: http.threads_max: 0 is out of range; choose a number from 1 to 1024",
        ),
        (
            "[limits]\nvalue_bytes_max = 536870913",
            "holdfast.toml: limits.value_bytes_max: 536870913 is out of range; choose a number from 1024 to 536870912",
        ),
        (
            "[limits]\nsegment_bytes = -1",
            "holdfast.toml: limits.segment_bytes: -1 is out of range; choose a number from 1048576 to 1073741824",
        ),
        (
            "[limits]\nledger_cache_bytes = 1",
            "holdfast.toml: limits.ledger_cache_bytes: 1 is out of range; choose a number from 1048576 to 1099511627776",
        ),
        (
            "[limits]\nledger_memory_bytes = 1",
            "holdfast.toml: limits.ledger_memory_bytes: 1 is out of range; choose a number from 65536 to 1073741824",
        ),
        ("[resp]\nreactors = 65", "holdfast.toml: resp.reactors: 65 is out of range; choose a number from 1 to 64"),
        (
            "[resp]\nconnections_max = 0",
            "holdfast.toml: resp.connections_max: 0 is out of range; choose a number from 1 to 1000000",
        ),
        (
            "[resp]\nidle_timeout_seconds = -1",
            "holdfast.toml: resp.idle_timeout_seconds: -1 is out of range; choose a number from 0 to 31536000",
        ),
        (
            "[resp]\noutput_bytes_max = 1",
            "holdfast.toml: resp.output_bytes_max: 1 is out of range; choose a number from 1048576 to 4294967296",
        ),
        (
            "[resp]\nlisten = \"localhost\"",
            "holdfast.toml: resp.listen: `localhost` is no address with a port; write for example \"127.0.0.1:7411\"",
        ),
        ("[http.tls]\nkey = \"x\"", "holdfast.toml: http.tls.certificate: this is missing; name a PEM file"),
        ("[resp.tls]\ncertificate = \"x\"", "holdfast.toml: resp.tls.key: this is missing; name a PEM file"),
        ("[[users]]", "holdfast.toml: users[1].name: this is missing; give the user a name"),
        (
            "[[users]]\nname = \"a\"",
            "holdfast.toml: users.a.password_hash: this is missing; make one with `holdfast hash-password`",
        ),
        (
            "[[users]]\nname = \"a\"\npassword_hash = \"x\"",
            "holdfast.toml: users.a.buckets: this is missing; say what the user may do, for example buckets = [{ pattern = \"*\", right = \"admin\" }]",
        ),
        (
            "[[users]]\nname = \"a\"\npassword_hash = \"x\"\ndoors = [\"ftp\"]",
            "holdfast.toml: users.a.doors: there is no door `ftp`; there are \"resp\", \"http\" and \"line\"",
        ),
        (
            "[[users]]\nname = \"a\"\npassword_hash = \"x\"\nbuckets = [{ right = \"read\" }]",
            "holdfast.toml: users.a.buckets.pattern: this is missing; say what the user may do, for example buckets = [{ pattern = \"*\", right = \"admin\" }]",
        ),
    ] {
        assert_eq!(error(text), wanted);
    }
    let error = error("[[users]]\nname = \"a\"\npassword_hash = \"hunter2\"\nbuckets = []");
    assert!(error.starts_with("holdfast.toml: users.a.password_hash: this is no argon2 hash ("), "{error}");
    assert!(error.ends_with("); make one with `holdfast hash-password`") && !error.contains("hunter2"), "{error}");
}

#[test]
fn two_users_of_one_name_are_refused() {
    let hash = hash_password(b"x").unwrap();
    let user = format!("[[users]]\nname = \"a\"\npassword_hash = \"{hash}\"\nbuckets = []\n");
    let wanted = "holdfast.toml: users.a.name: there are two users of this name; rename or remove one";
    assert_eq!(error(&user.repeat(2)), wanted);
}

#[test]
fn certificates_that_are_not_there_are_named() {
    let error = error("[resp.tls]\ncertificate = \"c.pem\"\nkey = \"k.pem\"");
    assert!(error.starts_with("holdfast.toml: resp.tls: cannot read the certificate from c.pem: "), "{error}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let missing = ServeArguments { config: Some("/nowhere/holdfast.toml".into()), ..ServeArguments::default() };
    let error = Config::load(&missing).map(|_| ()).unwrap_err().to_string();
    assert_eq!(error, "/nowhere/holdfast.toml: cannot be read: No such file or directory (os error 2)");
}

#[test]
fn an_open_address_is_refused_where_it_was_given_unless_told_so_in_words() {
    let text = "[http]\nlisten = \"0.0.0.0:7412\"";
    let refused = error(text);
    let reason = "0.0.0.0:7412 can be reached from other machines, and there is neither a password nor TLS";
    assert!(refused.starts_with(&format!("holdfast.toml: http.listen: {reason}; add ")), "{refused}");
    let open = || ServeArguments { resp: Some("0.0.0.0:7411".parse().unwrap()), ..ServeArguments::default() };
    let refused = Config::load(&open()).map(|_| ()).unwrap_err().to_string();
    assert!(refused.starts_with("--resp: 0.0.0.0:7411 can be reached"), "{refused}");
    let allowed = Config::load(&ServeArguments { allow_insecure_bind: true, ..open() }).unwrap();
    assert_eq!(allowed.warnings.len(), 1);
    let allowed = write(&format!("allow_insecure_bind = true\n{text}")).load().unwrap();
    assert!(allowed.warnings.concat().starts_with("http on 0.0.0.0:7412: there are neither users nor TLS"));
    let hash = hash_password(b"x").unwrap();
    let user = format!("[[users]]\nname = \"a\"\npassword_hash = \"{hash}\"\nbuckets = []\n");
    let with_user = write(&format!("{text}\n{user}")).load().unwrap();
    assert_eq!(with_user.warnings, ["http on 0.0.0.0:7412: passwords and data travel unencrypted"]);
}

#[test]
fn profiles_that_the_server_cannot_look_after_are_named_with_the_reason() {
    for (keys, wanted) in [
        ("profiles = [\"bank\"]", "xa.profiles_file: this is missing; name the file with the profiles"),
        ("profiles_file = \"none.toml\"", "xa.profiles_file: cannot read the profile none.toml: No such file"),
        (
            "profiles_file = \"profiles.toml\"",
            "xa.profiles_file: profiles.toml: there are several profiles, bank, own, queues, shop, wrong, and no `default`: say which",
        ),
        ("profiles_file = \"profiles.toml\"\nprofiles = []", "xa.profiles: the list is empty"),
        ("profiles_file = \"profiles.toml\"\nprofiles = [\"bank\", \"bank\"]", "xa.profiles: bank is named twice"),
        (
            "profiles_file = \"profiles.toml\"\nprofiles = [\"bang\"]",
            "xa.profiles: profiles.toml: there is no profile bang, only: bank, own, queues, shop, wrong",
        ),
        (
            "profiles_file = \"profiles.toml\"\nprofiles = [\"bank\", \"own\"]",
            "xa.profiles: profiles.toml: profile own: its coordinator is in the directory /var/lib/shop, and so in",
        ),
        (
            "profiles_file = \"profiles.toml\"\nprofiles = [\"queues\"]",
            "xa.profiles: profiles.toml: profile queues: it has no resource manager that the server can ask",
        ),
        (
            "profiles_file = \"profiles.toml\"\nprofiles = [\"wrong\"]",
            "xa.profiles: profiles.toml: profile wrong: shop: `open` is not of the form mysql://user@host:port/database",
        ),
        ("interval_seconds = 0", "xa.interval_seconds: 0 is out of range; choose a number from 1 to 3600"),
    ] {
        let written = write(&format!("[xa]\n{keys}\n"));
        fs::write(written.folder.path().join("profiles.toml"), profiles()).unwrap();
        let found = written.load().map(|_| ()).expect_err(keys).to_string();
        let found = found.replace(&format!("{}/", written.folder.path().display()), "");
        assert!(found.starts_with(&format!("holdfast.toml: {wanted}")), "{found}");
    }
}
