//! The `holdfast` program: configuration, wiring, signals, and nothing else.
//!
//! Without arguments it serves an embedded default: `cli` says what else there is. Results go to standard output, all else
//! to standard error. Exit code 0: done; 1: it could not be done, or `inspect` found damage; 2: the command line makes no
//! sense.
//!
//! May use: the facade, the doors, `tm`, mirrors of `grid`. Must not know: engines, protocols, formats.

mod announce;
mod backup;
mod cli;
mod client;
mod config;
mod continuous;
mod failure;
mod hash_password;
mod inspect;
mod mirrors;
mod output;
mod progress;
mod recovery;
mod restore;
mod rows;
mod series;
mod serve;
mod signals;
mod verify;
mod xa;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

#[global_allocator]
static ALLOCATOR: base::LargeApart<mimalloc::MiMalloc> = base::LargeApart(mimalloc::MiMalloc);

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command.unwrap_or(Command::Serve(cli.serve)) {
        Command::Serve(arguments) => serve::serve(&arguments),
        Command::Backup(arguments) => backup::backup(&arguments),
        Command::Restore(arguments) => restore::restore(&arguments),
        Command::Inspect(arguments) => inspect::inspect(&arguments),
        Command::HashPassword => hash_password::hash_password(),
        Command::Xa(arguments) => xa::xa(&arguments),
        Command::Series(arguments) => series::series(&arguments),
        Command::Config(arguments) => config::check(&arguments.check),
    };
    done.unwrap_or_else(|failure| {
        output::complain(format_args!("holdfast: {failure}"));
        ExitCode::FAILURE
    })
}
