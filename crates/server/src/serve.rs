//! `holdfast serve`: opens the store, then the doors, then recovers; waits for the end; closes all of it.
//!
//! starting -> serving -> stopping. A signal while starting ends the program at once, which is as safe as any kill; one
//! while serving lets running commands finish; one more while stopping ends the program at once.
//!
//! May use: everything in this crate, tokio. Must not know: protocols.

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::{Arc, Weak};

use doors::http::{self, NumbersSource};
use doors::line;
use doors::numbers::RecoverySource;
use doors::resp::{self, ShutdownHook};
use holdfast::Store;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tracing::level_filters::LevelFilter;

use crate::announce::{Doors, announce};
use crate::cli::ServeArguments;
use crate::config::{Config, LogLevel};
use crate::continuous::{self, Runner};
use crate::failure::Failure;
use crate::mirrors::Mirrors;
use crate::output::{complain, say};
use crate::progress;
use crate::recovery::{self, Counts, Recoverer};
use crate::signals::Signals;

/// Files that the program opens beside its connections: segments, the ledger's tables, sockets.
const DESCRIPTORS_SPARE: u64 = 1024;

/// Runs until a signal, or SHUTDOWN from a client.
pub(crate) fn serve(arguments: &ServeArguments) -> Result<ExitCode, Failure> {
    let mut config = Config::load(arguments)?;
    start_log(config.log);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    // Of huge pages from the start, the allocator holds on to each as long as a byte of it is used, and under points that come by HTTP the
    // process takes three times as much (measured).
    let large_pages = base::use_small_pages();
    let (resp, http, line) = (&mut config.resp.limits, &mut config.http.limits, &mut config.line.limits);
    fit_descriptors([&mut resp.clients_max, &mut http.connections_max, &mut line.connections_max]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Start)?;
    runtime.block_on(run(config, large_pages))?;
    Ok(ExitCode::SUCCESS)
}

/// Looks whether the doors' addresses are free before a first start makes a store: one that cannot be served is not left behind.
/// A store that is there says first if another process has it.
fn check_free(config: &Config) -> Result<(), Failure> {
    if config.dir.join("store").exists() {
        return Ok(());
    }
    let free = |address: SocketAddr| {
        TcpListener::bind(address).map(drop).map_err(|source| doors::ServeError::Listen { address, source })
    };
    free(config.resp.listen).map_err(Failure::Resp)?;
    free(config.http.listen).map_err(Failure::Http)
}

