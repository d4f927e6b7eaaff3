//! From a profile's name to the manager that uses it: each profile, and each coordinator, is opened once in a process.
//!
//! Which profile is said by two variables of the environment: `HOLDFAST_XA_PROFILE` is the path of the file, and
//! `HOLDFAST_XA_PROFILE_NAME` the name in it, `default` unless said.
//!
//! May use: `manager`, `native`, `profile`, `switch`. Must not know: threads, transactions.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CString, c_int};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use holdfast::Options;
use tm::{Decisions, Embedded, ErrorKind, Remote, RemoteOptions};

use crate::abi::{TX_ERROR, TX_FAIL};
use crate::exit;
use crate::last_error;
use crate::manager::Manager;
use crate::native::own_switch;
use crate::profile::{self, CoordinatorProfile, Profile, ResourceManagerProfile};
use crate::switch::{LoadError, Switch, SwitchedResource};

const PATH_VARIABLE: &str = "HOLDFAST_XA_PROFILE";
const NAME_VARIABLE: &str = "HOLDFAST_XA_PROFILE_NAME";
const DEFAULT_PATH: &str = "/etc/holdfast/xa.toml";
const DEFAULT_NAME: &str = "default";

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error(transparent)]
    Profile(#[from] profile::ProfileError),
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

type Managers = BTreeMap<(PathBuf, String), Arc<Manager>>;
type Coordinators = Vec<(CoordinatorProfile, Arc<dyn Decisions>)>;

static MANAGERS: Mutex<Managers> = Mutex::new(BTreeMap::new());
static COORDINATORS: Mutex<Coordinators> = Mutex::new(Vec::new());

/// The manager of the profile that the environment names. The error is what `tx_open` says.
pub(crate) fn manager_of_environment() -> Result<Arc<Manager>, c_int> {
    manager(None).map_err(|error| {
        last_error::set(error.to_string());
        error.tx_code()
    })
}

/// The manager of a profile; of the one that the environment names when no name is given.
pub(crate) fn manager(name: Option<&str>) -> Result<Arc<Manager>, OpenError> {
    let path = env::var_os(PATH_VARIABLE).map_or_else(|| PathBuf::from(DEFAULT_PATH), PathBuf::from);
    let of_environment = || env::var(NAME_VARIABLE).unwrap_or_else(|_| DEFAULT_NAME.to_owned());
    let name = name.map_or_else(of_environment, str::to_owned);
    // Held while the profile is opened: two threads that come at the same time must not open it twice.
    let mut managers = MANAGERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(manager) = managers.get(&(path.clone(), name.clone())) {
        return Ok(Arc::clone(manager));
    }
    let manager = Arc::new(open(&profile::read(&path, &name)?)?);
    exit::close_at_exit();
    managers.insert((path, name), Arc::clone(&manager));
    Ok(manager)
}

/// Lets go of everything. A coordinator that somebody still uses is closed by whoever lets go of it last.
pub(crate) fn close_all() {
    // What others hold at this moment is theirs: the process ends, and nobody waits for a thread that does not run any more.
    let managers = MANAGERS.try_lock().map(|mut managers| std::mem::take(&mut *managers));
    drop(managers);
    let coordinators = COORDINATORS.try_lock().map(|mut coordinators| std::mem::take(&mut *coordinators));
    drop(coordinators);
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
    Ok(Manager::new(decisions, resources, profile.durability, profile.timeout))
}

fn resource(own: &ResourceManagerProfile, rmid: c_int) -> Result<SwitchedResource, String> {
    let string = |text: &str| CString::new(text).map_err(|_| "a string of it has a zero inside".to_owned());
    let switch = match (&own.library, own_switch(&own.symbol)) {
        (Some(library), _) => Switch::load(library, &own.symbol),
        (None, Some(table)) => Switch::of(table, &own.symbol),
        (None, None) => Err(LoadError::NoLibrary { symbol: own.symbol.clone() }),
    };
    Ok(SwitchedResource {
        branch: own.name.clone(),
        order: own.order,
        rmid,
        open_string: string(&own.open)?,
        close_string: string(&own.close)?,
        switch: switch.map_err(|error| error.to_string())?,
    })
}

/// The coordinator of a profile. Profiles that name the same one share it: a directory can be opened once in a process.
fn coordinator(wanted: &CoordinatorProfile) -> tm::Result<Arc<dyn Decisions>> {
    let mut coordinators = COORDINATORS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, found)) = coordinators.iter().find(|(own, _)| own == wanted) {
        return Ok(Arc::clone(found));
    }
    let opened: Arc<dyn Decisions> = match wanted {
        CoordinatorProfile::Servers(servers) => {
            let mut options = RemoteOptions::new("");
            options.servers.clone_from(servers);
            Arc::new(Remote::open(options)?)
        }
        CoordinatorProfile::Directory(directory) => Arc::new(Embedded::open(directory, Options::default())?),
    };
    coordinators.push((wanted.clone(), Arc::clone(&opened)));
    Ok(opened)
}
