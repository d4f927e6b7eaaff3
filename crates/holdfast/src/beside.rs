//! What a store has beside its journal, `space` and `series`: that these folders were not removed, and that the journal goes as far
//! as they do.
//!
//! The journal lets go of what they have. So the store notes in its file `store` that it has them, once they are there; and where
//! they go beyond the journal, files of that are gone, and its positions would be given out a second time.
//!
//! May use: `identity`, the folders, `journal`, `kv`'s ledgers. Must not know: what is in them.

use std::path::Path;

use base::Files;
use journal::{Damage, PartitionId, Position};
use kv::Ledgers;

use crate::backup::LOCK_FILE;
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{self, Identity, Used};
use crate::options::Options;
use crate::series;
use crate::series::folder::Folder;
use crate::space;
use crate::store::{Inner, lock};

/// Whether a store in `dir` was open before: it has been locked. A restored one was not, and its journal may be empty.
pub(crate) fn was_open(files: &dyn Files, dir: &Path) -> bool {
    files.open_to_read(&dir.join(LOCK_FILE)).is_ok()
}

/// Refuses a store that `was_open` and has no segment any more. The first one is there, durably, before the file `store` is written.
pub(crate) fn refuse_lost_segments(files: &dyn Files, dir: &Path, was_open: bool) -> Result<()> {
    let journal = dir.join("journal");
    if !was_open || identity::read(files, dir)?.is_none() || !journal::is_empty(files, &journal)? {
        return Ok(());
    }
    let text = format!(
        "the store in {} has no journal: there is no segment in {} that was ever used, and with them what the store held is missing. Put them back, or restore a backup into another folder; if it never held anything, remove its file `store`. Nothing was changed",
        dir.display(),
        journal.display()
    );
    Err(Error::new(ErrorKind::Corrupt, text))
}

/// Refuses a store that has no journal any more, or one that ends before what its ledgers, its snapshots or its sealed files go up to.
/// Changes nothing: a segment that was begun would have the next opening find that the journal goes far enough.
pub(crate) fn refuse_lost_journal(
    files: &dyn Files,
    dir: &Path,
    ledgers: &dyn Ledgers,
    options: &Options,
) -> Result<()> {
    let identity = identity::read(files, dir)?;
    let partitions = identity.map_or(options.partitions, |identity| identity.partitions);
    let journal = dir.join("journal");
    // Its folder is there, durably, before the file `store` is written.
    if identity.is_some() && files.list(&journal).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        let text = format!(
            "the store in {} has no journal: the folder {} is missing, and with it what the store held. Put it back, or restore a \
             backup into another folder; nothing was changed",
            dir.display(),
            journal.display()
        );
        return Err(Error::new(ErrorKind::Corrupt, text));
    }
    let next = journal::next_position(files, &journal, &journal::Options::new(0, partitions, &options.limits))?;
    let beyond = match space::files::beyond(files, dir, next)? {
        None => series::folder::beyond(files, dir, next)?,
        beyond => beyond,
    };
    let beyond = match beyond.map(|(path, through)| (path.display().to_string(), through)) {
        None => furthest_ledger(ledgers, partitions)?
            .filter(|(_, through)| *through >= next)
            .map(|(partition, through)| (format!("the ledger of partition {}", partition.index()), through)),
        beyond => beyond,
    };
    let Some((what, through)) = beyond else { return Ok(()) };
    let text = format!(
        "the journal in {} ends before position {next}, but {what} goes up to {through}: files of the journal are missing. Put them \
         back, or restore a backup into another folder; nothing was changed",
        journal.display(),
    );
    Err(Error::new(ErrorKind::Corrupt, text))
}

/// The ledger that goes up furthest, as they say themselves.
pub(crate) fn furthest_ledger(ledgers: &dyn Ledgers, partitions: u16) -> Result<Option<(PartitionId, Position)>> {
    let mut furthest = None;
    for partition in (0..partitions).map(PartitionId::new) {
        furthest = furthest.max(ledgers.persisted(partition)?.map(|through| (through, partition)));
    }
    Ok(furthest.map(|(through, partition)| (partition, through)))
}

/// The first position that was perhaps not synced, as far as ledgers know: what they have written out was.
pub(crate) fn promised(furthest: Option<(PartitionId, Position)>) -> Position {
    furthest.map_or(Position::ZERO, |(_, through)| Position::new(through.get() + 1))
}

/// The folders beside a journal, open to be read whole: of a store, or of a backup.
pub(crate) struct Beside {
    space: space::files::Opened,
    series: series::folder::Opened,
}

impl Beside {
    /// Opens what is in `dir`: of a backup what fits the position up to which its journal goes. Damage that shows at once is told.
    pub(crate) fn open(
        files: &dyn Files,
        dir: &Path,
        (partitions, used): (u16, Used),
        backed_up: Option<Position>,
        tell: &mut dyn FnMut(Damage),
    ) -> Result<Self> {
        let (space, series) = match backed_up {
            Some(position) => {
                (space::files::fitting(files, dir, position), series::backup::fitting(files, dir, position)?)
            }
            None => (dir.join(space::files::FOLDER), dir.join(series::folder::FOLDER)),
        };
        let space = space::files::Opened::of(files, space, (partitions, used.space))?;
        let series = Folder { files, dir: &series }.open_all(used.series, tell)?;
        Ok(Self { space, series })
    }

    /// Reads every byte, and tells damage.
    pub(crate) fn check(&self, tell: &mut dyn FnMut(Damage)) -> Result<()> {
        self.space.check()?.into_iter().for_each(&mut *tell);
        self.series.check(tell)
    }
}

impl Inner {
    /// Notes, durably, what the store has from now on. To be called when its folder is there: what is noted and not there is missed.
    pub(crate) fn note_use(&self, used: Used) -> Result<()> {
        let mut identity = lock(&self.identity);
        let used = identity.used.or(used);
        if used != identity.used {
            let noted = Identity { used, ..*identity };
            identity::write(&*self.files, self.dir(), noted)?;
            *identity = noted;
        }
        Ok(())
    }
}
