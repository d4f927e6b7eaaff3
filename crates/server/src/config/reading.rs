//! From the file's keys and the command line to what is in force: defaults, ranges, words, and what cannot be together.
//!
//! May use: `file`, `bind`, the words' modules. Must not know: how the file was read.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use doors::auth::Users;
use doors::tls::server_config;
use holdfast::{CompactionOptions, Compression, Dial, Limits, TreeSize};
use rustls::ServerConfig;
use tm::{CoordinatorPlace, Pace, Profile, ResourceManagerKind, Switches};

use super::bind::{self, Protection, Verdict};
use super::error::ConfigError;
use super::file::{CompactionTable, File, HttpTable, LimitsTable, RespTable, TlsTable, XaTable};
use super::line::Asked;
use super::schedule::When;
use super::{
    BODIES_BYTES, BODY_BYTES, COMPACTION_BYTES_PER_SECOND, CONNECTIONS, Config, DEAD_PERCENT, DIR, HTTP_PORT,
    HTTP_THREADS, Http, IDLE_SECONDS, INPUT_BYTES, KEEP_BYTES, LEDGER_CACHE_BYTES, LEDGER_MEMORY_BYTES,
    LISTENER_RETAIN_BYTES, OUTPUT_BYTES, PARTITIONS, QUERIES, REACTORS, RECOVERY_SECONDS, RESP_PORT, Resp,
    SCRUB_BYTES_PER_SECOND, SEGMENT_BYTES, SWEEP_SECONDS, VALUE_BYTES, VALUE_CACHE_BYTES, Xa, users,
};
use crate::cli::ServeArguments;
use crate::failure::faults_of;

/// What is needed while a file's keys are turned into a configuration.
pub(super) struct Reading<'a> {
    pub(super) path: Option<&'a Path>,
    pub(super) arguments: &'a ServeArguments,
}

