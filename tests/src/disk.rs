//! A small disk of its own for one test, so that it can be full.
//!
//! May use: `programs`. Must not know: who fills it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::programs::run;

/// A mounted file system in memory; unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    folder: TempDir,
    with_sudo: bool,
}

impl SmallDisk {
    /// Mounts one; says why when this machine does not allow it.
    ///
    /// # Errors
    /// The words of `mount`.
    pub fn mount(size_bytes: u64) -> Result<Self, String> {
        let folder = TempDir::new().map_err(|error| error.to_string())?;
        let options = format!("size={size_bytes},mode=0777");
        let mut said = String::new();
        for with_sudo in [false, true] {
            let mut mount = as_root(with_sudo, "mount");
            mount.args(["-t", "tmpfs", "-o", &options, "holdfast-tests"]).arg(folder.path());
            match mount.output() {
                Ok(done) if done.status.success() => return Ok(Self { folder, with_sudo }),
                Ok(done) => said = String::from_utf8_lossy(&done.stderr).trim().to_owned(),
                Err(error) => said = error.to_string(),
            }
        }
        Err(said)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Puts a file of this size beside the data, to be removed when space is wanted back.
    ///
    /// # Panics
    /// When it does not fit.
    pub fn ballast(&self, size_bytes: usize) -> PathBuf {
        let path = self.path().join("ballast");
        fs::write(&path, vec![1_u8; size_bytes]).expect("the ballast fits on the empty disk");
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a server that a failed test left behind must not keep the mount.
        let done =
            run(as_root(self.with_sudo, "umount").arg("-l").arg(self.folder.path()), b"", Duration::from_secs(10));
        assert!(done.code == Some(0) || std::thread::panicking(), "umount: {}", done.text);
    }
}

fn as_root(with_sudo: bool, program: &str) -> Command {
    if !with_sudo {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.args(["-n", program]);
    command
}
