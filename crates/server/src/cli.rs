//! The command line.
//!
//! May use: clap, the types of `config`. Must not know: what the commands do.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use holdfast::Dial;
use holdfast::series::promql::parse_moment;
use tm::{BranchName, TransactionId};

use crate::config::{LogLevel, PARTITIONS};

/// Holdfast holds what it acknowledges, fast: a durable store for every Redis client.
///
/// Without a command it serves: data in ./holdfast-data, RESP on 127.0.0.1:7411, HTTP on 127.0.0.1:7412,
/// lines of points on 127.0.0.1:7413.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: ServeArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Open the store and serve it until SIGTERM or Ctrl-C [the default command]
    Serve(ServeArguments),
    /// Back up a store, whether or not a server has it open
    Backup(BackupArguments),
    /// Check a backup and make a new data directory of it
    Restore(RestoreArguments),
    /// Show what a store's or backup's files hold and which are damaged; changes nothing, also beside a running server
    Inspect(InspectArguments),
    /// Read a password and print its hash for the configuration file
    HashPassword,
    /// Look at distributed transactions, and do something about those that are in doubt
    Xa(XaArguments),
    /// Look at time series
    Series(SeriesArguments),
    /// Look at a configuration file
    Config(ConfigArguments),
}

/// An address, or what to write instead.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "it is no IP address with a port; write for example 127.0.0.1:7411, or [::1]:7411".to_owned())
}

/// Where a door is that may be shut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Off,
    At(SocketAddr),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" { Ok(Self::Off) } else { address(text).map(Self::At) }
    }
}

/// What is given here beats the configuration file.
#[derive(Debug, Default, Args)]
pub(crate) struct ServeArguments {
    /// Directory of the data; created when missing [default: ./holdfast-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Where to listen for Redis clients; port 0 picks a free one [default: 127.0.0.1:7411]
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub(crate) resp: Option<SocketAddr>,
    /// Where to listen for HTTP; port 0 picks a free one [default: 127.0.0.1:7412]
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub(crate) http: Option<SocketAddr>,
    /// Where to listen for lines of points, or `off`; port 0 picks a free one [default: 127.0.0.1:7413]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) line: Option<Place>,
    /// When a change is acknowledged: synced, written, or window:MIN,MAX such as window:1ms,10ms [default: synced]
    #[arg(long, value_name = "WHEN")]
    pub(crate) durability: Option<Dial>,
    /// Into how many partitions a new store is cut [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(PARTITIONS))]
    pub(crate) partitions: Option<u16>,
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// What to log to standard error [default: info]
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub(crate) log: Option<LogLevel>,
    /// Listen where other machines can reach it, though there is neither a password nor TLS
    #[arg(long)]
    pub(crate) allow_insecure_bind: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArguments {
    /// Directory of the backup: a new one, or one of the same store, which is then brought up to date. On the same file
    /// system as the data it costs neither time nor space. On the server's machine, if a server is asked
    #[arg(value_name = "BACKUP")]
    pub(crate) to: PathBuf,
    /// Directory of the data [default: ./holdfast-data if it is there; else whatever the server serves]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Where the server that has the store open speaks RESP (its --resp), without TLS. If none answers there, or it serves
    /// another store, the store in --dir is opened
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7411", value_parser = address)]
    pub(crate) address: SocketAddr,
    /// Who to be for the server: a user with the right `admin` on `*` [default: default]
    #[arg(long, value_name = "NAME", requires = "password_file")]
    pub(crate) user: Option<String>,
    /// File with the user's password in its first line
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArguments {
    /// Directory of the backup
    pub(crate) backup: PathBuf,
    /// Directory of the data: a new or empty one
    pub(crate) data: PathBuf,
    /// Link the backup's files instead of copying them: takes no time and no space, and what rots in one rots in both
    #[arg(long)]
    pub(crate) link: bool,
    /// If the backup is damaged, restore what is intact
    #[arg(long)]
    pub(crate) accept_damage: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// Directory of the data, or of a backup
    pub(crate) dir: PathBuf,
    /// Read everything, check every checksum, and count what is live
    #[arg(long)]
    pub(crate) verify: bool,
    /// Print the batches in a range of positions instead; either end may be left out
    #[arg(long, value_name = "FROM..TO", conflicts_with = "verify")]
    pub(crate) dump: Option<Range>,
    /// Check the ledger against the journal as well. This opens the store as a start does, and needs the server stopped
    #[arg(long, conflicts_with = "dump")]
    pub(crate) ledger: bool,
}

/// A range of positions: from the first to before the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once("..").ok_or("write FROM..TO, such as 4096..8192")?;
        let number = |text: &str, other: u64| match text.trim() {
            "" => Ok(other),
            text => text.parse().map_err(|_| format!("`{text}` is no position; write a number")),
        };
        let range = Self { from: number(from, 0)?, to: number(to, u64::MAX)? };
        if range.from >= range.to {
            return Err(format!("`{text}` is empty: TO is behind the last position, so it is more than FROM"));
        }
        Ok(range)
    }
}

