//! PostgreSQL and MariaDB for a benchmark: those that are there, or new ones in a folder, with the settings that they come
//! with, so that each commit is on the disk when it returns.
//!
//! May use: processes, the databases' clients, `tm`, tokio. Must not know: what is measured.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tm::{BranchName, LastResource, PostgresLastResource, PostgresManager};
use tokio_postgres::{Client, NoTls};

use crate::workload::{Failure, Result};

/// In each database; enough that two programs seldom meet.
pub(crate) const ACCOUNTS: u64 = 10_000;
/// A new server has nothing to do before it answers.
const START_TIME_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
const NAME: &str = "holdfast_bench";

/// Both databases. Clones are the same; the last one ends what was started.
#[derive(Clone)]
pub(crate) struct Databases {
    postgres: tokio_postgres::Config,
    mariadb: Opts,
    _started: Option<Arc<Started>>,
}

/// Servers of ours, and where they keep their files.
struct Started {
    servers: Vec<Child>,
    folders: Vec<TempDir>,
}

impl Drop for Started {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // In order, for the processes of a PostgreSQL that is killed go on for a while. It may have ended by itself.
            let _ = kill_process(Pid::from_child(server), Signal::QUIT);
            let _ = server.wait();
        }
        self.folders.clear();
    }
}

/// A PostgreSQL of its own, ended when dropped.
pub(crate) struct Postgres {
    /// How to connect to it.
    pub(crate) connection: String,
    /// Its process, whose children serve the connections.
    pub(crate) process: u32,
    _started: Started,
}

impl Postgres {
    /// A new one in a folder beside `place`, with these settings beyond those that it comes with.
    pub(crate) fn start(place: &TempDir, settings: &[&str]) -> Result<Self> {
        let mut started = Started { servers: Vec::new(), folders: Vec::new() };
        let port = free_port()?;
        start_postgres(&mut started, place.path().parent().ok_or("a folder without a place")?, port, settings)?;
        let connection = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
        let (config, runtime) = (connection.parse::<tokio_postgres::Config>()?, runtime()?);
        wait_for(&mut started, &|| {
            let _both = runtime.block_on(config.connect(NoTls))?;
            Ok(())
        })?;
        let process = started.servers.first().map(Child::id).ok_or("no server was started")?;
        Ok(Self { connection, process, _started: started })
    }
}

/// Waits until a question to what was started succeeds.
fn wait_for(started: &mut Started, question: &dyn Fn() -> Result<()>) -> Result<()> {
    let until = Instant::now() + START_TIME_MAX;
    loop {
        let Err(failure) = question() else { return Ok(()) };
        let is_gone = started.servers.iter_mut().any(|server| !matches!(server.try_wait(), Ok(None)));
        if is_gone || Instant::now() > until {
            let said = started.folders.iter().map(|folder| log_of(folder.path())).collect::<Vec<_>>().join("\n");
            return Err(Failure::from(format!("a database does not start: {failure}\n{said}")));
        }
        thread::sleep(PAUSE);
    }
}

/// Whom a server runs as when the benchmark runs as root, because neither may.
#[derive(Clone, Copy)]
struct User {
    uid: u32,
    gid: u32,
}

impl Databases {
    /// Those that are there.
    pub(crate) fn there(postgres: &str, mariadb: &str) -> Result<Self> {
        // The driver's error may quote the URL, and so a password.
        let options = Opts::from_url(mariadb).map_err(|_| Failure::from("--mariadb is no URL of MariaDB"))?;
        Ok(Self { postgres: postgres.parse()?, mariadb: of_tcp(options), _started: None })
    }

    /// New ones, in folders beside `place`, which is for one user alone.
    pub(crate) fn start(place: &TempDir) -> Result<Self> {
        let parent = place.path().parent().ok_or("a folder without a place")?;
        let mut started = Started { servers: Vec::new(), folders: Vec::new() };
        let ports = [free_port()?, free_port()?];
        let [postgres, mariadb] = ports;
        start_postgres(&mut started, parent, postgres, &["max_prepared_transactions=100"])?;
        start_mariadb(&mut started, parent, mariadb)?;
        let connection = format!("host=127.0.0.1 port={postgres} user=postgres dbname=postgres");
        let options = OptsBuilder::default().user(Some("root")).ip_or_hostname("127.0.0.1").tcp_port(mariadb);
        let mut this = Self { postgres: connection.parse()?, mariadb: of_tcp(options.into()), _started: None };
        this.answer(&mut started)?;
        this._started = Some(Arc::new(started));
        Ok(this)
    }

    /// Waits until both answer.
    fn answer(&self, started: &mut Started) -> Result<()> {
        let runtime = runtime()?;
        wait_for(started, &|| {
            runtime.block_on(async {
                self.postgres().await?;
                self.mariadb().await.map(drop)
            })
        })
    }

