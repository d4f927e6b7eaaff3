//! The simulator's command line: runs seeds, prints each that fails, and proves that runs repeat.
//!
//! May use: the library. Must not know: what is checked.
#![allow(clippy::print_stdout, reason = "a program that reports to its user")]

use std::process::ExitCode;

use holdfast_sim::{Setup, prove};

const USAGE: &str = "usage: holdfast-sim run [--fixed] [--fresh N] [--seed S]... [--steps N] [--verbose]";
const FIXED_SEEDS: u64 = 150;

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok((seeds, steps, verbose)) => simulate(&seeds, steps, verbose),
        Err(wrong) => {
            println!("{wrong}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<(Vec<u64>, u64, bool), String> {
    if words.next().as_deref() != Some("run") {
        return Err("the one command is `run`".into());
    }
    let (mut seeds, mut steps, mut verbose) = (Vec::new(), 300, false);
    while let Some(word) = words.next() {
        let mut number = || {
            let text = words.next().ok_or(format!("{word} wants a number"))?;
            text.parse::<u64>().map_err(|_| format!("{text:?} is not a number"))
        };
        match word.as_str() {
            "--fixed" => seeds.extend(0..FIXED_SEEDS),
            "--fresh" => {
                let count = number()?;
                seeds.extend((0..count).map(|_| base::entropy()));
            }
            "--seed" => seeds.push(number()?),
            "--verbose" => verbose = true,
            "--steps" => steps = number()?,
            other => return Err(format!("unknown option {other:?}")),
        }
    }
    if seeds.is_empty() { Err("no seeds".into()) } else { Ok((seeds, steps, verbose)) }
}

fn simulate(seeds: &[u64], steps: u64, verbose: bool) -> ExitCode {
    let (mut commits, mut crashes, mut compacted, mut failed) = (0, 0, 0, 0);
    println!("seeds: {}", seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
    for seed in seeds {
        match prove(Setup { seed: *seed, steps, lying_disk: false, verbose }) {
            Ok(outcome) => {
                commits += outcome.commits;
                crashes += outcome.crashes;
                compacted += outcome.compacted;
            }
            Err(violation) => {
                failed += 1;
                println!("seed {seed} fails: check {}: {}", violation.check, violation.text);
                println!("  again with: cargo run --release -p holdfast-sim -- run --seed {seed} --steps {steps}");
            }
        }
    }
    println!(
        "{} seeds of {steps} steps, each run twice: {commits} commits, {crashes} crashes, {compacted} segments compacted, \
         {failed} failed",
        seeds.len()
    );
    ExitCode::from(u8::from(failed > 0))
}
