//! What is to be done, as it stands on the command line of both sides of a comparison.
//!
//! May use: `clap`. Must not know: stores.

use clap::{Args, ValueEnum};

use super::keys::Spread;

/// A workload over one store.
#[derive(Debug, Clone, Args)]
pub(crate) struct Plan {
    /// Number of keys that are loaded
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) keys: u64,
    /// Bytes of each value
    #[arg(long, default_value_t = 100)]
    pub(crate) value_bytes: usize,
    /// Threads that call the store, each waiting for its answer
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: u16,
    /// Seconds that each phase after the load takes
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// When a put is acknowledged
    #[arg(long, value_enum, default_value_t = Durability::Written)]
    pub(crate) durability: Durability,
    /// Which keys are asked for
    #[arg(long, value_enum, default_value_t = Spread::Uniform)]
    pub(crate) spread: Spread,
    /// Phases, in this order
    #[arg(long, value_enum, value_delimiter = ',', default_value = "load,put,get,get-absent,head,mixed")]
    pub(crate) phases: Vec<Phase>,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// When a put is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// The operating system has it.
    Written,
    /// It is on stable storage.
    Synced,
}

/// One kind of work, done by all threads until its time is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Phase {
    /// Every key once, in no order; ends when all are there.
    Load,
    /// New values for keys that are there.
    Put,
    /// Values of keys that are there.
    Get,
    /// Keys that are not there.
    GetAbsent,
    /// Whether a key is there, without its value.
    Head,
    /// Five gets for each put.
    Mixed,
}

/// A number of seconds that can be waited for.
pub(crate) fn seconds(said: &str) -> std::result::Result<f64, String> {
    let seconds: f64 = said.parse().map_err(|_| "not a number".to_owned())?;
    if (0.001..=86_400.0).contains(&seconds) { Ok(seconds) } else { Err("not between 0.001 and 86400".to_owned()) }
}

/// The name of a choice on the command line.
fn name(choice: &impl ValueEnum) -> String {
    choice.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl Phase {
    pub(crate) fn name(self) -> String {
        name(&self)
    }
}

impl Plan {
    /// The command line that says this plan again, to another program.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let phases: Vec<String> = self.phases.iter().map(name).collect();
        [
            ("keys", self.keys.to_string()),
            ("value-bytes", self.value_bytes.to_string()),
            ("threads", self.threads.to_string()),
            ("seconds", self.seconds.to_string()),
            ("durability", name(&self.durability)),
            ("spread", name(&self.spread)),
            ("phases", phases.join(",")),
            ("seed", self.seed.to_string()),
        ]
        .into_iter()
        .map(|(flag, value)| format!("--{flag}={value}"))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        plan: Plan,
    }

    #[test]
    fn a_plan_survives_its_own_command_line() {
        let said =
            ["x", "--keys=7", "--spread=pareto", "--phases=load,get-absent", "--durability=synced", "--seconds=0.5"];
        let plan = Line::parse_from(said).plan;
        let again = Line::parse_from(std::iter::once("x".to_owned()).chain(plan.arguments())).plan;
        assert_eq!(format!("{plan:?}"), format!("{again:?}"));
        assert_eq!((again.keys, again.phases), (7, vec![Phase::Load, Phase::GetAbsent]));
    }
}
