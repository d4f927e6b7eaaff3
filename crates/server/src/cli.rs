//! The command line.
//!
//! May use: clap, the types of `config`. Must not know: what the commands do.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::{Dial, LogLevel, PARTITIONS};

/// Holdfast holds what it acknowledges, fast: a durable store for every Redis client.
///
/// Without a command it serves: data in ./holdfast-data, RESP on 127.0.0.1:7411, HTTP on 127.0.0.1:7412.
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
    /// Show what a store's files hold and which are damaged; the server must not be running
    Inspect(InspectArguments),
    /// Read a password and print its hash for the configuration file
    HashPassword,
    /// Look at a configuration file
    Config(ConfigArguments),
}

/// What is given here beats the configuration file.
#[derive(Debug, Default, Args)]
pub(crate) struct ServeArguments {
    /// Directory of the data; created when missing [default: ./holdfast-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Where to listen for Redis clients; port 0 picks a free one [default: 127.0.0.1:7411]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) resp: Option<SocketAddr>,
    /// Where to listen for HTTP; port 0 picks a free one [default: 127.0.0.1:7412]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) http: Option<SocketAddr>,
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
pub(crate) struct InspectArguments {
    /// Directory of the data
    pub(crate) dir: PathBuf,
    /// Read every record of the journal, and check the ledger against it
    #[arg(long)]
    pub(crate) verify: bool,
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
    fn nonsense_is_refused_with_what_would_be_right() {
        for (words, wanted) in [
            (&["--durability", "perhaps"][..], "use synced, written or window:MIN,MAX"),
            (&["--durability", "window:2s,1s"], "MIN 2s is above MAX 1s"),
            (&["--partitions", "0"], "1..=1024"),
            (&["--resp", "here"], "invalid socket address"),
            (&["--no-such"], "unexpected argument"),
            (&["inspect"], "DIR"),
            (&["--dir", "x", "inspect", "y"], "cannot be used with"),
        ] {
            let words = std::iter::once("holdfast").chain(words.iter().copied());
            let error = Cli::try_parse_from(words).unwrap_err().to_string();
            assert!(error.contains(wanted), "no {wanted:?} in {error}");
        }
    }
}
