//! The configuration in force: defaults, then the file, then the command line; checked before anything is opened.
//!
//! docs/operations/configuration.md describes every key with unit, default and range; the constants here are its source.
//!
//! May use: the facade, the doors' options. Must not know: how the program starts and stops.

mod bind;
mod dial;
mod error;
mod file;
mod log;
#[cfg(test)]
mod tests;
mod users;

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use doors::auth::Users;
use doors::tls::server_config;
use holdfast::Limits;
use rustls::ServerConfig;

use crate::cli::ServeArguments;
use crate::failure::Failure;
use crate::output::say;
use bind::{Protection, Verdict};
use file::{File, LimitsTable, TlsTable};

pub(crate) use dial::Dial;
pub(crate) use error::ConfigError;
pub(crate) use log::LogLevel;

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
/// Zero is never.
const SCRUB_BYTES_PER_SECOND: RangeInclusive<i64> = 0..=1 << 40;
const REACTORS: RangeInclusive<i64> = 1..=64;
const CONNECTIONS: RangeInclusive<i64> = 1..=1_000_000;
/// Zero is never.
const IDLE_SECONDS: RangeInclusive<i64> = 0..=31_536_000;
const OUTPUT_BYTES: RangeInclusive<i64> = 1 << 20..=1 << 32;

/// Everything that is configured.
pub(crate) struct Config {
    pub(crate) dir: PathBuf,
    pub(crate) durability: Dial,
    pub(crate) partitions: u16,
    pub(crate) limits: Limits,
    pub(crate) scrub_bytes_per_second: u64,
    pub(crate) log: LogLevel,
    pub(crate) resp: Resp,
    pub(crate) http: Http,
    pub(crate) users: Arc<Users>,
    /// What the operator should know though it is no mistake.
    pub(crate) warnings: Vec<String>,
}

/// The RESP door.
pub(crate) struct Resp {
    pub(crate) listen: SocketAddr,
    pub(crate) reactors: usize,
    pub(crate) limits: doors::resp::Limits,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) tls: Option<Arc<ServerConfig>>,
}

/// The HTTP door.
pub(crate) struct Http {
    pub(crate) listen: SocketAddr,
    pub(crate) tls: Option<Arc<ServerConfig>>,
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
        vec![
            format!("dir = {}", self.dir.display()),
            format!("durability = {}", self.durability),
            format!("partitions = {} (of a new store)", self.partitions),
            format!("limits.value_bytes_max = {}", self.limits.value_bytes_max),
            format!("limits.segment_bytes = {}", self.limits.segment_bytes),
            format!("limits.ledger_cache_bytes = {}", self.limits.ledger_cache_bytes),
            format!("limits.ledger_memory_bytes = {}", self.limits.ledger_memory_bytes),
            format!("scrub_bytes_per_second = {}", self.scrub_bytes_per_second),
            format!("resp.listen = {}{}", self.resp.listen, tls(&self.resp.tls)),
            format!("resp.reactors = {}", self.resp.reactors),
            format!("resp.connections_max = {}", self.resp.limits.clients_max),
            format!("resp.output_bytes_max = {}", self.resp.limits.output_bytes_max),
            format!("idle RESP connections are closed {idle}"),
            format!("http.listen = {}{}", self.http.listen, tls(&self.http.tls)),
            format!("clients must authenticate: {}", if self.users.is_required() { "yes" } else { "no" }),
        ]
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

/// What is needed while a file's keys are turned into a configuration.
struct Reading<'a> {
    path: Option<&'a Path>,
    arguments: &'a ServeArguments,
}

