//! PostgreSQL and MariaDB of a test: in folders of their own, on loopback and a Unix socket, as unprivileged users.
//!
//! May use: std, tempfile, `rustix` for users and processes. Must not know: what is done in them.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use holdfast_tests::until;
use rustix::process::Pid;
use tempfile::TempDir;

/// How long a server may take until it answers: a loaded machine, and what a crash left to be done.
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// A user to be when the tests run as root, because neither server may.
#[derive(Clone, Copy)]
struct User {
    uid: u32,
    gid: u32,
}

/// One PostgreSQL. Dropping it kills it.
pub(crate) struct Postgres {
    folder: TempDir,
    user: Option<User>,
    port: u16,
    settings: Vec<String>,
    child: Option<Child>,
}

/// One MariaDB. Dropping it kills it.
pub(crate) struct MariaDb {
    folder: TempDir,
    user: Option<User>,
    options: Vec<String>,
    child: Option<Child>,
}

impl Postgres {
    /// A new, empty one that can prepare so many transactions.
    pub(crate) fn start(prepared_max: u32) -> Self {
        let (folder, user) = folder_for("postgres");
        let data = folder.path().join("data");
        let mut init = command(&program("initdb"), user, folder.path());
        init.args(["--username=postgres", "--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8", "-D"])
            .arg(&data);
        finish(init);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut this = Self { folder, user, port, settings: Vec::new(), child: None };
        this.run(prepared_max);
        this
    }

    /// Starts it again, after [`Self::kill`].
    pub(crate) fn run(&mut self, prepared_max: u32) {
        let answers = until(START_TIME_MAX, || {
            // It refuses while processes of the one before are still there.
            if self.child.as_mut().is_none_or(|child| child.try_wait().unwrap().is_some()) {
                self.child = Some(self.launch(prepared_max));
            }
            // It accepts connections before it serves them.
            let mut ready = command(&program("pg_isready"), None, self.folder.path());
            let status = ready.args(["--quiet", "-h", "127.0.0.1", "-p", &self.port.to_string()]).status().unwrap();
            status.success().then_some(())
        });
        assert!(answers.is_some(), "PostgreSQL does not start: {}", said(self.folder.path()));
    }

    fn launch(&self, prepared_max: u32) -> Child {
        let mut server = command(&program("postgres"), self.user, self.folder.path());
        server.arg("-D").arg(self.folder.path().join("data"));
        // A killed process loses nothing without fsync; the machine does not crash here.
        let folder = self.folder.path().display();
        for setting in [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={}", self.port),
            format!("unix_socket_directories={folder}"),
            format!("max_prepared_transactions={prepared_max}"),
            "fsync=off".to_owned(),
            "deadlock_timeout=100ms".to_owned(),
        ] {
            server.args(["-c", &setting]);
        }
        for setting in &self.settings {
            server.args(["-c", setting]);
        }
        server.spawn().unwrap()
    }

    /// Starts it again with these settings besides.
    pub(crate) fn restart_with(&mut self, settings: Vec<String>) {
        self.kill();
        self.settings = settings;
        self.run(10);
    }

