//! The configuration in force: defaults, then the file, then the command line; checked before anything is opened.
//!
//! docs/operations/configuration.md describes every key with unit, default and range; the constants here are its source.
//!
//! May use: the facade, the doors' options, profiles of `tm`, databases of `grid`. Must not know: how the program starts and stops.

mod bind;
mod columns;
mod error;
mod file;
mod line;
mod log;
#[cfg(test)]
mod manual_tests;
mod mirrors;
mod reading;
mod schedule;
mod script;
mod series;
mod space;
#[cfg(test)]
mod tests;
mod users;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use doors::auth::Users;
use doors::resp::ScriptOptions;
use holdfast::series::SeriesOptions;
use holdfast::{CompactionOptions, Compression, Dial, Limits, TreeSize};
use rustls::ServerConfig;
use tm::Profile;

use crate::cli::ServeArguments;
use crate::failure::Failure;
use crate::output::say;
use file::File;
use reading::Reading;
use schedule::When;

pub(crate) use error::ConfigError;
pub(crate) use line::Line;
pub(crate) use log::LogLevel;
pub(crate) use mirrors::Mirror;

const DIR: &str = "holdfast-data";
const RESP_PORT: u16 = 7411;
const HTTP_PORT: u16 = 7412;
/// A configuration file is a page or two; more is another file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Partitions of a store.
pub(crate) const PARTITIONS: RangeInclusive<i64> = 1..=1024;
const VALUE_BYTES: RangeInclusive<i64> = 1 << 10..=512 << 20;
const SEGMENT_BYTES: RangeInclusive<i64> = 1 << 20..=1 << 30;
const LEDGER_CACHE_BYTES: RangeInclusive<i64> = 1 << 20..=1 << 40;
const LEDGER_MEMORY_BYTES: RangeInclusive<i64> = 64 << 10..=1 << 30;
/// Zero is none.
const VALUE_CACHE_BYTES: RangeInclusive<i64> = 0..=1 << 40;
const LISTENER_RETAIN_BYTES: RangeInclusive<i64> = 0..=1 << 50;
/// Zero is no limit.
const COMPACTION_BYTES_PER_SECOND: RangeInclusive<i64> = 0..=1 << 40;
const DEAD_PERCENT: RangeInclusive<i64> = 1..=99;
const KEEP_BYTES: RangeInclusive<i64> = 0..=1 << 50;
/// Zero is never.
const SCRUB_BYTES_PER_SECOND: RangeInclusive<i64> = 0..=1 << 40;
const REACTORS: RangeInclusive<i64> = 1..=64;
const CONNECTIONS: RangeInclusive<i64> = 1..=1_000_000;
/// Zero is never.
const IDLE_SECONDS: RangeInclusive<i64> = 0..=31_536_000;
const OUTPUT_BYTES: RangeInclusive<i64> = 1 << 20..=1 << 32;
const INPUT_BYTES: RangeInclusive<i64> = 1 << 20..=1 << 40;
const HTTP_THREADS: RangeInclusive<i64> = 1..=1024;
const QUERIES: RangeInclusive<i64> = 1..=1024;
const BODY_BYTES: RangeInclusive<i64> = 1 << 10..=512 << 20;
const BODIES_BYTES: RangeInclusive<i64> = 1 << 20..=1 << 40;
const RECOVERY_SECONDS: RangeInclusive<i64> = 1..=3600;
/// Zero is never.
const SWEEP_SECONDS: RangeInclusive<i64> = 0..=31_536_000;

/// Everything that is configured.
pub(crate) struct Config {
    pub(crate) dir: PathBuf,
    pub(crate) durability: Dial,
    pub(crate) partitions: u16,
    pub(crate) limits: Limits,
    pub(crate) compression: Compression,
    pub(crate) ledger_compression: Compression,
    /// `None` keeps no tree.
    pub(crate) tree: Option<TreeSize>,
    pub(crate) compaction: CompactionOptions,
    pub(crate) scrub_bytes_per_second: u64,
    pub(crate) log: LogLevel,
    pub(crate) resp: Resp,
    pub(crate) http: Http,
    pub(crate) line: Line,
    pub(crate) series: SeriesOptions,
    pub(crate) script: ScriptOptions,
    pub(crate) xa: Xa,
    pub(crate) mirrors: Vec<Mirror>,
    pub(crate) users: Arc<Users>,
    /// What the operator should know though it is no mistake.
    pub(crate) warnings: Vec<String>,
}

/// The RESP door.
pub(crate) struct Resp {
    pub(crate) listen: SocketAddr,
    pub(crate) reactors: usize,
    pub(crate) pipeline_reactors: usize,
    pub(crate) limits: doors::resp::Limits,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) tls: Option<Arc<ServerConfig>>,
}

/// The HTTP door.
pub(crate) struct Http {
    pub(crate) listen: SocketAddr,
    pub(crate) limits: doors::http::Limits,
    pub(crate) tls: Option<Arc<ServerConfig>>,
}

/// The server's own recovery of distributed transactions.
pub(crate) struct Xa {
    /// Whose resource managers it looks after. Their coordinators are servers, which is to say this one.
    pub(crate) profiles: Vec<Profile>,
    /// Between two rounds with a resource manager that answers.
    pub(crate) interval: Duration,
    /// How old a decision is of which no branch is left, and which nobody said to be known, when it is let go; `None` never.
    pub(crate) sweep: Option<Duration>,
}

