//! Programs that reach PostgreSQL and MariaDB by TLS alone, and are killed in the middle of a commit: recovery with the right
//! certificates settles what they left, and with wrong ones says so and ends nothing that it may not.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use holdfast_tests::{Finished, Launch, Server, holdfast, run, until};
use mysql_async::prelude::Queryable;
use tm::{
    Begin, Branch, Decisions, LastResource, MysqlBranch, MysqlManager, PostgresBranch, PostgresLastResource,
    PostgresManager, PostgresTls, Profile, Remote, TransactionId, XaCode, Xid,
};
use tokio::sync::Mutex;

use crate::bank::{name, remote};
use crate::programs::{Program, job};
use crate::tls_tests::{Setting, make_user};

const CALM_TIME_MAX: Duration = Duration::from_secs(60);
/// Profiles by how they reach PostgreSQL: with a wrong authority, without a certificate, with an old one, and well.
const PROFILES: [(&str, &str); 4] = [
    (
        "stranger",
        "authorities = \"FOLDER/stranger.pem\"\ncertificate = \"FOLDER/own.pem\"\ncertificate_key = \"FOLDER/own.key\"",
    ),
    ("nobody", "authorities = \"FOLDER/ca.pem\""),
    (
        "expired",
        "authorities = \"FOLDER/ca.pem\"\ncertificate = \"FOLDER/expired.pem\"\ncertificate_key = \"FOLDER/expired.key\"",
    ),
    ("bank", "authorities = \"FOLDER/ca.pem\"\ncertificate = \"FOLDER/own.pem\"\ncertificate_key = \"FOLDER/own.key\""),
];

fn managers(profile: &Profile) -> (PostgresManager, MysqlManager) {
    let [ledger, shop] = profile.resource_managers.as_slice() else { panic!("two databases") };
    let config = ledger.open.expose().parse().unwrap();
    let tls = PostgresTls::new(ledger.tls.as_ref().unwrap()).unwrap();
    let options = mysql_async::Opts::from_url(shop.open.expose()).unwrap();
    (
        PostgresManager::new(name("ledger"), config).with_tls(tls),
        MysqlManager::new(name("shop"), options).with_tls(shop.tls.as_ref().unwrap()).unwrap(),
    )
}

/// The program that is killed. As a test of its own it has no job, and there is nothing to do.
#[test]
fn a_program_that_waits_in_the_middle_of_a_commit() {
    let Some(job) = job() else { return };
    let words: Vec<&str> = job.split(' ').collect();
    let [server, profiles, row, kind, decides] = words.as_slice() else { panic!("{words:?}") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let profile = Profile::of_file(Path::new(profiles), Some("bank")).unwrap();
        let (ledger, shop) = managers(&profile);
        let decisions = Remote::open(remote(server)).unwrap();
        let last = PostgresLastResource::open(&ledger).await.unwrap();
        let last = (*kind == "last").then(|| last.id());
        let transaction = TransactionId { last_resource: last, ..decisions.begin(Begin::default()).unwrap() };
        let xid = |text: &str| Xid { transaction, branch: name(text) };
        let postgres = Arc::new(ledger.connect().await.unwrap());
        let mariadb = Arc::new(Mutex::new(shop.connect().await.unwrap()));
        let mut here = PostgresBranch::start(&postgres, xid("ledger")).await.unwrap();
        let mut there = MysqlBranch::start(&mariadb, &xid("shop")).await.unwrap();
        postgres.batch_execute(&format!("INSERT INTO rows VALUES ({row})")).await.unwrap();
        mariadb.lock().await.query_drop(format!("INSERT INTO bank.rows VALUES ({row})")).await.unwrap();
        assert_eq!(there.prepare().await.code, XaCode::Ok);
        match (*kind, *decides) {
            ("last", "decides") => assert_eq!(here.commit_last(&[name("shop")]).await.code, XaCode::Ok),
            ("last", _) => {}
            (_, decides) => {
                assert_eq!(here.prepare().await.code, XaCode::Ok);
                if decides == "decides" {
                    decisions.commit(transaction, &[name("ledger"), name("shop")], None).unwrap();
                }
            }
        }
        let mut out = std::io::stdout();
        writeln!(out, "it waits").unwrap();
        out.flush().unwrap();
        std::future::pending::<()>().await;
    });
}

/// Databases, and programs with a server as coordinator.
struct Bank {
    setting: Setting,
    address: String,
    profile: Profile,
}

impl Bank {
    fn new() -> Self {
        let mut setting = Setting::start();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let expired = setting.authority.sign(&[], "bank", 2021);
        setting.file("expired.pem", &expired.certificate);
        setting.file("expired.key", &expired.key);
        setting.restart_with(None);
        runtime.block_on(make_user(&setting, ""));
        setting.restart_with(Some(&setting.authority.sign(&["127.0.0.1"], "server", 2100)));
        runtime.block_on(make_user(&setting, "REQUIRE X509"));
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let folder = setting.folder.path().display().to_string();
        let mut text = String::new();
        for (profile, tls) in PROFILES {
            let (tls, (_, right)) = (tls.replace("FOLDER", &folder), PROFILES[3]);
            let right = right.replace("FOLDER", &folder);
            text.push_str(&format!(
                "[profiles.{profile}.coordinator]\nservers = [\"{address}\"]\n\
                 [[profiles.{profile}.resource_managers]]\nname = \"ledger\"\nkind = \"postgres\"\n\
                 open = \"host=127.0.0.1 port={} user=bank dbname=postgres connect_timeout=5\"\n{tls}\n\
                 [[profiles.{profile}.resource_managers]]\nname = \"shop\"\nkind = \"mariadb\"\n\
                 open = \"mysql://bank@127.0.0.1:{}/mysql\"\n{right}\n\n",
                setting.postgres.port(),
                setting.mariadb_port,
            ));
        }
        setting.file("profiles.toml", &text);
        let profile = Profile::of_file(&setting.path("profiles.toml"), Some("bank")).unwrap();
        Self { setting, address, profile }
    }

