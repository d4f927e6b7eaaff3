//! The switches for PostgreSQL and MariaDB, and connections of the program's own, against real servers.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::OnceLock;

use crate::servers::{Server, start_mariadb, start_postgres};
use crate::stage::{STATIC, Stage, compile};

pub(crate) struct Databases {
    postgres: Server,
    mariadb: Server,
}

/// Both servers, with an empty table each; a table of a test has its own name.
pub(crate) fn databases(table: &str) -> Databases {
    let (postgres, mariadb) = std::thread::scope(|scope| {
        let postgres = scope.spawn(|| start_postgres(20));
        (postgres.join().unwrap(), start_mariadb())
    });
    let databases = Databases { postgres, mariadb };
    let stage = databases.stage("");
    let create = format!("CREATE TABLE {table} (id int PRIMARY KEY)");
    let answers =
        databases.play(&stage, &["tm", &format!("own-pg={create}"), &format!("own-ma={create} ENGINE=InnoDB")]);
    assert_eq!(values(&answers), ["TX_OK", "done", "done"]);
    databases
}

impl Databases {
    /// A profile with both, of which PostgreSQL may be asked whether a branch changed something.
    fn asking_stage(&self) -> Stage {
        self.both("kind = \"postgres\"\nasks_read_only = true")
    }

    fn both(&self, postgres: &str) -> Stage {
        let mut stage = Stage::new();
        stage.add_coordinator("default");
        stage.add_resource_manager("default", "pg", postgres, &self.postgres.conninfo());
        let mariadb = format!("mysql://root@localhost/test?socket={}", self.mariadb.socket().display());
        stage.add_resource_manager("default", "ma", "kind = \"mariadb\"", &mariadb);
        stage
    }

    /// A profile with both, and a monkey with this script in between.
    pub(crate) fn stage(&self, script: &str) -> Stage {
        self.with_monkey("kind = \"postgres\"", script)
    }

    /// The same, where PostgreSQL decides.
    fn last_stage(&self, script: &str) -> Stage {
        self.with_monkey("kind = \"postgres\"\nlast_resource = true", script)
    }

    fn with_monkey(&self, postgres: &str, script: &str) -> Stage {
        let mut stage = self.both(postgres);
        let path = stage.folder.path().join("default-script0");
        std::fs::write(&path, script).unwrap();
        let base = stage.folder.path().display();
        let open = format!("script={};log={base}/log;state={base}/default-state0", path.display());
        let library = crate::stage::monkey().display().to_string();
        stage.add_switch("default", "monkey", &library, STATIC, &open);
        stage
    }

    fn command(&self, stage: &Stage) -> std::process::Command {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        let program = PROGRAM.get_or_init(|| compile("databases", &["-l:libpq.so.5", "-l:libmariadb.so.3"]));
        let mut command = stage.command(program);
        command.env("DATABASE_PG", self.postgres.conninfo()).env("DATABASE_SOCKET", self.mariadb.socket());
        command
    }

