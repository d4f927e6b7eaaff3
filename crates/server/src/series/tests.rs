//! What an export writes, of a store as it lies on the disk.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;
use holdfast::series::{Rows, ValueRef};
use holdfast::{Options, Store};
use tempfile::TempDir;

use super::*;
use crate::cli::{Cli, Command};

/// What the command line writes.
fn exported(words: &[&str]) -> String {
    let words = ["holdfast", "series", "export"].iter().chain(words);
    let Some(Command::Series(arguments)) = Cli::try_parse_from(words).unwrap().command else { panic!("no export") };
    let SeriesCommand::Export(arguments) = arguments.command;
    let mut written = Vec::new();
    export(&arguments, &mut written).unwrap();
    String::from_utf8(written).unwrap()
}

/// A store with a point of 1970 and one of just now.
fn fill(dir: &Path) {
    let store = Store::open(dir, Options::default()).unwrap();
    let mut rows = Rows::new("default");
    let slot = rows.series(b"cpu", |_| Ok(("cpu".to_owned(), Vec::new()))).unwrap();
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap();
    rows.push(slot, 7, ValueRef::Integer(1970));
    rows.push(slot, now, ValueRef::Integer(2026));
    store.series().write(&mut rows).unwrap();
    store.close().unwrap();
}

#[test]
fn what_the_configured_retention_hides_is_not_exported() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    fill(&data);
    let config = folder.path().join("holdfast.toml");
    let text = format!("dir = {data:?}\n[[series.retention]]\nmetric = \"c*\"\nkeep_hours = 24\n");
    std::fs::write(&config, text).unwrap();
    let (data, config) = (data.to_str().unwrap(), config.to_str().unwrap());
    let all = exported(&["--dir", data]);
    assert!(all.contains(",1970\n") && all.contains(",2026\n"), "{all}");
    for words in [&["--config", config][..], &["--config", config, "--dir", data]] {
        let kept = exported(words);
        assert!(!kept.contains(",1970\n") && kept.contains(",2026\n"), "{kept}");
    }
}
