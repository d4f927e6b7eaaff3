//! The server alone settles what programs left behind that never come back.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use holdfast_tests::{Launch, Server, files_of, holdfast, run, until};
use mysql_async::prelude::Queryable;
use tempfile::TempDir;
use tm::{Administration, Begin, Branch, Decisions, Forget, MysqlBranch, PostgresBranch, Remote, XaCode};

use crate::bank::{MONEY, Reach, name, remote};
use crate::databases::{MariaDb, Postgres};
use crate::programs::{Program, job};

/// Leases, back-off, and a machine that does other things too.
const CALM_TIME_MAX: Duration = Duration::from_secs(60);

/// Two databases and a server that looks after them.
struct Setting {
    postgres: Postgres,
    mariadb: MariaDb,
    reach: Reach,
    address: String,
    folder: TempDir,
}

/// The program that is killed. As a test of its own it has no job, and there is nothing to do.
#[test]
fn a_program_that_prepares_its_branches_and_waits() {
    let Some(job) = job() else { return };
    let words: Vec<&str> = job.split(' ').collect();
    let [server, port, socket, id, account, money, decides] = words.as_slice() else { panic!("{words:?}") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let decisions = Remote::open(remote(server)).unwrap();
        let transaction = decisions.begin(Begin::default()).unwrap();
        let postgres = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
        let clients = Reach::new(&postgres, Path::new(socket)).connect().await.unwrap();
        let xid = |text: &str| tm::Xid { transaction, branch: name(text) };
        let mut here = PostgresBranch::start(&clients.postgres, xid("postgres")).await.unwrap();
        let mut there = MysqlBranch::start(&clients.mariadb, &xid("mariadb")).await.unwrap();
        let account = account.parse().unwrap();
        clients.transfer(id, account, account, money.parse().unwrap()).await.unwrap();
        assert_eq!((here.prepare().await.code, there.prepare().await.code), (XaCode::Ok, XaCode::Ok));
        if *decides == "decides" {
            decisions.commit(transaction, &[name("postgres"), name("mariadb")], None).unwrap();
        }
        let mut out = std::io::stdout();
        writeln!(out, "both are prepared").unwrap();
        out.flush().unwrap();
        std::future::pending::<()>().await;
    });
}

impl Setting {
    fn new() -> Self {
        let (postgres, mariadb) = (Postgres::start(20), MariaDb::start());
        let reach = Reach::new(&postgres.connection(), &mariadb.socket());
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("profiles.toml"), reach.profile("bank", &address)).unwrap();
        Self { postgres, mariadb, reach, address, folder }
    }

    /// A configuration with these keys of `xa`.
    fn configured(&self, keys: &str) -> PathBuf {
        let path = self.folder.path().join("holdfast.toml");
        std::fs::write(
            &path,
            format!("[xa]\nprofiles_file = \"profiles.toml\"\ninterval_seconds = 1\nsweep_seconds = 1\n{keys}\n"),
        )
        .unwrap();
        path
    }

    fn launch(&self) -> Launch {
        let path = self.configured("profiles = [\"bank\"]");
        let launch = Launch::new(&self.folder.path().join("data")).resp(&self.address);
        launch.argument("--config").argument(&path.display().to_string())
    }

    fn serve(&self) -> Server {
        self.launch().start_again()
    }

    /// A program that has both its branches prepared, and a decision or not.
    fn prepared(&self, id: &str, money: i64, decides: &str) -> Program {
        let (port, socket) = (self.postgres.port(), self.mariadb.socket());
        // What is prepared holds its locks.
        let account = if decides == "decides" { 1 } else { 2 };
        let job = format!("{} {port} {} {id} {account} {money} {decides}", self.address, socket.display());
        let (said, heard): (_, Receiver<()>) = mpsc::channel();
        let test = "recovery_tests::a_program_that_prepares_its_branches_and_waits";
        let program = Program::start(test, &job, move |line| {
            if line.ends_with("both are prepared") {
                said.send(()).unwrap();
            }
        });
        heard.recv_timeout(CALM_TIME_MAX).expect("a program that gets so far");
        program
    }

    /// Waits until nothing is prepared any more, and returns what money there is.
    async fn settled(&self, server: &Server) -> (i64, i64) {
        let clients = self.reach.connect().await.unwrap();
        let calm = async {
            while clients.prepared().await != (0, 0) {
                tokio::task::yield_now().await;
            }
        };
        let is_calm = tokio::time::timeout(CALM_TIME_MAX, calm).await.is_ok();
        assert!(is_calm, "{:?} in doubt; the server says:\n{}", clients.prepared().await, server.output().text());
        clients.money().await
    }
}

