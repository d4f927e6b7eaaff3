//! The disk of the coordinator is full when it has to decide: nobody is told that something is committed that is not, and with
//! space and a restart both databases agree.

use std::fs;
use std::time::Duration;

use holdfast::PutOptions;
use holdfast_tests::{Launch, SmallDisk, Value, say};
use tm::{Coordinator, Outcome};

use crate::audit::{Told, audited, settled};
use crate::bank::{ACCOUNTS, Reach, open};
use crate::databases::{MariaDb, Postgres};

const MIB: usize = 1 << 20;
/// Enough for some segments of the journal.
const DISK: usize = 256 * MIB;
const BALLAST: usize = 128 * MIB;

/// Of values that fill it, and then what is left of the last segment.
const SIZES: [usize; 4] = [64 * 1024, 4096, 256, 1];

/// Where money is moved, and what was said about it.
struct Bank {
    reach: Reach,
    told: Told,
    unknown: usize,
    reasons: Vec<String>,
    number: i64,
}

impl Bank {
    /// One transfer, and what was said about it.
    async fn transfer(&mut self, coordinator: &Coordinator) -> Outcome {
        let clients = self.reach.connect().await.unwrap();
        let Ok(transaction) = clients.begin(coordinator).await else { return Outcome::RolledBack };
        let id = transaction.id().to_string();
        // What is in doubt holds its locks.
        self.number += 1;
        let account = self.number % ACCOUNTS;
        let patience = Duration::from_secs(2);
        let transfer = tokio::time::timeout(patience, clients.transfer(&id, account, account, 5)).await;
        if !matches!(transfer, Ok(Ok(()))) {
            return Outcome::RolledBack;
        }
        let outcome = match transaction.commit().await {
            Ok(_) => Outcome::Committed,
            Err(failed) => {
                self.reasons.push(failed.to_string());
                failed.outcome
            }
        };
        match outcome {
            Outcome::Committed => self.told.committed.push(id),
            Outcome::RolledBack => self.told.refused.push(id),
            Outcome::Unknown => self.unknown += 1,
            torn => panic!("{torn:?}: {:?}", self.reasons),
        }
        outcome
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_with_a_full_disk_commits_nothing_that_it_does_not_keep() {
    let disk = match SmallDisk::mount(DISK as u64) {
        Ok(disk) => disk,
        Err(reason) => {
            say!("SKIPPED a full disk: cannot mount a small one: {reason}");
            return;
        }
    };
    let (postgres, mariadb) = (Postgres::start(20), MariaDb::start());
    let reach = Reach::new(&postgres.connection(), &mariadb.socket());
    reach.found().await;
    let mut bank = Bank { reach, told: Told::default(), unknown: 0, reasons: Vec::new(), number: 0 };
    of_a_server(&disk, &mut bank).await;
    of_a_directory(&disk, &mut bank).await;
    say!(
        "full disk: {} transfers told as committed, {} rolled back, {} not known",
        bank.told.committed.len(),
        bank.told.refused.len(),
        bank.unknown
    );
}

async fn of_a_server(disk: &SmallDisk, bank: &mut Bank) {
    let ballast = disk.ballast(BALLAST);
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let launch = Launch::new(&disk.path().join("data")).resp(&address);
    let server = launch.start();
    let coordinator = open(&address).await.unwrap();
    assert_eq!(bank.transfer(&coordinator).await, Outcome::Committed);
    let mut client = server.client();
    // The smaller, the more of the last segment is used up.
    for size in SIZES {
        let value = vec![7_u8; size];
        let refused =
            (0..DISK).find_map(|number| client.set(&format!("{size}-{number}"), &value).error().map(str::to_owned));
        assert!(refused.unwrap().starts_with("UNAVAILABLE no space left on the disk"));
    }
    for _ in 0..4 {
        assert_ne!(bank.transfer(&coordinator).await, Outcome::Committed, "{:?}", bank.reasons);
    }
    assert_eq!(client.say("PING"), Value::Simple("PONG".into()));
    fs::remove_file(&ballast).unwrap();
    // The program lives, and so nobody but it can say that what was refused will not be committed.
    settled(&bank.reach, &address).await;
    assert_eq!(bank.transfer(&coordinator).await, Outcome::Committed, "{:?}", bank.reasons);
    audited(&bank.reach, &bank.told, ACCOUNTS).await;
    drop(coordinator);
    server.kill();
    let server = launch.start_again();
    let coordinator = open(&address).await.unwrap();
    assert_eq!(bank.transfer(&coordinator).await, Outcome::Committed, "{:?}", bank.reasons);
    audited(&bank.reach, &bank.told, ACCOUNTS).await;
    server.kill();
    fs::remove_dir_all(disk.path().join("data")).unwrap();
}

async fn of_a_directory(disk: &SmallDisk, bank: &mut Bank) {
    let ballast = disk.ballast(BALLAST);
    bank.reasons.clear();
    let place = format!("dir:{}", disk.path().join("own").display());
    let store = holdfast::Store::open(disk.path().join("own"), holdfast::Options::default()).unwrap();
    let coordinator = Coordinator::embedded(tm::Embedded::over(store.clone()));
    assert_eq!(bank.transfer(&coordinator).await, Outcome::Committed);
    let fill = |size: usize| -> Result<(), holdfast::Error> {
        for number in 0..DISK {
            let mut batch = store.begin();
            let (key, value) = (format!("{size}-{number}"), vec![7_u8; size]);
            batch.put(b"ballast", key.as_bytes(), &value, &PutOptions::default())?;
            batch.commit(store.durability())?;
        }
        Ok(())
    };
    for size in SIZES {
        assert!(fill(size).unwrap_err().to_string().starts_with("no space left on the disk"));
    }
    for _ in 0..4 {
        assert_ne!(bank.transfer(&coordinator).await, Outcome::Committed, "{:?}", bank.reasons);
    }
    fs::remove_file(&ballast).unwrap();
    assert_eq!(bank.transfer(&coordinator).await, Outcome::Committed, "{:?}", bank.reasons);
    drop((coordinator, store));
    settled(&bank.reach, &place).await;
    let coordinator = open(&place).await.unwrap();
    assert_eq!(bank.transfer(&coordinator).await, Outcome::Committed, "{:?}", bank.reasons);
    audited(&bank.reach, &bank.told, ACCOUNTS).await;
}
