//! `holdfast backup BACKUP`: by the server that has the store open, or by opening the store.
//!
//! The server is asked first, and told which store is meant, so that one that serves another declines. If there is none, or
//! it declines, the store is opened here, which fails when some process has it open.
//!
//! May use: the facade, `client`. Must not know: file formats.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use holdfast::{Backup, Limits, Store, World};

use crate::cli::BackupArguments;
use crate::client::Client;
use crate::failure::Failure;
use crate::inspect::open;
use crate::output::{Bytes, say};

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
    match (ask(arguments, &to, store)?, store) {
        (Ok(lines), _) => {
            say(format_args!("backup     {} (made by the server at {address})", to.display()));
            for pair in lines.chunks(2) {
                if let [name, number] = pair {
                    say(format_args!("{name} {number}"));
                }
            }
        }
        (Err(server), None) => return Err(Failure::BackupByServer { address, server }),
        (Err(server), Some(_)) => {
            let limits = Limits::default();
            let opened = open(&dir, World::real(&dir, &limits), limits, "replaying the journal");
            let opened = opened.map_err(Box::new);
            let store = opened.map_err(|open| Failure::BackupByNobody { address, server, open })?;
            make(&store, &to)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn make(store: &Store, to: &Path) -> Result<(), Failure> {
    let done = store.backup(to).map_err(Failure::Backup)?;
    store.close().map_err(Failure::Close)?;
    let Backup { position, segments, bytes, linked, linked_bytes, copied, copied_bytes, kept, removed } = done;
    say(format_args!("backup     {}", to.display()));
    say(format_args!("position   {position}"));
    say(format_args!("segments   {segments}, {}", Bytes(bytes)));
    say(format_args!("linked     {linked}, {}", Bytes(linked_bytes)));
    say(format_args!("copied     {copied}, {}", Bytes(copied_bytes)));
    say(format_args!("kept       {kept}"));
    say(format_args!("removed    {removed}"));
    Ok(())
}

/// The directory as the server has to be told it. A relative path is one of this machine.
fn absolute(to: &Path, address: SocketAddr) -> Result<PathBuf, Failure> {
    if !to.is_absolute() && !address.ip().is_loopback() {
        return Err(Failure::BackupRelative(to.to_owned()));
    }
    std::path::absolute(to).map_err(|error| Failure::Path { path: to.to_owned(), error })
}

/// Asks the server; the inner error is why it did not.
fn ask(arguments: &BackupArguments, to: &Path, store: Option<u128>) -> Result<Result<Vec<String>, String>, Failure> {
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
        client.call(&words)
    };
    Ok(talk().unwrap_or_else(|error| Err(error.to_string())))
}
