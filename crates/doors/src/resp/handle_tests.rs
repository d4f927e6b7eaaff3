//! Behaviours of commands, against a real store in a folder of its own. What Redis answers was compared byte for byte with
//! redis-server 7.0.15; the tables here keep what was learned.
//!
//! May use: everything of the door but sockets. Must not know: sockets.

use std::sync::Arc;
use std::time::Instant;

use holdfast::{Durability, Position, Store};

use crate::auth::{BucketRight, Right, User, Users};
use crate::resp::clients::Client;
use crate::resp::door::{Door, Options};
use crate::resp::handle;
use crate::resp::limits::Limits;
use crate::resp::reply::{Protocol, Reply};
use crate::resp::session::{Need, Pending, Session};
use crate::resp::wire::OwnedArgs;

/// A door without sockets, and one connection to it.
struct Fixture {
    door: Arc<Door>,
    session: Session,
    reply: Reply,
    /// What the newest reply said of how the command is written.
    usage: Option<String>,
    _dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Options)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = holdfast::Options { durability: Durability::Written, ..holdfast::Options::default() };
        let store = Store::open(dir.path(), store).unwrap();
        let mut options = Options::new("127.0.0.1:0".parse().unwrap());
        change(&mut options);
        let door = Arc::new(Door::new(store, options, "127.0.0.1:1".parse().unwrap()));
        let session = Self::session(&door);
        Fixture { session, reply: Reply::new(1 << 26), door, usage: None, _dir: dir }
    }

    fn session(door: &Door) -> Session {
        let address = "127.0.0.1:2".parse().unwrap();
        let client = Arc::new(Client::new(door.clients.next_id(), address, door.address, door.store.now_ms()));
        assert!(door.clients.add(&client, 100));
        Session::new(client, door.counters[0].clone(), door.durability())
    }

    fn run_args(&mut self, args: &[&[u8]]) -> String {
        let mut owned = OwnedArgs::default();
        args.iter().for_each(|arg| owned.push(arg));
        let mut started = Instant::now();
        let now_ms = self.door.store.now_ms();
        handle::command(&self.door, &mut self.session, owned.args(), &mut self.reply, now_ms, &mut started);
        match self.session.pending.take() {
            // What a connection runs in a thread of its own.
            Some(Pending::Work(work)) => {
                let is_silent = work.is_silent;
                handle::worked(&mut self.session, work.run(), is_silent, &mut self.reply);
            }
            Some(Pending::Script(later)) => {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let is_silent = later.is_silent;
                let worked = runtime.block_on(later.run_elsewhere(self.door.clone(), self.session.client.gone.clone()));
                handle::worked(&mut self.session, worked, is_silent, &mut self.reply);
            }
            Some(Pending::Feed(follow)) => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                let is_silent = follow.is_silent;
                handle::worked(&mut self.session, runtime.block_on(follow.run()), is_silent, &mut self.reply);
            }
            Some(Pending::Listen(listening)) => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                let is_silent = listening.is_silent;
                handle::worked(&mut self.session, runtime.block_on(listening.run()), is_silent, &mut self.reply);
            }
            Some(Pending::Entry(wait)) => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                let is_silent = wait.is_silent;
                let (_, handed) =
                    handle::waited(&mut self.session, runtime.block_on(wait.run()), is_silent, &mut self.reply);
                handed.into_iter().for_each(crate::handed::Handed::keep);
            }
            pending => self.session.pending = pending,
        }
        let bytes = self.reply.take(Vec::new());
        let text = String::from_utf8_lossy(&bytes).replace("\r\n", " ").trim_end().to_owned();
        // How a command is written changes more often than what is wrong; one test looks at that.
        self.usage = text.strip_prefix("-ERR syntax error: it is ").map(str::to_owned);
        if self.usage.is_some() { "-ERR syntax error".to_owned() } else { text }
    }

    /// Runs words separated by spaces; `""` is an empty argument. Line ends of the reply become spaces.
    fn run(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> =
            line.split(' ').map(|word| if word == "\"\"" { b"".as_slice() } else { word.as_bytes() }).collect();
        self.run_args(&words)
    }

    fn check(&mut self, table: &[(&str, &str)]) {
        for (line, expected) in table {
            assert_eq!(self.run(line), *expected, "{line}");
        }
    }
}

