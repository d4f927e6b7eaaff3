//! Users of the configuration file.
//!
//! May use: `doors::auth`. Must not know: how passwords are checked.

use std::path::Path;

use doors::auth::{BucketRight, Right, User, UserError, Users};

use super::error::ConfigError;
use super::file::{BucketTable, RightWord, UserTable};

const DOORS: [&str; 3] = ["resp", "http", "line"];

/// Checks every user. A key is named by the user's place in the file, counted from 1, until he has a name.
pub(crate) fn users(tables: Vec<UserTable>, file: &Path) -> Result<Users, ConfigError> {
    let mut users = Vec::with_capacity(tables.len());
    for (place, table) in tables.into_iter().enumerate() {
        users.push(user(table, place + 1).map_err(|error| error.in_file(file))?);
    }
    Users::new(users).map_err(|error| {
        let (name, problem) = match error {
            UserError::Hash { name, reason } => {
                let problem = format!("this is no argon2 hash ({reason}); make one with `holdfast hash-password`");
                return ConfigError::new(format!("users.{name}.password_hash"), problem).in_file(file);
            }
            UserError::Twice { name } => (name, "there are two users of this name; rename or remove one".to_owned()),
            other => (String::new(), other.to_string()),
        };
        ConfigError::new(format!("users.{name}.name"), problem).in_file(file)
    })
}

fn user(table: UserTable, place: usize) -> Result<User, ConfigError> {
    let missing = |key: String, what: &str| ConfigError::new(key, format!("this is missing; {what}"));
    let name = table.name.filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| missing(format!("users[{place}].name"), "give the user a name"))?;
    let key = |key: &str| format!("users.{name}.{key}");
    let password_hash =
        table.password_hash.ok_or_else(|| missing(key("password_hash"), "make one with `holdfast hash-password`"))?;
    if let Some(door) = table.doors.iter().find(|door| !DOORS.contains(&door.as_str())) {
        let problem = format!("there is no door `{door}`; there are \"resp\", \"http\" and \"line\"");
        return Err(ConfigError::new(key("doors"), problem));
    }
    let example = "say what the user may do, for example buckets = [{ pattern = \"*\", right = \"admin\" }]";
    let buckets = table.buckets.ok_or_else(|| missing(key("buckets"), example))?;
    let buckets = buckets.into_iter().map(|BucketTable { pattern, right }| {
        let pattern = pattern.ok_or_else(|| missing(key("buckets.pattern"), example))?;
        let right = match right.ok_or_else(|| missing(key("buckets.right"), example))? {
            RightWord::Read => Right::Read,
            RightWord::Write => Right::Write,
            RightWord::Admin => Right::Admin,
        };
        Ok(BucketRight { pattern, right })
    });
    let buckets = buckets.collect::<Result<_, ConfigError>>()?;
    Ok(User { name, password_hash, doors: table.doors, buckets })
}
