//! Profiles: a TOML file that says where the coordinator is and which resource managers there are.
//!
//! ```toml
//! default = "bank"                                # which profile, unless somebody says; not needed for a single one
//!
//! [profiles.bank]
//! timeout_ms = 30000                              # until a transaction's decision, 1 at least; none unless said
//!
//! [profiles.bank.coordinator]                     # either in the process,
//! directory = "/var/lib/bank/transactions"
//! durability = "synced"                           # or "written", or "window:1ms,10ms"
//! # servers = ["10.0.0.1:6379"]                   # or a server
//! # authorities = "/etc/holdfast/ca.pem"          # TLS, and whom to trust
//! # user = "bank"
//! # password_env = "BANK_PASSWORD"                # or password = "..."
//! # lease_ms = 10000
//! # patience_ms = 10000
//! # shared_wait_ms = 30000                        # of either: how long a commit waits for other programs' branches
//!
//! [[profiles.bank.resource_managers]]
//! name = "ledger"                                 # of its branches; never change it while something is in doubt
//! kind = "postgres"
//! open = "host=/run/postgresql dbname=ledger user=bank"
//! password_env = "LEDGER_PASSWORD"
//! order = 1                                       # commits before those with a higher number; 0 unless said
//! # asks_read_only = true                         # for the C interface: branches that changed nothing drop out. Says that none
//! #                                               # has a NOTIFY, LISTEN, UNLISTEN, a change through a foreign table, or a
//! #                                               # cursor WITH HOLD: these would happen though all else is rolled back
//! # last_resource = true                          # for the C interface: it is not prepared, and decides by its own commit
//! # authorities = "/etc/ssl/databases.pem"        # TLS, and whom to trust: the server is verified, its name included
//! # certificate = "/etc/ssl/bank.pem"             # who this program is, for servers that ask
//! # certificate_key = "/etc/ssl/bank.key"
//!
//! [[profiles.bank.resource_managers]]
//! name = "shop"
//! kind = "mariadb"
//! open = "mysql://bank@localhost:3306/shop"
//!
//! [[profiles.bank.resource_managers]]
//! name = "queue"
//! kind = "xa"                                     # any switch; for the C interface
//! library = "/usr/lib/libqueue_xa.so"
//! symbol = "queue_switch"
//! open = "queue=orders"
//! close = ""
//! ```
//!
//! `HOLDFAST_XA_PROFILE` names the file, `HOLDFAST_XA_PROFILE_NAME` the profile in it.
//!
//! May use: serde, toml. Must not know: what is done with a profile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast::Dial;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use xa::BranchName;

use crate::remote::{LEASE_MAX, LEASE_MIN, RemoteOptions, SHARED_WAIT_DEFAULT, SHARED_WAIT_MAX, Tls, host_and_port};
use crate::tls::{DatabaseTls, Identity};

/// Names the file, before anything else does.
pub const PROFILE_VARIABLE: &str = "HOLDFAST_XA_PROFILE";
/// Names the profile in it.
pub const PROFILE_NAME_VARIABLE: &str = "HOLDFAST_XA_PROFILE_NAME";
/// The file, unless somebody says.
pub const PROFILE_FILE: &str = "/etc/holdfast/xa.toml";

/// What a switch takes as a string: `MAXINFOSIZE` of the standard is 256, the zero at the end included.
const INFO_BYTES_MAX: usize = 255;

/// Why there is no profile, in plain words. Shows no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProfileError(String);

/// A text that may hold a password. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// What one program, or several, need to run transactions.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Where the coordinator is.
    pub coordinator: CoordinatorPlace,
    /// Who takes part, with names that differ.
    pub resource_managers: Vec<ResourceManagerProfile>,
    /// How long a transaction may take until its decision.
    pub timeout: Option<Duration>,
}

