//! Where the coordinator is that is asked: what the command line says, else the environment, else the usual.
//!
//! May use: `tm`, `cli`. Must not know: what is asked.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tm::{
    CoordinatorPlace, PROFILE_FILE, PROFILE_NAME_VARIABLE, PROFILE_VARIABLE, Profile, ProfileError, RemoteOptions,
};

use crate::cli::XaPlace;
use crate::failure::Failure;

/// Where a server is, unless somebody says.
const ADDRESS: &str = "127.0.0.1:7411";

/// A profile in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProfilePlace {
    file: PathBuf,
    name: Option<String>,
    /// Whether the environment gave the name, to a file that may be another than it is for.
    is_name_of_environment: bool,
}

impl ProfilePlace {
    /// The profile that the command line says, or the environment where the command line names no other place; `None` when
    /// neither does.
    pub(super) fn said(place: &XaPlace) -> Option<Self> {
        Self::said_in(place, &|name| std::env::var_os(name))
    }

    fn said_in(place: &XaPlace, environment: &dyn Fn(&str) -> Option<OsString>) -> Option<Self> {
        let variable = |name| environment(name).filter(|value| !value.is_empty());
        if is_elsewhere(place) {
            return None;
        }
        let file = place.profile.clone().or_else(|| variable(PROFILE_VARIABLE).map(PathBuf::from));
        let of_environment = variable(PROFILE_NAME_VARIABLE).map(|name| name.to_string_lossy().into_owned());
        let is_name_of_environment = place.name.is_none() && of_environment.is_some();
        let name = place.name.clone().or(of_environment);
        if file.is_none() && name.is_none() {
            return None;
        }
        Some(Self { file: file.unwrap_or_else(|| PROFILE_FILE.into()), name, is_name_of_environment })
    }

    /// The one that is said, or the usual file's; `None` when the command line names another place.
    pub(super) fn said_or_usual(place: &XaPlace) -> Option<Self> {
        let usual = || Self { file: PROFILE_FILE.into(), name: None, is_name_of_environment: false };
        Self::said(place).or_else(|| (!is_elsewhere(place)).then(usual))
    }

    /// All of it, with what resource managers need.
    pub(super) fn whole(&self) -> Result<Profile, Failure> {
        Profile::of_file(&self.file, self.name.as_deref()).map_err(|error| self.failure(error))
    }

    /// Where its coordinator is.
    pub(super) fn coordinator(&self) -> Result<CoordinatorPlace, Failure> {
        CoordinatorPlace::of_file(&self.file, self.name.as_deref()).map_err(|error| self.failure(error))
    }

    fn failure(&self, error: ProfileError) -> Failure {
        let name = self.name.as_deref().unwrap_or_default();
        if self.is_name_of_environment && error.to_string().contains(&format!("no profile {name}")) {
            return Failure::ProfileOfEnvironment(error);
        }
        Failure::Profile(error)
    }
}

/// Whether the command line names a coordinator that is no profile's.
fn is_elsewhere(place: &XaPlace) -> bool {
    place.dir.is_some() || place.address.is_some() || place.password_file.is_some()
}

/// Where the coordinator is.
pub(super) fn coordinator(place: &XaPlace) -> Result<CoordinatorPlace, Failure> {
    if let Some(profile) = ProfilePlace::said(place) {
        return profile.coordinator();
    }
    if let Some(directory) = &place.dir {
        let (directory, durability) = (directory.clone(), holdfast::Durability::default());
        // Nobody commits here.
        return Ok(CoordinatorPlace::Directory { directory, durability, shared_wait: Duration::ZERO });
    }
    let mut options = RemoteOptions::new(place.address.as_deref().unwrap_or(ADDRESS));
    if let Some(path) = &place.password_file {
        let text = std::fs::read_to_string(path).map_err(|error| Failure::Path { path: path.clone(), error })?;
        let password = text.lines().next().unwrap_or_default().to_owned();
        options.login = Some((place.user.clone().unwrap_or_else(|| "default".to_owned()), password));
    }
    Ok(CoordinatorPlace::Servers(options))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{PROFILE_FILE, PROFILE_NAME_VARIABLE, PROFILE_VARIABLE, PathBuf, ProfilePlace};
    use crate::cli::{Cli, Command};

    /// What is said by this command line, with a profile and a name in the environment or without.
    fn said(words: &str, environment: &[(&str, &str)]) -> Option<(PathBuf, Option<String>)> {
        let words = ["holdfast", "xa"].into_iter().chain(words.split_whitespace());
        let Some(Command::Xa(arguments)) = Cli::try_parse_from(words).unwrap().command else { panic!("no xa") };
        let variable =
            |name: &str| environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
        ProfilePlace::said_in(&arguments.place, &variable).map(|place| (place.file, place.name))
    }

    /// `holdfast xa rollback --profile test.toml` rolled back in the profile that the environment named.
    #[test]
    fn what_the_command_line_says_wins_over_the_environment() {
        let both = [(PROFILE_VARIABLE, "/env.toml"), (PROFILE_NAME_VARIABLE, "env")];
        let one = |file: &str, name: Option<&str>| Some((PathBuf::from(file), name.map(str::to_owned)));
        for (words, environment, wanted) in [
            ("list", &both[..], one("/env.toml", Some("env"))),
            ("list --profile /own.toml --name own", &both, one("/own.toml", Some("own"))),
            ("check --profile /own.toml --name own", &both, one("/own.toml", Some("own"))),
            ("list --profile /own.toml", &both, one("/own.toml", Some("env"))),
            ("list --profile /own.toml", &both[..1], one("/own.toml", None)),
            ("list --name own", &both, one("/env.toml", Some("own"))),
            ("list --name own", &[], one(PROFILE_FILE, Some("own"))),
            ("list --dir /d", &both, None),
            ("list --address a:1", &both, None),
            ("list --password-file /p", &both, None),
            ("list", &[], None),
            ("list", &[(PROFILE_VARIABLE, ""), (PROFILE_NAME_VARIABLE, "")], None),
        ] {
            assert_eq!(said(words, environment), wanted, "{words}");
        }
    }
}
