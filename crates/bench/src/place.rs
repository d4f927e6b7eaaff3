//! Where a benchmark puts its files: a fresh folder for each store, on a disk that has room, gone afterwards.
//!
//! May use: the file system. Must not know: stores.

use std::path::{Path, PathBuf};

use clap::Args;
use tempfile::TempDir;

use crate::workload::{Failure, Result};

/// A load average of the last minute above this is more than a benchmark that ended a moment ago.
const QUIET_LOAD_MAX: f64 = 1.0;

/// What every benchmark is told.
#[derive(Debug, Clone, Args)]
pub(crate) struct Common {
    /// Folder for the data; a folder in memory would make every sync free
    #[arg(long, default_value = "target/bench")]
    pub(crate) dir: PathBuf,
    /// How often everything is measured, all sides in turn
    #[arg(long, visible_alias = "repeat", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repetitions: u32,
    /// Write what is measured to this file too, in lines of JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl Common {
    /// A fresh folder that is removed when dropped.
    pub(crate) fn fresh(&self) -> Result<TempDir> {
        std::fs::create_dir_all(&self.dir)?;
        // Other programs are started with it, from wherever they run.
        let dir = self.dir.canonicalize()?;
        Ok(tempfile::Builder::new().prefix("run-").tempdir_in(dir)?)
    }

    /// Refuses to begin what would fill the disk.
    ///
    /// # Errors
    /// When fewer than `bytes` and a tenth are free.
    pub(crate) fn need(&self, bytes: u64) -> Result<()> {
        std::fs::create_dir_all(&self.dir)?;
        let free = free_bytes(&self.dir)?;
        let wanted = bytes.saturating_add(bytes / 10);
        if free < wanted {
            let mib = |bytes: u64| bytes >> 20;
            let text = format!(
                "{} has {} MiB free and this needs {} MiB: choose another --dir, or less data",
                self.dir.display(),
                mib(free),
                mib(wanted)
            );
            return Err(Failure::from(text));
        }
        Ok(())
    }

    /// Counts the repetitions, and says on standard error which one begins and how busy the machine was until now.
    pub(crate) fn repetitions(&self) -> impl Iterator<Item = u32> {
        let of = self.repetitions;
        let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        if load_of(&text).is_some_and(|load| load > QUIET_LOAD_MAX) {
            say(&format!("others use this machine (load {}): believe the ratios, not the figures", text.trim()));
        }
        (0..of).inspect(move |n| say(&format!("repetition {} of {of}", n + 1)))
    }
}

/// Tells the person who waits.
pub(crate) fn say(text: &str) {
    use std::io::Write;
    // Nobody who cannot be told wants to know.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

fn free_bytes(dir: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(dir)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The load average of the last minute.
fn load_of(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_the_first_number() {
        assert_eq!(load_of("3.25 0.65 0.61 1/200 4711\n"), Some(3.25));
        assert_eq!(load_of(""), None);
    }

    #[test]
    fn a_folder_is_fresh_and_goes_away_and_a_full_disk_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let common = Common { dir: base.path().join("a/b"), repetitions: 1, json: None };
        let (one, two) = (common.fresh().unwrap(), common.fresh().unwrap());
        assert!(one.path() != two.path() && one.path().is_absolute());
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists());
        common.need(1 << 20).unwrap();
        assert!(common.need(u64::MAX / 2).unwrap_err().to_string().contains("MiB free"));
    }
}