    fn serve(&self, keys: &str) -> Server {
        let config = self.setting.file("holdfast.toml", keys);
        let launch = Launch::new(&self.setting.path("data")).resp(&self.address);
        launch.argument("--config").argument(&config.display().to_string()).start_again()
    }

    /// A program that left that behind.
    fn killed(&self, row: i32, kind: &str, decides: &str) {
        let job = format!("{} {} {row} {kind} {decides}", self.address, self.setting.path("profiles.toml").display());
        let (said, heard) = mpsc::channel();
        let test = "tls_recovery_tests::a_program_that_waits_in_the_middle_of_a_commit";
        let program = Program::start(test, &job, move |line| {
            if line.ends_with("it waits") {
                said.send(()).unwrap();
            }
        });
        heard.recv_timeout(CALM_TIME_MAX).expect("a program that gets so far");
        program.kill();
    }

    fn recover(&self, profile: &str) -> Finished {
        let mut command = Command::new(holdfast());
        command.args(["xa", "recover", "--name", profile, "--profile"]).arg(self.setting.path("profiles.toml"));
        run(&mut command, b"", CALM_TIME_MAX)
    }

    /// Whether each has the row, and how much is prepared in each.
    async fn has(&self, row: i32) -> ([bool; 2], [usize; 2]) {
        let (ledger, shop) = managers(&self.profile);
        let (postgres, mut mariadb) = (ledger.connect().await.unwrap(), shop.connect().await.unwrap());
        let here = postgres.query(&format!("SELECT 1 FROM rows WHERE id = {row}"), &[]).await.unwrap();
        let there: Vec<i32> = mariadb.query(format!("SELECT id FROM bank.rows WHERE id = {row}")).await.unwrap();
        let prepared_here = postgres.query("SELECT 1 FROM pg_prepared_xacts", &[]).await.unwrap().len();
        let prepared_there: Vec<mysql_async::Row> = mariadb.query("XA RECOVER").await.unwrap();
        ([!here.is_empty(), !there.is_empty()], [prepared_here, prepared_there.len()])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovery_by_tls_settles_what_killed_programs_left_and_with_wrong_certificates_only_says_so() {
    let bank = tokio::task::spawn_blocking(Bank::new).await.unwrap();
    let (ledger, shop) = managers(&bank.profile);
    ledger.connect().await.unwrap().batch_execute("CREATE TABLE rows (id INT)").await.unwrap();
    shop.connect().await.unwrap().query_drop("CREATE DATABASE bank; CREATE TABLE bank.rows (id INT)").await.unwrap();

    let server = bank.serve("");
    let mut row = 0;
    for (kind, decides) in [("last", "decides"), ("last", "waits"), ("branch", "decides"), ("branch", "waits")] {
        row += 1;
        bank.killed(row, kind, decides);
        let (is_last, decided) = (kind == "last", decides == "decides");
        for (profile, why) in [
            ("stranger", "signed by nobody who is trusted"),
            ("nobody", "requires a valid client certificate"),
            ("expired", "the server refuses the certificate of this program: it has expired"),
        ] {
            // Until the lease of the dead program is over.
            let said = until(CALM_TIME_MAX, || {
                let said = bank.recover(profile);
                let is_over = match is_last {
                    true => said.text.contains("decided about 1 transactions"),
                    false => !said.text.contains("may still commit"),
                };
                is_over.then_some(said)
            });
            let said = said.unwrap_or_else(|| panic!("{kind} {decides} {profile}: {}", bank.recover(profile).text));
            assert_eq!(said.code, Some(1), "{}", said.text);
            assert!(said.text.contains(why), "{}", said.text);
            let (rows, prepared) = bank.has(row).await;
            // A last resource that cannot be asked is waited for; otherwise the coordinator's word is enough for the other.
            let expected = if is_last { ([decided, false], [0, 1]) } else { ([false, decided], [1, 0]) };
            assert_eq!((rows, prepared), expected, "{kind} {decides} {profile}:\n{}", said.text);
        }
        let said = bank.recover("bank");
        assert_eq!((said.code, bank.has(row).await), (Some(0), ([decided; 2], [0, 0])), "{}", said.text);
    }
    server.kill();

    // The server does it by itself, with the wrong certificate as little.
    let server = bank.serve("");
    let mut expected = Vec::new();
    for (kind, decides) in [("last", "decides"), ("last", "waits"), ("branch", "decides"), ("branch", "waits")] {
        row += 1;
        bank.killed(row, kind, decides);
        expected.push((row, decides == "decides"));
    }
    server.kill();
    let keys = |profile: &str| {
        format!("[xa]\nprofiles_file = \"profiles.toml\"\nprofiles = [\"{profile}\"]\ninterval_seconds = 1\n")
    };
    let server = bank.serve(&keys("stranger"));
    let is_said = || server.output().text().contains("signed by nobody who is trusted").then_some(());
    assert!(until(CALM_TIME_MAX, is_said).is_some(), "{}", server.output().text());
    server.kill();
    for (row, decided) in &expected[..2] {
        assert_eq!(bank.has(*row).await.0, [*decided, false]);
    }
    let server = bank.serve(&keys("bank"));
    for (row, decided) in expected {
        let mut last = bank.has(row).await;
        for _ in 0..300 {
            if last == ([decided; 2], [0, 0]) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            last = bank.has(row).await;
        }
        assert_eq!(last, ([decided; 2], [0, 0]), "{}", server.output().text());
    }
}