impl Reading<'_> {
    pub(super) fn config(&self, file: File) -> Result<Config, ConfigError> {
        let durability = match (self.arguments.durability, file.durability) {
            (Some(dial), _) => dial,
            (None, Some(words)) => {
                words.parse().map_err(|problem: holdfast::Error| self.wrong("durability", problem.to_string()))?
            }
            (None, None) => Dial::default(),
        };
        let partitions = self.number("partitions", file.partitions, PARTITIONS)?;
        let defaults = holdfast::Options::default();
        let is_line_asked_for = file.line.listen.is_some();
        let mut limits = self.limits(&file.limits)?;
        let series_seconds = file.series.query_seconds_max;
        let series = self.series(file.series, &mut limits)?;
        let mut config = Config {
            dir: self.arguments.dir.clone().or(file.dir.map(|dir| self.beside(dir))).unwrap_or_else(|| DIR.into()),
            durability,
            partitions: self.arguments.partitions.or(partitions).unwrap_or(defaults.partitions),
            limits,
            series,
            compression: file.compression.map_or(defaults.compression, Compression::from),
            ledger_compression: file.ledger_compression.map_or(defaults.ledger_compression, Compression::from),
            tree: self.tree(file.tree.leaves)?,
            compaction: self.compaction(&file.compaction)?,
            scrub_bytes_per_second: self
                .number("scrub.bytes_per_second", file.scrub.bytes_per_second, SCRUB_BYTES_PER_SECOND)?
                .unwrap_or(defaults.scrub_bytes_per_second),
            log: self.arguments.log.or(file.log).unwrap_or_default(),
            resp: self.resp(file.resp)?,
            http: self.http(file.http)?,
            line: self.line(file.line)?,
            script: self.script(&file.script)?,
            xa: self.xa(file.xa)?,
            mirrors: self.mirrors(file.mirrors)?,
            users: Arc::new(match self.path {
                Some(path) => users::users(file.users, path)?,
                None => Users::open(),
            }),
            warnings: Vec::new(),
        };
        self.series_time(series_seconds, (&mut config.resp.limits, &mut config.http.limits))?;
        self.space(&file.space, &mut config.limits, (&mut config.resp.limits, &mut config.http.limits))?;
        for profile in &config.xa.profiles {
            let is_switch = |kind: &ResourceManagerKind| matches!(kind, ResourceManagerKind::Xa { .. });
            let switches = profile.resource_managers.iter().filter(|manager| is_switch(&manager.kind));
            config.warnings.extend(switches.map(|manager| {
                let (profile, name) = (&profile.name, &manager.name);
                format!(
                    "profile {profile}: {name} is a switch in a library, which a server does not run: its branches are recovered by \
                     programs in C, and by `holdfast xa recover`"
                )
            }));
        }
        let asked = if is_line_asked_for { Asked::Yes } else { Asked::No };
        let waived = self.arguments.allow_insecure_bind || file.allow_insecure_bind.unwrap_or(false);
        self.judge(&mut config, waived)?;
        let warnings = self.judge_line(&mut config.line, &config.users, (asked, waived))?;
        config.warnings.extend(warnings);
        self.apart(&config)?;
        Ok(config)
    }

    /// Each door has a place of its own.
    fn apart(&self, config: &Config) -> Result<(), ConfigError> {
        let mut taken = Vec::new();
        for (key, listen) in [
            ("resp.listen", Some(config.resp.listen)),
            ("http.listen", Some(config.http.listen)),
            ("line.listen", config.line.listen),
        ] {
            let Some(listen) = listen.filter(|listen| listen.port() != 0) else { continue };
            if let Some((other, _)) = taken.iter().find(|(_, before)| *before == listen) {
                return Err(
                    self.wrong(key, format!("{listen} is where {other} has another door listen; choose another port"))
                );
            }
            taken.push((key, listen));
        }
        Ok(())
    }

    /// An error at a key of the file.
    pub(super) fn wrong(&self, key: &str, problem: impl Into<String>) -> ConfigError {
        let error = ConfigError::new(key, problem);
        match self.path {
            Some(path) => error.in_file(path),
            None => error,
        }
    }

    pub(super) fn number<T: TryFrom<i64>>(
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

    pub(super) fn address(
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

    fn tree(&self, leaves: Option<i64>) -> Result<Option<TreeSize>, ConfigError> {
        let Some(leaves) = leaves else { return Ok(holdfast::Options::default().tree) };
        if leaves == 0 {
            return Ok(None);
        }
        let size = u32::try_from(leaves).ok().and_then(TreeSize::with_leaves);
        let sizes: Vec<String> = TreeSize::ALL.iter().map(|size| size.leaves().to_string()).collect();
        let problem = || format!("there is no tree of {leaves} leaves; choose {}, or 0 for none", sizes.join(", "));
        size.map(Some).ok_or_else(|| self.wrong("tree.leaves", problem()))
    }

    fn compaction(&self, table: &CompactionTable) -> Result<CompactionOptions, ConfigError> {
        let defaults = CompactionOptions::default();
        let CompactionTable { schedule, bytes_per_second, dead_percent, keep_bytes } = table;
        let schedule = schedule.as_deref().map(str::parse::<When>).transpose();
        let schedule = schedule.map_err(|problem| self.wrong("compaction.schedule", problem))?;
        Ok(CompactionOptions {
            schedule: schedule.map_or(defaults.schedule, |when| when.0),
            bytes_per_second: self
                .number("compaction.bytes_per_second", *bytes_per_second, COMPACTION_BYTES_PER_SECOND)?
                .unwrap_or(defaults.bytes_per_second),
            dead_percent: self
                .number("compaction.dead_percent", *dead_percent, DEAD_PERCENT)?
                .unwrap_or(defaults.dead_percent),
            keep_bytes: self.number("compaction.keep_bytes", *keep_bytes, KEEP_BYTES)?.unwrap_or(defaults.keep_bytes),
        })
    }

    fn resp(&self, table: RespTable) -> Result<Resp, ConfigError> {
        let defaults = doors::resp::Limits::default();
        let output_bytes_max = self
            .number("resp.output_bytes_max", table.output_bytes_max, OUTPUT_BYTES)?
            .unwrap_or(defaults.output_bytes_max);
        let idle: Option<u64> = self.number("resp.idle_timeout_seconds", table.idle_timeout_seconds, IDLE_SECONDS)?;
        Ok(Resp {
            listen: self.address("resp.listen", self.arguments.resp, table.listen, RESP_PORT)?,
            reactors: self
                .number("resp.reactors", table.reactors, REACTORS)?
                .unwrap_or_else(|| one_for(FOR_SINGLE_COMMANDS)),
            pipeline_reactors: self
                .number("resp.pipeline_reactors", table.pipeline_reactors, REACTORS)?
                .unwrap_or_else(|| one_for(FOR_STREAMS)),
            limits: doors::resp::Limits {
                clients_max: self
                    .number("resp.connections_max", table.connections_max, CONNECTIONS)?
                    .unwrap_or(defaults.clients_max),
                output_bytes_max,
                input_bytes_max: self
                    .number("resp.input_bytes_max", table.input_bytes_max, INPUT_BYTES)?
                    .unwrap_or(defaults.input_bytes_max),
                replies_bytes_max: self
                    .number("resp.replies_bytes_max", table.replies_bytes_max, INPUT_BYTES)?
                    .unwrap_or(defaults.replies_bytes_max),
                output_pause_bytes: defaults.output_pause_bytes.min(output_bytes_max),
                ..defaults
            },
            idle_timeout: idle.filter(|seconds| *seconds > 0).map(Duration::from_secs),
            tls: self.tls("resp.tls", table.tls, &[])?,
        })
    }

    fn http(&self, table: HttpTable) -> Result<Http, ConfigError> {
        let defaults = doors::http::Limits::default();
        Ok(Http {
            listen: self.address("http.listen", self.arguments.http, table.listen, HTTP_PORT)?,
            limits: doors::http::Limits {
                connections_max: self
                    .number("http.connections_max", table.connections_max, CONNECTIONS)?
                    .unwrap_or(defaults.connections_max),
                threads_max: self
                    .number("http.threads_max", table.threads_max, HTTP_THREADS)?
                    .unwrap_or(defaults.threads_max),
                queries_max: self
                    .number("http.queries_max", table.queries_max, QUERIES)?
                    .unwrap_or(defaults.queries_max),
                body_bytes_max: self
                    .number("http.body_bytes_max", table.body_bytes_max, BODY_BYTES)?
                    .unwrap_or(defaults.body_bytes_max),
                bodies_bytes_max: self
                    .number("http.bodies_bytes_max", table.bodies_bytes_max, BODIES_BYTES)?
                    .unwrap_or(defaults.bodies_bytes_max),
                ..defaults
            },
            tls: self.tls("http.tls", table.tls, &["http/1.1"])?,
        })
    }

    fn xa(&self, table: XaTable) -> Result<Xa, ConfigError> {
        let interval: Option<u64> = self.number("xa.interval_seconds", table.interval_seconds, RECOVERY_SECONDS)?;
        let interval = interval.map_or(Pace::default().interval, Duration::from_secs);
        let sweep: Option<u64> = self.number("xa.sweep_seconds", table.sweep_seconds, SWEEP_SECONDS)?;
        let sweep = sweep.filter(|age| *age > 0).map(Duration::from_secs);
        let Some(file) = table.profiles_file else {
            return match table.profiles {
                None => Ok(Xa { profiles: Vec::new(), interval, sweep }),
                Some(_) => Err(self.wrong("xa.profiles_file", "this is missing; name the file with the profiles")),
            };
        };
        let file = self.beside(file);
        let mut profiles: Vec<Profile> = Vec::new();
        match &table.profiles {
            // As programs choose that name none.
            None => profiles.push(self.profile(&file, None)?),
            Some(names) if names.is_empty() => {
                return Err(self.wrong("xa.profiles", "the list is empty; name profiles, or leave the key out"));
            }
            Some(names) => {
                for (number, name) in names.iter().enumerate() {
                    if names.iter().take(number).any(|before| before == name) {
                        return Err(self.wrong("xa.profiles", format!("{name} is named twice")));
                    }
                    profiles.push(self.profile(&file, Some(name))?);
                }
            }
        }
        Ok(Xa { profiles, interval, sweep })
    }

    /// A profile whose resource managers the server can look after.
    fn profile(&self, file: &Path, name: Option<&str>) -> Result<Profile, ConfigError> {
        let key = if name.is_some() { "xa.profiles" } else { "xa.profiles_file" };
        let profile = Profile::of_file(file, name).map_err(|error| self.wrong(key, error.to_string()))?;
        let wrong =
            |problem: String| self.wrong(key, format!("{}: profile {}: {problem}", file.display(), profile.name));
        if let CoordinatorPlace::Directory { directory, .. } = &profile.coordinator {
            return Err(wrong(format!(
                "its coordinator is in the directory {}, and so in the programs that use it; the server looks after \
                 profiles whose `servers` name the server itself",
                directory.display()
            )));
        }
        match tm::resource_managers(&profile, Switches::Left) {
            Ok(managers) if managers.is_empty() => {
                Err(wrong("it has no resource manager that the server can ask: no PostgreSQL, no MariaDB".to_owned()))
            }
            Ok(_) => Ok(profile),
            Err(faults) => Err(wrong(faults_of(&faults))),
        }
    }

    fn limits(&self, table: &LimitsTable) -> Result<Limits, ConfigError> {
        let defaults = Limits::default();
        let LimitsTable {
            value_bytes_max,
            segment_bytes,
            ledger_cache_bytes,
            ledger_memory_bytes,
            value_cache_bytes,
            listener_retain_bytes_max,
        } = *table;
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
            value_cache_bytes: self
                .number("limits.value_cache_bytes", value_cache_bytes, VALUE_CACHE_BYTES)?
                .unwrap_or(defaults.value_cache_bytes),
            listener_retain_bytes_max: self
                .number("limits.listener_retain_bytes_max", listener_retain_bytes_max, LISTENER_RETAIN_BYTES)?
                .unwrap_or(defaults.listener_retain_bytes_max),
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
    pub(super) fn beside(&self, path: PathBuf) -> PathBuf {
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

/// One thread for every two processors, for commands that come alone: the kernel's share of the network's work, clients on the same
/// machine and the store's background need the others. With two threads on two processors Redis' own benchmark is a fifth slower.
const FOR_SINGLE_COMMANDS: usize = 2;
/// One for each, where a thread does more with what it has read than the kernel did to bring it: with two threads on two processors
/// 200 clients that send lines at full speed get half as much more through.
pub(super) const FOR_STREAMS: usize = 1;

/// One thread for so many processors.
pub(super) fn one_for(processors_each: usize) -> usize {
    let most = usize::try_from(*REACTORS.end()).expect("a small number");
    std::thread::available_parallelism().map_or(1, |processors| (processors.get() / processors_each).clamp(1, most))
}