async fn run(config: Config, large_pages: bool) -> Result<(), Failure> {
    check_free(&config)?;
    let mut signals = Signals::watch().map_err(Failure::Start)?;
    let (dir, options) = (config.dir.clone(), options(&config, large_pages));
    let opening = spawn_blocking(move || Store::open(&dir, options));
    let store = tokio::select! {
        opened = opening => opened.map_err(|error| Failure::Start(error.into()))?,
        caught = signals.next() => {
            complain(format_args!("{}: ended while opening the store", caught.name));
            std::process::exit(0);
        }
    };
    let store = store.map_err(|error| Failure::Open { dir: config.dir.clone(), error })?;
    let partitions = store.stats().partitions;
    if partitions != config.partitions {
        let asked = config.partitions;
        tracing::info!(
            "the store was made with {partitions} partitions and keeps them; {asked} would be those of a new one"
        );
    }

    // Before anybody can write: what a target has not is held from here on.
    let (followed, plans) = (store.clone(), config.mirrors.clone());
    let mirrors = spawn_blocking(move || Mirrors::start(&followed, &plans));
    let mirrors = mirrors.await.map_err(|error| Failure::Start(error.into()))??;
    store.release_compaction();
    let shutdown = Arc::new(Notify::new());
    let counts = Arc::new(Counts::new(&config.xa));
    let resp = Arc::new(open_resp(&config, &store, &shutdown, (&counts, &mirrors))?);
    let line = open_line(&config, &store)?.map(Arc::new);
    let continuous = Arc::new(continuous::Counts::default());
    let http = open_http(&config, &store, (&resp, line.as_ref()), (&counts, &continuous, &mirrors))?;
    let (asked, profiles) = (store.clone(), config.xa.profiles.clone());
    spawn_blocking(move || recovery::check_coordinators(&asked, &profiles))
        .await
        .map_err(|error| Failure::Start(error.into()))??;
    let recoverer = Recoverer::start(&store, &config.xa, &counts)?;
    let runner = Runner::start(&store, &continuous)?;
    let doors = Doors {
        resp: resp.local_addr(),
        http: http.local_addr(),
        line: line.as_ref().map(|line| line.local_addr()),
        udp: line.as_ref().and_then(|line| line.udp_addr()),
    };
    announce(&config, &store, &doors);
    say("ready");

    let why = tokio::select! {
        caught = signals.next() => caught.name,
        () = shutdown.notified() => "SHUTDOWN",
    };
    say(format_args!("stopping ({why})"));
    let stopping = spawn_blocking(move || {
        mirrors.request_stop();
        // First the door that asks the other ones for their numbers.
        http.stop();
        drop((resp, line));
        drop(recoverer);
        drop(runner);
        drop(mirrors);
        store.close()
    });
    tokio::select! {
        stopped = stopping => {
            stopped.map_err(|error| Failure::Start(error.into()))?.map_err(Failure::Close)?;
            say("stopped");
            Ok(())
        }
        caught = signals.next() => {
            complain(format_args!("{}: ended before everything was closed; acknowledged data is safe", caught.name));
            std::process::exit(caught.exit_code);
        }
    }
}

fn options(config: &Config, large_pages: bool) -> holdfast::Options {
    holdfast::Options {
        durability: config.durability.0,
        partitions: config.partitions,
        limits: config.limits.clone(),
        compression: config.compression,
        ledger_compression: config.ledger_compression,
        tree: config.tree,
        compaction: config.compaction,
        holds_compaction: !config.mirrors.is_empty(),
        scrub_bytes_per_second: config.scrub_bytes_per_second,
        series: config.series.clone(),
        trouble: Some(Arc::new(|word: &str| tracing::warn!("{word}"))),
        progress: Some(progress::show("replaying the journal")),
        large_pages,
    }
}

/// What the doors tell of recovery.
fn source(counts: &Arc<Counts>) -> RecoverySource {
    let counts = Arc::clone(counts);
    Arc::new(move || counts.numbers())
}

fn open_resp(
    config: &Config,
    store: &Store,
    shutdown: &Arc<Notify>,
    (counts, mirrors): (&Arc<Counts>, &Mirrors),
) -> Result<resp::Running, Failure> {
    let shutdown = Arc::clone(shutdown);
    let on_shutdown: ShutdownHook = Arc::new(move || shutdown.notify_one());
    let options = resp::Options {
        reactors: config.resp.reactors,
        pipeline_reactors: config.resp.pipeline_reactors,
        limits: config.resp.limits.clone(),
        tls: config.resp.tls.clone(),
        users: Arc::clone(&config.users),
        idle_timeout: config.resp.idle_timeout,
        on_shutdown: Some(on_shutdown),
        script: config.script.clone(),
        recovery: Some(source(counts)),
        read_through: mirrors.read_through(),
        ..resp::Options::new(config.resp.listen)
    };
    resp::serve(store.clone(), options).map_err(Failure::Resp)
}

/// `None` when it is off.
fn open_line(config: &Config, store: &Store) -> Result<Option<line::Running>, Failure> {
    let Some(listen) = config.line.listen else { return Ok(None) };
    let options = line::Options {
        udp_listen: config.line.udp_listen,
        reactors: config.line.reactors,
        limits: config.line.limits.clone(),
        database: config.line.database.clone(),
        delay: config.line.delay,
        durability: config.line.durability,
        idle_timeout: config.line.idle_timeout,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..line::Options::new(listen)
    };
    line::serve(store.clone(), options).map(Some).map_err(Failure::Line)
}