#[test]
fn a_plain_set_is_put_at_once_but_not_when_its_reply_does_not_fit() {
    let mut fixture = Fixture::new();
    fixture.session.need = Need::NOTHING;
    assert_eq!(fixture.run("SET k old"), "+OK");
    let written = fixture.session.need.written;
    assert!(written > Position::ZERO && fixture.session.last_write == written, "the reply waits for its position");
    assert!(fixture.run("CLIENT DURABILITY synced").starts_with('+'));
    fixture.session.need = Need::NOTHING;
    fixture.run("SET k older");
    assert_eq!(fixture.session.need.synced, fixture.session.last_write);
    assert!(fixture.session.need.synced > written);
    fixture.reply = Reply::new(2);
    fixture.run("SET k new");
    fixture.reply = Reply::new(1 << 10);
    assert_eq!(fixture.run("GET k"), "$5 older");
}

#[test]
fn set_follows_its_options() {
    Fixture::new().check(&[
        ("SET k v", "+OK"),
        ("SET k v2 NX", "$-1"),
        ("SET k v3 XX GET", "$1 v"),
        ("SET n v NX GET", "$-1"),
        ("GET n", "$1 v"),
        ("SET n w NX GET", "$1 v"),
        ("SET k v EX 0", "-ERR invalid expire time in 'set' command"),
        ("SET k v PX 9223372036854775807", "-ERR invalid expire time in 'set' command"),
        ("SET k v EX x", "-ERR value is not an integer or out of range"),
        ("SET k v EX 1 PX 1", "-ERR syntax error"),
        ("SET k v NX XX", "-ERR syntax error"),
        ("SET k v EX 100", "+OK"),
        ("TTL k", ":100"),
        ("SET k v KEEPTTL", "+OK"),
        ("TTL k", ":100"),
        ("SET k v", "+OK"),
        ("TTL k", ":-1"),
        ("SET k v EXAT 1", "+OK"),
        ("GET k", "$-1"),
        ("set k", "-ERR wrong number of arguments for 'set' command"),
    ]);
}

#[test]
fn numbers_are_counted_as_redis_counts_them() {
    Fixture::new().check(&[
        ("INCR n", ":1"),
        ("INCRBY n 9223372036854775806", ":9223372036854775807"),
        ("INCR n", "-ERR increment or decrement would overflow"),
        ("DECRBY n -9223372036854775808", "-ERR decrement would overflow"),
        ("SET n 01", "+OK"),
        ("INCR n", "-ERR value is not an integer or out of range"),
        ("SET f 10.50", "+OK"),
        ("INCRBYFLOAT f 0.1", "$4 10.6"),
        ("INCRBYFLOAT f 5.0e3", "$22 5010.60000000000000009"),
        ("INCRBYFLOAT f nan", "-ERR value is not a valid float"),
        ("INCRBYFLOAT f inf", "-ERR increment would produce NaN or Infinity"),
    ]);
}

#[test]
fn changing_a_value_keeps_its_expiry_and_metadata() {
    let mut fixture = Fixture::new();
    let put = fixture.run("KV.PUT db0 k 5 EX 100 META owner ada META kind number");
    assert!(put.starts_with("*2 :") && put.ends_with("$7 written"), "{put}");
    for line in ["INCR k", "APPEND k 0", "SETRANGE k 0 7", "INCRBYFLOAT k 0.5", "RENAME k l", "COPY l k", "EXPIRE k 50"]
    {
        fixture.run(line);
    }
    let head = fixture.run("KV.HEAD db0 k");
    assert!(head.contains("$8 metadata *4 $4 kind $6 number $5 owner $3 ada"), "{head}");
    fixture.check(&[("GET k", "$4 70.5"), ("TTL k", ":50"), ("TTL l", ":100")]);
}