/// Where a coordinator is.
#[derive(Debug, Clone)]
pub enum CoordinatorPlace {
    /// In the process, in this directory.
    Directory {
        /// The directory of a store.
        directory: PathBuf,
        /// What a commit waits for.
        durability: holdfast::Durability,
        /// How long a commit waits for the other programs of a shared transaction.
        shared_wait: Duration,
    },
    /// A server.
    Servers(RemoteOptions),
}

/// A resource manager of a profile.
#[derive(Debug, Clone)]
pub struct ResourceManagerProfile {
    /// The name of its branches.
    pub name: BranchName,
    /// What it is.
    pub kind: ResourceManagerKind,
    /// How it is opened: a connection string of libpq, a URL of MySQL, or what `xa_open` of a switch takes. With the
    /// password, where that stood apart.
    pub open: Secret,
    /// What `xa_close` of a switch takes.
    pub close: Secret,
    /// Those with a lower number commit first.
    pub order: u32,
    /// Whether branches may be asked if they changed anything, and drop out when they did not. Of PostgreSQL alone.
    pub asks_read_only: bool,
    /// Whether it is the last resource: it is not prepared, and decides about transactions by its own commit. Of PostgreSQL alone.
    pub last_resource: bool,
    /// TLS, unless the connection is plain or `open` says how. Not of a switch.
    pub tls: Option<DatabaseTls>,
}

/// What a resource manager is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceManagerKind {
    /// PostgreSQL.
    Postgres,
    /// MariaDB or MySQL.
    MariaDb,
    /// A switch of X/Open XA in a shared library.
    Xa {
        /// The library's file.
        library: PathBuf,
        /// The switch in it.
        symbol: String,
    },
}

impl Secret {
    /// The text. Whoever shows or stores it is to blame.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // serde's own text shows the value that has the wrong type: a password of digits, without its quotes.
        let text = String::deserialize(from).map_err(|_| D::Error::custom("a text in quotes is expected"))?;
        Ok(Self(text))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "\"\"" } else { "(not shown)" })
    }
}

impl Profile {
    /// The profile that the environment or `file` and `name` say, the environment first; else the usual file, and the
    /// file's default.
    ///
    /// # Errors
    /// When there is no such file or profile, or it makes no sense; with file and line.
    pub fn load(file: Option<&Path>, name: Option<&str>) -> Result<Self, ProfileError> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let file = variable(PROFILE_VARIABLE).map(PathBuf::from).or_else(|| file.map(Path::to_owned));
        let file = file.unwrap_or_else(|| PROFILE_FILE.into());
        let of_variable = variable(PROFILE_NAME_VARIABLE).map(|name| name.to_string_lossy().into_owned());
        Self::of_file(&file, of_variable.as_deref().or(name))
    }

    /// The profile of this file with this name, or the file's default. The environment is asked for passwords alone.
    ///
    /// # Errors
    /// As [`Profile::load`].
    pub fn of_file(file: &Path, name: Option<&str>) -> Result<Self, ProfileError> {
        read(file, name, whole)
    }

    /// A profile of a file's text. `environment` looks up what passwords refer to.
    ///
    /// # Errors
    /// When it makes no sense; with the line.
    pub fn of_text(
        text: &str,
        name: Option<&str>,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ProfileError> {
        let (name, table) = chosen(text, name)?;
        whole(&name, table, environment)
    }
}

impl CoordinatorPlace {
    /// The coordinator alone of a profile of this file. Passwords of resource managers are not looked for, and what these
    /// are is not looked at: who asks the coordinator needs none of it.
    ///
    /// # Errors
    /// As [`Profile::load`].
    pub fn of_file(file: &Path, name: Option<&str>) -> Result<Self, ProfileError> {
        read(file, name, coordinator)
    }
}

type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

fn read<T>(
    file: &Path,
    name: Option<&str>,
    make: fn(&str, Table, Environment<'_>) -> Result<T, ProfileError>,
) -> Result<T, ProfileError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| ProfileError(format!("cannot read the profile {}: {error}", file.display())))?;
    let secret = |variable: &str| std::env::var(variable).ok();
    let made = chosen(&text, name).and_then(|(name, table)| make(&name, table, &secret));
    made.map_err(|error| ProfileError(format!("{}: {error}", file.display())))
}

