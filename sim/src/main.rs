//! The simulator's command line: runs seeds, prints each that fails, and proves that runs repeat.
//!
//! May use: the library. Must not know: what is checked.
#![allow(clippy::print_stdout, reason = "a program that reports to its user")]

use std::collections::BTreeMap;
use std::process::ExitCode;

use holdfast_sim::{Point, Setup, fixed_seeds, missed, prove, prove_distributed};

const USAGE: &str =
    "usage: holdfast-sim run [--world store|distributed] [--fixed] [--fresh N] [--seed S]... [--steps N] \
                     [--verbose]
without --world both are run";
const FIXED_SEEDS: u64 = 150;

/// What is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum World {
    /// A store: its changes, reads, crashes.
    Store,
    /// Distributed transactions over simulated resource managers.
    Distributed,
}

impl World {
    const ALL: [Self; 2] = [Self::Store, Self::Distributed];

    fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Distributed => "distributed",
        }
    }

    fn steps(self) -> u64 {
        match self {
            Self::Store => 300,
            Self::Distributed => 1500,
        }
    }

    fn fixed(self) -> u64 {
        match self {
            Self::Store => FIXED_SEEDS,
            Self::Distributed => fixed_seeds().end,
        }
    }
}

/// What the command line asks for.
#[derive(Default)]
struct Asked {
    world: Option<World>,
    is_fixed: bool,
    fresh: u64,
    seeds: Vec<u64>,
    steps: Option<u64>,
    is_verbose: bool,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(asked) => {
            let worlds = World::ALL.into_iter().filter(|world| asked.world.is_none_or(|only| only == *world));
            let failed: u64 = worlds.map(|world| simulate(world, &asked)).sum();
            ExitCode::from(u8::from(failed > 0))
        }
        Err(wrong) => {
            println!("{wrong}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
    if words.next().as_deref() != Some("run") {
        return Err("the one command is `run`".into());
    }
    let mut asked = Asked::default();
    while let Some(word) = words.next() {
        let mut next = || words.next().ok_or(format!("{word} wants a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text:?} is not a number"));
        match word.as_str() {
            "--world" => {
                let name = next()?;
                let world = World::ALL.into_iter().find(|world| world.name() == name);
                asked.world = Some(world.ok_or(format!("there is no world {name:?}"))?);
            }
            "--fixed" => asked.is_fixed = true,
            "--fresh" => asked.fresh = number(next()?)?,
            "--seed" => asked.seeds.push(number(next()?)?),
            "--verbose" => asked.is_verbose = true,
            "--steps" => asked.steps = Some(number(next()?)?),
            other => return Err(format!("unknown option {other:?}")),
        }
    }
    let has_seeds = asked.is_fixed || asked.fresh > 0 || !asked.seeds.is_empty();
    if has_seeds { Ok(asked) } else { Err("no seeds".into()) }
}

/// Runs the seeds in one world; how many fail.
fn simulate(world: World, asked: &Asked) -> u64 {
    let fixed = if asked.is_fixed { world.fixed() } else { 0 };
    let fresh = (0..asked.fresh).map(|_| base::entropy());
    let seeds: Vec<u64> = (0..fixed).chain(fresh).chain(asked.seeds.iter().copied()).collect();
    let steps = asked.steps.unwrap_or(world.steps());
    println!("{}: seeds: {}", world.name(), seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
    let mut sums = Sums::default();
    for seed in &seeds {
        let setup = Setup { seed: *seed, steps, lying_disk: false, verbose: asked.is_verbose };
        let run = match world {
            World::Store => prove(setup).map(|outcome| {
                sums.commits += outcome.commits;
                sums.crashes += outcome.crashes;
                sums.compacted += outcome.compacted;
            }),
            World::Distributed => prove_distributed(setup).map(|did| {
                sums.told += did.told;
                sums.crashes += did.kills + did.crashes;
                sums.recovered += did.recovered;
                did.struck.into_iter().for_each(|(at, count)| *sums.struck.entry(at).or_default() += count);
            }),
        };
        if let Err(violation) = run {
            sums.failed += 1;
            println!("seed {seed} fails: check {}: {}", violation.check, violation.text);
            println!(
                "  again with: cargo run --release -p holdfast-sim -- run --world {} --seed {seed} --steps {steps}",
                world.name()
            );
        }
    }
    let name = world.name();
    let (count, Sums { commits, crashes, compacted, told, recovered, failed, struck }) = (seeds.len(), sums);
    match world {
        World::Store => println!(
            "{count} seeds of {steps} steps, each run twice: {commits} commits, {crashes} crashes, {compacted} segments \
             compacted, {failed} failed"
        ),
        World::Distributed => {
            println!(
                "{name}: {count} seeds of {steps} steps, each run twice: {told} outcomes, {crashes} crashes, {recovered} \
                 branches recovered, {failed} failed"
            );
            let missed = if asked.is_fixed { missed(&struck) } else { Vec::new() };
            missed.iter().for_each(|point| println!("no kill struck at {point}"));
            return failed + missed.len() as u64;
        }
    }
    failed
}

#[derive(Default)]
struct Sums {
    commits: u64,
    crashes: u64,
    compacted: u64,
    told: u64,
    recovered: u64,
    failed: u64,
    struck: BTreeMap<(Point, u32), u64>,
}