    /// A file that only the server may read.
    pub(crate) fn give(&self, name: &str, text: &str) -> PathBuf {
        give(self.folder.path(), self.user, name, text)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Its processes: the one that accepts connections first, and those that serve them.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        let id = Pid::from_child(self.child.as_ref().unwrap());
        let number = id.as_raw_nonzero();
        let children = fs::read_to_string(format!("/proc/{number}/task/{number}/children")).unwrap();
        let children = children.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().unwrap()));
        [id].into_iter().chain(children).collect()
    }

    /// How to reach it.
    pub(crate) fn connection(&self) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres connect_timeout=5", self.port)
    }

    pub(crate) fn kill(&mut self) {
        end(self.child.take());
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

impl MariaDb {
    /// A new, empty one.
    pub(crate) fn start() -> Self {
        let (folder, user) = folder_for("mysql");
        let mut install = command(&program("mariadb-install-db"), None, folder.path());
        install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        install.arg(format!("--datadir={}", folder.path().join("data").display()));
        if user.is_some() {
            install.arg("--user=mysql");
        }
        finish(install);
        let mut this = Self { folder, user, options: Vec::new(), child: None };
        this.run();
        this
    }

    /// Starts it again, after [`Self::kill`].
    pub(crate) fn run(&mut self) {
        // One that was killed leaves its socket behind.
        let _ = fs::remove_file(self.socket());
        let answers = until(START_TIME_MAX, || {
            if self.child.as_mut().is_none_or(|child| child.try_wait().unwrap().is_some()) {
                self.child = Some(self.launch());
            }
            std::os::unix::net::UnixStream::connect(self.socket()).ok()
        });
        assert!(answers.is_some(), "MariaDB does not start: {}", said(self.folder.path()));
    }

    fn launch(&self) -> Child {
        let mut server = command(&program("mariadbd"), self.user, self.folder.path());
        server.args([
            "--no-defaults",
            if self.options.is_empty() { "--skip-networking" } else { "--bind-address=127.0.0.1" },
            "--innodb-buffer-pool-size=32M",
            "--innodb-lock-wait-timeout=5",
            // Nor does this lose anything to a kill.
            "--innodb-flush-log-at-trx-commit=2",
        ]);
        server.arg(format!("--datadir={}", self.folder.path().join("data").display()));
        server.arg(format!("--socket={}", self.socket().display()));
        server.args(&self.options);
        server.arg(format!("--pid-file={}", self.folder.path().join("pid").display()));
        server.spawn().unwrap()
    }

    /// Starts it again with these options besides, reached over TCP.
    pub(crate) fn restart_with(&mut self, options: Vec<String>) {
        self.kill();
        self.options = options;
        self.run();
    }

    /// A file that only the server may read.
    pub(crate) fn give(&self, name: &str, text: &str) -> PathBuf {
        give(self.folder.path(), self.user, name, text)
    }

    /// Its process.
    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(self.child.as_ref().unwrap())
    }

    /// How to reach it.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub(crate) fn kill(&mut self) {
        end(self.child.take());
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        self.kill();
    }
}

fn folder_for(name: &str) -> (TempDir, Option<User>) {
    // Short, because the path of a Unix socket may have 107 bytes.
    let folder = tempfile::Builder::new().prefix("hfx").tempdir_in("/tmp").unwrap();
    let user = rustix_is_root().then(|| user(name));
    if let Some(user) = user {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        chown(folder.path(), Some(user.uid), Some(user.gid)).unwrap();
    }
    (folder, user)
}

fn give(folder: &Path, user: Option<User>, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    if let Some(user) = user {
        chown(&path, Some(user.uid), Some(user.gid)).unwrap();
    }
    path
}

fn rustix_is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn user(name: &str) -> User {
    let number = |flag: &str| {
        let output = Command::new("id").args([flag, name]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.trim().parse().unwrap_or_else(|_| panic!("there is no user {name}: is its package installed?"))
    };
    User { uid: number("-u"), gid: number("-g") }
}

/// A program of a database: on the path, or where Debian puts it.
fn program(name: &str) -> PathBuf {
    let mut folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    folders.push("/usr/sbin".into());
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    let found = folders.into_iter().map(|folder| folder.join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("there is no {name}: `cargo xtask test` installs what the tests need"))
}

/// A command whose output goes into a file of the folder.
fn command(program: &Path, user: Option<User>, folder: &Path) -> Command {
    let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).unwrap();
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    // No locale, and no setting of whoever runs the tests.
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("LC_ALL", "C");
    // A MariaDB that starts removes what looks like temporary tables from the folder for them: those of others, if it is shared.
    let temporary = folder.join("tmp");
    fs::create_dir_all(&temporary).unwrap();
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o777)).unwrap();
    command.env("TMPDIR", temporary);
    if let Some(User { uid, gid }) = user {
        command.uid(uid).gid(gid);
    }
    command
}

fn finish(mut command: Command) {
    let status = command.status().unwrap();
    let folder = command.get_current_dir().unwrap().to_owned();
    assert!(status.success(), "{} failed: {}", command.get_program().display(), said(&folder));
}

fn said(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

fn end(child: Option<Child>) {
    if let Some(mut child) = child {
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
}
