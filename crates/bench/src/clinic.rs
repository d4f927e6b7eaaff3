//! `clinic`: a small web application, the example `clinic`, over a space of its process and over PostgreSQL: pages a second.
//!
//! Connections wait for their page before they ask for the next: half of them an owner's page, three in ten a list by the
//! beginning of a name, one in ten the front page, one in ten a visit that is written. Both sides render by the same code.
//!
//! May use: servers, the HTTP client of `series`. Must not know: what pages say.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use base::Random;
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;

use crate::cost::{cpu_of, cpu_of_family};
use crate::databases::{Postgres, runtime};
use crate::figures::{Bar, Unit};
use crate::place::{Common, say};
use crate::process::Running;
use crate::report::{Figure, Report};
use crate::series::http::Http;
use crate::workload::{Failure, Result, seconds};

const SPACE: &str = "space";
const POSTGRES: &str = "postgresql";
/// Filling a database takes a while in a build that is not optimized.
const START_TIME_MAX: Duration = Duration::from_secs(300);
/// Ten times the pages a second and core that were seen of such an application over a space.
const PAGES_PER_CORE: f64 = 2_220.0;
const LATENCY_MAX: f64 = 6e6;

/// The command line of `clinic`.
#[derive(Debug, Args)]
pub(crate) struct Line {
    #[command(flatten)]
    common: Common,
    /// The application: `cargo build --release -p holdfast-examples --example clinic`
    #[arg(long, default_value = "target/release/examples/clinic")]
    app: PathBuf,
    /// Owners of pets
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    owners: u64,
    /// Browsers
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=80))]
    clients: u16,
    /// When a visit is answered, on both sides: with the system, or on the disk
    #[arg(long, value_enum, value_delimiter = ',', default_value = "written,synced")]
    durability: Vec<Kept>,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
}

/// When a write is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kept {
    Written,
    Synced,
}

/// What one side came to.
struct Measured {
    pages: u64,
    seconds: f64,
    latency: Histogram<u64>,
    /// Of the application and its database.
    cpu: Duration,
}

/// Runs the benchmark.
pub(crate) fn run(line: &Line) -> Result<()> {
    let mut report = Report::new("clinic");
    for repetition in line.common.repetitions() {
        for kept in &line.durability {
            let name = format!("{kept:?}").to_lowercase();
            let work = format!("{} browsers, {} owners, {name}", line.clients, line.owners);
            let mut sides = [SPACE, POSTGRES];
            if repetition % 2 == 1 {
                sides.reverse();
            }
            for side in sides {
                say(&format!("  {side}, {name}"));
                let measured = line.measure(side, &name)?;
                tell(&mut report, &work, side, &measured);
            }
        }
    }
    report.print(line.common.json.as_deref())
}

impl Line {
    fn measure(&self, side: &str, kept: &str) -> Result<Measured> {
        let dir = self.common.fresh()?;
        let commit: &[&str] = if kept == "written" { &["synchronous_commit=off"] } else { &[] };
        let database = if side == POSTGRES { Some(Postgres::start(&dir, commit)?) } else { None };
        let mut command = Command::new(&self.app);
        command.args(["--listen", "127.0.0.1:0", "--durability", kept]).arg("--owners").arg(self.owners.to_string());
        match &database {
            Some(database) => command.arg("--postgres").arg(&database.connection),
            None => command.arg("--dir").arg(dir.path()),
        };
        let mut app = Running::start(&mut command, Path::new(&self.app))?;
        let said = app.once_it_says("ready", START_TIME_MAX)?;
        let address = said.iter().find_map(|line| line.strip_prefix("http ")?.parse().ok());
        let address: SocketAddr = address.ok_or("the application did not say where it listens")?;
        let cpu = || -> Result<Duration> {
            let behind = database.as_ref().map(|database| cpu_of_family(database.process)).transpose()?;
            Ok(cpu_of(app.id())? + behind.unwrap_or_default())
        };
        let before = cpu()?;
        let began = Instant::now();
        let time = Duration::from_secs_f64(self.seconds);
        let (pages, latency) = runtime()?.block_on(async {
            // In one task set on one thread: the client costs as little as it can.
            let mut browsers = tokio::task::JoinSet::new();
            for number in 0..u64::from(self.clients) {
                browsers.spawn(browse(address, number, self.owners, began + time));
            }
            let mut all = (0, Histogram::<u64>::new(3).map_err(|error| Failure::from(error.to_string()))?);
            while let Some(browser) = browsers.join_next().await {
                let (pages, latency) = browser.map_err(|error| Failure::from(error.to_string()))??;
                all.0 += pages;
                all.1.add(&latency).map_err(|error| Failure::from(error.to_string()))?;
            }
            Result::Ok(all)
        })?;
        let seconds = began.elapsed().as_secs_f64();
        let cpu = cpu()?.saturating_sub(before);
        Ok(Measured { pages, seconds, latency, cpu })
    }
}

/// Asks for page after page until the time is over.
async fn browse(address: SocketAddr, number: u64, owners: u64, until: Instant) -> Result<(u64, Histogram<u64>)> {
    let mut random = Random::new(number + 1);
    let mut latency = Histogram::new(3).map_err(|error| Failure::from(error.to_string()))?;
    let mut http = Http::connect(address).await?;
    let mut pages = 0;
    while Instant::now() < until {
        let (request, wanted) = request(random.below(10), 1 + random.below(owners));
        let began = Instant::now();
        let status = http.exchange(request.as_bytes()).await?;
        let _ = latency.record(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        if status != wanted {
            return Err(format!("the application answered {status} and not {wanted} to: {request}").into());
        }
        pages += 1;
    }
    Ok((pages, latency))
}

/// A request, and the status that it is to have.
fn request(dice: u64, owner: u64) -> (String, u16) {
    const NAMES: [&str; 4] = ["Smith", "Miller", "Garcia", "Moore"];
    let get = |path: String| (format!("GET {path} HTTP/1.1\r\nHost: clinic\r\n\r\n"), 200);
    match dice {
        0 => get("/".to_owned()),
        1..=3 => {
            let name = NAMES.get(usize::try_from(owner % 4).unwrap_or(0)).unwrap_or(&"Smith");
            get(format!("/owners?last={name}{:02}", owner % 100))
        }
        4 => {
            let form = "date=2026-05-01&description=looks+tired+and+does+not+eat";
            // The first pet of each owner has this number.
            let path = format!("/owners/{owner}/pets/{}/visits", owner * 10);
            let head = format!("POST {path} HTTP/1.1\r\nHost: clinic\r\nContent-Length: {}\r\n\r\n", form.len());
            (head + form, 303)
        }
        _ => get(format!("/owners/{owner}")),
    }
}

fn tell(report: &mut Report, work: &str, side: &str, measured: &Measured) {
    let mut add = |figure: &str, unit, sample, bar: Option<Bar>| {
        let of = Figure { work, figure, unit };
        report.sides(of, &[SPACE, POSTGRES]);
        report.add(of, side, sample);
        if let Some(bar) = bar {
            report.bar(of, bar);
        }
    };
    add("page views", Unit::PerSecond, measured.pages as f64 / measured.seconds, None);
    let cores = measured.cpu.as_secs_f64().max(1e-3);
    add("page views by a core", Unit::PerSecond, measured.pages as f64 / cores, Some(Bar::AtLeast(PAGES_PER_CORE)));
    for (figure, quantile) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
        let bar = (figure == "p90").then_some(Bar::Below(LATENCY_MAX));
        add(figure, Unit::Nanos, measured.latency.value_at_quantile(quantile) as f64, bar);
    }
}