/// A number of the server's.
pub(crate) fn number(server: &Server, name: &str) -> u64 {
    let told = server.client().call(&["INFO", "xa"]).unwrap();
    let text = String::from_utf8_lossy(told.bytes().unwrap());
    let (_, rest) = text.split_once(&format!("{name}:")).unwrap_or_else(|| panic!("no {name} in {text}"));
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    assert!(until(CALM_TIME_MAX, || holds().then_some(())).is_some(), "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_settles_what_nobody_comes_back_for() {
    let mut setting = Setting::new();
    setting.reach.found().await;
    let server = setting.serve();
    assert!(server.output().text().contains("recovery   bank (postgres, mariadb)"), "{}", server.output().text());
    assert_eq!(number(&server, "xa_recovery_managers"), 2);

    // Programs that are alive are left alone, for longer than their lease.
    let (decided, hanging) = (setting.prepared("decided", 7, "decides"), setting.prepared("hanging", 100, "hangs"));
    wait_for("a round that finds them", || number(&server, "xa_recovery_in_doubt") >= 2);
    let rounds = number(&server, "xa_recovery_rounds");
    wait_for("more rounds", || number(&server, "xa_recovery_rounds") > rounds + 2);
    assert_eq!(number(&server, "xa_recovery_rolled_back"), 0);
    decided.kill();
    hanging.kill();
    assert_eq!(setting.settled(&server).await, (MONEY - 7, MONEY + 7));
    wait_for("all counted", || {
        (number(&server, "xa_recovery_committed"), number(&server, "xa_recovery_rolled_back")) == (2, 2)
    });
    wait_for("nothing left", || number(&server, "xa_recovery_in_doubt") == 0);
    // And so the decision could be let go.
    wait_for("nothing outstanding", || number(&server, "xa_outstanding") == 0);
    for fate in ["postgres: hfxa1.", ".mariadb: committed", ".mariadb: rolled back", "may still commit"] {
        wait_for(fate, || server.output().text().contains(fate));
    }

    // As if a program had been killed after it told its branches: the decision is let go of, unless it names a branch of
    // which the server does not know where it is.
    let decisions = Remote::open(remote(&setting.address)).unwrap();
    let decide = |branches: &[&str]| {
        let transaction = decisions.begin(Begin::default()).unwrap();
        let names: Vec<_> = branches.iter().copied().map(name).collect();
        decisions.commit(transaction, &names, None).unwrap();
        transaction
    };
    let (kept, _swept) = (decide(&["postgres", "elsewhere"]), decide(&["postgres", "mariadb"]));
    wait_for("one let go", || server.output().text().contains("1 decisions were let go"));
    wait_for("one kept", || number(&server, "xa_outstanding") == 1);
    decisions.forget(kept, Forget::EvenInDoubt).unwrap();
    drop(decisions);

    // The databases are down when it comes to it, and come back later.
    let programs = [setting.prepared("later", 5, "decides"), setting.prepared("never", 100, "hangs")];
    setting.postgres.kill();
    setting.mariadb.kill();
    programs.into_iter().for_each(Program::kill);
    wait_for("both are down", || number(&server, "xa_recovery_managers_down") == 2);
    setting.postgres.run(20);
    setting.mariadb.run();
    assert_eq!(setting.settled(&server).await, (MONEY - 12, MONEY + 12));
    wait_for("both are back", || number(&server, "xa_recovery_managers_down") == 0);
    wait_for("a line in the log", || server.output().text().contains("postgres answers again"));

    // The server is killed too, and its next start finds what there is, by itself.
    let programs = [setting.prepared("restarted", 3, "decides"), setting.prepared("lost", 100, "hangs")];
    server.kill();
    programs.into_iter().for_each(Program::kill);
    let server = setting.serve();
    assert_eq!(setting.settled(&server).await, (MONEY - 15, MONEY + 15));

    // It stops at once, with a database that does not answer, too.
    setting.postgres.kill();
    wait_for("PostgreSQL is down", || number(&server, "xa_recovery_managers_down") == 1);
    let (status, text) = server.terminate();
    assert!(status.success() && text.trim_end().ends_with("stopped") && !text.contains("given up"), "{status}\n{text}");
}

/// Branches that begin as ours and are none were passed over in silence, with the locks that they hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_told_once_and_left_to_a_person() {
    let setting = Setting::new();
    setting.reach.found().await;
    let clients = setting.reach.connect().await.unwrap();
    let (here, there) = ("hfxa1.tampered", format!("X'6162',X'73686f70',{}", tm::FORMAT_ID));
    let prepare =
        format!("CREATE TABLE held (id INT); BEGIN; INSERT INTO held VALUES (1); PREPARE TRANSACTION '{here}'");
    clients.postgres.batch_execute(&prepare).await.unwrap();
    let mut mariadb = clients.mariadb.lock().await;
    for statement in [
        "CREATE TABLE bank.held (id INT) ENGINE=InnoDB",
        "XA START {}",
        "INSERT INTO bank.held VALUES (1)",
        "XA END {}",
        "XA PREPARE {}",
    ] {
        mariadb.query_drop(statement.replace("{}", &there)).await.unwrap();
    }
    let server = setting.serve();
    let rounds = || number(&server, "xa_recovery_rounds");
    wait_for("some rounds of both", || rounds() > 6);
    let told = |name: &str| {
        let line = format!("{name:?} is prepared and cannot be read, and is left alone");
        server.output().text().matches(&line).count()
    };
    assert_eq!((told(here), told(&there)), (1, 1), "{}", server.output().text());
    // A person hears of it, and what is told is what the database takes.
    let profile = setting.folder.path().join("profiles.toml").display().to_string();
    let words = ["xa", "recover", "--profile", &profile, "--name", "bank"];
    let told = run(Command::new(holdfast()).args(words), b"", CALM_TIME_MAX);
    assert_eq!(told.code, Some(1), "{}", told.text);
    for name in [here, &there] {
        assert!(told.text.contains(&format!("{name:?}: cannot be read, and is left alone")), "{}", told.text);
    }
    assert!(told.text.contains("something may be in doubt"), "{}", told.text);
    clients.postgres.batch_execute(&format!("COMMIT PREPARED '{here}'")).await.unwrap();
    mariadb.query_drop(format!("XA ROLLBACK {there}")).await.unwrap();
    let told = run(Command::new(holdfast()).args(words), b"", CALM_TIME_MAX);
    assert!(told.code == Some(0) && told.text.contains("nothing is in doubt"), "{}", told.text);
}