#[derive(Debug, Args)]
pub(crate) struct XaArguments {
    #[command(subcommand)]
    pub(crate) command: XaCommand,
    #[command(flatten)]
    pub(crate) place: XaPlace,
}

/// Where the coordinator is: that of a profile, a directory, or a server.
#[derive(Debug, Args)]
pub(crate) struct XaPlace {
    /// Profile file, with the coordinator and the resource managers [default: HOLDFAST_XA_PROFILE; for recover and check,
    /// and with --name, /etc/holdfast/xa.toml]
    #[arg(long, value_name = "FILE", global = true, conflicts_with_all = ["dir", "address"])]
    pub(crate) profile: Option<PathBuf>,
    /// Which profile of the file [default: HOLDFAST_XA_PROFILE_NAME, or what the file says]
    #[arg(long, value_name = "NAME", global = true, conflicts_with_all = ["dir", "address"])]
    pub(crate) name: Option<String>,
    /// Directory of a coordinator that no process has open; not for recover
    #[arg(long, value_name = "DIR", global = true, conflicts_with = "address")]
    pub(crate) dir: Option<PathBuf>,
    /// Where a coordinator's server speaks RESP, without TLS; not for recover [default, without a profile: 127.0.0.1:7411]
    #[arg(long, value_name = "HOST:PORT", global = true)]
    pub(crate) address: Option<String>,
    /// Who to be for the server at --address [default: default]
    #[arg(long, value_name = "NAME", global = true, requires = "password_file")]
    pub(crate) user: Option<String>,
    /// File with the user's password in its first line
    #[arg(long, value_name = "FILE", global = true, conflicts_with_all = ["profile", "name", "dir"])]
    pub(crate) password_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum XaCommand {
    /// List what the coordinator remembers: decisions that a branch may not know of, and what was rolled back
    List,
    /// Show one transaction, and what its state means
    Show {
        /// Its id, such as hfxa1.AQ...
        id: TransactionId,
    },
    /// Decide to commit a transaction all of whose branches are prepared
    Commit {
        /// Its id
        id: TransactionId,
        /// The names of all its prepared branches
        #[arg(required = true, value_parser = branch_name)]
        branches: Vec<BranchName>,
    },
    /// Decide never to commit a transaction
    Rollback {
        /// Its id
        id: TransactionId,
    },
    /// Forget a transaction of which nothing is in doubt any more
    Forget {
        /// Its id
        id: TransactionId,
        /// Also if a branch may still be in doubt, or has decided by itself. A branch that is prepared is rolled back then
        #[arg(long)]
        force: bool,
    },
    /// Ask the resource managers of a profile what is in doubt, and settle it
    Recover {
        /// Also forget decisions that are older than so many seconds and of which no resource manager has a branch any
        /// more: programs that were killed leave some. Only if each name of a branch means the same resource manager to
        /// all programs of the coordinator
        #[arg(long, value_name = "SECONDS")]
        sweep: Option<u64>,
    },
    /// Look at everything that a profile names, or at the coordinator of --dir or --address, and say what is wrong
    Check,
}

fn branch_name(text: &str) -> Result<BranchName, String> {
    BranchName::new(text).map_err(|error| error.to_string())
}

#[derive(Debug, Args)]
pub(crate) struct SeriesArguments {
    #[command(subcommand)]
    pub(crate) command: SeriesCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SeriesCommand {
    /// Write points to standard output, series by series, each in order of time. Opens the store: the server must be stopped
    Export(SeriesExportArguments),
}

#[derive(Debug, Args)]
pub(crate) struct SeriesExportArguments {
    /// Directory of the data [default: that of the configuration file, or ./holdfast-data]
    #[arg(long, visible_alias = "data", value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The server's configuration file: points that it keeps no longer are not written
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The database
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) database: String,
    /// Only this metric
    #[arg(long, value_name = "NAME")]
    pub(crate) metric: Option<String>,
    /// Only this field
    #[arg(long, value_name = "NAME")]
    pub(crate) field: Option<String>,
    /// Only series with this tag; may be given several times
    #[arg(long = "tag", value_name = "TAG=VALUE", value_parser = tag)]
    pub(crate) tags: Vec<(String, String)>,
    /// Only points from this time on: seconds since 1970, or as 2026-01-31T12:30:00Z
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    pub(crate) from: Option<i64>,
    /// Only points up to this time, its whole millisecond included
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    pub(crate) to: Option<i64>,
    /// How points are written
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = SeriesFormat::Csv)]
    pub(crate) format: SeriesFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SeriesFormat {
    /// RFC 4180, with names of columns in the first line
    Csv,
    /// Apache Arrow's streaming format
    Arrow,
    /// Apache Parquet, compressed with snappy
    Parquet,
}