    /// A connection, which the current runtime serves.
    pub(crate) async fn postgres(&self) -> Result<Client> {
        let (client, connection) = self.postgres.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// A connection.
    pub(crate) async fn mariadb(&self) -> Result<Conn> {
        Ok(Conn::new(self.mariadb.clone()).await?)
    }

    /// PostgreSQL as the last resource of transactions.
    pub(crate) async fn last_resource(&self) -> Result<Arc<dyn LastResource>> {
        let manager = PostgresManager::new(BranchName::new("postgres")?, self.postgres.clone());
        Ok(Arc::new(PostgresLastResource::open(&manager).await?))
    }

    /// Makes the tables.
    pub(crate) fn fill(&self) -> Result<()> {
        self.empty()?;
        let accounts = (0..ACCOUNTS).map(|id| format!("({id}, 1000)")).collect::<Vec<_>>().join(", ");
        let accounts = format!(
            "CREATE TABLE {NAME}.accounts (id INT PRIMARY KEY, money BIGINT NOT NULL);
             INSERT INTO {NAME}.accounts VALUES {accounts};"
        );
        let transfers = |key: &str| {
            format!("CREATE TABLE {NAME}.transfers (id {key} PRIMARY KEY, account INT NOT NULL, money BIGINT NOT NULL)")
        };
        runtime()?.block_on(async {
            let here = transfers("BIGINT GENERATED ALWAYS AS IDENTITY");
            self.postgres().await?.batch_execute(&format!("CREATE SCHEMA {NAME}; {accounts} {here}")).await?;
            let there = transfers("BIGINT AUTO_INCREMENT");
            self.mariadb().await?.query_drop(format!("CREATE DATABASE {NAME}; {accounts} {there}")).await?;
            Ok(())
        })
    }

    /// Removes them.
    pub(crate) fn empty(&self) -> Result<()> {
        runtime()?.block_on(async {
            self.postgres().await?.batch_execute(&format!("DROP SCHEMA IF EXISTS {NAME} CASCADE")).await?;
            self.mariadb().await?.query_drop(format!("DROP DATABASE IF EXISTS {NAME}")).await?;
            Ok(())
        })
    }
}

/// The driver would leave TCP for a socket that it finds; PostgreSQL's does not, and both are to be reached alike.
fn of_tcp(options: Opts) -> Opts {
    OptsBuilder::from_opts(options).prefer_socket(false).into()
}

pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn start_postgres(started: &mut Started, parent: &Path, port: u16, settings: &[&str]) -> Result<()> {
    let (folder, user) = folder_for(parent, "postgres")?;
    let path = folder.path().to_owned();
    started.folders.push(folder);
    let data = path.join("data");
    let mut init = command(&program("initdb")?, user, &path)?;
    init.args(["--username=postgres", "--auth=trust", "--no-locale", "--encoding=UTF8", "-D"]).arg(&data);
    finish(init, &path)?;
    let mut server = command(&program("postgres")?, user, &path)?;
    server.arg("-D").arg(&data);
    let port = format!("port={port}");
    let own = ["listen_addresses=127.0.0.1", &port, "unix_socket_directories="];
    for setting in own.iter().chain(settings) {
        server.args(["-c", setting]);
    }
    started.servers.push(server.spawn()?);
    Ok(())
}

fn start_mariadb(started: &mut Started, parent: &Path, port: u16) -> Result<()> {
    let (folder, user) = folder_for(parent, "mysql")?;
    let path = folder.path().to_owned();
    started.folders.push(folder);
    let data = path.join("data");
    let mut install = command(&program("mariadb-install-db")?, None, &path)?;
    install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    install.arg(format!("--datadir={}", data.display()));
    if user.is_some() {
        install.arg("--user=mysql");
    }
    finish(install, &path)?;
    let mut server = command(&program("mariadbd")?, user, &path)?;
    server.args(["--no-defaults", "--bind-address=127.0.0.1", "--innodb-buffer-pool-size=128M"]);
    // Relative to the data: the path of a socket must be short.
    server.arg("--socket=socket").arg(format!("--port={port}")).arg(format!("--datadir={}", data.display()));
    started.servers.push(server.spawn()?);
    Ok(())
}

/// A folder that its server may use.
fn folder_for(parent: &Path, name: &str) -> Result<(TempDir, Option<User>)> {
    let folder = tempfile::Builder::new().prefix(name).tempdir_in(parent)?;
    if !rustix::process::geteuid().is_root() {
        return Ok((folder, None));
    }
    let number = |flag: &str| -> Result<u32> {
        let output = Command::new("id").args([flag, name]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim().parse().map_err(|_| Failure::from(format!("there is no user {name}: is its package installed?")))
    };
    let user = User { uid: number("-u")?, gid: number("-g")? };
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    chown(folder.path(), Some(user.uid), Some(user.gid))?;
    Ok((folder, Some(user)))
}

/// A program of a database: on the path, or where Debian puts it.
fn program(name: &str) -> Result<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    folders.push("/usr/sbin".into());
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    let found = folders.into_iter().map(|folder| folder.join(name)).find(|path| path.exists());
    let missing = || {
        format!("there is no {name}: install PostgreSQL (and for xa-price MariaDB), or say with an option where one is")
    };
    found.ok_or_else(|| Failure::from(missing()))
}

/// A command whose output goes into a file of the folder.
fn command(program: &Path, user: Option<User>, folder: &Path) -> Result<Command> {
    let log = File::options().create(true).append(true).open(folder.join("log"))?;
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    // No locale, and no setting of whoever measures.
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("LC_ALL", "C");
    // A MariaDB that starts removes what looks like temporary tables from the folder for them: those of others, if it is shared.
    let temporary = folder.join("tmp");
    std::fs::create_dir_all(&temporary)?;
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o777))?;
    command.env("TMPDIR", temporary);
    if let Some(User { uid, gid }) = user {
        command.uid(uid).gid(gid);
    }
    Ok(command)
}

fn finish(mut command: Command, folder: &Path) -> Result<()> {
    let status = command.status()?;
    if status.success() {
        return Ok(());
    }
    let name = command.get_program().to_string_lossy().into_owned();
    Err(Failure::from(format!("{name} failed; it may have no access to {}:\n{}", folder.display(), log_of(folder))))
}

fn log_of(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}
