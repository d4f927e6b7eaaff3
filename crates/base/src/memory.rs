//! A disk in memory that behaves as badly as real ones may.
//!
//! What a real disk promises is only what was synced: on a power cut each unsynced 512-byte sector survives or vanishes
//! by coin, an unsynced length too, and of the unsynced directory changes a random prefix survives. A failed sync
//! drops what it should have written from the list of what the next sync will write, as Linux does (LWN 752063,
//! "PostgreSQL's fsync() surprise"). Faults are planned by the number of the operation at which they strike, so that a
//! test can strike at every one.
//!
//! May use: nothing. Must not know: what is stored.

mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::files::{DirLock, File, Files};
use crate::random::Random;
pub use process::Process;

const SECTOR: usize = 512;
/// What Linux says of a sector that does not read.
const EIO: i32 = 5;

/// What goes wrong at a planned operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The power is cut before the operation: it and all later ones fail until [`Disk::power_on`].
    PowerCut,
    /// The process is killed before the operation: nothing that it does from then on reaches the disk, and all that it wrote stays.
    Kill,
    /// The operation fails with an input/output error; a failed sync forgets what it was to write.
    Error,
    /// The operation fails because the disk is full. Operations that need no space go through.
    Full,
}

/// The disk. Clones are the same disk.
#[derive(Clone)]
pub struct Disk(Arc<Mutex<State>>);

#[derive(Default, Clone)]
struct Inode {
    current: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
}

#[derive(Clone)]
enum Change {
    Create(PathBuf, usize),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    unsynced: Vec<Change>,
    locked: BTreeSet<PathBuf>,
    random: Random,
    boot: u128,
    powered: bool,
    operations: u64,
    plan: BTreeMap<u64, Fault>,
    capacity_bytes: u64,
    /// Inodes, each with a byte of it that does not read.
    unreadable: Vec<(usize, u64)>,
    short_reads: bool,
    lying_syncs: bool,
    links: bool,
    /// Counts processes: handles and locks of an earlier one are dead.
    process: u64,
}