fn tag(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write TAG=VALUE, such as host=a")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Milliseconds since 1970.
fn moment(text: &str) -> Result<i64, String> {
    parse_moment(text)
        .ok_or_else(|| format!("`{text}` is no time; write seconds since 1970, or as 2026-01-31T12:30:00Z"))
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArguments {
    /// Say what is wrong with this file, or what would be in force with it
    #[arg(long, value_name = "FILE")]
    pub(crate) check: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_of_serve_work_with_and_without_its_name() {
        for words in [&["holdfast", "--dir", "x"][..], &["holdfast", "serve", "--dir", "x"]] {
            let cli = Cli::try_parse_from(words).unwrap();
            let arguments = match cli.command {
                Some(Command::Serve(arguments)) => arguments,
                None => cli.serve,
                other => panic!("{other:?}"),
            };
            assert_eq!(arguments.dir, Some(PathBuf::from("x")));
        }
    }

    #[test]
    fn either_end_of_a_range_may_be_left_out() {
        for (text, from, to) in [("1..2", 1, 2), ("7..", 7, u64::MAX), ("..9", 0, 9), ("..", 0, u64::MAX)] {
            assert_eq!(text.parse(), Ok(Range { from, to }));
        }
    }

    #[test]
    fn nonsense_is_refused_with_what_would_be_right() {
        for (words, wanted) in [
            (&["--durability", "perhaps"][..], "use synced, written or window:MIN,MAX"),
            (&["--durability", "window:2s,1s"], "MIN 2s is above MAX 1s"),
            (&["--partitions", "0"], "1..=1024"),
            (&["--resp", "here"], "it is no IP address with a port"),
            (&["--no-such"], "unexpected argument"),
            (&["inspect"], "DIR"),
            (&["inspect", "x", "--dump", "4096"], "write FROM..TO"),
            (&["inspect", "x", "--dump", "1..b"], "`b` is no position"),
            (&["inspect", "x", "--dump", "10..5"], "`10..5` is empty"),
            (&["backup"], "BACKUP"),
            (&["backup", "x", "--user", "ada"], "--password-file"),
            (&["restore", "x"], "DATA"),
            (&["xa", "show", "x"], "begins with `hfxa1.`"),
            (&["xa", "list", "--dir", "x", "--address", "y:1"], "cannot be used with"),
            (&["xa", "list", "--user", "ada"], "--password-file"),
            (&["xa", "list", "--dir", "x", "--name", "y"], "cannot be used with"),
            (&["xa", "list", "--profile", "x", "--password-file", "y"], "cannot be used with"),
            (&["--dir", "x", "inspect", "y"], "cannot be used with"),
            (&["series", "export", "--tag", "x"], "write TAG=VALUE"),
            (&["series", "export", "--from", "yesterday"], "`yesterday` is no time"),
            (&["series", "export", "--format", "xml"], "possible values: csv, arrow, parquet"),
        ] {
            let words = std::iter::once("holdfast").chain(words.iter().copied());
            let error = Cli::try_parse_from(words).unwrap_err().to_string();
            assert!(error.contains(wanted), "no {wanted:?} in {error}");
        }
    }
}