#[test]
fn keys_move_between_names_and_databases() {
    Fixture::new().check(&[
        ("MSET a 1 b 2", "+OK"),
        ("COPY a x DB 3", ":1"),
        ("SELECT 3", "+OK"),
        ("GET x", "$1 1"),
        ("KV.GET db3 nosuch", "*-1"),
        ("COPY x y DB 16", "-ERR DB index is out of range"),
        ("COPY x x", "-ERR source and destination objects are the same"),
        ("SELECT 16", "-ERR DB index is out of range"),
        ("SELECT 0", "+OK"),
        ("RENAME nosuch x", "-ERR no such key"),
        ("RENAMENX a b", ":0"),
        ("DEL a b nosuch", ":2"),
        ("DBSIZE", ":0"),
        ("KV.BUCKETS", "*1 $3 db3"),
        ("FLUSHALL", "+OK"),
        ("KV.BUCKETS", "*0"),
    ]);
}

#[test]
fn a_transaction_is_one_commit() {
    let mut fixture = Fixture::new();
    fixture.check(&[
        ("MULTI", "+OK"),
        ("KV.PUT db0 a 1", "+QUEUED"),
        ("KV.PUT other b 2", "+QUEUED"),
        ("INCR a", "+QUEUED"),
        ("GET a", "+QUEUED"),
        ("LPUSH a b", "-ERR unsupported command 'lpush': Holdfast does not have lists; it has strings, keys, transactions, scripts, KV.*, SPACE.* (objects, queues) and TS.* (see COMMAND LIST)"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("EXISTS a", ":0"),
        ("MULTI", "+OK"),
        ("KV.PUT db0 a 1", "+QUEUED"),
        ("KV.PUT other b 2", "+QUEUED"),
        ("INCR a", "+QUEUED"),
        ("APPEND a x", "+QUEUED"),
        ("INCR a", "+QUEUED"),
    ]);
    let before = fixture.door.store.watermarks().appended;
    let replies = fixture.run("EXEC");
    let position = fixture.run("KV.GET db0 a");
    let position = position.strip_prefix("*3 $2 2x :").and_then(|rest| rest.split(' ').next()).unwrap();
    assert!(position.parse::<u64>().unwrap() >= before.get());
    let expected = format!(
        "*5 *2 :{position} $7 written *2 :{position} $7 written :2 :2 -ERR value is not an integer or out of range"
    );
    assert_eq!(replies, expected);
    assert!(fixture.run("KV.GET other b").contains(position), "both keys have the version of the one commit");
}

#[test]
fn a_watched_key_that_changed_stops_the_transaction() {
    let mut fixture = Fixture::new();
    for (watched, change, runs) in [
        ("WATCH k", "SET k 1", false),
        ("WATCH k", "DEL k", false),
        ("WATCH k", "GET k", true),
        ("WATCH k", "SET other 1", true),
        ("WATCH k other", "EXPIRE other 100", false),
        ("PING", "SET k 1", true),
    ] {
        fixture.check(&[("SET k 0", "+OK"), ("SET other 0", "+OK")]);
        fixture.run(watched);
        fixture.run(change);
        fixture.check(&[("MULTI", "+OK"), ("SET k done", "+QUEUED")]);
        assert_eq!(fixture.run("EXEC"), if runs { "*1 +OK" } else { "*-1" }, "{watched} {change}");
    }
    fixture.check(&[("SET k v PX 1", "+OK"), ("WATCH k", "+OK")]);
    let until = fixture.door.store.now_ms() + 5;
    while fixture.door.store.now_ms() < until {
        std::thread::yield_now();
    }
    // It may have expired before the watch already: then nothing has changed since.
    fixture.check(&[
        ("MULTI", "+OK"),
        ("WATCH k", "-ERR WATCH inside MULTI is not allowed"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("DISCARD", "+OK"),
    ]);
}

#[test]
fn scan_returns_every_key_once_and_forgets_cursors_with_an_error() {
    let mut fixture = Fixture::with(|options| options.limits.cursors_max = 4);
    for number in 0..500 {
        fixture.run(&format!("SET key:{number} v"));
    }
    let (mut cursor, mut seen) = ("0".to_owned(), std::collections::BTreeSet::new());
    loop {
        let reply = fixture.run(&format!("SCAN {cursor} COUNT 7 MATCH key:*"));
        let words: Vec<&str> = reply.split(' ').collect();
        for key in words.iter().filter(|word| word.starts_with("key:")) {
            assert!(seen.insert((*key).to_owned()), "{key} twice");
        }
        cursor = words[2].to_owned();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen.len(), 500);
    assert!(fixture.run("SCAN 987654").starts_with("-ERR invalid cursor"));
    assert!(fixture.run("SCAN 0 TYPE hash").ends_with("*0"));
    let first = fixture.run("SCAN 0 COUNT 1");
    let id = first.split(' ').nth(2).unwrap().to_owned();
    assert!(!fixture.run(&format!("SCAN {id} COUNT 1")).starts_with('-'));
    for _ in 0..4 {
        fixture.run("SCAN 0 COUNT 1");
    }
    assert!(
        fixture.run(&format!("SCAN {id} COUNT 1")).starts_with("-ERR invalid cursor"),
        "the oldest of five is forgotten"
    );
    fixture.run("SELECT 1");
    assert_eq!(fixture.run("KEYS *"), "*0");
}

#[test]
fn a_command_of_ours_that_is_written_wrongly_says_how_it_is_written() {
    let mut fixture = Fixture::new();
    for (line, usage) in [
        ("FEED FROM 0 LIMIT 1", Some("FEED FROM position [COUNT count] [BLOCK milliseconds]")),
        ("TS.LAST db m NO", Some("TS.LAST series [DB database]")),
        ("KV.KEYS things NOSUCH 1", Some("KV.KEYS ")),
        ("SET k v NX XX", None),
    ] {
        fixture.run(line);
        let told = fixture.usage.as_deref();
        assert!(told.is_some() == usage.is_some() && told.unwrap_or("").starts_with(usage.unwrap_or("")), "{told:?}");
    }
    // In a transaction too.
    fixture.run("MULTI");
    fixture.run("KV.KEYS things NOSUCH 1");
    assert!(fixture.run("EXEC").contains("-ERR syntax error: it is KV.KEYS "));
}

#[test]
fn own_commands_page_through_a_bucket() {
    let mut fixture = Fixture::new();
    for key in ["a", "b1", "b2", "b3", "c"] {
        fixture.run(&format!("KV.PUT things {key} value-{key}"));
    }
    fixture.check(&[
        ("KV.KEYS things", "*3 *5 $1 a $2 b1 $2 b2 $2 b3 $1 c $-1 $7 written"),
        ("KV.KEYS things PREFIX b LIMIT 2", "*3 *2 $2 b1 $2 b2 $3 b2\0 $7 written"),
        ("KV.KEYS things PREFIX b LIMIT 2 START b2\0", "*3 *1 $2 b3 $-1 $7 written"),
        ("KV.KEYS things START b2 END c", "*3 *2 $2 b2 $2 b3 $-1 $7 written"),
        ("KV.KEYS things START c END a", "*3 *0 $-1 $7 written"),
        ("KV.KEYS things MATCH *2", "*3 *1 $2 b2 $-1 $7 written"),
        ("KV.KEYS things NOSUCH 1", "-ERR syntax error"),
        ("KV.STATS things", "*2 $4 keys :5"),
        ("KV.PUT things a other NX", "*-1"),
        ("KV.PUT things z other XX", "*-1"),
        ("KV.PUT things a other IFVERSION 1", "*-1"),
        ("KV.DEL things a IFVERSION 1", "*-1"),
    ]);
    let range = fixture.run("KV.RANGE things PREFIX b LIMIT 1 VALUES");
    assert!(range.starts_with("*3 *1 *4 $2 b1 :") && range.ends_with(":8 $8 value-b1 $3 b1\0 $7 written"), "{range}");
    let version = fixture.run("KV.GET things a").split(' ').nth(3).unwrap().trim_start_matches(':').to_owned();
    let put = fixture.run(&format!("KV.PUT things a other IFVERSION {version} DURABILITY synced"));
    assert!(put.ends_with("$6 synced"), "{put}");
    assert!(fixture.session.need.synced > Position::ZERO, "the reply waits for the sync it asked for");
    assert!(fixture.run("KV.DEL things a").starts_with("*3 :1 :"));
}

#[test]
fn what_a_reply_shows_decides_how_long_it_waits() {
    let mut fixture = Fixture::new();
    fixture.run("SET k v");
    let written = std::mem::replace(&mut fixture.session.need, Need::NOTHING);
    assert!(written.written > Position::ZERO && written.synced == Position::ZERO);
    fixture.check(&[("CLIENT DURABILITY", "$7 written"), ("CLIENT DURABILITY synced", "+OK")]);
    assert_eq!(fixture.session.need, Need::NOTHING);
    fixture.run("GET k");
    assert_eq!(fixture.session.need.synced, written.written, "a read waits for what it shows");
    fixture.session.need = Need::NOTHING;
    fixture.run("PING");
    assert_eq!(fixture.session.need, Need::NOTHING);
    fixture.check(&[("CLIENT DURABILITY never", "-ERR durability is one of synced, window, written")]);
}

#[test]
fn the_second_protocol_version_is_chosen_by_hello() {
    let mut fixture = Fixture::new();
    let hello = fixture.run("HELLO 3 SETNAME me");
    assert!(hello.starts_with("%8 $6 server $5 redis $7 version"), "{hello}");
    fixture.check(&[
        ("CLIENT GETNAME", "$2 me"),
        ("GET nosuch", "_"),
        ("CONFIG GET databases", "%1 $9 databases $2 16"),
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range"),
        ("RESET", "+RESET"),
        ("GET nosuch", "$-1"),
    ]);
    assert_eq!(fixture.reply.protocol, Protocol::Resp2);
}

#[test]
fn client_reply_silences_commands() {
    Fixture::new().check(&[
        ("CLIENT REPLY SKIP", ""),
        ("SET a 1", ""),
        ("GET a", "$1 1"),
        ("CLIENT REPLY OFF", ""),
        ("NOSUCH", ""),
        ("CLIENT REPLY ON", "+OK"),
        ("GET a", "$1 1"),
    ]);
}

#[test]
fn unknown_commands_are_answered_like_in_redis() {
    Fixture::new().check(&[
        ("NOSUCH a b", "-ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b'"),
        ("CLIENT NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP."),
        ("CLIENT", "-ERR wrong number of arguments for 'client' command"),
        ("CLIENT ID x", "-ERR wrong number of arguments for 'client|id' command"),
        ("\"\"", "-ERR unknown command '', with args beginning with:"),
    ]);
}

#[test]
fn the_transaction_queue_and_the_watch_list_are_bounded() {
    let mut fixture = Fixture::with(|options| options.limits = Limits::tiny());
    fixture.run("MULTI");
    for _ in 0..8 {
        assert_eq!(fixture.run("PING"), "+QUEUED");
    }
    fixture.check(&[
        ("PING", "-ERR the transaction has too many commands or bytes: 8 commands and 4096 bytes are the most, so do it in parts"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("WATCH a b c d", "+OK"),
        ("WATCH a", "+OK"),
        ("WATCH e", "-ERR too many watched keys"),
    ]);
    let long = vec![b'x'; fixture.door.store.limits().key_bytes_max + 1];
    assert!(fixture.run_args(&[b"GET", &long]).starts_with("-ERR the key exceeds"));
    let big = vec![b'x'; fixture.door.value_bytes_max() + 1];
    assert!(fixture.run_args(&[b"SET", b"k", &big]).contains("limits.value_bytes_max"));
    assert!(fixture.run("SETRANGE k 99999999 x").contains("limits.value_bytes_max"));
}

#[test]
fn users_do_only_what_they_may() {
    let mut user = User::admin("ada", &crate::auth::hash_password(b"pw").unwrap());
    user.buckets = vec![
        BucketRight { pattern: "db0".to_owned(), right: Right::Write },
        BucketRight { pattern: "logs-*".to_owned(), right: Right::Read },
    ];
    let users = Arc::new(Users::new([user]).unwrap());
    let mut fixture = Fixture::with(|options| options.users = users.clone());
    fixture.check(&[
        ("GET k", "-NOAUTH Authentication required."),
        ("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with:"),
        ("AUTH ada wrong", ""),
    ]);
    assert!(matches!(fixture.session.pending.take(), Some(Pending::Auth { .. })), "argon2 runs elsewhere");
    fixture.session.user = users.get("ada").cloned();
    let keys = |lacking: &str| {
        let redis = "-NOPERM this user has no permissions to access one of the keys used as arguments";
        format!("{redis}: it needs the right {lacking}")
    };
    let refused = |name: &str, lacking: &str| {
        format!("-NOPERM this user has no permissions to run the '{name}' command: it needs the right {lacking}")
    };
    let lines = fixture.run_args(&[b"KV.GET", b"a\r\nb", b"k"]);
    assert_eq!(lines, keys(r"'read' on bucket 'a\r\nb'"));
    fixture.check(&[
        ("SET k v", "+OK"),
        ("COPY k k DB 1", &keys("'write' on bucket 'db1'")),
        ("SELECT 1", "+OK"),
        ("GET k", &keys("'read' on bucket 'db1'")),
        ("DBSIZE", &refused("dbsize", "'read' on bucket 'db1'")),
        ("KV.PUT logs-1 k v", &keys("'write' on bucket 'logs-1'")),
        ("SPACE.READ shop orders ANY", &refused("space.read", "'read' on space 'shop'")),
        ("KV.GET logs-1 k", "*-1"),
        ("KV.BUCKETS", "*1 $3 db0"),
        ("CONFIG GET *", &refused("config|get", "'admin' on '*'")),
        ("SHUTDOWN", &refused("shutdown", "'admin' on '*'")),
        ("SELECT 0", "+OK"),
        ("FLUSHDB", &refused("flushdb", "'admin' on bucket 'db0'")),
        // A queued SELECT says which database the commands behind it are for.
        ("MULTI", "+OK"),
        ("SELECT 1", "+QUEUED"),
        ("SET k v", &keys("'write' on bucket 'db1'")),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("SELECT 1", "+OK"),
        ("MULTI", "+OK"),
        ("SET k v", &keys("'write' on bucket 'db1'")),
        ("DISCARD", "+OK"),
        ("MULTI", "+OK"),
        ("SELECT 0", "+QUEUED"),
        ("SET k in-multi", "+QUEUED"),
        ("EXEC", "*2 +OK +OK"),
        ("GET k", "$8 in-multi"),
    ]);
}

#[test]
fn a_select_of_a_database_that_there_is_not_selects_none_in_a_transaction_either() {
    let mut fixture = Fixture::new();
    fixture.check(&[
        ("SELECT 16", "-ERR DB index is out of range"),
        ("SELECT x", "-ERR value is not an integer or out of range"),
        ("MULTI", "+OK"),
        ("SELECT 16", "+QUEUED"),
        ("SET k v", "+QUEUED"),
        ("SELECT -1", "+QUEUED"),
        ("COPY k k2", "+QUEUED"),
        ("SELECT 15", "+QUEUED"),
        ("SET other v", "+QUEUED"),
        ("EXEC", "*6 -ERR DB index is out of range +OK -ERR DB index is out of range :1 +OK +OK"),
        ("GET other", "$1 v"),
        ("SELECT 0", "+OK"),
        ("MGET k k2 other", "*3 $1 v $1 v $-1"),
    ]);
}

#[test]
fn secrets_are_kept_out_of_the_slow_log() {
    let mut fixture = Fixture::with(|options| options.slowlog_threshold = Some(std::time::Duration::ZERO));
    fixture.check(&[("AUTH default hunter2", "+OK")]);
    fixture.run("HELLO 2 AUTH default hunter2");
    fixture.run("TX.RUN 1 AUTH default hunter2");
    fixture.run("TX.RUN 1 TX.RUN 1 AUTH default hunter2");
    fixture.run("CONFIG SET timeout 0 requirepass hunter2");
    fixture.run("CONFIG SET timeout 77");
    fixture.run_args(&[b"SET", b"k", &[b'x'; 300]]);
    let log = fixture.run("SLOWLOG GET");
    assert!(!log.contains("hunter2") && log.contains("(redacted)"), "{log}");
    assert!(log.contains("... (172 more bytes)") && log.contains("$2 77"), "{log}");
    fixture.check(&[("CONFIG SET slowlog-log-slower-than -1", "+OK"), ("SLOWLOG RESET", "+OK"), ("SLOWLOG LEN", ":0")]);
}

#[test]
fn the_table_describes_itself() {
    let mut fixture = Fixture::new();
    fixture.check(&[
        ("COMMAND GETKEYS MSET a 1 b 2", "*2 $1 a $1 b"),
        ("COMMAND GETKEYS KV.PUT bucket key value", "*1 $3 key"),
        ("COMMAND GETKEYS EVAL return 2 a b c", "*2 $1 a $1 b"),
        ("COMMAND GETKEYS FCALL_RO f 0 a", "*0"),
        ("COMMAND GETKEYS EVAL return 4 a b c", "-ERR Invalid arguments specified for command"),
        ("COMMAND GETKEYS EVALSHA x -1 a b c", "-ERR Invalid arguments specified for command"),
        ("COMMAND LIST FILTERBY PATTERN kv.g*", "*1 $6 kv.get"),
        ("COMMAND INFO nosuch", "*1 $-1"),
    ]);
    assert!(fixture.run("COMMAND DOCS kv.put").contains("IFVERSION version"));
    assert!(fixture.run("COMMAND INFO client").contains("client|kill"));
    let persistence = fixture.run("INFO persistence");
    for name in ["unsynced_bytes", "dead_bytes", "delayed_writes", "compaction_reclaimed_bytes", "scrub_rounds"] {
        assert!(persistence.contains(&format!("{name}:")), "no {name} in {persistence}");
    }
    assert!(fixture.run("INFO").contains("# Keyspace"));
    assert!(fixture.run("INFO memory").contains("used_memory_peak_human:"));
    fixture.check(&[
        (
            "CONFIG SET timeout 1 TIMEOUT 2",
            "-ERR CONFIG SET failed (possibly related to argument 'TIMEOUT') - duplicate parameter",
        ),
        ("CONFIG GET timeout", "*2 $7 timeout $1 0"),
        ("SHUTDOWN SAVE NOW NOSAVE", "-ERR syntax error"),
        ("SHUTDOWN NOSAVE", "-ERR SHUTDOWN is not enabled for this server"),
    ]);
}

#[path = "query_tests.rs"]
mod query;

#[path = "client_tests.rs"]
mod client_tests;
#[path = "feed_tests.rs"]
mod feed_tests;

#[path = "resting_tests.rs"]
mod resting_tests;
#[path = "series_tests.rs"]
mod series_tests;
#[path = "space_limit_tests.rs"]
mod space_limit_tests;
#[path = "space_listen_tests.rs"]
mod space_listen_tests;
#[path = "space_query_tests.rs"]
mod space_query_tests;
#[path = "space_tests.rs"]
mod space_tests;

#[path = "xa_tests.rs"]
mod xa_tests;

#[path = "script_tests.rs"]
mod script_tests;