/// Passwords of resource managers are for whoever opens these: the server that recovers has them in its memory alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_of_resource_managers_reach_neither_disk_nor_log_nor_anybody_who_asks() {
    const SECRETS: [&str; 2] = ["sesame-of-the-ledger", "sesame-of-the-shop"];
    let setting = Setting::new();
    setting.reach.found().await;
    let profiles = setting.folder.path().join("profiles.toml");
    let text = setting.reach.profile("bank", &setting.address);
    let (ledger, shop) = text.split_once("\n\n[[profiles.bank.resource_managers]]\nname = \"mariadb\"").unwrap();
    let [ledger_secret, shop_secret] = SECRETS;
    let text = format!(
        "{ledger}\npassword = \"{ledger_secret}\"\n\n[[profiles.bank.resource_managers]]\nname = \"mariadb\"{shop}\n\
         [[profiles.bank.resource_managers]]\nname = \"dead\"\nkind = \"mariadb\"\n\
         open = \"mysql://bank@127.0.0.1:1/shop\"\npassword = \"{shop_secret}\"\n"
    );
    std::fs::write(&profiles, text).unwrap();
    // Also as a URL has it.
    let encoded = |secret: &str| secret.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let secrets: Vec<String> = SECRETS.iter().flat_map(|secret| [(*secret).to_owned(), encoded(secret)]).collect();
    let clean = |what: &str, bytes: &[u8]| {
        for secret in &secrets {
            let is_there = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!is_there, "{what} has {secret}");
        }
    };

    let server = setting.serve();
    let decided = setting.prepared("decided", 7, "decides");
    decided.kill();
    assert_eq!(setting.settled(&server).await, (MONEY - 7, MONEY + 7));
    wait_for("one is down", || number(&server, "xa_recovery_managers_down") == 1);
    let profile = profiles.display().to_string();
    for command in ["check", "recover", "list"] {
        let mut said = Command::new(holdfast());
        said.args(["xa", command, "--profile", &profile]).env_remove("HOLDFAST_XA_PROFILE");
        let said = run(&mut said, b"", CALM_TIME_MAX);
        assert!(command == "list" || said.text.contains("dead"), "{}", said.text);
        clean(command, said.text.as_bytes());
    }
    for words in [&["INFO", "everything"][..], &["CONFIG", "GET", "*"], &["XA.LIST"], &["CLIENT", "LIST"]] {
        clean(words[0], format!("{:?}", server.client().call(words).unwrap()).as_bytes());
    }
    let backup = setting.folder.path().join("backup");
    let made = run(
        Command::new(holdfast()).arg("backup").arg(&backup).args(["--address", &setting.address]),
        b"",
        CALM_TIME_MAX,
    );
    assert_eq!(made.code, Some(0), "{}", made.text);
    let (status, log) = server.terminate();
    assert!(status.success() && log.contains("dead"), "{log}");
    clean("the log", log.as_bytes());
    let data = setting.folder.path().join("data");
    for options in [&[][..], &["--dump", ".."]] {
        let inspected = run(Command::new(holdfast()).arg("inspect").arg(&data).args(options), b"", CALM_TIME_MAX);
        assert!(!inspected.text.is_empty());
        clean("inspect", inspected.text.as_bytes());
    }
    let files: Vec<PathBuf> = [data, backup].iter().flat_map(|folder| files_of(folder)).collect();
    assert!(files.len() > 4, "{files:?}");
    files.iter().for_each(|file| clean(&file.display().to_string(), &std::fs::read(file).unwrap()));
}