impl Disk {
    /// An empty disk without limit whose coins follow `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            inodes: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unsynced: Vec::new(),
            locked: BTreeSet::new(),
            random: Random::new(seed),
            boot: 1,
            powered: true,
            operations: 0,
            plan: BTreeMap::new(),
            capacity_bytes: u64::MAX,
            unreadable: Vec::new(),
            short_reads: false,
            lying_syncs: false,
            links: true,
            process: 0,
        })))
    }

    /// Lets `fault` strike at the `after`-th changing operation from now (0 is the next). Operations that change
    /// something count: create, link, rename, remove, write, set length, allocate, sync, directory sync.
    pub fn plan(&self, after: u64, fault: Fault) {
        let mut state = self.state();
        let at = state.operations + after;
        state.plan.insert(at, fault);
    }

    /// Removes every planned fault that has not struck.
    pub fn clear_plan(&self) {
        self.state().plan.clear();
    }

    /// How many changing operations there were so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Limits the sum of all file lengths; more is `StorageFull`.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity_bytes = bytes;
    }

    /// Makes reads return fewer bytes than asked by coin.
    pub fn set_short_reads(&self, short: bool) {
        self.state().short_reads = short;
    }

    /// Makes reads fail that touch the byte at `offset` of the file, as those of a bad sector do.
    ///
    /// # Panics
    /// When the file does not exist.
    pub fn set_unreadable(&self, path: &Path, offset: u64) {
        let mut state = self.state();
        let id = *state.names.get(path).expect("the file to damage exists");
        state.unreadable.push((id, offset));
    }

    /// Makes syncs succeed without doing anything: a disk that no store can be safe on, to test the testers.
    pub fn set_lying_syncs(&self, lying: bool) {
        self.state().lying_syncs = lying;
    }

    /// Makes hard links impossible, as between file systems.
    pub fn set_links(&self, links: bool) {
        self.state().links = links;
    }

    /// Cuts the power: what was not synced survives or vanishes by coin, and every operation fails until
    /// [`Disk::power_on`].
    pub fn power_cut(&self) {
        self.state().power_cut();
    }

    /// Whether the power is on.
    #[must_use]
    pub fn is_powered(&self) -> bool {
        self.state().powered
    }

    /// Powers on after a cut, with a new boot id.
    pub fn power_on(&self) {
        let mut state = self.state();
        state.powered = true;
        state.end_process();
        state.boot += 1;
    }

    /// Ends the process, as a kill would: written data stays, locks go, and its open files answer nothing any more.
    pub fn kill_process(&self) {
        self.state().end_process();
    }

    /// Changes one stored byte, also on stable storage; returns what it was.
    ///
    /// # Panics
    /// When the file or the byte does not exist: a test that flips nothing proves nothing.
    pub fn flip(&self, path: &Path, offset: u64, mask: u8) -> u8 {
        let mut state = self.state();
        let id = *state.names.get(path).expect("the file to damage exists");
        let at = usize::try_from(offset).expect("offsets of a memory disk fit memory");
        let inode = state.inodes.get_mut(id).expect("names point at inodes");
        let byte = inode.current.get_mut(at).expect("the byte to damage exists");
        let was = *byte;
        *byte ^= mask;
        if let Some(byte) = inode.durable.get_mut(at) {
            *byte ^= mask;
        }
        was
    }

    /// Paths and lengths of all files.
    #[must_use]
    pub fn inventory(&self) -> Vec<(PathBuf, u64)> {
        let state = self.state();
        let length = |id: &usize| state.inodes.get(*id).map_or(0, |inode| inode.current.len() as u64);
        state.names.iter().map(|(path, id)| (path.clone(), length(id))).collect()
    }

    /// An independent copy of the disk as it is now, with no plan and no locks: to try several damages on one state.
    #[must_use]
    pub fn fork(&self, seed: u64) -> Self {
        let state = self.state();
        Self(Arc::new(Mutex::new(State {
            inodes: state.inodes.clone(),
            names: state.names.clone(),
            durable_names: state.durable_names.clone(),
            unsynced: state.unsynced.clone(),
            locked: BTreeSet::new(),
            random: Random::new(seed),
            plan: BTreeMap::new(),
            unreadable: state.unreadable.clone(),
            ..*state
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn end_process(&mut self) {
        self.locked.clear();
        self.process += 1;
    }

    fn power_cut(&mut self) {
        self.powered = false;
        let keep = usize::try_from(self.random.below(self.unsynced.len() as u64 + 1)).expect("a count fits");
        let changes: Vec<Change> = self.unsynced.drain(..).take(keep).collect();
        for change in changes {
            apply(&mut self.durable_names, &change);
        }
        self.names = self.durable_names.clone();
        for inode in &mut self.inodes {
            inode.tear(&mut self.random);
        }
    }

    /// Counts a changing operation and strikes it with what was planned for it.
    fn change(&mut self) -> io::Result<()> {
        let number = self.operations;
        self.operations += 1;
        match self.plan.remove(&number) {
            Some(Fault::PowerCut) => self.power_cut(),
            Some(Fault::Kill) => {
                self.end_process();
                return Err(io::Error::other("simulated kill"));
            }
            Some(Fault::Error) => return Err(io::Error::other("simulated input/output error")),
            Some(Fault::Full) => return Err(io::Error::from(io::ErrorKind::StorageFull)),
            None => {}
        }
        self.on()
    }

    fn on(&self) -> io::Result<()> {
        if self.powered { Ok(()) } else { Err(io::Error::other("simulated power cut")) }
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn inode(&mut self, id: usize) -> &mut Inode {
        self.inodes.get_mut(id).expect("handles point at inodes")
    }

    fn used_bytes(&self) -> u64 {
        self.names.values().filter_map(|id| self.inodes.get(*id)).map(|inode| inode.current.len() as u64).sum()
    }

    fn grow(&mut self, id: usize, len: usize) -> io::Result<()> {
        let used = self.used_bytes();
        let have = self.inode(id).current.len();
        if len > have && used + (len - have) as u64 > self.capacity_bytes {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        if len > have {
            self.inode(id).resize(len);
        }
        Ok(())
    }
}

impl Inode {
    fn resize(&mut self, len: usize) {
        let (from, to) = (self.current.len().min(len), self.current.len().max(len));
        self.current.resize(len, 0);
        self.dirty.extend(from / SECTOR..to.div_ceil(SECTOR));
    }

    /// What a sync does: dirty sectors and the length reach stable storage.
    fn persist(&mut self) {
        self.durable.resize(self.current.len(), 0);
        for sector in std::mem::take(&mut self.dirty) {
            let range = sector * SECTOR..((sector + 1) * SECTOR).min(self.current.len());
            if let (Some(to), Some(from)) = (self.durable.get_mut(range.clone()), self.current.get(range)) {
                to.copy_from_slice(from);
            }
        }
    }

    fn tear(&mut self, random: &mut Random) {
        let dirty = std::mem::take(&mut self.dirty);
        let len = if self.current.len() == self.durable.len() || random.chance(1, 2) {
            self.current.len()
        } else {
            self.durable.len()
        };
        let mut left = self.durable.clone();
        left.resize(len, 0);
        for sector in dirty {
            if random.chance(1, 2) {
                let range = sector * SECTOR..((sector + 1) * SECTOR).min(len).min(self.current.len());
                if let (Some(to), Some(from)) = (left.get_mut(range.clone()), self.current.get(range)) {
                    to.copy_from_slice(from);
                }
            }
        }
        self.current.clone_from(&left);
        self.durable = left;
    }
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, change: &Change) {
    match change {
        Change::Create(path, id) => {
            names.insert(path.clone(), *id);
        }
        Change::Rename(from, to) => {
            if let Some(id) = names.remove(from) {
                names.insert(to.clone(), id);
            }
        }
        Change::Remove(path) => {
            names.remove(path);
        }
    }
}

fn parent(change: &Change) -> Option<&Path> {
    match change {
        Change::Create(path, _) | Change::Remove(path) | Change::Rename(_, path) => path.parent(),
    }
}

impl Files for Disk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let state = self.state();
        state.on()?;
        Ok(Arc::new(Handle { disk: self.clone(), inode: state.find(path)?, process: state.process }))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut state = self.state();
        state.change()?;
        if state.names.contains_key(path) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        let id = state.inodes.len();
        state.inodes.push(Inode::default());
        state.names.insert(path.to_owned(), id);
        state.unsynced.push(Change::Create(path.to_owned(), id));
        Ok(Arc::new(Handle { disk: self.clone(), inode: id, process: state.process }))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        let id = state.find(from)?;
        if !state.links {
            return Err(io::Error::from(io::ErrorKind::CrossesDevices));
        }
        if state.names.contains_key(to) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        // In the folder it is what a new file is: a name for an inode.
        let change = Change::Create(to.to_owned(), id);
        apply(&mut state.names, &change);
        state.unsynced.push(change);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        if state.names.get(to).is_some_and(|id| state.names.get(from) == Some(id)) {
            // POSIX: two names of one file stay two names.
            return Ok(());
        }
        state.find(from)?;
        let change = Change::Rename(from.to_owned(), to.to_owned());
        apply(&mut state.names, &change);
        state.unsynced.push(change);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.find(path)?;
        state.change()?;
        let change = Change::Remove(path.to_owned());
        apply(&mut state.names, &change);
        state.unsynced.push(change);
        Ok(())
    }

    fn discard(&self, path: &Path) -> io::Result<()> {
        let within: Vec<PathBuf> = self.state().names.keys().filter(|name| name.starts_with(path)).cloned().collect();
        within.iter().try_for_each(|name| self.remove(name))
    }

    fn create_dir(&self, _path: &Path) -> io::Result<()> {
        self.state().on()
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.state().on()?;
        Ok(path.to_owned())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        state.on()?;
        let here = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(here.filter_map(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned()).collect())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        let (synced, rest) = state.unsynced.drain(..).partition(|change| parent(change) == Some(dir));
        state.unsynced = rest;
        let synced: Vec<Change> = synced;
        for change in &synced {
            apply(&mut state.durable_names, change);
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        let mut state = self.state();
        state.on()?;
        if !state.locked.insert(path.to_owned()) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "in use by another process"));
        }
        Ok(Box::new(Held { disk: self.clone(), path: path.to_owned(), process: state.process }))
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        let state = self.state();
        state.on()?;
        Ok(state.capacity_bytes.saturating_sub(state.used_bytes()))
    }

    fn boot_id(&self) -> u128 {
        self.state().boot
    }
}

struct Held {
    disk: Disk,
    path: PathBuf,
    process: u64,
}

impl DirLock for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.process == self.process {
            state.locked.remove(&self.path);
        }
    }
}

