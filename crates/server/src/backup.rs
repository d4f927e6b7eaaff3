//! `holdfast backup BACKUP`: by the server that has the store open, or by opening the store.
//!
//! The directory says whether a process has it open. If so its server is asked, and told which store and which process are meant, so
//! that another, even of a copy of the store, declines; else the store is opened here. Without a store here a server is asked.
//!
//! May use: the facade, `client`. Must not know: file formats.

use std::fs::{File, TryLockError};
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use holdfast::{Backup, Limits, Store, World};

use crate::cli::BackupArguments;
use crate::client::Client;
use crate::failure::Failure;
use crate::inspect::open;
use crate::output::{Bytes, complain, say};

const DATA: &str = "holdfast-data";

/// Makes the backup and says what was done.
pub(crate) fn backup(arguments: &BackupArguments) -> Result<ExitCode, Failure> {
    let dir = arguments.dir.clone().unwrap_or_else(|| DATA.into());
    let store = holdfast::identity_of(&dir).map_err(Failure::Read)?;
    if store.is_none() && arguments.dir.is_some() {
        return Err(Failure::NoStore(dir));
    }
    let to = absolute(&arguments.to, arguments.address)?;
    let address = arguments.address;
    let holder = if store.is_some() { holder(&dir) } else { None };
    if store.is_some() && holder.is_none() {
        let limits = Limits::default();
        let store = open(&dir, World::real(&dir, &limits), limits, "replaying the journal")?;
        make(&store, &to)?;
        return Ok(ExitCode::SUCCESS);
    }
    let lines = ask(arguments, &to, (store, holder.as_deref()))?;
    let lines = lines.map_err(|server| match (&holder, server.starts_with("NOAUTH")) {
        (_, true) => Failure::BackupUnknown { address, server },
        (Some(process), _) => Failure::BackupByHolder { dir, process: process.clone(), address, server },
        (None, _) => Failure::BackupByServer { address, server },
    })?;
    say(format_args!("backup     {} (made by the server at {address})", to.display()));
    for pair in lines.chunks(2) {
        if let [name, number] = pair {
            say(format_args!("{name} {number}"));
            if name == "damaged-ranges" {
                warn_of(number.parse().unwrap_or(0));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The process that has the store open, as its lock says: nothing when none has.
fn holder(dir: &Path) -> Option<String> {
    let mut lock = File::open(dir.join("lock")).ok()?;
    let Err(TryLockError::WouldBlock) = lock.try_lock() else { return None };
    let mut process = String::new();
    lock.read_to_string(&mut process).ok()?;
    Some(process)
}

fn make(store: &Store, to: &Path) -> Result<(), Failure> {
    let done = store.backup(to).map_err(Failure::Backup)?;
    store.close().map_err(Failure::Close)?;
    let Backup { position, segments, bytes, linked, linked_bytes, copied, copied_bytes, kept, removed, .. } = done;
    say(format_args!("backup     {}", to.display()));
    say(format_args!("position   {position}"));
    say(format_args!("segments   {segments}, {}", Bytes(bytes)));
    say(format_args!("linked     {linked}, {}", Bytes(linked_bytes)));
    say(format_args!("copied     {copied}, {}", Bytes(copied_bytes)));
    say(format_args!("kept       {kept}"));
    say(format_args!("removed    {removed}"));
    warn_of(done.damaged_ranges);
    Ok(())
}

/// Says that something is missing in the backup because it is in the store.
fn warn_of(damaged_ranges: u64) {
    if damaged_ranges > 0 {
        complain(format_args!(
            "holdfast: damaged ranges of the store, {damaged_ranges} of them, are missing in the backup too; `holdfast inspect --verify` shows them"
        ));
    }
}

/// The directory as the server has to be told it. A relative path is one of this machine.
fn absolute(to: &Path, address: SocketAddr) -> Result<PathBuf, Failure> {
    if !to.is_absolute() && !address.ip().is_loopback() {
        return Err(Failure::BackupRelative(to.to_owned()));
    }
    std::path::absolute(to).map_err(|error| Failure::Path { path: to.to_owned(), error })
}

/// Asks the server; the inner error is why it did not.
fn ask(
    arguments: &BackupArguments,
    to: &Path,
    (store, process): (Option<u128>, Option<&str>),
) -> Result<Result<Vec<String>, String>, Failure> {
    let password = match &arguments.password_file {
        None => None,
        Some(path) => {
            let text = std::fs::read(path).map_err(|error| Failure::Path { path: path.clone(), error })?;
            Some(text.split(|byte| matches!(byte, b'\n' | b'\r')).next().unwrap_or_default().to_vec())
        }
    };
    let talk = || -> std::io::Result<Result<Vec<String>, String>> {
        let mut client = Client::connect(arguments.address)?;
        if let Some(password) = &password {
            let user = arguments.user.as_deref().unwrap_or("default");
            if let Err(text) = client.call(&[b"AUTH", user.as_bytes(), password])? {
                return Ok(Err(text));
            }
        }
        let identity = store.map(|store| format!("{store:032x}"));
        let mut words: Vec<&[u8]> = vec![b"BACKUP", to.as_os_str().as_bytes()];
        if let Some(identity) = &identity {
            words.extend_from_slice(&[b"STORE", identity.as_bytes()]);
        }
        if let Some(process) = process.filter(|process| !process.is_empty()) {
            words.extend_from_slice(&[b"PROCESS", process.as_bytes()]);
        }
        client.call(&words)
    };
    Ok(talk().unwrap_or_else(|error| Err(error.to_string())))
}
