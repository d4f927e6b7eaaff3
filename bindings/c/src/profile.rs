//! A profile: which coordinator decides, and which resource managers take part. A TOML file holds several by name.
//!
//!   [profile.default.coordinator]
//!   directory = "/var/lib/shop/decisions"   # in this process; or
//!   # servers = ["localhost:7379"]          # a Holdfast server
//!
//!   [[profile.default.resource_manager]]
//!   name = "orders"                      # the name of its branches
//!   kind = "xa"
//!   library = "/usr/lib/libvendor.so"    # without one, the symbol is a switch of this library
//!   symbol = "vendor_switch"
//!   open = "what xa_open gets"
//!   close = "what xa_close gets"
//!   order = 0                            # lower commits earlier
//!
//! May use: `tm`. Must not know: what is done with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast::Durability;
use serde::Deserialize;
use tm::BranchName;

pub(crate) struct Profile {
    pub(crate) name: String,
    pub(crate) coordinator: CoordinatorProfile,
    pub(crate) resource_managers: Vec<ResourceManagerProfile>,
    pub(crate) durability: Option<Durability>,
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CoordinatorProfile {
    /// A store in this process.
    Directory(PathBuf),
    /// Servers, tried in order.
    Servers(Vec<String>),
}

pub(crate) struct ResourceManagerProfile {
    pub(crate) name: BranchName,
    pub(crate) library: Option<String>,
    pub(crate) symbol: String,
    pub(crate) open: String,
    pub(crate) close: String,
    pub(crate) order: u32,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProfileError {
    #[error("cannot read the profiles in {}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("there is no profile `{name}` in {}", path.display())]
    Missing { path: PathBuf, name: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    profile: std::collections::BTreeMap<String, ProfileText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileText {
    coordinator: CoordinatorText,
    #[serde(default)]
    resource_manager: Vec<ManagerText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CoordinatorText {
    directory: Option<PathBuf>,
    servers: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManagerText {
    name: String,
    #[serde(rename = "kind")]
    _kind: String,
    library: Option<String>,
    symbol: String,
    #[serde(default)]
    open: String,
    #[serde(default)]
    close: String,
    #[serde(default)]
    order: u32,
}

pub(crate) fn read(path: &Path, name: &str) -> Result<Profile, ProfileError> {
    let unreadable = |reason: String| ProfileError::Unreadable { path: path.to_owned(), reason };
    let text = fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    let mut file: FileText = toml::from_str(&text).map_err(|error| unreadable(error.message().to_owned()))?;
    let found = file.profile.remove(name);
    let found = found.ok_or_else(|| ProfileError::Missing { path: path.to_owned(), name: name.to_owned() })?;
    let resource_managers = found.resource_manager.into_iter().map(|own| {
        let name = BranchName::new(&own.name).map_err(|error| unreadable(format!("`{}`: {error}", own.name)))?;
        let ManagerText { library, symbol, open, close, order, .. } = own;
        Ok(ResourceManagerProfile { name, library, symbol, open, close, order })
    });
    let coordinator = match (found.coordinator.directory, found.coordinator.servers) {
        (Some(directory), None) => CoordinatorProfile::Directory(directory),
        (None, Some(servers)) => CoordinatorProfile::Servers(servers),
        _ => return Err(unreadable(format!("profile `{name}` needs either a directory or servers of a coordinator"))),
    };
    Ok(Profile {
        name: name.to_owned(),
        coordinator,
        resource_managers: resource_managers.collect::<Result<_, _>>()?,
        durability: None,
        timeout: None,
    })
}
