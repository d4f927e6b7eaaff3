//! From a profile to what runs: coordinators and resource managers, and what is wrong with them.
//!
//! May use: everything of the crate. Must not know: commands.

mod directory;

use std::sync::Arc;

use holdfast::Options;

use crate::branch::ResourceManager;
use crate::coordinator::Coordinator;
use crate::decisions::Result;
use crate::mysql::MysqlManager;
use crate::postgres::{PostgresManager, PostgresTls};
use crate::profile::{CoordinatorPlace, Profile, ResourceManagerKind, ResourceManagerProfile};
use crate::switch::{SwitchManager, SwitchPlace};

/// What is wrong with a part of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The coordinator, or a resource manager by its name.
    pub part: String,
    /// In plain words, with what to do. Shows no secret.
    pub what: String,
}

/// What a check found of a part of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// The coordinator, or a resource manager by its name.
    pub part: String,
    /// How far it was looked at and is good, where that needs words; or what is wrong with it, with what to do. In plain
    /// words that show no secret.
    pub found: std::result::Result<String, Vec<String>>,
}

/// Opens the coordinator of a profile. Its transactions have the profile's timeout where [`Begin`](crate::Begin) has none, and their
/// branches commit in the profile's order where the program says none ([`Transaction::enlist`](crate::Transaction::enlist)).
///
/// # Errors
/// As [`Coordinator::open`] and [`Coordinator::connect`].
pub async fn open_coordinator(profile: &Profile) -> Result<Coordinator> {
    let opened = match &profile.coordinator {
        CoordinatorPlace::Directory { directory, durability, shared_wait } => {
            let options = Options { durability: *durability, ..Options::default() };
            Coordinator::open_waiting(directory, options, *shared_wait).await?
        }
        CoordinatorPlace::Servers(options) => Coordinator::connect(options.clone()).await?,
    };
    let order = |manager: &ResourceManagerProfile| (manager.name.clone(), manager.order);
    Ok(opened.with_usual(profile.timeout, profile.resource_managers.iter().map(order).collect()))
}

/// What to do about switches of other vendors: their libraries are run in the process, and one that fails may take it along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switches {
    /// They are resource managers as all others are.
    Asked,
    /// They are left out.
    Left,
}

/// The resource managers of a profile, for recovery.
///
/// # Errors
/// A fault for each that cannot be made of what the profile says.
pub fn resource_managers(
    profile: &Profile,
    switches: Switches,
) -> std::result::Result<Vec<Arc<dyn ResourceManager>>, Vec<Fault>> {
    let (mut managers, mut faults) = (Vec::new(), Vec::new());
    for (place, manager) in profile.resource_managers.iter().enumerate() {
        if switches == Switches::Left && matches!(manager.kind, ResourceManagerKind::Xa { .. }) {
            continue;
        }
        match of_profile(place, manager) {
            Ok(made) => managers.push(made),
            Err(what) => faults.push(Fault { part: manager.name.to_string(), what }),
        }
    }
    if faults.is_empty() { Ok(managers) } else { Err(faults) }
}

const MISSING: &str = "`open` is missing, which says where it is, such as";

/// `place` is where it stands in the profile.
fn of_profile(place: usize, manager: &ResourceManagerProfile) -> std::result::Result<Arc<dyn ResourceManager>, String> {
    let name = manager.name.clone();
    Ok(match &manager.kind {
        ResourceManagerKind::Postgres => {
            if manager.open.expose().trim().is_empty() {
                return Err(format!("{MISSING} `host=db user=bank`"));
            }
            // The driver's error may quote the string: what looks like an unknown option may be the rest of a password.
            let config = manager.open.expose().parse().map_err(|_: tokio_postgres::Error| {
                "`open` is no connection string of PostgreSQL that is understood here, such as `host=db user=bank \
                 password='..'`. Certificates stand in `authorities`, `certificate` and `certificate_key` beside it"
                    .to_owned()
            })?;
            let made = PostgresManager::new(name, config).in_order(manager.order);
            let made = if manager.last_resource { made.without_prepare() } else { made };
            match &manager.tls {
                Some(tls) => Arc::new(made.with_tls(PostgresTls::new(tls)?)),
                None => Arc::new(made),
            }
        }
        ResourceManagerKind::MariaDb => {
            if manager.open.expose().trim().is_empty() {
                return Err(format!("{MISSING} mysql://user@host:port/database"));
            }
            // The driver's error may quote the URL.
            let options = mysql_async::Opts::from_url(manager.open.expose())
                .map_err(|_| "`open` is not of the form mysql://user@host:port/database".to_owned())?;
            let made = MysqlManager::new(name, options).in_order(manager.order);
            match &manager.tls {
                Some(tls) => Arc::new(made.with_tls(tls)?),
                None => Arc::new(made),
            }
        }
        ResourceManagerKind::Xa { library, symbol } => {
            let (open, close) = (manager.open.expose(), manager.close.expose());
            let number = i32::try_from(place).map_err(|_| "there are too many resource managers".to_owned())?;
            Arc::new(SwitchManager::new(name, manager.order, &SwitchPlace { library, symbol, open, close, number })?)
        }
    })
}

/// Opens everything that a profile names, and says what is wrong; transactions can run when nothing is. Not opened is a
/// coordinator in a directory, because that would end the transactions of a program that has it: of it is seen what can be seen
/// from outside.
pub async fn check(profile: &Profile) -> Vec<Checked> {
    let mut all = vec![check_coordinator(&profile.coordinator).await];
    for (place, manager) in profile.resource_managers.iter().enumerate() {
        let wrong = match of_profile(place, manager) {
            Ok(manager) => manager.check().await,
            Err(what) => vec![what],
        };
        let found = if wrong.is_empty() { good() } else { Err(wrong) };
        all.push(Checked { part: manager.name.to_string(), found });
    }
    all
}

/// As [`check`], of a coordinator alone.
pub async fn check_coordinator(place: &CoordinatorPlace) -> Checked {
    let found = match place {
        CoordinatorPlace::Directory { directory, .. } => directory::check(directory).map_err(|what| vec![what]),
        CoordinatorPlace::Servers(options) => match Coordinator::connect(options.clone()).await {
            Ok(_) => good(),
            Err(error) => Err(vec![error.text]),
        },
    };
    Checked { part: "coordinator".to_owned(), found }
}

/// Without reservations.
fn good() -> std::result::Result<String, Vec<String>> {
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::{Profile, Switches, resource_managers};

    fn faults(open: &str) -> Vec<String> {
        let text = format!(
            "[profiles.bank.coordinator]\ndirectory = \"/none\"\n[[profiles.bank.resource_managers]]\nname = \"ledger\"\n\
             kind = \"postgres\"\nopen = \"{open}\"\n"
        );
        let profile = Profile::of_text(&text, None, &|_| None).unwrap();
        let faults = resource_managers(&profile, Switches::Asked).err().unwrap_or_default();
        faults.into_iter().map(|fault| fault.what).collect()
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
        assert!(faults(" ").concat().starts_with("`open` is missing"));
        for open in ["host=/none password='two words'", "postgres://user:two%20words@localhost/d"] {
            assert_eq!(faults(open), [""; 0]);
        }
    }
}
