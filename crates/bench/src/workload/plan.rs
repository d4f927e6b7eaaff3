//! What is to be done, as it stands on the command line of every side of a comparison.
//!
//! May use: `clap`. Must not know: stores.

use clap::{Args, ValueEnum};

use super::keys::Spread;
use super::sizes::Sizes;

/// Entries of one object at most.
const ENTRIES_MAX: i64 = 64;

/// Workloads over one store.
#[derive(Debug, Clone, Args)]
pub(crate) struct Plan {
    /// Workloads, in this order on one store; those that need objects get a `load` first
    #[arg(value_enum, value_delimiter = ',', default_value = "load,update,get,get-absent,head,mix5")]
    pub(crate) workloads: Vec<Workload>,
    /// Number of objects that a load puts, and N of the key distributions
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub(crate) objects: u64,
    /// Bytes of each value: a number, one of KiB such as 8k, or mix (semi-compressible, 5 kB and more)
    #[arg(long, default_value_t = Sizes::Bytes(100))]
    pub(crate) value: Sizes,
    /// Which keys are asked for; `update` and `compact` use pareto unless this is said
    #[arg(long, value_enum)]
    pub(crate) keys: Option<Spread>,
    /// Callers that wait for their answers; several numbers are measured one after the other, each with a fresh store
    #[arg(long, value_delimiter = ',', default_value = "10", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) clients: Vec<u16>,
    /// When a put is acknowledged
    #[arg(long, value_enum, default_value_t = Durability::Written)]
    pub(crate) durability: Durability,
    /// Seconds that each workload after the load takes
    #[arg(long, default_value_t = 2.0, value_parser = seconds, conflicts_with = "ops")]
    pub(crate) seconds: f64,
    /// Operations of each workload after the load, of all callers together, instead of seconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) ops: Option<u64>,
    /// Open loop: so many operations a second are begun, of all callers together, and latency counts from when each
    /// should have begun
    #[arg(long, value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// Seconds of one interval of the report
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    pub(crate) interval: f64,
    /// Index entries of an object, in workloads with an index
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=ENTRIES_MAX))]
    pub(crate) index_entries: u8,
    /// Whether the store is told to compress values; for `mix` lz4 unless this is said
    #[arg(long, value_enum)]
    pub(crate) compression: Option<Compression>,
    /// Empty the page cache of the store's files before each workload after the load; the store's own caches stay as they are
    #[arg(long)]
    pub(crate) cold: bool,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// When a put is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// The operating system has it.
    Written,
    /// The operating system has it, and a sync follows within 10 ms.
    Window,
    /// It is on stable storage.
    Synced,
}

/// How a store is told to compress values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compression {
    /// Not at all.
    None,
    /// LZ4.
    Lz4,
}

/// One kind of work, done by all callers until its time is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Every object once, in no order or with --keys sequential in order; ends when all are there.
    Load,
    /// Values of objects that are there.
    Get,
    /// Keys that are not there.
    GetAbsent,
    /// Whether a key is there, without its value.
    Head,
    /// New values, over the distribution of keys.
    Update,
    /// Five gets for each put; alone, from an empty store.
    Mix5,
    /// 100 gets, 10 puts, 10 puts with index entries, a range of births, a range of postcodes; alone, from empty.
    Index,
    /// Everything that is known of every object, without values.
    FoldHeads,
    /// Every object with its value.
    FoldObjects,
    /// Ranges of about a thousand index entries with their terms.
    IndexRange,
    /// The tree that replicas are compared by is built anew, again and again, beside five gets for each put.
    Aae,
    /// New values while the store makes room; then its background work is waited for, then it is compacted.
    Compact,
}

/// A number of seconds that can be waited for.
pub(crate) fn seconds(said: &str) -> std::result::Result<f64, String> {
    let seconds: f64 = said.parse().map_err(|_| "not a number".to_owned())?;
    if (0.001..=864_000.0).contains(&seconds) { Ok(seconds) } else { Err("not between 0.001 and 864000".to_owned()) }
}

pub(crate) fn rate(said: &str) -> std::result::Result<f64, String> {
    let rate: f64 = said.parse().map_err(|_| "not a number".to_owned())?;
    if (0.01..=1e8).contains(&rate) { Ok(rate) } else { Err("not between 0.01 and 100000000".to_owned()) }
}

