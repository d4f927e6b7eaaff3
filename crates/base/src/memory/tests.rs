//! What the disk in memory promises, and what it takes away.

use super::*;
use crate::files::{Placed, link_or_copy};

fn path(name: &str) -> PathBuf {
    PathBuf::from("/d").join(name)
}

#[test]
fn synced_bytes_survive_a_power_cut_and_unsynced_ones_only_by_luck() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..64 {
        let disk = Disk::new(seed);
        let file = disk.create(&path("a")).unwrap();
        file.write_at(&[1; SECTOR], 0).unwrap();
        file.sync().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        file.write_at(&[2; SECTOR], SECTOR as u64).unwrap();
        disk.power_cut();
        assert!(file.read_at(&mut [0], 0).is_err(), "a disk without power answers nothing");
        disk.power_on();
        let file = disk.open(&path("a")).unwrap();
        let mut read = [0; SECTOR];
        read_exact(&*file, &mut read);
        assert_eq!(read, [1; SECTOR]);
        let len = file.len().unwrap();
        let mut second = vec![9; SECTOR];
        let n = file.read_at(&mut second, SECTOR as u64).unwrap();
        outcomes.insert((len, second.first().copied().filter(|_| n > 0)));
    }
    let whole = 2 * SECTOR as u64;
    assert_eq!(outcomes, BTreeSet::from([(SECTOR as u64, None), (whole, Some(0)), (whole, Some(2))]));
}

fn read_exact(file: &dyn File, buffer: &mut [u8]) {
    crate::files::read_exact_at(file, buffer, 0).unwrap();
}

#[test]
fn a_file_without_directory_sync_may_vanish() {
    let there = |seed| {
        let disk = Disk::new(seed);
        disk.create(&path("a")).unwrap().sync().unwrap();
        disk.power_cut();
        disk.power_on();
        disk.open(&path("a")).is_ok()
    };
    let outcomes: BTreeSet<bool> = (0..64).map(there).collect();
    assert_eq!(outcomes.len(), 2);
}

#[test]
fn a_failed_sync_loses_what_it_should_have_written() {
    let disk = Disk::new(1);
    let file = disk.create(&path("a")).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    file.write_at(b"lost", 0).unwrap();
    disk.plan(0, Fault::Error);
    assert!(file.sync().is_err());
    file.sync().unwrap();
    let mut read = [0; 4];
    read_exact(&*file, &mut read);
    assert_eq!(&read, b"lost", "the process still sees it");
    disk.power_cut();
    disk.power_on();
    let mut read = [1; 4];
    read_exact(&*disk.open(&path("a")).unwrap(), &mut read);
    assert_eq!(read, [0; 4]);
}

#[test]
fn a_full_disk_refuses_growth_and_keeps_the_rest() {
    let disk = Disk::new(1);
    disk.set_capacity(10);
    let file = disk.create(&path("a")).unwrap();
    file.write_at(b"12345678", 0).unwrap();
    assert_eq!(file.write_at(b"123", 8).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(file.allocate(11).unwrap_err().kind(), io::ErrorKind::StorageFull);
    file.write_at(b"87654321", 0).unwrap();
}

#[test]
fn a_link_is_the_same_file_and_survives_a_power_cut_once_its_folder_is_synced() {
    let outcomes: BTreeSet<bool> = (0..64)
        .map(|seed| {
            let disk = Disk::new(seed);
            let file = disk.create(&path("a")).unwrap();
            file.write_at(b"same", 0).unwrap();
            file.sync().unwrap();
            disk.sync_dir(Path::new("/d")).unwrap();
            disk.link(&path("a"), &path("b")).unwrap();
            assert_eq!(disk.link(&path("a"), &path("b")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            disk.remove(&path("a")).unwrap();
            let mut read = [0; 4];
            read_exact(&*disk.open(&path("b")).unwrap(), &mut read);
            assert_eq!(&read, b"same");
            if seed % 2 == 0 {
                disk.sync_dir(Path::new("/d")).unwrap();
            }
            disk.power_cut();
            disk.power_on();
            let there = disk.open(&path("b")).is_ok();
            assert!(there || seed % 2 == 1, "a name whose folder was synced stays");
            there
        })
        .collect();
    assert_eq!(outcomes.len(), 2);
}

#[test]
fn placing_replaces_whole_files_with_or_without_links() {
    for links in [true, false] {
        let disk = Disk::new(1);
        disk.set_links(links);
        for (name, bytes) in [("a", &b"new"[..]), ("b", b"old")] {
            let file = disk.create(&path(name)).unwrap();
            file.write_at(bytes, 0).unwrap();
            file.sync().unwrap();
        }
        let wanted = if links { Placed::Linked } else { Placed::Copied };
        for _ in 0..2 {
            assert_eq!(link_or_copy(&disk, &path("a"), &path("b")).unwrap(), wanted);
            assert_eq!(disk.list(Path::new("/d")).unwrap(), ["a", "b"], "nothing is left beside");
        }
        disk.sync_dir(Path::new("/d")).unwrap();
        disk.power_cut();
        disk.power_on();
        assert_eq!(crate::files::read_whole(&disk, &path("b"), 9).unwrap(), b"new");
    }
}

#[test]
fn a_lock_has_one_holder() {
    let disk = Disk::new(1);
    let held = disk.lock(&path("lock")).unwrap();
    assert_eq!(disk.lock(&path("lock")).err().unwrap().kind(), io::ErrorKind::WouldBlock);
    drop(held);
    assert!(disk.lock(&path("lock")).is_ok());
}