/// The profile that is meant, as it stands there.
fn chosen(text: &str, name: Option<&str>) -> Result<(String, Table), ProfileError> {
    let mut file: File = toml::from_str(text).map_err(|error| {
        // The library's own text quotes the line, and so a password that may stand there.
        let line = error.span().map_or(0, |span| text.get(..span.start).unwrap_or_default().matches('\n').count());
        ProfileError(format!("line {}: {}", line + 1, error.message()))
    })?;
    let known = file.profiles.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let name = match (name.map(str::to_owned).or(file.default), file.profiles.len()) {
        (_, 0) => return Err(ProfileError("there is no profile in it, such as [profiles.bank]".to_owned())),
        (Some(name), _) => name,
        (None, 1) => known.clone(),
        (None, _) => {
            return Err(ProfileError(format!(
                "there are several profiles, {known}, and no `default`: say which, with `default` in the file, \
                 {PROFILE_NAME_VARIABLE}, `holdfast xa --name`, or `xa.profiles` of a server"
            )));
        }
    };
    match file.profiles.remove(&name) {
        Some(table) => Ok((name, table)),
        None => Err(ProfileError(format!("there is no profile {name}, only: {known}"))),
    }
}

fn of_profile(name: &str) -> impl Fn(String) -> ProfileError {
    move |what| ProfileError(format!("profile {name}: {what}"))
}

fn coordinator(name: &str, table: Table, environment: Environment<'_>) -> Result<CoordinatorPlace, ProfileError> {
    table.coordinator.check(environment).map_err(of_profile(name))
}