/// The name of a choice on the command line.
fn name(choice: &impl ValueEnum) -> String {
    choice.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl Workload {
    pub(crate) fn name(self) -> String {
        name(&self)
    }

    /// Whether it says nothing about an empty store.
    fn needs_objects(self) -> bool {
        !matches!(self, Self::Load | Self::Mix5 | Self::Index)
    }

    /// Whether it replaces objects, and so should use the spread that does it unevenly.
    fn overwrites(self) -> bool {
        matches!(self, Self::Update | Self::Compact)
    }
}

impl Plan {
    /// The workloads to do: those that were said, and a load before the first that needs one.
    pub(crate) fn steps(&self) -> Vec<Workload> {
        let first = self.workloads.iter().position(|workload| *workload == Workload::Load);
        let needs = self.workloads.iter().position(|workload| workload.needs_objects());
        let missing = needs.filter(|needs| first.is_none_or(|first| first > *needs));
        let mut steps = self.workloads.clone();
        if let Some(at) = missing {
            steps.insert(at, Workload::Load);
        }
        steps
    }

    /// Which keys a workload asks for.
    pub(crate) fn spread(&self, workload: Workload) -> Spread {
        self.keys.unwrap_or(if workload.overwrites() { Spread::Pareto } else { Spread::Uniform })
    }

    /// Whether objects are loaded with index entries.
    pub(crate) fn indexed_load(&self) -> bool {
        self.workloads.contains(&Workload::IndexRange)
    }

    /// Whether any object has index entries.
    #[allow(dead_code, reason = "only some stores ask")]
    pub(crate) fn indexed(&self) -> bool {
        self.indexed_load() || self.workloads.contains(&Workload::Index)
    }

    /// How many callers there are; of a side's plan, which has one number.
    pub(crate) fn callers(&self) -> u16 {
        self.clients.first().copied().unwrap_or(1)
    }

    /// How the store is told to compress.
    pub(crate) fn compression(&self) -> Compression {
        self.compression.unwrap_or(if self.value == Sizes::Mix { Compression::Lz4 } else { Compression::None })
    }

    /// The command line that says this plan again, to another program.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let clients: Vec<String> = self.clients.iter().map(ToString::to_string).collect();
        let said = [
            ("objects", Some(self.objects.to_string())),
            ("value", Some(self.value.to_string())),
            ("keys", self.keys.as_ref().map(name)),
            ("clients", Some(clients.join(","))),
            ("durability", Some(name(&self.durability))),
            ("seconds", self.ops.is_none().then(|| self.seconds.to_string())),
            ("ops", self.ops.map(|ops| ops.to_string())),
            ("rate", self.rate.map(|rate| rate.to_string())),
            ("interval", Some(self.interval.to_string())),
            ("index-entries", Some(self.index_entries.to_string())),
            ("compression", self.compression.as_ref().map(name)),
            ("seed", Some(self.seed.to_string())),
        ];
        let flags = said.into_iter().filter_map(|(flag, value)| value.map(|value| format!("--{flag}={value}")));
        let cold = self.cold.then(|| "--cold".to_owned());
        self.workloads.iter().map(|workload| workload.name()).chain(flags).chain(cold).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        plan: Plan,
    }

    pub(crate) fn plan(said: &str) -> Plan {
        Line::try_parse_from(std::iter::once("x").chain(said.split_whitespace())).unwrap().plan
    }

    #[test]
    fn a_plan_survives_its_own_command_line() {
        for said in [
            "",
            "load get-absent --objects=7 --keys=pareto --durability=synced --seconds=0.5 --clients 1,10",
            "get --cold",
            "mix5,compact --keys 8020 --ops 5 --rate 99.5 --value mix --compression none --index-entries 7",
        ] {
            let first = plan(said);
            let again = plan(&first.arguments().join(" "));
            assert_eq!(format!("{first:?}"), format!("{again:?}"));
        }
        assert_eq!(plan("mix5,compact").workloads, [Workload::Mix5, Workload::Compact]);
    }

    #[test]
    fn what_needs_objects_gets_them_and_what_begins_empty_does_not() {
        use Workload::{Get, Load, Mix5, Update};
        for (said, steps) in [
            ("get", vec![Load, Get]),
            ("load,get", vec![Load, Get]),
            ("mix5", vec![Mix5]),
            ("mix5,get,update", vec![Mix5, Load, Get, Update]),
            ("get,load", vec![Load, Get, Load]),
        ] {
            assert_eq!(plan(said).steps(), steps, "{said}");
        }
    }

    #[test]
    fn overwriting_is_uneven_and_the_mix_is_compressed_unless_said_otherwise() {
        assert_eq!(plan("").spread(Workload::Update), Spread::Pareto);
        assert_eq!(plan("").spread(Workload::Get), Spread::Uniform);
        assert_eq!(plan("--keys sequential").spread(Workload::Compact), Spread::Sequential);
        assert_eq!(plan("--value mix").compression(), Compression::Lz4);
        assert_eq!(plan("--value 8k").compression(), Compression::None);
    }
}