/// `holdfast config --check FILE`.
pub(crate) fn check(path: &Path) -> Result<ExitCode, Failure> {
    let arguments = ServeArguments { config: Some(path.to_owned()), ..ServeArguments::default() };
    let config = Config::load(&arguments)?;
    for warning in &config.warnings {
        say(format_args!("warning: {warning}"));
    }
    say(format_args!("{} is in order; in force would be:", path.display()));
    config.describe().iter().for_each(say);
    Ok(ExitCode::SUCCESS)
}

impl Config {
    /// Reads the file that the command line names, if it names one, and checks everything.
    pub(crate) fn load(arguments: &ServeArguments) -> Result<Self, ConfigError> {
        let path = arguments.config.as_deref();
        let file = match path {
            Some(path) => file::parse(&read(path)?).map_err(|error| error.in_file(path))?,
            None => File::default(),
        };
        Reading { path, arguments }.config(file)
    }

    /// What is in force, without secrets.
    fn describe(&self) -> Vec<String> {
        let tls = |tls: &Option<Arc<ServerConfig>>| if tls.is_some() { " with TLS" } else { "" };
        let idle = self.resp.idle_timeout.map_or("never".to_owned(), |time| format!("after {} s", time.as_secs()));
        let mut lines = vec![
            format!("dir = {}", self.dir.display()),
            format!("durability = {}", self.durability),
            format!("partitions = {} (of a new store)", self.partitions),
            format!("limits.value_bytes_max = {}", self.limits.value_bytes_max),
            format!("limits.segment_bytes = {}", self.limits.segment_bytes),
            format!("limits.ledger_cache_bytes = {}", self.limits.ledger_cache_bytes),
            format!("limits.ledger_memory_bytes = {}", self.limits.ledger_memory_bytes),
            format!("limits.value_cache_bytes = {}", self.limits.value_cache_bytes),
            format!("limits.listener_retain_bytes_max = {}", self.limits.listener_retain_bytes_max),
            format!("compression = {}", self.compression),
            format!("ledger_compression = {}", self.ledger_compression),
            format!("tree.leaves = {}", self.tree.map_or(0, TreeSize::leaves)),
            format!("compaction.schedule = {}", When(self.compaction.schedule)),
            format!("compaction.bytes_per_second = {}", self.compaction.bytes_per_second),
            format!("compaction.dead_percent = {}", self.compaction.dead_percent),
            format!("compaction.keep_bytes = {}", self.compaction.keep_bytes),
            format!("scrub.bytes_per_second = {}", self.scrub_bytes_per_second),
            format!("resp.listen = {}{}", self.resp.listen, tls(&self.resp.tls)),
            format!("resp.reactors = {}", self.resp.reactors),
            format!("resp.pipeline_reactors = {}", self.resp.pipeline_reactors),
            format!("resp.connections_max = {}", self.resp.limits.clients_max),
            format!("resp.output_bytes_max = {}", self.resp.limits.output_bytes_max),
            format!("resp.input_bytes_max = {}", self.resp.limits.input_bytes_max),
            format!("resp.replies_bytes_max = {}", self.resp.limits.replies_bytes_max),
            format!("idle RESP connections are closed {idle}"),
            format!("http.listen = {}{}", self.http.listen, tls(&self.http.tls)),
            format!("http.connections_max = {}", self.http.limits.connections_max),
            format!("http.threads_max = {}", self.http.limits.threads_max),
            format!("http.queries_max = {}", self.http.limits.queries_max),
            format!("http.body_bytes_max = {}", self.http.limits.body_bytes_max),
            format!("http.bodies_bytes_max = {}", self.http.limits.bodies_bytes_max),
        ];
        lines.extend(self.line.describe(&self.users));
        lines.extend(series::describe(&self.series, &self.limits));
        lines.push(format!("series.query_seconds_max = {}", self.resp.limits.series_time_max.as_secs()));
        lines.push(format!("space.query_seconds_max = {}", self.resp.limits.space_time_max.as_secs()));
        lines.push(format!("space.query_memory_bytes = {}", self.limits.space_query_memory_bytes));
        lines.extend(script::describe(&self.script));
        lines.extend(mirrors::describe(&self.mirrors));
        lines.extend([
            format!("xa.profiles = {}", self.xa.describe()),
            format!("xa.interval_seconds = {}", self.xa.interval.as_secs()),
            format!("xa.sweep_seconds = {}", self.xa.sweep.map_or(0, |age| age.as_secs())),
            format!("clients must authenticate: {}", if self.users.is_required() { "yes" } else { "no" }),
        ]);
        lines
    }
}

impl Xa {
    /// The profiles, each with its resource managers.
    pub(crate) fn describe(&self) -> String {
        let names = |profile: &Profile| -> String {
            let names: Vec<&str> = profile.resource_managers.iter().map(|manager| manager.name.as_str()).collect();
            format!("{} ({})", profile.name, names.join(", "))
        };
        match self.profiles.as_slice() {
            [] => "none".to_owned(),
            profiles => profiles.iter().map(names).collect::<Vec<_>>().join(", "),
        }
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let failed = |problem: String| ConfigError::new("", problem).in_file(path);
    let cannot = |error: std::io::Error| failed(format!("cannot be read: {error}"));
    let bytes = std::fs::metadata(path).map_err(cannot)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(failed(format!("{bytes} bytes are too many for a configuration file")));
    }
    std::fs::read_to_string(path).map_err(cannot)
}