struct Handle {
    disk: Disk,
    inode: usize,
    process: u64,
}

impl Handle {
    /// The disk, if the process that opened the file still lives.
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.state();
        if state.process != self.process {
            return Err(io::Error::other("the process that opened the file has ended"));
        }
        Ok(state)
    }
}

impl File for Handle {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.state()?;
        state.on()?;
        let mut want = buffer.len();
        if state.short_reads && want > 1 {
            want = 1 + usize::try_from(state.random.below(want as u64)).expect("below a usize");
        }
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let here = offset..offset + want as u64;
        if state.unreadable.iter().any(|(id, at)| *id == self.inode && here.contains(at)) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let bytes = state.inode(self.inode).current.get(from..).unwrap_or_default();
        let n = want.min(bytes.len());
        for (to, from) in buffer.iter_mut().zip(bytes.iter().take(n)) {
            *to = *from;
        }
        Ok(n)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state()?;
        state.change()?;
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let to = from + bytes.len();
        state.grow(self.inode, to)?;
        let inode = state.inode(self.inode);
        inode.current.get_mut(from..to).expect("the file was grown to hold the write").copy_from_slice(bytes);
        inode.dirty.extend(from / SECTOR..to.div_ceil(SECTOR));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state()?;
        let outcome = state.change();
        let lying = state.lying_syncs;
        let inode = state.inode(self.inode);
        match outcome {
            Ok(()) if lying => Ok(()),
            Ok(()) => {
                inode.persist();
                Ok(())
            }
            Err(error) => {
                // The kernel marks the pages clean all the same: a later sync will not write them.
                inode.dirty.clear();
                Err(error)
            }
        }
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = self.state()?;
        state.on()?;
        Ok(state.inode(self.inode).current.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state()?;
        state.change()?;
        let len = usize::try_from(len).map_err(io::Error::other)?;
        state.grow(self.inode, len)?;
        state.inode(self.inode).resize(len);
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut state = self.state()?;
        state.change()?;
        let len = usize::try_from(len).map_err(io::Error::other)?;
        state.grow(self.inode, len)
    }

    fn expect_small_writes(&self) -> bool {
        // It makes no difference here; callers go the way that they go on real disks.
        true
    }

    fn make_ready(&self, _from: u64, _to: u64) {}
}

#[cfg(test)]
mod tests;
