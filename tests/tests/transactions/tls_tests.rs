//! PostgreSQL and MariaDB by TLS, as a profile says: the whole of a transaction, and what is said when it cannot be.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast::Options;
use mysql_async::prelude::Queryable;
use tempfile::TempDir;
use tm::{
    Begin, Coordinator, Embedded, Fate, MysqlBranch, Pace, PostgresBranch, PostgresManager, Profile, Recovery,
    Switches, resource_managers,
};
use tokio::sync::Mutex;

use crate::bank::name;
use crate::certificates::{Authority, Signed};
use crate::databases::{MariaDb, Postgres};

/// Both databases, and the files of a program.
pub(crate) struct Setting {
    pub(crate) postgres: Postgres,
    pub(crate) mariadb: MariaDb,
    pub(crate) mariadb_port: u16,
    pub(crate) authority: Authority,
    pub(crate) folder: TempDir,
}

impl Setting {
    pub(crate) fn start() -> Self {
        let (postgres, mariadb) = (Postgres::start(10), MariaDb::start());
        let mariadb_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let setting =
            Self { postgres, mariadb, mariadb_port, authority: Authority::new(), folder: tempfile::tempdir().unwrap() };
        setting.file("ca.pem", &setting.authority.certificate);
        setting.file("stranger.pem", &Authority::new().certificate);
        let own = setting.authority.sign(&[], "bank", 2100);
        setting.file("own.pem", &own.certificate);
        setting.file("own.key", &own.key);
        setting
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Without a certificate they have no TLS.
    pub(crate) fn restart_with(&mut self, server: Option<&Signed>) {
        let networking = vec![format!("--port={}", self.mariadb_port)];
        let Some(server) = server else {
            self.postgres.restart_with(Vec::new());
            self.mariadb.restart_with([networking, vec!["--skip-ssl".to_owned()]].concat());
            return;
        };
        let files = |give: &dyn Fn(&str, &str) -> PathBuf| {
            let given = [("ca", &self.authority.certificate), ("cert", &server.certificate), ("key", &server.key)];
            given.map(|(name, text)| give(&format!("tls-{name}.pem"), text).display().to_string())
        };
        let [ca, cert, key] = files(&|name, text| self.postgres.give(name, text));
        // Without TLS nobody comes in, and bank only with a certificate.
        let rules = "hostssl all bank 127.0.0.1/32 cert\nhostssl all all 127.0.0.1/32 trust\n";
        let rules = self.postgres.give("rules", rules).display().to_string();
        let [ma_ca, ma_cert, ma_key] = files(&|name, text| self.mariadb.give(name, text));
        self.postgres.restart_with(vec![
            "ssl=on".to_owned(),
            format!("ssl_ca_file={ca}"),
            format!("ssl_cert_file={cert}"),
            format!("ssl_key_file={key}"),
            format!("hba_file={rules}"),
        ]);
        let tls = [format!("--ssl-ca={ma_ca}"), format!("--ssl-cert={ma_cert}"), format!("--ssl-key={ma_key}")];
        self.mariadb.restart_with([networking, tls.to_vec()].concat());
    }

    /// A profile with both, reached as this host and user, with these lines besides.
    fn profile(&self, host: &str, user: &str, more: &str) -> Profile {
        let (directory, port, mariadb_port) = (self.path("coordinator"), self.postgres.port(), self.mariadb_port);
        let text = format!(
            "[profiles.bank.coordinator]\ndirectory = {directory:?}\n\
             [[profiles.bank.resource_managers]]\nname = \"ledger\"\nkind = \"postgres\"\n\
             open = \"host={host} port={port} user={user} dbname=postgres connect_timeout=5\"\n{more}\n\
             [[profiles.bank.resource_managers]]\nname = \"shop\"\nkind = \"mariadb\"\n\
             open = \"mysql://{user}@{host}:{mariadb_port}/mysql\"\n{more}\n"
        );
        Profile::of_text(&text, None, &|_| None).unwrap()
    }

    fn trusting(&self, authorities: &str) -> String {
        format!("authorities = {:?}", self.path(authorities))
    }

    fn with_certificate(&self) -> String {
        let (own, key) = (self.path("own.pem"), self.path("own.key"));
        format!("{}\ncertificate = {own:?}\ncertificate_key = {key:?}", self.trusting("ca.pem"))
    }
}

/// What is wrong with which part of a profile.
async fn faults(profile: &Profile) -> Vec<(String, String)> {
    let wrong = |checked: tm::Checked| {
        let (part, faults) = (checked.part, checked.found.err().unwrap_or_default());
        faults.into_iter().map(move |what| (part.clone(), what))
    };
    tm::check(profile).await.into_iter().flat_map(wrong).collect()
}

/// What is said about each part of a profile, which is to be one thing about each resource manager.
async fn said(profile: &Profile) -> [String; 2] {
    let found = faults(profile).await;
    let parts: Vec<&str> = found.iter().map(|(part, _)| part.as_str()).collect();
    assert_eq!(parts, ["ledger", "shop"], "{found:?}");
    [found[0].1.clone(), found[1].1.clone()]
}

async fn each_says(profile: &Profile, expected: &str) {
    for what in said(profile).await {
        assert!(what.contains(expected), "{what}\nand not: {expected}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn databases_are_reached_by_tls_and_whatever_is_wrong_is_said() {
    let mut setting = Setting::start();

    setting.restart_with(None);
    make_user(&setting, "").await;
    assert!(faults(&setting.profile("127.0.0.1", "postgres", "")).await.len() == 1, "there is no such user in MariaDB");
    each_says(&setting.profile("127.0.0.1", "bank", &setting.trusting("ca.pem")), "the server has no TLS").await;

    let good = setting.authority.sign(&["127.0.0.1"], "server", 2100);
    setting.restart_with(Some(&good));
    make_user(&setting, "REQUIRE X509").await;
    let profile = setting.profile("127.0.0.1", "bank", &setting.with_certificate());
    assert_eq!(faults(&profile).await, []);
    a_transaction_and_its_recovery(&setting, &profile).await;
    let stranger = setting.profile("127.0.0.1", "bank", &setting.trusting("stranger.pem"));
    each_says(&stranger, "signed by nobody who is trusted").await;
    let elsewhere = setting.profile("localhost", "bank", &setting.with_certificate());
    each_says(&elsewhere, "is for another name than the one that was connected to").await;
    let [ledger, shop] = said(&setting.profile("127.0.0.1", "bank", &setting.trusting("ca.pem"))).await;
    assert!(ledger.contains("requires a valid client certificate"), "{ledger}");
    assert!(shop.contains("Access denied"), "{shop}");
    let [ledger, shop] = said(&setting.profile("127.0.0.1", "bank", "")).await;
    assert!(ledger.contains("no encryption") && shop.contains("Access denied"), "{ledger} {shop}");
    let expired = setting.authority.sign(&[], "bank", 2021);
    let (cert, key) = (setting.file("expired.pem", &expired.certificate), setting.file("expired.key", &expired.key));
    let expired = format!("{}\ncertificate = {cert:?}\ncertificate_key = {key:?}", setting.trusting("ca.pem"));
    let expired = setting.profile("127.0.0.1", "bank", &expired);
    each_says(&expired, "the server refuses the certificate of this program: it has expired").await;
    let nowhere = setting.profile("127.0.0.1", "bank", "authorities = \"/nowhere/ca.pem\"");
    each_says(&nowhere, "cannot use the certificates in /nowhere/ca.pem").await;
    a_socket_has_no_tls(&setting).await;

    setting.restart_with(Some(&setting.authority.sign(&["127.0.0.1"], "server", 2021)));
    each_says(&profile, "the server's certificate has expired").await;
}

/// A user of both databases who may do all, in MariaDB only so.
pub(crate) async fn make_user(setting: &Setting, how: &str) {
    let socket = setting.mariadb.socket().display().to_string();
    let options = mysql_async::OptsBuilder::default().user(Some("root")).socket(Some(socket));
    let mut root = mysql_async::Conn::new(options).await.unwrap();
    for user in ["bank@'127.0.0.1'", "bank@localhost"] {
        root.query_drop(format!("CREATE OR REPLACE USER {user} {how}")).await.unwrap();
        root.query_drop(format!("GRANT ALL ON *.* TO {user}")).await.unwrap();
    }
    root.disconnect().await.unwrap();
    if how.is_empty() {
        let config = setting.postgres.connection().parse().unwrap();
        let root = PostgresManager::new(name("root"), config).connect().await.unwrap();
        root.batch_execute("CREATE ROLE bank SUPERUSER LOGIN").await.unwrap();
    }
}

/// A Unix socket is not encrypted; whoever asks for TLS is told.
async fn a_socket_has_no_tls(setting: &Setting) {
    let (authorities, socket) = (setting.trusting("ca.pem"), setting.mariadb.socket());
    let text = format!(
        "[profiles.p.coordinator]\ndirectory = \"/d\"\n[[profiles.p.resource_managers]]\nname = \"ledger\"\n\
         kind = \"postgres\"\nopen = \"host={} port={} user=postgres\"\n{authorities}\n\
         [[profiles.p.resource_managers]]\nname = \"shop\"\nkind = \"mariadb\"\n\
         open = \"mysql://root@localhost/?socket={}\"\n{authorities}\n",
        socket.parent().unwrap_or(Path::new("/")).display(),
        setting.postgres.port(),
        socket.display()
    );
    let found = faults(&Profile::of_text(&text, None, &|_| None).unwrap()).await;
    let of = |part: &str| found.iter().find(|fault| fault.0 == part).map(|fault| fault.1.clone());
    assert!(of("shop").unwrap().contains("TLS needs a host that is reached over TCP"), "{found:?}");
    assert!(of("ledger").is_some(), "{found:?}");
}

async fn a_transaction_and_its_recovery(setting: &Setting, profile: &Profile) {
    let tls = |number: usize| profile.resource_managers[number].tls.as_ref().unwrap();
    let config = profile.resource_managers[0].open.expose().parse().unwrap();
    let ledger = PostgresManager::new(name("ledger"), config).with_tls(tm::PostgresTls::new(tls(0)).unwrap());
    let options = mysql_async::Opts::from_url(profile.resource_managers[1].open.expose()).unwrap();
    let shop = tm::MysqlManager::new(name("shop"), options).with_tls(tls(1)).unwrap();
    let postgres = Arc::new(ledger.connect().await.unwrap());
    let mariadb = Arc::new(Mutex::new(shop.connect().await.unwrap()));
    let secured = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert!(postgres.query_one(secured, &[]).await.unwrap().get::<_, bool>(0));
    let cipher: Option<(String, String)> =
        mariadb.lock().await.query_first("SHOW STATUS LIKE 'Ssl_cipher'").await.unwrap();
    assert!(cipher.is_some_and(|(_, cipher)| !cipher.is_empty()));
    postgres.batch_execute("CREATE TABLE rows (id INT)").await.unwrap();
    mariadb.lock().await.query_drop("CREATE DATABASE bank; CREATE TABLE bank.rows (id INT)").await.unwrap();

    let coordinator = Coordinator::embedded(Embedded::open(&setting.path("embedded"), Options::default()).unwrap());
    let mut transaction = coordinator.begin(Begin::default()).unwrap();
    let started = PostgresBranch::start(&postgres, transaction.xid("ledger").unwrap()).await.unwrap();
    transaction.enlist(&name("ledger"), started).await.unwrap();
    let started = MysqlBranch::start(&mariadb, &transaction.xid("shop").unwrap()).await.unwrap();
    transaction.enlist(&name("shop"), started).await.unwrap();
    postgres.batch_execute("INSERT INTO rows VALUES (1)").await.unwrap();
    mariadb.lock().await.query_drop("INSERT INTO bank.rows VALUES (1)").await.unwrap();
    assert!(transaction.commit().await.unwrap().pending.is_empty());
    assert_eq!(postgres.query("SELECT id FROM rows", &[]).await.unwrap().len(), 1);

    // A branch whose program is gone is settled by recovery, through TLS.
    let gone = coordinator.begin(Begin { timeout: Some(std::time::Duration::from_millis(1)), ..Begin::default() });
    let gone = gone.unwrap().id();
    let branch = format!("BEGIN; INSERT INTO rows VALUES (2); PREPARE TRANSACTION '{gone}.ledger'");
    postgres.batch_execute(&branch).await.unwrap();
    let managers = resource_managers(profile, Switches::Left).unwrap();
    let report = Recovery::new(&coordinator, managers, Pace::default()).run().await;
    assert!(report.down.is_empty(), "{report:?}");
    assert_eq!(report.found.iter().map(|found| found.fate).collect::<Vec<_>>(), [Fate::RolledBack]);
}
