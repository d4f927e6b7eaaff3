//! Why the program ends without having done what it was asked to do.
//!
//! May use: errors of everything below. Must not know: what to do about them; the text says that.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tm::CoordinatorId;

use crate::config::ConfigError;

/// Why the program gives up. Its text is the last thing it says.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("cannot open the store in {}: {error}", dir.display())]
    Open { dir: PathBuf, error: holdfast::Error },
    #[error("the store did not close cleanly: {0}; acknowledged data is as safe as it was")]
    Close(holdfast::Error),
    #[error("cannot read the store: {0}")]
    Read(holdfast::Error),
    #[error("there is no store in {}: it has neither a file `store` nor a folder `journal`", .0.display())]
    NoStore(PathBuf),
    #[error("no backup was made: {0}")]
    Backup(holdfast::Error),
    #[error(
        "no backup was made: the server at {address} did not make it ({server}); name another one with --address, or a store with --dir"
    )]
    BackupByServer { address: SocketAddr, server: String },
    #[error(
        "no backup was made: the server at {address} did not make it ({server}), and process {process} has the store in {} open: if that is another server, say with --address where it speaks RESP; if it speaks TLS only, send it the command BACKUP", dir.display()
    )]
    BackupByHolder { dir: PathBuf, process: String, address: SocketAddr, server: String },
    #[error(
        "no backup was made: the server at {address} has users ({server}): say who you are with --user, and --password-file with the password in its first line"
    )]
    BackupUnknown { address: SocketAddr, server: String },
    #[error("a server on another machine needs an absolute path for the backup, not {}", .0.display())]
    BackupRelative(PathBuf),
    #[error("nothing was restored: {0}")]
    Restore(holdfast::Error),
    #[error("nothing was restored: {0}; --accept-damage restores all that is intact")]
    RestoreDamaged(holdfast::Error),
    #[error("nothing was restored: {} is not empty; choose another directory", .0.display())]
    RestoreTarget(PathBuf),
    #[error("cannot use {}: {error}", path.display())]
    Path { path: PathBuf, error: io::Error },
    #[error("resp: {0}")]
    Resp(#[source] doors::ServeError),
    #[error("http: {0}")]
    Http(#[source] doors::ServeError),
    #[error("line: {0}")]
    Line(#[source] doors::ServeError),
    #[error("cannot start: {0}")]
    Start(#[source] io::Error),
    #[error("cannot read the password: {0}")]
    Password(#[source] io::Error),
    #[error("{0}")]
    PasswordUnfit(&'static str),
    #[error(transparent)]
    Profile(#[from] tm::ProfileError),
    #[error(
        "xa.profiles: the coordinator of profile {profile} at {servers} is {:016x}, and this server is {:016x}; name this \
         server in the profile, or the profile in that server's configuration",
        theirs.0, own.0
    )]
    OtherCoordinator { profile: String, servers: String, theirs: CoordinatorId, own: CoordinatorId },
    #[error("xa.profiles: profile {profile}: {}", faults_of(faults))]
    ResourceManagers { profile: String, faults: Vec<tm::Fault> },
    #[error("{0}")]
    Transaction(#[from] tm::Error),
    #[error(
        "{0}; the server has users: say who you are with --user, and --password-file with the password in its first line"
    )]
    Unnamed(tm::Error),
    #[error("{0}; the server has users: say who this is with `user` and `password_env` of the profile's coordinator")]
    UnnamedInProfile(tm::Error),
    #[error("{0}; {name} names it, and --name wins over that", name = tm::PROFILE_NAME_VARIABLE)]
    ProfileOfEnvironment(tm::ProfileError),
    #[error(
        "recovery asks the resource managers of a profile, and a coordinator in --dir or at --address names none: say --profile"
    )]
    NoResourceManagers,
    #[error("cannot read the time series: {0}")]
    Series(#[from] holdfast::series::SeriesError),
    #[error("nothing was exported: {0}")]
    NoSeries(String),
    #[error("the export is written, but it is not whole: {0}")]
    Incomplete(holdfast::series::Missing),
    #[error("the export is not whole: cannot write it: {0}")]
    Export(#[source] io::Error),
    #[error("cannot hash the password: {0}")]
    Hash(String),
}

/// All of them, as one sentence.
pub(crate) fn faults_of(faults: &[tm::Fault]) -> String {
    faults.iter().map(|fault| format!("{}: {}", fault.part, fault.what)).collect::<Vec<_>>().join("; ")
}
