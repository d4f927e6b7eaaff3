//! From a profile's name to the manager that uses it: each profile, and each coordinator, is opened once in a process.
//!
//! Which profile is said by two variables of the environment: `HOLDFAST_XA_PROFILE` is the path of the file, and
//! `HOLDFAST_XA_PROFILE_NAME` the name in it; without the second it is the file's default. Its form is in `tm`.
//!
//! May use: `coordinator`, `manager`, `native`, `switch`, `tm`. Must not know: threads, transactions.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CString, c_int};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast::{Durability, Options};
use tm::{CoordinatorPlace, Decisions, Embedded, ErrorKind, Profile, Remote};
use tm::{PROFILE_FILE, PROFILE_NAME_VARIABLE, PROFILE_VARIABLE, ResourceManagerKind, ResourceManagerProfile};

use crate::abi::{TX_ERROR, TX_FAIL};
use crate::coordinator::ClosableCoordinator;
use crate::exit;
use crate::last_error;
use crate::manager::Manager;
use crate::native::{ASKING, LAST_RESOURCE, holdfast_mariadb_switch, holdfast_postgres_switch};
use crate::switch::{Switch, SwitchedResource};

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("the profiles in {}: {reason}", path.display())]
    Profile { path: PathBuf, reason: String },
    #[error("the coordinator of profile `{profile}`: {error}")]
    Coordinator { profile: String, error: tm::Error },
    #[error("the resource manager `{name}` of profile `{profile}`: {reason}")]
    ResourceManager { profile: String, name: String, reason: String },
}

impl OpenError {
    /// What `tx_open` says.
    pub(crate) fn tx_code(&self) -> c_int {
        match self {
            Self::Coordinator { error, .. } if error.kind == ErrorKind::Unavailable => TX_ERROR,
            _ => TX_FAIL,
        }
    }
}

/// By file and name; without a name it is the file's default.
type Managers = BTreeMap<(PathBuf, Option<String>), Arc<Manager>>;
type Coordinators = BTreeMap<String, Arc<ClosableCoordinator>>;

static MANAGERS: Mutex<Managers> = Mutex::new(BTreeMap::new());
static COORDINATORS: Mutex<Coordinators> = Mutex::new(BTreeMap::new());

/// The manager of the profile that the environment names. The error is what `tx_open` says.
pub(crate) fn manager_of_environment() -> Result<Arc<Manager>, c_int> {
    manager(None).map_err(|error| {
        last_error::set(error.to_string());
        error.tx_code()
    })
}

/// The manager of a profile; of the one that the environment names when no name is given.
pub(crate) fn manager(name: Option<&str>) -> Result<Arc<Manager>, OpenError> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
    let path = variable(PROFILE_VARIABLE).map_or_else(|| PathBuf::from(PROFILE_FILE), PathBuf::from);
    let of_environment = || variable(PROFILE_NAME_VARIABLE).map(|name| name.to_string_lossy().into_owned());
    let key = (path, name.map(str::to_owned).or_else(of_environment));
    // Held while the profile is opened: two threads that come at the same time must not open it twice.
    let mut managers = MANAGERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(manager) = managers.get(&key) {
        return Ok(Arc::clone(manager));
    }
    let manager = Arc::new(open(&read(&key.0, key.1.as_deref())?)?);
    exit::close_at_exit();
    managers.insert(key, Arc::clone(&manager));
    Ok(manager)
}

/// Closes every coordinator, whoever has it open.
pub(crate) fn close_all() {
    // Who opens one at this moment is not waited for: the process ends.
    let coordinators = COORDINATORS.try_lock().map(|mut coordinators| std::mem::take(&mut *coordinators));
    for coordinator in coordinators.unwrap_or_default().values() {
        coordinator.close();
    }
}

fn read(path: &Path, name: Option<&str>) -> Result<Profile, OpenError> {
    let unusable = |reason: String| OpenError::Profile { path: path.to_owned(), reason };
    let text = fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
    let variable = |variable: &str| env::var(variable).ok();
    Profile::of_text(&text, name, &variable).map_err(|error| unusable(error.to_string()))
}

