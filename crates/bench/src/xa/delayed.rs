//! A slower disk: each sync takes so much longer.
//!
//! May use: `base`. Must not know: who syncs.

use std::io;
use std::path::Path;
use std::time::Duration;

use base::{Around, Files, Handle};

/// Delays syncs by so much.
pub(crate) struct Delayed(pub(crate) Duration);

impl Around for Delayed {
    fn sync(&self, handle: &Handle) -> io::Result<()> {
        handle.file.sync()?;
        std::thread::sleep(self.0);
        Ok(())
    }

    fn sync_dir(&self, files: &dyn Files, dir: &Path) -> io::Result<()> {
        std::thread::sleep(self.0);
        files.sync_dir(dir)
    }
}
