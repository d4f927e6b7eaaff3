//! The keys of the line door: where it listens, whose rights lines have, and how soon and how durably they are written.
//!
//! Lines carry no password. So where there are users, the door opens only when the operator names the one whose rights
//! everybody has who reaches it.
//!
//! May use: `reading`, `bind`, `file`. Must not know: how the door is served.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use doors::auth::{Right, Users};
use holdfast::{Dial, Durability};

use super::bind::{self, Verdict};
use super::error::ConfigError;
use super::file::LineTable;
use super::reading::{FOR_STREAMS, Reading, one_for};
use super::{CONNECTIONS, IDLE_SECONDS, REACTORS};
use crate::cli::Place;

const PORT: u16 = 7413;
const OFF: &str = "off";
const DELAY_MILLISECONDS: RangeInclusive<i64> = 0..=1000;

/// The line door.
pub(crate) struct Line {
    /// `None` when it is not to be opened.
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) udp_listen: Option<SocketAddr>,
    pub(crate) reactors: usize,
    pub(crate) limits: doors::line::Limits,
    pub(crate) delay: Duration,
    /// `None` is as durable as the store is.
    pub(crate) durability: Option<Durability>,
    pub(crate) database: String,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) user: Option<String>,
}

impl Line {
    /// Where it is, or why it is nowhere.
    pub(crate) fn place(&self, users: &Users) -> String {
        match self.listen {
            Some(listen) => listen.to_string(),
            None if users.is_required() && self.user.is_none() => {
                "off: there are users, and line.user does not say whose rights lines have".to_owned()
            }
            None => OFF.to_owned(),
        }
    }

    /// What is in force.
    pub(crate) fn describe(&self, users: &Users) -> Vec<String> {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        let idle = self.idle_timeout.map_or("never".to_owned(), |time| format!("after {} s", time.as_secs()));
        vec![
            format!("line.listen = {}", self.place(users)),
            format!("line.udp_listen = {}", self.udp_listen.map_or("off".to_owned(), |listen| listen.to_string())),
            format!("line.reactors = {}", self.reactors),
            format!("line.connections_max = {}", self.limits.connections_max),
            format!("line.delay_milliseconds = {}", self.delay.as_millis()),
            match self.durability {
                Some(durability) => format!("line.durability = {}", Dial(durability)),
                None => "line.durability is that of the store".to_owned(),
            },
            format!("line.database = {}", self.database),
            format!("line.user = {}", text(&self.user)),
            format!("idle line connections are closed {idle}"),
        ]
    }
}

impl Reading<'_> {
    pub(super) fn line(&self, table: LineTable) -> Result<Line, ConfigError> {
        let defaults = doors::line::Limits::default();
        let idle: Option<u64> = self.number("line.idle_timeout_seconds", table.idle_timeout_seconds, IDLE_SECONDS)?;
        let delay: Option<u64> =
            self.number("line.delay_milliseconds", table.delay_milliseconds, DELAY_MILLISECONDS)?;
        let listen = match (self.arguments.line, table.listen.as_deref()) {
            (Some(Place::Off), _) | (None, Some(OFF)) => None,
            (Some(Place::At(address)), _) => Some(address),
            (None, _) => Some(self.address("line.listen", None, table.listen, PORT)?),
        };
        let durability = table.durability.map(|words| words.parse::<Dial>()).transpose();
        let durability = durability.map_err(|problem| self.wrong("line.durability", problem.to_string()))?;
        let empty = |key: &str| self.wrong(key, "this is empty; leave the key out, or say a name");
        if table.database.as_ref().is_some_and(String::is_empty) {
            return Err(empty("line.database"));
        }
        let udp_listen = match table.udp_listen {
            None => None,
            Some(text) if text == OFF => None,
            text => Some(self.address("line.udp_listen", None, text, PORT)?),
        };
        Ok(Line {
            listen,
            udp_listen,
            reactors: self.number("line.reactors", table.reactors, REACTORS)?.unwrap_or_else(|| one_for(FOR_STREAMS)),
            limits: doors::line::Limits {
                connections_max: self
                    .number("line.connections_max", table.connections_max, CONNECTIONS)?
                    .unwrap_or(defaults.connections_max),
                ..defaults
            },
            delay: delay.map_or(Duration::from_millis(10), Duration::from_millis),
            durability: durability.map(|dial| dial.0),
            database: table.database.unwrap_or_else(|| "default".to_owned()),
            idle_timeout: idle.filter(|seconds| *seconds > 0).map(Duration::from_secs),
            user: table.user,
        })
    }

    /// Whether the door may be opened; what the operator should know. Turns a door off that nobody asked for and that nobody
    /// may use.
    pub(super) fn judge_line(
        &self,
        line: &mut Line,
        users: &Users,
        (is_asked_for, waived): (Asked, bool),
    ) -> Result<Vec<String>, ConfigError> {
        match (&line.user, users.is_required()) {
            (None, false) => {}
            (None, true) if is_asked_for == Asked::No => line.listen = None,
            (None, true) if line.listen.is_none() => {}
            (None, true) => {
                let problem = "there are users, and lines carry no password; name the user whose rights everybody has \
                               who reaches the door, or say line.listen = \"off\"";
                return Err(self.wrong("line.user", problem));
            }
            (Some(name), _) => {
                let user =
                    users.get(name).ok_or_else(|| self.wrong("line.user", format!("there is no user `{name}`")))?;
                if !user.may_enter("line") || !user.may(Right::Write, line.database.as_bytes()) {
                    let problem = format!(
                        "{name} may not write to {} through this door; give the right, or name another user",
                        line.database
                    );
                    return Err(self.wrong("line.user", problem));
                }
            }
        }
        if line.listen.is_none() && line.udp_listen.is_some() {
            return Err(self.wrong("line.udp_listen", "datagrams come in through the line door, and that is off"));
        }
        let mut warnings = Vec::new();
        for (key, listen) in [("line.listen", line.listen), ("line.udp_listen", line.udp_listen)] {
            let Some(listen) = listen else { continue };
            match bind::judge_open(listen, waived) {
                Ok(Verdict::Fine) => {}
                Ok(Verdict::Warn(text)) => warnings.push(format!("line on {listen}: {text}")),
                Err(problem) if self.arguments.line == Some(Place::At(listen)) => {
                    return Err(ConfigError::new("--line", problem));
                }
                Err(problem) => return Err(self.wrong(key, problem)),
            }
        }
        Ok(warnings)
    }
}

/// Whether the configuration file says where the door is to listen. The command line says where, not that it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Yes,
    No,
}