fn whole(name: &str, table: Table, environment: Environment<'_>) -> Result<Profile, ProfileError> {
    let wrong = of_profile(name);
    let coordinator = table.coordinator.check(environment).map_err(&wrong)?;
    let mut resource_managers: Vec<ResourceManagerProfile> = Vec::new();
    let mut names = BTreeSet::new();
    for manager in table.resource_managers {
        let manager = manager.check(environment).map_err(&wrong)?;
        if !names.insert(manager.name.clone()) {
            return Err(wrong(format!("two resource managers are called {}", manager.name)));
        }
        let last = manager.last_resource.then(|| resource_managers.iter().find(|known| known.last_resource)).flatten();
        if let Some(other) = last {
            return Err(wrong(format!("{} and {} cannot both be the last resource", other.name, manager.name)));
        }
        resource_managers.push(manager);
    }
    if table.timeout_ms == Some(0) {
        let what = "`timeout_ms` is 1 at least: with 0 each transaction would be too late from its start. Without the key \
                    there is no timeout";
        return Err(wrong(what.to_owned()));
    }
    let timeout = table.timeout_ms.map(Duration::from_millis);
    Ok(Profile { name: name.to_owned(), coordinator, resource_managers, timeout })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    default: Option<String>,
    #[serde(default)]
    profiles: BTreeMap<String, Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    timeout_ms: Option<u64>,
    coordinator: CoordinatorTable,
    #[serde(default)]
    resource_managers: Vec<ManagerTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CoordinatorTable {
    directory: Option<PathBuf>,
    durability: Option<String>,
    servers: Option<Vec<String>>,
    authorities: Option<PathBuf>,
    user: Option<String>,
    password: Option<Secret>,
    password_env: Option<String>,
    lease_ms: Option<u64>,
    patience_ms: Option<u64>,
    shared_wait_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManagerTable {
    name: String,
    kind: Kind,
    open: Option<Secret>,
    close: Option<Secret>,
    password: Option<Secret>,
    password_env: Option<String>,
    library: Option<PathBuf>,
    symbol: Option<String>,
    authorities: Option<PathBuf>,
    certificate: Option<PathBuf>,
    certificate_key: Option<PathBuf>,
    #[serde(default)]
    order: u32,
    #[serde(default)]
    asks_read_only: bool,
    #[serde(default)]
    last_resource: bool,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Postgres,
    MariaDb,
    Xa,
}

/// A password that stands there or in the environment.
fn password(
    here: Option<Secret>,
    variable: Option<&str>,
    environment: Environment<'_>,
) -> Result<Option<String>, String> {
    match (here, variable) {
        (Some(_), Some(_)) => Err("`password` and `password_env` exclude each other".to_owned()),
        (Some(secret), None) => Ok(Some(secret.0)),
        (None, Some(variable)) => match environment(variable) {
            Some(password) => Ok(Some(password)),
            None => Err(format!("the environment has no {variable}, which `password_env` names")),
        },
        (None, None) => Ok(None),
    }
}

impl CoordinatorTable {
    fn check(self, environment: Environment<'_>) -> Result<CoordinatorPlace, String> {
        let password = password(self.password, self.password_env.as_deref(), environment)?;
        let shared_wait = self.shared_wait_ms.map_or(SHARED_WAIT_DEFAULT, Duration::from_millis);
        if shared_wait > SHARED_WAIT_MAX {
            let most = SHARED_WAIT_MAX.as_millis();
            return Err(format!("`shared_wait_ms` is {most} at most, not {}", shared_wait.as_millis()));
        }
        match (self.directory, self.servers) {
            (Some(directory), None) => {
                let of_server = self.authorities.is_some() || self.user.is_some() || password.is_some();
                if of_server || self.lease_ms.is_some() || self.patience_ms.is_some() {
                    return Err(
                        "a coordinator in a directory has no authorities, user, password, lease or patience".into()
                    );
                }
                let dial = self.durability.as_deref().map(str::parse::<Dial>).transpose();
                let Dial(durability) = dial.map_err(|error| format!("durability: {error}"))?.unwrap_or_default();
                Ok(CoordinatorPlace::Directory { directory, durability, shared_wait })
            }
            (None, Some(servers)) => {
                if self.durability.is_some() {
                    return Err("the durability of a server is the server's".to_owned());
                }
                let first = servers.first().ok_or("`servers` is empty")?;
                servers
                    .iter()
                    .try_for_each(|server| host_and_port(server))
                    .map_err(|error| format!("`servers`: {error}"))?;
                let mut options = RemoteOptions::new(first);
                options.tls = self.authorities.map(|authorities| Tls { authorities });
                options.login = match (self.user, password) {
                    (user, Some(password)) => Some((user.unwrap_or_else(|| "default".to_owned()), password)),
                    (Some(_), None) => return Err("a user needs a `password` or a `password_env`".to_owned()),
                    (None, None) => None,
                };
                if let Some(lease) = self.lease_ms.map(Duration::from_millis) {
                    if !(LEASE_MIN..=LEASE_MAX).contains(&lease) {
                        let (least, most) = (LEASE_MIN.as_millis(), LEASE_MAX.as_millis());
                        return Err(format!("`lease_ms` is {least} to {most}, not {}", lease.as_millis()));
                    }
                    options.lease = lease;
                }
                if let Some(patience) = self.patience_ms.map(Duration::from_millis) {
                    if patience.is_zero() {
                        return Err("`patience_ms` is 1 at least, not 0".to_owned());
                    }
                    options.patience = patience;
                }
                options.servers = servers;
                options.shared_wait = shared_wait;
                Ok(CoordinatorPlace::Servers(options))
            }
            _ => Err("a coordinator has either a `directory` or `servers`".to_owned()),
        }
    }
}

impl ManagerTable {
    fn check(self, environment: Environment<'_>) -> Result<ResourceManagerProfile, String> {
        let name = BranchName::new(&self.name)
            .map_err(|error| format!("a resource manager cannot be called {:?}: {error}", self.name))?;
        let wrong = |what: String| format!("resource manager {name}: {what}");
        let kind = match (self.kind, self.library, self.symbol) {
            (Kind::Xa, Some(library), Some(symbol)) => ResourceManagerKind::Xa { library, symbol },
            (Kind::Postgres, None, None) => ResourceManagerKind::Postgres,
            (Kind::MariaDb, None, None) => ResourceManagerKind::MariaDb,
            (Kind::Xa, ..) => return Err(wrong("a switch needs `library` and `symbol`".to_owned())),
            _ => return Err(wrong("`library` and `symbol` are for kind = \"xa\"".to_owned())),
        };
        if self.asks_read_only && kind != ResourceManagerKind::Postgres {
            return Err(wrong("`asks_read_only` is for kind = \"postgres\": no other can be asked".to_owned()));
        }
        if self.last_resource && kind != ResourceManagerKind::Postgres {
            return Err(wrong("`last_resource` is for kind = \"postgres\": no other can be it".to_owned()));
        }
        if self.last_resource && (self.asks_read_only || self.order != 0) {
            let what = "the last resource is never prepared, and commits before all others: it has neither `asks_read_only` nor `order`";
            return Err(wrong(what.to_owned()));
        }
        let identity = match (self.certificate, self.certificate_key) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            (None, None) => None,
            _ => return Err(wrong("`certificate` and `certificate_key` stand together".to_owned())),
        };
        let tls = match (self.authorities, identity, self.kind) {
            (Some(_), _, Kind::Xa) | (_, Some(_), Kind::Xa) => {
                return Err(wrong("a switch takes certificates in `open`, if at all".to_owned()));
            }
            (Some(authorities), identity, _) => Some(DatabaseTls { authorities, identity }),
            (None, Some(_), _) => {
                let what = "beside a `certificate` there are `authorities`: who may have signed the server's";
                return Err(wrong(what.to_owned()));
            }
            (None, None, _) => None,
        };
        let has_open = self.open.is_some();
        let mut open = self.open.map(|open| open.0).unwrap_or_default();
        if let Some(password) = password(self.password, self.password_env.as_deref(), environment).map_err(wrong)? {
            if !has_open && self.kind != Kind::Xa {
                return Err(wrong("`open` is missing: a password alone says neither where nor who".to_owned()));
            }
            open = with_password(&kind, &open, &password).map_err(wrong)?;
        }
        let close = self.close.unwrap_or(Secret(String::new()));
        for (key, text) in [("open", &open), ("close", &close.0)] {
            if self.kind == Kind::Xa && text.len() > INFO_BYTES_MAX {
                let what = format!("`{key}` has {} bytes; a switch takes {INFO_BYTES_MAX} at most", text.len());
                return Err(wrong(what));
            }
        }
        let (open, asks_read_only, last_resource) = (Secret(open), self.asks_read_only, self.last_resource);
        Ok(ResourceManagerProfile { name, kind, open, close, order: self.order, asks_read_only, last_resource, tls })
    }
}

/// A connection string with a password that stood apart from it.
fn with_password(kind: &ResourceManagerKind, open: &str, password: &str) -> Result<String, String> {
    match kind {
        ResourceManagerKind::Postgres if open.contains("://") => {
            Err("beside a password `open` has the form \"host=... user=...\", not that of a URL".to_owned())
        }
        ResourceManagerKind::Postgres => {
            let quoted = password.replace('\\', "\\\\").replace('\'', "\\'");
            Ok(format!("{open} password='{quoted}'"))
        }
        ResourceManagerKind::MariaDb => {
            let parts = open.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.split_once('@')?)));
            let Some((scheme, (user, place))) = parts.filter(|(_, (user, _))| !user.contains([':', '/'])) else {
                return Err("beside a password `open` has the form mysql://user@host:port/database".to_owned());
            };
            let encoded: String = password.bytes().map(|byte| format!("%{byte:02X}")).collect();
            Ok(format!("{scheme}://{user}:{encoded}@{place}"))
        }
        ResourceManagerKind::Xa { .. } => Err("a switch takes a password in `open`".to_owned()),
    }
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