fn open_http(
    config: &Config,
    store: &Store,
    (resp, line): (&Arc<resp::Running>, Option<&Arc<line::Running>>),
    (counts, continuous, mirrors): (&Arc<Counts>, &Arc<continuous::Counts>, &Mirrors),
) -> Result<http::Running, Failure> {
    let (scripts, run) = (Some(resp.scripts()), resp.run_id().to_owned());
    // Weak, so that the HTTP door does not keep the other ones open.
    let resp: Weak<resp::Running> = Arc::downgrade(resp);
    let numbers: NumbersSource = Arc::new(move || resp.upgrade().map(|resp| resp.numbers()).unwrap_or_default());
    let mut doors = vec![("resp".to_owned(), numbers)];
    if let Some(line) = line {
        let line: Weak<line::Running> = Arc::downgrade(line);
        let numbers: NumbersSource = Arc::new(move || line.upgrade().map(|line| line.numbers()).unwrap_or_default());
        doors.push(("line".to_owned(), numbers));
    }
    let continuous = Arc::clone(continuous);
    let options = http::Options {
        limits: config.http.limits.clone(),
        tls: config.http.tls.clone(),
        users: Arc::clone(&config.users),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        doors,
        recovery: Some(source(counts)),
        continuous: Some(Arc::new(move || continuous.numbers())),
        mirrors: Some(Arc::new(mirrors.numbers())),
        read_through: mirrors.read_through(),
        run,
        scripts,
        ..http::Options::new(config.http.listen)
    };
    http::serve(store.clone(), options).map_err(Failure::Http)
}

fn start_log(level: LogLevel) {
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::from(level)).with_ansi(false);
    // Where a line cannot be written, saying so cannot either, and would end whatever thread wanted to log.
    log.with_writer(std::io::stderr).log_internal_errors(false).init();
}

/// Raises the limit of open files as far as an ordinary process may: a connection is one. When that is too few, there are fewer
/// connections, so that the store has files for what they write.
fn fit_descriptors(connections_max: [&mut usize; 3]) {
    let wanted = connections_max.iter().map(|max| **max as u64).sum::<u64>() + DESCRIPTORS_SPARE;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return;
    }
    let raised = Some(maximum.map_or(wanted, |maximum| maximum.min(wanted)));
    let done = setrlimit(Resource::Nofile, Rlimit { current: raised, maximum });
    let Some(available) = if done.is_ok() { raised } else { current }.filter(|available| *available < wanted) else {
        return;
    };
    tracing::warn!(
        available,
        wanted,
        "fewer files may be open than connections_max needs, so there may be fewer connections; raise the limit (LimitNOFILE, ulimit -n)"
    );
    for max in connections_max {
        *max = fitting(*max as u64, wanted, available);
    }
}

/// How many of `max` connections there may be, when files are short: the store has its own first, or half of what there is.
fn fitting(max: u64, wanted: u64, available: u64) -> usize {
    let left = available - DESCRIPTORS_SPARE.min(available / 2);
    let fair = u128::from(max) * u128::from(left) / u128::from((wanted - DESCRIPTORS_SPARE).max(1));
    usize::try_from(fair).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_to_the_store() {
        for available in [3u64, 64, 256, 1024, 4096, 12_535] {
            let all = [10_000u64, 512, 1000].map(|max| fitting(max, 11_512 + DESCRIPTORS_SPARE, available) as u64);
            let store = available.saturating_sub(all.iter().sum());
            assert!(store >= (available / 2).min(DESCRIPTORS_SPARE) || available < 10, "{available}: {all:?}");
            assert!(all.iter().all(|max| *max > 0) && all[0] >= all[1]);
        }
    }
}