fn open(profile: &Profile) -> Result<Manager, OpenError> {
    let numbered = profile.resource_managers.iter().zip(0..);
    let resources = numbered.map(|(own, rmid)| {
        resource(own, rmid).map_err(|reason| OpenError::ResourceManager {
            profile: profile.name.clone(),
            name: own.name.to_string(),
            reason,
        })
    });
    // Switches first: what is wrong with them is known without asking anybody.
    let resources = resources.collect::<Result<Vec<_>, _>>()?;
    let decisions = coordinator(&profile.coordinator)
        .map_err(|error| OpenError::Coordinator { profile: profile.name.clone(), error })?;
    let durability = durability(&profile.coordinator);
    let manager = Manager::new(Arc::clone(&decisions) as Arc<dyn Decisions>, resources, durability, profile.timeout);
    Ok(manager.with_coordinator(decisions))
}

fn resource(own: &ResourceManagerProfile, rmid: c_int) -> Result<SwitchedResource, String> {
    let string = |text: &str| CString::new(text).map_err(|_| "a string of it has a zero inside".to_owned());
    let switch = match &own.kind {
        ResourceManagerKind::Xa { library, symbol } => Switch::load(library, symbol),
        ResourceManagerKind::Postgres => Switch::of(holdfast_postgres_switch, "holdfast_postgres_switch"),
        ResourceManagerKind::MariaDb => Switch::of(holdfast_mariadb_switch, "holdfast_mariadb_switch"),
    };
    Ok(SwitchedResource {
        branch: own.name.clone(),
        order: own.order,
        rmid,
        open_string: string(&open_string(own)?)?,
        close_string: string(own.close.expose())?,
        switch: switch.map_err(|error| error.to_string())?,
        is_last: own.last_resource,
        known: Mutex::default(),
    })
}

/// What `xa_open` takes, with TLS as the profile wants it.
fn open_string(own: &ResourceManagerProfile) -> Result<String, String> {
    let start = match (own.asks_read_only, own.last_resource) {
        (_, true) => LAST_RESOURCE,
        (true, false) => ASKING,
        (false, false) => "",
    };
    let open = format!("{start}{}", own.open.expose());
    let Some(tls) = &own.tls else { return Ok(open) };
    let identity = tls.identity.as_ref();
    let files = [Some(&tls.authorities), identity.map(|own| &own.certificate), identity.map(|own| &own.key)];
    let is_url = open.contains("://");
    let mut text = open.clone();
    let (keys, quoted): (_, fn(&str) -> String) = match own.kind {
        ResourceManagerKind::Postgres if is_url => {
            return Err("beside `authorities` `open` has the form \"host=... user=...\", not that of a URL".to_owned());
        }
        ResourceManagerKind::Postgres => {
            text.push_str(" sslmode=verify-full");
            let quoted = |path: &str| format!("'{}'", path.replace('\\', "\\\\").replace('\'', "\\'"));
            ([" sslrootcert=", " sslcert=", " sslkey="], quoted)
        }
        _ if is_url => {
            let encoded = |path: &str| path.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let first = if open.contains('?') { "&ssl-ca=" } else { "?ssl-ca=" };
            ([first, "&ssl-cert=", "&ssl-key="], encoded)
        }
        _ => ([";ssl-ca=", ";ssl-cert=", ";ssl-key="], str::to_owned),
    };
    for (key, file) in keys.into_iter().zip(files) {
        let Some(file) = file else { continue };
        let path = file.to_str().ok_or("the path of a certificate is not UTF-8")?;
        if path.contains(';') && !is_url {
            return Err("the path of a certificate has a ; in it".to_owned());
        }
        text.push_str(key);
        text.push_str(&quoted(path));
    }
    Ok(text)
}