    pub(crate) fn play(&self, stage: &Stage, words: &[&str]) -> Vec<String> {
        let output = self.command(stage).args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// Rows of the table in both, and prepared branches in both.
    pub(crate) fn counts(&self, table: &str) -> [String; 4] {
        let rows = format!("SELECT count(*) FROM {table}");
        let prepared = "own-pg=SELECT count(*) FROM pg_prepared_xacts";
        let words = ["tm", &format!("own-pg={rows}"), &format!("own-ma={rows}"), prepared, "own-ma=XA RECOVER"];
        let answers = self.play(&self.stage(""), &words);
        let values: Vec<String> = values(&answers).into_iter().map(str::to_owned).collect();
        values[1..].to_vec().try_into().unwrap()
    }
}

pub(crate) fn values(answers: &[String]) -> Vec<&str> {
    answers.iter().map(|answer| answer.split_once(": ").unwrap().1).collect()
}

/// A program inserts a row into both and dies in its commit, as the monkey's script says; others recover what it left.
fn dies_and_is_recovered(databases: &Databases, stage: &Stage, id: u32) {
    let (first, second) = (format!("pg=INSERT INTO t VALUES ({id})"), format!("ma=INSERT INTO t VALUES ({id})"));
    let answers = databases.play(stage, &["open", "begin", &first, &second, "commit"]);
    assert_eq!(answers.len(), 4, "it dies in the commit: {answers:?}");
    while !stage.coordinator.is_alone() {
        std::thread::yield_now();
    }
    std::fs::write(stage.folder.path().join("default-script0"), "").unwrap();
    // A server may take a moment until it knows that the program is gone.
    loop {
        let answers = databases.play(stage, &["open", "recover", "recover", "close"]);
        assert_eq!(values(&answers)[0], "TX_OK", "{answers:?}");
        if values(&answers)[2] == "committed=0,rolled-back=0,left=0" {
            break;
        }
    }
}

#[test]
fn both_databases_commit_or_none() {
    let databases = databases("t");
    let stage = databases.stage("");
    let work = |id: u32| [format!("pg=INSERT INTO t VALUES ({id})"), format!("ma=INSERT INTO t VALUES ({id})")];
    let (first, second, third) = (work(1), work(2), work(3));
    let answers = databases.play(
        &stage,
        &[
            "open", "begin", &first[0], &first[1], "commit", "begin", &second[0], &second[1], "rollback", "logged",
            "begin", &third[0], &third[1], "commit", "close",
        ],
    );
    assert!(values(&answers).iter().all(|answer| ["TX_OK", "done"].contains(answer)), "{answers:?}");
    assert_eq!(databases.counts("t"), ["2", "2", "0", "nothing"]);
    assert_eq!(stage.coordinator.undone(), 0);

    // A statement fails in one: both are rolled back, and the connections go on.
    let (again, fourth) = (work(1), work(4));
    let words = [
        "open", "begin", &fourth[1], &again[0], "commit", "error", "begin", &fourth[0], &fourth[1], "commit", "begin",
        &again[1], "rollback",
    ];
    let mut answers = databases.play(&stage, &words);
    let expected = [
        "TX_OK",
        "TX_OK",
        "done",
        "error 23505",
        "TX_ROLLBACK",
        "TX_OK",
        "done",
        "done",
        "TX_OK",
        "TX_OK",
        "error 1062",
        "TX_OK",
    ];
    let why = answers.remove(5);
    assert!(why.contains("`pg` answered XA_RBROLLBACK: a statement failed in hfxa1."), "{why}");
    assert!(why.contains("duplicate key value violates unique constraint"), "{why}");
    assert_eq!(values(&answers), expected);
    assert_eq!(databases.counts("t"), ["3", "3", "0", "nothing"]);

    // The program ends the transaction itself, or the server ends the connection.
    let fifth = work(5);
    let answers = databases.play(&stage, &["open", "begin", "pg=COMMIT", &fifth[1], "commit"]);
    assert_eq!(values(&answers)[4], "TX_HAZARD");
    let kill = "pg=SELECT pg_terminate_backend(pg_backend_pid())";
    let answers = databases.play(&stage, &["open", "begin", &fifth[0], &fifth[1], kill, "commit", "begin", "commit"]);
    assert_eq!(values(&answers)[5..], ["TX_ROLLBACK", "TX_OK", "TX_OK"], "{answers:?}");
    assert_eq!(databases.counts("t"), ["3", "3", "0", "nothing"]);
}

/// It can prepare nothing, so nothing of it is ever prepared.
#[test]
fn postgres_decides_as_the_last_resource() {
    let mut databases = Databases { postgres: start_postgres(0), mariadb: start_mariadb() };
    let create = "CREATE TABLE t (id int PRIMARY KEY)";
    let made = databases
        .play(&databases.stage(""), &["tm", &format!("own-pg={create}"), &format!("own-ma={create} ENGINE=InnoDB")]);
    assert_eq!(values(&made), ["TX_OK", "done", "done"]);
    let ordinary = databases.play(&databases.stage(""), &["open"]);
    assert_eq!(values(&ordinary), ["TX_ERROR"], "which of those that it is not is said when it is opened");
    let work = |id: u32| [format!("pg=INSERT INTO t VALUES ({id})"), format!("ma=INSERT INTO t VALUES ({id})")];
    let (first, second, third, fourth) = (work(1), work(2), work(3), work(4));
    let find = "SELECT relname FROM pg_class WHERE relname LIKE 'decisions%' AND relkind = 'r'";
    let stage = databases.last_stage("");
    let answers = databases.play(
        &stage,
        &[
            "open", "begin", &first[0], &first[1], "commit", "begin", &second[0], &second[1], "rollback", "logged",
            "begin", &third[0], &third[1], "commit", "begin", &fourth[0], "commit", "close",
        ],
    );
    assert!(values(&answers).iter().all(|answer| ["TX_OK", "done"].contains(answer)), "{answers:?}");
    assert_eq!(databases.counts("t"), ["3", "2", "0", "nothing"]);
    let found = databases.play(&stage, &["tm", &format!("own-pg={find}")]);
    let table = format!("holdfast.{}", values(&found)[1]);
    // All that were told of know, and the coordinator was asked for nothing.
    let rows = |what: &str| {
        let query = format!("own-pg=SELECT count(*) FROM {table} WHERE {what}");
        values(&databases.play(&stage, &["tm", &query]))[1].to_owned()
    };
    assert_eq!((rows("true").as_str(), stage.coordinator.undone()), ("0", 0));

    let named = databases.play(&stage, &["open", "begin", "id", "rollback", "close"]);
    assert_eq!(values(&named)[2].len(), "hfxa1.".len() + 59, "{named:?}");

    // What it refuses is rolled back everywhere; whose answer is lost is asked.
    let deferred = "own-pg=CREATE TABLE u (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)";
    databases.play(&stage, &["tm", deferred, "own-pg=INSERT INTO u VALUES (1)"]);
    let fifth = work(5);
    let kill = "pg=SELECT pg_terminate_backend(pg_backend_pid())";
    for (also, answer) in [
        ("pg=INSERT INTO t VALUES (1)", "TX_ROLLBACK"),
        ("pg=INSERT INTO u VALUES (1)", "TX_ROLLBACK"),
        (kill, "TX_ROLLBACK"),
        ("pg=COMMIT", "TX_HAZARD"),
    ] {
        let answers =
            databases.play(&stage, &["open", "begin", &fifth[1], also, "commit", "error", "begin", "commit", "close"]);
        let values = values(&answers);
        assert_eq!((values[4], values[6], values[7]), (answer, "TX_OK", "TX_OK"), "{answers:?}");
        assert_eq!(databases.counts("t"), ["3", "2", "0", "nothing"], "{also}");
    }
    assert_eq!(rows("committed"), "0");

    // It was away when a transaction began, and the next one had it prepared, which it cannot.
    let sixth = work(6);
    let words = ["open", "wait", "begin", "wait", "begin", &sixth[0], &sixth[1], "commit", "close"];
    let mut program = Player::start(&databases, &stage, "", &words);
    program.skip(1);
    databases.postgres.stop();
    program.go_on();
    assert_eq!(program.next(), "TX_FAIL");
    databases.postgres.restart();
    program.go_on();
    let answers: Vec<String> = (0..5).map(|_| program.next()).collect();
    assert_eq!(answers, ["TX_OK", "done", "done", "TX_OK", "TX_OK"]);
    program.end();

    // Whoever dies on the way, the next one does what it decided.
    let mut committed = 3;
    for (id, script, is_committed) in [
        (11, "prepare kill-before", false),
        (12, "prepare kill-after", false),
        (13, "commit kill-before", true),
        (14, "commit kill-after", true),
    ] {
        // Of the same coordinator, which gives no id out twice.
        std::fs::write(stage.folder.path().join("default-script0"), script).unwrap();
        dies_and_is_recovered(&databases, &stage, id);
        committed += u32::from(is_committed);
        let counts = [(committed + 1).to_string(), committed.to_string(), "0".to_owned(), "nothing".to_owned()];
        assert_eq!(databases.counts("t"), counts, "{script}");
    }
}

#[test]
fn a_program_that_dies_leaves_nothing_in_doubt_in_databases() {
    let databases = databases("t");
    // Somebody else's are in doubt, too, and stay so.
    let foreign = ["tm", "own-pg=BEGIN", "own-pg=INSERT INTO t VALUES (99)", "own-pg=PREPARE TRANSACTION 'foreign'"];
    assert_eq!(values(&databases.play(&databases.stage(""), &foreign)), ["TX_OK", "done", "done", "done"]);
    let mut committed = 0;
    for (id, script, is_committed) in [
        (1, "prepare kill-before", false),
        (2, "prepare kill-after", false),
        (3, "commit kill-before", true),
        (4, "commit kill-after", true),
        (5, "end kill-before", false),
    ] {
        let stage = databases.stage(script);
        dies_and_is_recovered(&databases, &stage, id);
        committed += u32::from(is_committed);
        let rows = committed.to_string();
        assert_eq!(databases.counts("t"), [&rows, &rows, "1", "nothing"].map(str::to_owned), "{script}");
    }
}

#[test]
fn a_server_that_cannot_prepare_is_refused_with_a_reason() {
    let postgres = start_postgres(0);
    let mut stage = Stage::new();
    stage.add_coordinator("default");
    stage.add_resource_manager("default", "pg", "kind = \"postgres\"", &postgres.conninfo());
    let answers = stage.play(&["open", "error"]);
    assert_eq!(answers[0], "open: TX_ERROR");
    assert!(answers[1].contains("`pg`"), "{answers:?}");
    assert!(answers[1].contains("max_prepared_transactions is 0"), "{answers:?}");
}

/// A program that plays on while others do.
pub(crate) struct Player {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Player {
    pub(crate) fn start(databases: &Databases, stage: &Stage, suffix: &str, words: &[&str]) -> Self {
        let mut command = databases.command(stage);
        command.env("DATABASE_SUFFIX", suffix).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Self { process, input, output }
    }