impl Reading<'_> {
    fn config(&self, file: File) -> Result<Config, ConfigError> {
        let durability = match (self.arguments.durability, file.durability) {
            (Some(dial), _) => dial,
            (None, Some(words)) => words.parse().map_err(|problem: String| self.wrong("durability", problem))?,
            (None, None) => Dial::default(),
        };
        let partitions = self.number("partitions", file.partitions, PARTITIONS)?;
        let defaults = doors::resp::Limits::default();
        let output_bytes_max = self
            .number("resp.output_bytes_max", file.resp.output_bytes_max, OUTPUT_BYTES)?
            .unwrap_or(defaults.output_bytes_max);
        let idle: Option<u64> =
            self.number("resp.idle_timeout_seconds", file.resp.idle_timeout_seconds, IDLE_SECONDS)?;
        let clients_max = self.number("resp.connections_max", file.resp.connections_max, CONNECTIONS)?;
        let mut config = Config {
            dir: self.arguments.dir.clone().or(file.dir.map(|dir| self.beside(dir))).unwrap_or_else(|| DIR.into()),
            durability,
            partitions: self.arguments.partitions.or(partitions).unwrap_or(holdfast::Options::default().partitions),
            limits: self.limits(&file.limits)?,
            scrub_bytes_per_second: self
                .number("scrub_bytes_per_second", file.scrub_bytes_per_second, SCRUB_BYTES_PER_SECOND)?
                .unwrap_or(holdfast::Options::default().scrub_bytes_per_second),
            log: self.arguments.log.or(file.log).unwrap_or_default(),
            resp: Resp {
                listen: self.address("resp.listen", self.arguments.resp, file.resp.listen, RESP_PORT)?,
                reactors: self.number("resp.reactors", file.resp.reactors, REACTORS)?.unwrap_or(2),
                limits: doors::resp::Limits {
                    clients_max: clients_max.unwrap_or(defaults.clients_max),
                    output_bytes_max,
                    output_pause_bytes: defaults.output_pause_bytes.min(output_bytes_max),
                    ..defaults
                },
                idle_timeout: idle.filter(|seconds| *seconds > 0).map(Duration::from_secs),
                tls: self.tls("resp.tls", file.resp.tls, &[])?,
            },
            http: Http {
                listen: self.address("http.listen", self.arguments.http, file.http.listen, HTTP_PORT)?,
                tls: self.tls("http.tls", file.http.tls, &["http/1.1"])?,
            },
            users: Arc::new(match self.path {
                Some(path) => users::users(file.users, path)?,
                None => Users::open(),
            }),
            warnings: Vec::new(),
        };
        let waived = self.arguments.allow_insecure_bind || file.allow_insecure_bind.unwrap_or(false);
        self.judge(&mut config, waived)?;
        Ok(config)
    }

    /// An error at a key of the file.
    fn wrong(&self, key: &str, problem: impl Into<String>) -> ConfigError {
        let error = ConfigError::new(key, problem);
        match self.path {
            Some(path) => error.in_file(path),
            None => error,
        }
    }

    fn number<T: TryFrom<i64>>(
        &self,
        key: &str,
        given: Option<i64>,
        range: RangeInclusive<i64>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(given) = given else { return Ok(None) };
        let number = Some(given).filter(|given| range.contains(given)).and_then(|given| T::try_from(given).ok());
        let (min, max) = (range.start(), range.end());
        let problem = || format!("{given} is out of range; choose a number from {min} to {max}");
        number.map(Some).ok_or_else(|| self.wrong(key, problem()))
    }

    fn address(
        &self,
        key: &str,
        argument: Option<SocketAddr>,
        given: Option<String>,
        port: u16,
    ) -> Result<SocketAddr, ConfigError> {
        match (argument, given) {
            (Some(address), _) => Ok(address),
            (None, Some(text)) => text.parse().map_err(|_| {
                let problem = format!("`{text}` is no address with a port; write for example \"127.0.0.1:{port}\"");
                self.wrong(key, problem)
            }),
            (None, None) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        }
    }

    fn limits(&self, table: &LimitsTable) -> Result<Limits, ConfigError> {
        let defaults = Limits::default();
        let LimitsTable { value_bytes_max, segment_bytes, ledger_cache_bytes, ledger_memory_bytes } = *table;
        let memory: Option<u64> =
            self.number("limits.ledger_memory_bytes", ledger_memory_bytes, LEDGER_MEMORY_BYTES)?;
        Ok(Limits {
            value_bytes_max: self
                .number("limits.value_bytes_max", value_bytes_max, VALUE_BYTES)?
                .unwrap_or(defaults.value_bytes_max),
            segment_bytes: self
                .number("limits.segment_bytes", segment_bytes, SEGMENT_BYTES)?
                .unwrap_or(defaults.segment_bytes),
            ledger_cache_bytes: self
                .number("limits.ledger_cache_bytes", ledger_cache_bytes, LEDGER_CACHE_BYTES)?
                .unwrap_or(defaults.ledger_cache_bytes),
            ledger_memory_bytes: memory.unwrap_or(defaults.ledger_memory_bytes),
            // Writers wait at the same multiple as by default.
            ledger_memory_bytes_max: memory.map_or(defaults.ledger_memory_bytes_max, |bytes| {
                bytes.saturating_mul(defaults.ledger_memory_bytes_max / defaults.ledger_memory_bytes.max(1))
            }),
            ..defaults
        })
    }

    fn tls(
        &self,
        key: &str,
        table: Option<TlsTable>,
        protocols: &[&str],
    ) -> Result<Option<Arc<ServerConfig>>, ConfigError> {
        let Some(TlsTable { certificate, key: private }) = table else { return Ok(None) };
        let missing = |name: &str| self.wrong(&format!("{key}.{name}"), "this is missing; name a PEM file");
        let certificate = certificate.ok_or_else(|| missing("certificate"))?;
        let private = private.ok_or_else(|| missing("key"))?;
        let config = server_config(&self.beside(certificate), &self.beside(private), protocols);
        config.map(Some).map_err(|error| self.wrong(key, error.to_string()))
    }

    /// A path of the file is relative to the folder that the file is in.
    fn beside(&self, path: PathBuf) -> PathBuf {
        match self.path.and_then(Path::parent) {
            Some(folder) => folder.join(path),
            None => path,
        }
    }

    fn judge(&self, config: &mut Config, waived: bool) -> Result<(), ConfigError> {
        let doors = [
            ("resp", config.resp.listen, config.resp.tls.is_some(), self.arguments.resp.is_some()),
            ("http", config.http.listen, config.http.tls.is_some(), self.arguments.http.is_some()),
        ];
        for (door, listen, tls, from_arguments) in doors {
            let protection = Protection { users: config.users.is_required(), tls, waived };
            match bind::judge(listen, protection, door) {
                Ok(Verdict::Fine) => {}
                Ok(Verdict::Warn(text)) => config.warnings.push(format!("{door} on {listen}: {text}")),
                Err(problem) if from_arguments => return Err(ConfigError::new(format!("--{door}"), problem)),
                Err(problem) => return Err(self.wrong(&format!("{door}.listen"), problem)),
            }
        }
        Ok(())
    }
}
