//! The `holdfast-bench` program: one subcommand for each benchmark. See docs/benchmarks.md.
//!
//! May use: everything below it. Must not know: how any benchmark measures.

mod client;
mod clinic;
mod cost;
mod databases;
mod figures;
mod journal;
mod kv;
mod open;
mod place;
mod process;
mod report;
mod resp;
mod rss;
mod series;
mod space;
mod workload;
mod xa;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workload::Result;

/// Measures Holdfast, and what it is compared to, in one run.
#[derive(Debug, Parser)]
#[command(name = "holdfast-bench", version)]
struct Line {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// The journal alone: against a bare sync, by number of writers, and unsynced
    Journal(journal::Line),
    /// The volume tests of leveled and Riak: Holdfast embedded or over RESP, alone or beside other stores
    Kv(kv::Kv),
    /// The RESP door beside Redis, driven by redis-benchmark
    Resp(resp::Line),
    /// Opening a store with a large journal after a kill and after a clean stop
    Open(open::Line),
    /// Memory of the server, idle and loaded, beside Redis
    Rss(rss::Line),
    /// Entries of the object space: latency, throughput, hand-off, memory, restart
    Space(space::Line),
    /// Pages of a small web application over a space, beside the same over PostgreSQL
    Clinic(clinic::Line),
    /// Time series: points in by five ways and answers out, beside VictoriaMetrics and InfluxDB
    Series(Box<series::Line>),
    /// Distributed transactions over two resource managers that answer at once
    Xa(xa::Line),
    /// The same statements in PostgreSQL and MariaDB, as one distributed transaction and as two local ones
    XaPrice(xa::Price),
    /// The coordinator of `xa`, started by it
    #[command(hide = true)]
    XaServe(xa::Serve),
    /// One side of `kv`, started by it
    #[command(hide = true)]
    KvSide(kv::Side),
    /// The writer that `space` kills, started by it
    #[command(hide = true)]
    SpaceFill(space::Fill),
    /// A program of the tiers of `space --work flow`, started by it
    #[command(hide = true)]
    SpaceFlowWorker(space::Worker),
    /// The writer that `open` kills, started by it
    #[command(hide = true)]
    OpenFill(open::Fill),
}

fn main() -> ExitCode {
    match run(&Line::parse().bench) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            place::say(&format!("holdfast-bench: {failure}"));
            ExitCode::FAILURE
        }
    }
}

fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Journal(line) => journal::run(line),
        Bench::Kv(line) => kv::run(line),
        Bench::Resp(line) => resp::run(line),
        Bench::Open(line) => open::run(line),
        Bench::Rss(line) => rss::run(line),
        Bench::Space(line) => space::run(line),
        Bench::Clinic(line) => clinic::run(line),
        Bench::Series(line) => series::run(line),
        Bench::Xa(line) => xa::run(line),
        Bench::XaPrice(line) => xa::price(line),
        Bench::XaServe(line) => xa::serve(line),
        Bench::KvSide(side) => kv::run_side(side),
        Bench::SpaceFill(fill) => space::fill(fill),
        Bench::SpaceFlowWorker(worker) => space::work(worker),
        Bench::OpenFill(fill) => open::fill(fill),
    }
}