    pub(crate) fn next(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.split_once(": ").map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    }

    pub(crate) fn skip(&mut self, count: usize) {
        for _ in 0..count {
            self.next();
        }
    }

    pub(crate) fn go_on(&mut self) {
        self.input.write_all(b"\n").unwrap();
        assert_eq!(self.next(), "heard");
    }

    /// Stops it, or has it go on, in the middle of whatever it does.
    pub(crate) fn signal(&self, signal: &str) {
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args([signal, &self.process.id().to_string()]).status().unwrap().success());
    }

    pub(crate) fn end(mut self) {
        assert!(self.process.wait().unwrap().success());
    }
}

#[test]
fn transactions_are_objects_on_the_programs_own_connections() {
    let databases = databases("t");
    let stage = databases.stage("");
    let work = ["own-pg=INSERT INTO t VALUES (10)", "own-ma=INSERT INTO t VALUES (10)"];
    let words = [
        "tm",
        "tx-begin",
        work[0],
        work[1],
        "tx-rollback",
        "tx-commit",
        "tx-free",
        "tx-begin",
        work[0],
        work[1],
        "tx-commit",
    ];
    let answers = databases.play(&stage, &words);
    let expected =
        ["TX_OK", "TX_OK", "done", "done", "TX_OK", "TX_PROTOCOL_ERROR", "freed", "TX_OK", "done", "done", "TX_OK"];
    assert_eq!(values(&answers), expected);
    assert_eq!(databases.counts("t"), ["1", "1", "0", "nothing"]);
    // Four managers of two profiles in one process, with a transaction each; one is rolled back.
    let mut stage = databases.stage("");
    stage.add_profile("other", &[]);
    let mut managers = stage.command(&compile("managers", &["-l:libpq.so.5"]));
    let output = managers.env("DATABASE_PG", databases.postgres.conninfo()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "right\n");
    assert_eq!(databases.counts("t")[0], "4");
    // One at a time, ids that are none, and one that is let go of.
    let words = ["tm", "tx-begin", "tx-shared", "tx-join=nonsense", "tm-recover", "tx-free", "tm-recover"];
    let answers = databases.play(&stage, &words);
    let expected = [
        "TX_OK",
        "TX_OK",
        "TX_PROTOCOL_ERROR",
        "TX_EINVAL",
        "TX_PROTOCOL_ERROR",
        "freed",
        "committed=0,rolled-back=0,left=0",
    ];
    assert_eq!(values(&answers), expected);
}

/// PostgreSQL does not prepare a branch with a NOTIFY: one that is committed all the same dropped out before.
#[test]
fn branches_that_changed_nothing_drop_out_when_they_may_be_asked() {
    let databases = databases("t");
    let (plain, asking) = (databases.stage(""), databases.asking_stage());
    let (note, change, fault) = ("NOTIFY told", "INSERT INTO t VALUES (1)", "SELECT 1/0");
    for (id, asks, statements, expected) in [
        (10, true, &["SELECT count(*) FROM t"][..], "TX_OK"),
        (11, true, &[note], "TX_OK"),
        (12, false, &[note], "TX_ROLLBACK"),
        (13, true, &[change, note], "TX_ROLLBACK"),
        (14, true, &[fault], "TX_ROLLBACK"),
        (15, true, &[change], "TX_OK"),
    ] {
        let of_maria = format!("ma=INSERT INTO t VALUES ({id})");
        let by_switch = statements.iter().map(|statement| format!("pg={statement}")).chain([of_maria]);
        let by_switch: Vec<String> = by_switch.collect();
        let mut words = vec!["open", "begin"];
        words.extend(by_switch.iter().map(String::as_str));
        words.extend(["commit", "close"]);
        let answers = databases.play(if asks { &asking } else { &plain }, &words);
        assert_eq!(values(&answers)[words.len() - 2], expected, "{id}: {answers:?}");

        let of_maria = format!("own-ma=INSERT INTO t VALUES ({})", 100 + id);
        // The row is there by now.
        let own = |statement: &str| format!("own-pg={}", statement.replace("(1)", "(2)"));
        let by_object: Vec<String> = statements.iter().map(|statement| own(statement)).chain([of_maria]).collect();
        let mut words = vec![if asks { "tm-asking" } else { "tm" }, "tx-begin"];
        words.extend(by_object.iter().map(String::as_str));
        words.push("tx-commit");
        let answers = databases.play(&plain, &words);
        assert_eq!(values(&answers)[words.len() - 1], expected, "{id}: {answers:?}");
    }
    assert_eq!(databases.counts("t"), ["2", "6", "0", "nothing"]);
}

/// `ROLLBACK; BEGIN` looked like the branch still: the new transaction was prepared under its name, and `TX_OK` answered.
#[test]
fn a_transaction_that_the_program_began_itself_is_not_taken_for_the_branch() {
    let databases = databases("t");
    let (plain, asking) = (databases.stage(""), databases.asking_stage());
    let (mut row, mut committed) = (0, 0);
    for (ending, end, expected) in [
        ("ROLLBACK; BEGIN", "commit", "TX_HAZARD"),
        ("COMMIT; BEGIN", "commit", "TX_HAZARD"),
        ("ROLLBACK AND CHAIN", "commit", "TX_HAZARD"),
        ("COMMIT AND CHAIN", "commit", "TX_HAZARD"),
        ("ROLLBACK", "commit", "TX_HAZARD"),
        ("COMMIT; BEGIN", "rollback", "TX_HAZARD"),
        // What is the branch's still.
        ("SAVEPOINT s; DELETE FROM t; ROLLBACK TO s", "commit", "TX_OK"),
        ("SAVEPOINT s; RESET ALL; ROLLBACK TO s; RELEASE s", "commit", "TX_OK"),
    ] {
        for (stage, manager) in [(&plain, "tm"), (&asking, "tm-asking")] {
            row += 1;
            let (first, second) = (format!("INSERT INTO t VALUES ({row})"), format!("INSERT INTO t VALUES (-{row})"));
            let statements = [first, ending.to_owned()];
            let pg = statements.each_ref().map(|statement| format!("pg={statement}"));
            let words = ["open", "begin", &pg[0], &pg[1], &format!("ma={second}"), end, "error", "begin", "commit"];
            let answers = databases.play(stage, &words);
            let answers = values(&answers);
            assert_eq!((answers[5], &answers[7..]), (expected, &["TX_OK", "TX_OK"][..]), "{ending}: {answers:?}");
            let is_told = answers[6].contains("the program ended the transaction itself");
            assert_eq!(is_told, expected == "TX_HAZARD", "{answers:?}");

            row += 1;
            let (first, second) = (format!("INSERT INTO t VALUES ({row})"), format!("INSERT INTO t VALUES (-{row})"));
            let own = [first, ending.to_owned()].map(|statement| format!("own-pg={statement}"));
            let (of_maria, end) = (format!("own-ma={second}"), format!("tx-{end}"));
            let words = [manager, "tx-begin", &own[0], &own[1], &of_maria, &end, "tx-free", "tx-begin", "tx-commit"];
            let answers = databases.play(&plain, &words);
            let answers = values(&answers);
            assert_eq!((answers[5], &answers[7..]), (expected, &["TX_OK", "TX_OK"][..]), "{ending}: {answers:?}");
            if expected == "TX_OK" {
                committed += 2;
            }
            let counts = databases.counts("t");
            assert_eq!((&counts[1], &counts[2..]), (&committed.to_string(), &["0", "nothing"].map(str::to_owned)[..]));
        }
    }
    // One branch alone, and one that is voted for.
    let mut alone = Stage::new();
    alone.add_coordinator("default");
    alone.add_resource_manager("default", "pg", "kind = \"postgres\"", &databases.postgres.conninfo());
    let words = ["open", "begin", "pg=ROLLBACK", "pg=BEGIN", "pg=INSERT INTO t VALUES (1000)", "commit"];
    assert_eq!(values(&databases.play(&alone, &words))[5], "TX_HAZARD");
    let words = ["tm", "tx-shared", "own-pg=ROLLBACK; BEGIN", "own-pg=INSERT INTO t VALUES (1000)", "tx-suspend"];
    assert_eq!(values(&databases.play(&plain, &words))[4], "TX_HAZARD");
    let found = ["tm", "own-pg=SELECT count(*) FROM t WHERE id = 1000"];
    assert_eq!(values(&databases.play(&plain, &found))[1], "0");
}

/// `TX_FAIL`, which says that the program cannot go on, for as long as the thread had its connection to MariaDB.
#[test]
fn a_transaction_left_in_doubt_does_not_keep_the_next_from_beginning() {
    let databases = databases("t");
    let mut stage = Stage::new();
    stage.add_coordinator("default");
    stage.add_line("patience_ms = 300");
    let mariadb = format!("mysql://root@localhost/test?socket={}", databases.mariadb.socket().display());
    stage.add_resource_manager("default", "pg", "kind = \"postgres\"", &databases.postgres.conninfo());
    stage.add_resource_manager("default", "ma", "kind = \"mariadb\"", &mariadb);
    let work = |id: u32| [format!("pg=INSERT INTO t VALUES ({id})"), format!("ma=INSERT INTO t VALUES ({id})")];
    let (first, second, third) = (work(1), work(2), work(3));
    let words = [
        "open", "begin", &first[0], &first[1], "wait", "commit", "begin", &second[0], &second[1], "rollback", "wait",
        "begin", &third[0], &third[1], "commit", "recover", "recover",
    ];
    let mut player = Player::start(&databases, &stage, "", &words);
    player.skip(4);
    stage.coordinator.hang_up(true);
    player.go_on();
    let answers: Vec<String> = (0..5).map(|_| player.next()).collect();
    assert_eq!(answers[0], "TX_HAZARD");
    assert_eq!(answers[1..], ["TX_OK", "done", "done", "TX_OK"]);
    stage.coordinator.hang_up(false);
    player.go_on();
    let answers: Vec<String> = (0..5).map(|_| player.next()).collect();
    assert_eq!(answers[..4], ["TX_OK", "done", "done", "TX_OK"]);
    assert_eq!(player.next(), "committed=0,rolled-back=0,left=0", "{answers:?}");
    player.end();
    assert_eq!(databases.counts("t"), ["1", "1", "0", "nothing"]);

    // On a connection of the program's own it is the program that does something about it.
    let words = ["tm", "tx-shared", "own-ma=INSERT INTO t VALUES (5)", "tx-suspend", "tx-free", "tx-begin", "error"];
    let answers = databases.play(&stage, &words);
    assert_eq!(values(&answers)[5], "TX_ERROR", "{answers:?}");
    assert!(answers[6].contains("call holdfast_tm_recover, or use another connection"), "{answers:?}");
}

/// It was `TX_FAIL`, which says that the program cannot go on.
#[test]
fn a_thread_whose_connections_are_in_a_suspended_transaction_begins_no_other() {
    let databases = databases("t");
    let stage = databases.stage("");
    let words = ["open", "begin", "id", "suspend", "begin", "error", "close", "error", "open", "id", "wait"];
    let mut player = Player::start(&databases, &stage, "", &words);
    player.skip(2);
    let id = player.next();
    assert!(id.starts_with("hfxa1."), "{id}");
    assert_eq!((player.next(), player.next()), (id, "TX_ERROR".to_owned()));
    let why = player.next();
    assert!(why.contains("`pg`") && why.contains("which is suspended"), "{why}");
    // Its connections would be closed: it could only be rolled back then, and the commit said so in words about other things.
    assert_eq!(player.next(), "TX_PROTOCOL_ERROR");
    let why = player.next();
    assert!(why.contains("resume and end it first"), "{why}");
    assert_eq!((player.next(), player.next()), ("TX_OK".to_owned(), "TX_PROTOCOL_ERROR".to_owned()));
    player.go_on();
    player.end();
}

/// The answer to the commit was that to the program's first statement, and so on, until the thread's next call of TX.
#[test]
fn what_a_program_asks_behind_an_early_commit_is_answered_to_it() {
    let databases = databases("t");
    let stage = databases.stage("");
    let work = |id: u32| [format!("pg=INSERT INTO t VALUES ({id})"), format!("ma=INSERT INTO t VALUES ({id})")];
    let (first, second) = (work(1), work(2));
    let words = [
        "open",
        "logged",
        "begin",
        &first[0],
        &first[1],
        "commit",
        "ma=SELECT 'A'",
        "ma=SELECT 'B'",
        "pg=SELECT 'C'",
        "begin",
        &second[0],
        &second[1],
        "keep",
        "commit",
        "kept-ma=SELECT 'D'",
        "close",
    ];
    let answers = databases.play(&stage, &words);
    let mut answers = values(&answers);
    // As documented: it was not asked for anew. What is committed is so all the same.
    assert_eq!(answers.remove(14), "done");
    let asked = ["A", "B", "C", "TX_OK", "done", "done", "kept", "TX_OK", "TX_OK"];
    assert_eq!(answers[6..], asked);
    assert_eq!(databases.counts("t"), ["2", "2", "0", "nothing"]);
    assert_eq!(stage.coordinator.undone(), 0);
}

#[test]
fn databases_that_are_restarted_are_found_again() {
    let mut databases = databases("t");
    let stage = databases.stage("");
    let work = |id: u32| [format!("pg=INSERT INTO t VALUES ({id})"), format!("ma=INSERT INTO t VALUES ({id})")];
    let (first, second) = (work(1), work(2));
    let words =
        ["open", "begin", &first[0], &first[1], "wait", "commit", "begin", &second[0], &second[1], "commit", "close"];
    let mut program = Player::start(&databases, &stage, "", &words);
    program.skip(4);
    databases.postgres.restart();
    databases.mariadb.restart();
    program.go_on();
    let answers: Vec<String> = (0..6).map(|_| program.next()).collect();
    assert_eq!(answers, ["TX_ROLLBACK", "TX_OK", "done", "done", "TX_OK", "TX_OK"]);
    program.end();
    assert_eq!(databases.counts("t"), ["1", "1", "0", "nothing"]);

    // One that is away when a transaction begins is found when it is back: it was closed and stayed so.
    let stage = databases.stage("");
    let (fourth, fifth) = (work(14), work(15));
    for (name, place) in [("`pg`", 0), ("`ma`", 1)] {
        let work = if place == 0 { &fourth } else { &fifth };
        let words = ["open", "wait", "begin", "error", "begin", "wait", "begin", &work[0], &work[1], "commit", "close"];
        let mut program = Player::start(&databases, &stage, "", &words);
        program.skip(1);
        let server = if place == 0 { &mut databases.postgres } else { &mut databases.mariadb };
        server.stop();
        program.go_on();
        assert_eq!(program.next(), "TX_FAIL");
        let why = program.next();
        assert!(why.contains(name), "{why}");
        assert_eq!(program.next(), "TX_FAIL");
        let server = if place == 0 { &mut databases.postgres } else { &mut databases.mariadb };
        server.restart();
        program.go_on();
        let answers: Vec<String> = (0..5).map(|_| program.next()).collect();
        assert_eq!(answers, ["TX_OK", "done", "done", "TX_OK", "TX_OK"], "{name}");
        program.end();
    }
    assert_eq!(databases.counts("t"), ["3", "3", "0", "nothing"]);

    // Prepared branches outlive their servers, and are committed when these are back.
    let stage = databases.stage("commit kill-before");
    let third = work(3);
    assert_eq!(databases.play(&stage, &["open", "begin", &third[0], "pg=SELECT 1", &third[1], "commit"]).len(), 5);
    databases.postgres.restart();
    databases.mariadb.restart();
    std::fs::write(stage.folder.path().join("default-script0"), "").unwrap();
    let answers = databases.play(&stage, &["open", "recover"]);
    assert_eq!(values(&answers), ["TX_OK", "committed=0,rolled-back=0,left=0"]);
    assert_eq!(databases.counts("t"), ["4", "4", "0", "nothing"]);
}
