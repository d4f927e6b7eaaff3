//! From a profile to what runs: coordinators and resource managers, and what is wrong with them.
//!
//! May use: everything of the crate. Must not know: commands.

use std::sync::Arc;

use holdfast::Options;

use crate::branch::ResourceManager;
use crate::coordinator::Coordinator;
use crate::decisions::Result;
use crate::mysql::MysqlManager;
use crate::postgres::{PostgresManager, PostgresTls};
use crate::profile::{CoordinatorPlace, Profile, ResourceManagerKind, ResourceManagerProfile};

/// What is wrong with a part of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The coordinator, or a resource manager by its name.
    pub part: String,
    /// In plain words, with what to do. Shows no secret.
    pub what: String,
}

/// Opens the coordinator of a profile.
///
/// # Errors
/// As [`Coordinator::open`] and [`Coordinator::connect`].
pub async fn open_coordinator(profile: &Profile) -> Result<Coordinator> {
    match &profile.coordinator {
        CoordinatorPlace::Directory { directory, durability } => {
            Coordinator::open(directory, Options { durability: *durability, ..Options::default() }).await
        }
        CoordinatorPlace::Servers(options) => Coordinator::connect(options.clone()).await,
    }
}

/// The resource managers of a profile, for recovery. Switches are opened by C programs only, and left out here.
///
/// # Errors
/// A fault for each that cannot be made of what the profile says.
pub fn resource_managers(profile: &Profile) -> std::result::Result<Vec<Arc<dyn ResourceManager>>, Vec<Fault>> {
    let (mut managers, mut faults) = (Vec::new(), Vec::new());
    for manager in &profile.resource_managers {
        match of_profile(manager) {
            Ok(made) => managers.extend(made),
            Err(what) => faults.push(Fault { part: manager.name.to_string(), what }),
        }
    }
    if faults.is_empty() { Ok(managers) } else { Err(faults) }
}

fn of_profile(manager: &ResourceManagerProfile) -> std::result::Result<Option<Arc<dyn ResourceManager>>, String> {
    let name = manager.name.clone();
    Ok(match manager.kind {
        ResourceManagerKind::Postgres => {
            // The driver's error may quote the string: what looks like an unknown option may be the rest of a password.
            let config = manager.open.expose().parse().map_err(|_: tokio_postgres::Error| {
                "`open` is no connection string of PostgreSQL that is understood here, such as `host=db user=bank \
                 password='..'`. Certificates stand in `authorities`, `certificate` and `certificate_key` beside it"
                    .to_owned()
            })?;
            let made = PostgresManager::new(name, config).in_order(manager.order);
            Some(match &manager.tls {
                Some(tls) => Arc::new(made.with_tls(PostgresTls::new(tls)?)),
                None => Arc::new(made),
            })
        }
        ResourceManagerKind::MariaDb => {
            // The driver's error may quote the URL.
            let options = mysql_async::Opts::from_url(manager.open.expose())
                .map_err(|_| "`open` is not of the form mysql://user@host:port/database".to_owned())?;
            let made = MysqlManager::new(name, options).in_order(manager.order);
            Some(match &manager.tls {
                Some(tls) => Arc::new(made.with_tls(tls)?),
                None => Arc::new(made),
            })
        }
        ResourceManagerKind::Xa { .. } => None,
    })
}

/// Opens everything that a profile names, and says what is wrong; empty when transactions can run. A coordinator in a
/// directory is not opened, because that would end the transactions of a program that has it, but for that it may be made.
pub async fn check(profile: &Profile) -> Vec<Fault> {
    let mut faults = Vec::new();
    match &profile.coordinator {
        CoordinatorPlace::Directory { directory, .. } => {
            let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
            if directory.exists() && !directory.is_dir() {
                let what = format!("{} is a file, not the directory of a coordinator", directory.display());
                faults.push(Fault { part: "coordinator".to_owned(), what });
            } else if !directory.is_dir() && !parent.is_none_or(std::path::Path::is_dir) {
                let what = format!("neither {} nor the folder above it exists", directory.display());
                faults.push(Fault { part: "coordinator".to_owned(), what });
            }
        }
        CoordinatorPlace::Servers(options) => {
            if let Err(error) = Coordinator::connect(options.clone()).await {
                faults.push(Fault { part: "coordinator".to_owned(), what: error.text });
            }
        }
    }
    for manager in &profile.resource_managers {
        let found = match of_profile(manager) {
            Ok(Some(manager)) => manager.check().await,
            Ok(None) => of_switch(manager),
            Err(what) => vec![what],
        };
        faults.extend(found.into_iter().map(|what| Fault { part: manager.name.to_string(), what }));
    }
    faults
}

fn of_switch(manager: &ResourceManagerProfile) -> Vec<String> {
    match &manager.kind {
        ResourceManagerKind::Xa { library, .. } if library.is_absolute() && !library.exists() => {
            vec![format!("there is no library {}", library.display())]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Profile, resource_managers};

    fn faults(open: &str) -> Vec<String> {
        let text = format!(
            "[profiles.bank.coordinator]\ndirectory = \"/none\"\n[[profiles.bank.resource_managers]]\nname = \"ledger\"\n\
             kind = \"postgres\"\nopen = \"{open}\"\n"
        );
        let profile = Profile::of_text(&text, None, &|_| None).unwrap();
        let faults = resource_managers(&profile).err().unwrap_or_default();
        faults.into_iter().map(|fault| fault.what).collect()
    }

    /// A file was called a good directory, because the folder above it is there.
    #[tokio::test]
    async fn a_file_is_no_directory_of_a_coordinator() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        for (directory, wrong) in [
            (folder.path().to_owned(), None),
            (folder.path().join("new"), None),
            (file.clone(), Some("is a file, not the directory of a coordinator")),
            (file.join("below"), Some("nor the folder above it exists")),
        ] {
            let text = format!("[profiles.bank.coordinator]\ndirectory = \"{}\"\n", directory.display());
            let faults = super::check(&Profile::of_text(&text, None, &|_| None).unwrap()).await;
            let found = faults.first().map(|fault| fault.what.as_str());
            assert_eq!(found.is_some(), wrong.is_some(), "{found:?}");
            assert!(found.unwrap_or_default().contains(wrong.unwrap_or_default()), "{found:?}");
        }
    }

    /// The rest of a password that was not quoted was named as an option that is not known.
    #[test]
    fn a_string_that_the_driver_does_not_understand_is_not_shown() {
        let wrong = [
            "host=/none password=two words",
            "host=/none password=two words=three",
            "host=/none password='words",
            "postgres://user:two@localhost/d?words=three",
            "postgres://user:two@localhost:words/d",
        ];
        for open in wrong {
            let said = faults(open).concat();
            assert!(said.contains("no connection string") && !said.contains("words"), "{open}: {said}");
        }
        for open in ["host=/none password='two words'", "postgres://user:two%20words@localhost/d"] {
            assert_eq!(faults(open), [""; 0]);
        }
    }
}