/// How durable a decision is asked to be; a server decides that for itself.
fn durability(place: &CoordinatorPlace) -> Option<Durability> {
    match place {
        CoordinatorPlace::Directory { durability, .. } => Some(*durability),
        CoordinatorPlace::Servers(_) => None,
    }
}

/// The coordinator of a profile. Profiles that name the same one share it: a directory can be opened once in a process.
fn coordinator(place: &CoordinatorPlace) -> tm::Result<Arc<ClosableCoordinator>> {
    let key = match place {
        // A directory is opened once in a process, with what the first profile says.
        CoordinatorPlace::Directory { directory, .. } => directory.display().to_string(),
        CoordinatorPlace::Servers(options) => format!("{options:?}"),
    };
    let mut coordinators = COORDINATORS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = coordinators.get(&key) {
        return Ok(Arc::clone(found));
    }
    let opened = match place {
        CoordinatorPlace::Servers(options) => ClosableCoordinator::new(Remote::open(options.clone())?),
        CoordinatorPlace::Directory { directory, durability, shared_wait } => {
            let options = Options { durability: *durability, ..Options::default() };
            ClosableCoordinator::embedded(Embedded::open(directory, options)?.with_shared_wait(*shared_wait))
        }
    };
    let opened = Arc::new(opened);
    coordinators.insert(key, Arc::clone(&opened));
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tm::{Begin, BranchName, Decisions, ErrorKind, Sharing};

    use super::{Profile, coordinator, open_string};

    /// It waited for half a minute, whatever anybody said.
    #[test]
    fn a_commit_waits_for_other_programs_as_long_as_the_profile_says() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().display();
        let text = format!("[profiles.p.coordinator]\ndirectory = \"{directory}\"\nshared_wait_ms = 1\n");
        let place = Profile::of_text(&text, None, &|_| None).unwrap().coordinator;
        let opened = coordinator(&place).unwrap();
        let id = opened.begin(Begin { sharing: Sharing::Shared, ..Begin::default() }).unwrap();
        opened.enlist(id, &[BranchName::new("late").unwrap()]).unwrap();
        let began = Instant::now();
        assert_eq!(opened.commit(id, &[], None).unwrap_err().kind, ErrorKind::Aborted);
        assert!(began.elapsed() < Duration::from_secs(15));
        opened.close();
    }

    #[test]
    fn certificates_of_a_profile_are_said_to_each_client_library_in_its_own_words() {
        let text = |kind: &str, open: &str, more: &str| {
            let profile = format!(
                "[profiles.p.coordinator]\ndirectory = \"/d\"\n[[profiles.p.resource_managers]]\nname = \"n\"\n\
                 kind = \"{kind}\"\nopen = \"{open}\"\nauthorities = \"/it's/ca.pem\"\n{more}"
            );
            let profile = Profile::of_text(&profile, None, &|_| None).unwrap();
            open_string(&profile.resource_managers[0])
        };
        let own = "certificate = \"/c\"\ncertificate_key = \"/k\"\n";
        assert_eq!(
            text("postgres", "host=db", own).unwrap(),
            "host=db sslmode=verify-full sslrootcert='/it\\'s/ca.pem' sslcert='/c' sslkey='/k'"
        );
        assert!(text("postgres", "postgresql://db", "").unwrap_err().contains("has the form"));
        assert_eq!(text("mariadb", "host=db", own).unwrap(), "host=db;ssl-ca=/it's/ca.pem;ssl-cert=/c;ssl-key=/k");
        let url = text("mariadb", "mysql://u@db:1/d?socket=", "").unwrap();
        assert_eq!(url, "mysql://u@db:1/d?socket=&ssl-ca=%2F%69%74%27%73%2F%63%61%2E%70%65%6D");
        let asks = text("postgres", "host=db", "asks_read_only = true\n").unwrap();
        assert_eq!(asks, "asks_read_only=1 host=db sslmode=verify-full sslrootcert='/it\\'s/ca.pem'");
        assert!(text("mariadb", "mysql://u@db", own).unwrap().contains("db?ssl-ca=%2F"));
    }
}
