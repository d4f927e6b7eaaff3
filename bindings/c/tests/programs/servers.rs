//! PostgreSQL and MariaDB of the tests: servers of our own in a folder, which end with the test.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The kernel gives all servers of a machine together only so many asynchronous requests.
const NO_AIO: &str = "--innodb-use-native-aio=0";
const PATIENCE: Duration = Duration::from_secs(120);

/// A server, killed when it is dropped.
pub(crate) struct Server {
    process: Child,
    folder: TempDir,
    command: Command,
    is_ready: fn(&Server) -> bool,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| {
        panic!("cannot run {command:?}: {error}; `cargo xtask test` installs what the tests need")
    });
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said));
}

/// Asks until the answer is good: another process tells nobody when it is ready.
fn until(what: &str, mut ask: impl FnMut() -> bool) {
    let started = Instant::now();
    while !ask() {
        assert!(started.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().unwrap().stdout.trim_ascii() == b"0"
}

/// A PostgreSQL program, run as the user that PostgreSQL insists on.
fn postgres(program: &str) -> Command {
    let found = fs::read_dir("/usr/lib/postgresql").map(|versions| {
        versions.filter_map(|version| Some(version.ok()?.path().join("bin").join(program))).find(|path| path.exists())
    });
    let path = found.ok().flatten().unwrap_or_else(|| PathBuf::from(program));
    if !is_root() {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(path);
    command
}

/// Starts PostgreSQL with so many prepared transactions.
pub(crate) fn start_postgres(prepared_max: u32) -> Server {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    if is_root() {
        let id = Command::new("id").args(["-u", "postgres"]).output().unwrap();
        let id = String::from_utf8(id.stdout).unwrap().trim().parse().unwrap();
        for path in [folder.path(), &data] {
            chown(path, Some(id), None).unwrap();
        }
    }
    run(postgres("initdb").args(["--no-sync", "--auth=trust", "--username=postgres", "-D"]).arg(&data));
    let mut server = postgres("postgres");
    server.arg("-D").arg(&data).args(["-c", "listen_addresses=", "-c", "fsync=off", "-k"]).arg(folder.path());
    server.args(["-c", &format!("max_prepared_transactions={prepared_max}")]);
    Server::start(folder, server, |server| {
        // Whatever its port is: one that was killed leaves the socket of its port behind.
        let files = fs::read_dir(server.folder()).unwrap().filter_map(|file| file.ok()?.file_name().into_string().ok());
        let mut ports = files.filter_map(|name| name.strip_prefix(".s.PGSQL.").map(str::to_owned));
        ports.any(|port| {
            let mut ready = postgres("pg_isready");
            ready.args(["-p", &port]).arg("-h").arg(server.folder());
            ready.output().is_ok_and(|output| output.status.success())
        })
    })
}

/// Starts MariaDB, with an empty database `test`.
pub(crate) fn start_mariadb() -> Server {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let user = format!("--user={}", user.trim());
    // A MariaDB that starts removes what looks like temporary tables from the folder for them: those of others, if it is shared.
    let temporary = folder.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let mut install = Command::new("mariadb-install-db");
    install.env("TMPDIR", &temporary);
    install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", NO_AIO, &user]);
    run(install.arg(format!("--datadir={}", data.display())));
    let mut server = Command::new("/usr/sbin/mariadbd");
    server.env("TMPDIR", &temporary);
    server.args(["--no-defaults", "--skip-networking", "--innodb-flush-log-at-trx-commit=2", NO_AIO, &user]);
    for (option, path) in
        [("datadir", &data), ("socket", &folder.path().join("socket")), ("pid-file", &folder.path().join("pid"))]
    {
        server.arg(format!("--{option}={}", path.display()));
    }
    Server::start(folder, server, |server| {
        let mut client = Command::new("mariadb");
        let statement = "CREATE DATABASE IF NOT EXISTS test";
        client.args(["--no-defaults", "--user=root", "--execute", statement, "--socket"]).arg(server.socket());
        client.output().is_ok_and(|output| output.status.success())
    })
}

impl Server {
    fn start(folder: TempDir, mut command: Command, is_ready: fn(&Self) -> bool) -> Self {
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let server = Self { process, folder, command, is_ready };
        until("the server answers", || is_ready(&server));
        server
    }

    /// Kills it without a word, and waits until nobody answers for it: sessions of PostgreSQL live on for a moment when their server
    /// is gone, and may do what they are asked.
    pub(crate) fn stop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        until("its sessions are gone", || !self.works_in_folder());
    }

    /// Whether a process has its working directory in the server's folder.
    fn works_in_folder(&self) -> bool {
        let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let mut directories = processes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok());
        directories.any(|directory| directory.starts_with(self.folder()))
    }

    /// Kills it without a word, and starts it again.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.process = self.command.spawn().unwrap();
        let is_ready = self.is_ready;
        until("the server answers", || is_ready(self));
    }

    /// Starts it again with these arguments besides.
    pub(crate) fn restart_with(&mut self, arguments: &[String]) {
        self.command.args(arguments);
        self.restart();
    }

    /// A file that only the server may read.
    pub(crate) fn give(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        // PostgreSQL's folder belongs to its user.
        let owner = fs::metadata(self.folder()).unwrap();
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
        path
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// MariaDB's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// The open string of PostgreSQL.
    pub(crate) fn conninfo(&self) -> String {
        format!("host={} user=postgres dbname=postgres", self.folder().display())
    }
}