#[test]
fn a_profile_that_is_not_for_this_server_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let other = Launch::new(&folder.path().join("other")).start();
    let reach = Reach::new("host=127.0.0.1 port=1 user=nobody", Path::new("/nowhere"));
    let start = |address: &str, profile: &str| {
        std::fs::write(folder.path().join("profiles.toml"), reach.profile("bank", address)).unwrap();
        let keys = format!("[xa]\nprofiles_file = \"profiles.toml\"\nprofiles = [\"{profile}\"]\n");
        let path = folder.path().join("holdfast.toml");
        std::fs::write(&path, keys).unwrap();
        let launch = Launch::new(&folder.path().join("data")).argument("--config");
        launch.argument(&path.display().to_string()).try_start()
    };
    let refused = start(&other.resp().to_string(), "bank").unwrap_err();
    let wanted = format!("the coordinator of profile bank at {} is ", other.resp());
    assert!(refused.code == Some(1) && refused.text.contains(&wanted), "{refused:?}");
    let refused = start("127.0.0.1:1", "bang").unwrap_err();
    assert!(refused.code == Some(1) && refused.text.contains("there is no profile bang, only: bank"), "{refused:?}");
    // One that cannot be asked may be this server by another name: it starts, and says so.
    let server = start("127.0.0.1:1", "bank").unwrap();
    for text in [
        "whether this server is the coordinator of profile bank could not be checked",
        "bank: postgres does not answer",
    ] {
        wait_for(text, || server.output().text().contains(text));
    }
    assert!(server.terminate().0.success());
}

#[test]
fn a_server_stops_though_a_database_accepts_and_never_answers() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let postgres = format!("host=127.0.0.1 port={} user=nobody", silent.local_addr().unwrap().port());
    let reach = Reach::new(&postgres, Path::new("/nowhere"));
    std::fs::write(folder.path().join("profiles.toml"), reach.profile("bank", "127.0.0.1:1")).unwrap();
    let path = folder.path().join("holdfast.toml");
    std::fs::write(&path, "[xa]\nprofiles_file = \"profiles.toml\"\n").unwrap();
    let launch = Launch::new(&folder.path().join("data")).argument("--config").argument(&path.display().to_string());
    let server = launch.start();
    // It is asked, and so the round is under way.
    let connection = silent.accept().unwrap();
    let (status, text) = server.terminate();
    assert!(
        status.success() && text.contains("was given up") && text.trim_end().ends_with("stopped"),
        "{status}\n{text}"
    );
    drop(connection);
}
