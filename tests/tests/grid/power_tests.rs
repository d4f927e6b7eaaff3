//! Power cuts: what the journal loses, because it was acknowledged before it was on stable storage, no table has.

use std::path::Path;
use std::sync::Arc;

use base::OsClock;
use base::memory::Disk;
use holdfast::space::{Definition, Entries, ReadOptions, Wanted, WriteOptions};
use holdfast::{Durability, Limits, MemoryLedgers, Options, Store, World};
use holdfast_tests::{Random, say, until};

use super::databases::Postgres;
use super::scene::{Database, LONG, SCHEMA, entries, mirror, order};

/// A store on a disk whose power can be cut, which syncs only when it is asked to.
fn open(disk: &Disk, ledgers: &MemoryLedgers) -> (Store, Entries) {
    let world = World {
        files: Arc::new(disk.clone()),
        clock: Arc::new(OsClock::new()),
        ledgers: Arc::new(ledgers.clone()),
        threads: true,
        entropy: 42,
    };
    let options = Options { durability: Durability::Written, limits: Limits::tiny(), ..Options::default() };
    let store = Store::open_in(&world, Path::new("/store"), options).unwrap();
    let orders = store.space("shop").declare(Definition { history: true, ..Definition::new("shop", "order") }).unwrap();
    (store, orders)
}

/// Rows of what was lost stayed, and the mirror went on from a bookmark behind which the journal had other events by then: those before it were
/// passed over, without a word.
#[test]
fn a_table_has_nothing_that_a_power_cut_takes_from_the_journal() {
    let postgres = Postgres::start(0);
    let database = Database::connect(&postgres);
    database.run(SCHEMA);
    let mut random = Random::new(Random::seed());
    let (disk, ledgers) = (Disk::new(random.number()), MemoryLedgers::default());
    let (mut total, mut lost) = (0, 0);
    for round in 0..12 {
        let (store, orders) = open(&disk, &ledgers);
        // The journal grows past where a mirror of before may have stood, before this one looks.
        for _ in 0..random.below(60) {
            total += 1;
            orders.write(&order(1000 + total % 5, total), &WriteOptions::default()).unwrap();
        }
        let running = mirror(&orders, &postgres);
        assert!(running.flush(LONG), "{round}: {:?}", running.stats());
        assert_eq!(database.table(), entries(&orders), "{round}");
        let begun = running.stats().events;
        for number in 0..40 + random.below(200) {
            total += 1;
            let id = i64::from(random.below(30) as u32);
            match random.below(6) {
                0 => drop(orders.take(&Wanted::id(id), &ReadOptions::default()).unwrap()),
                1 => {
                    let mut transaction = store.begin();
                    for id in [id, id + 100] {
                        orders.within(&mut transaction).write(&order(id, total), &WriteOptions::default()).unwrap();
                    }
                    if number % 2 == 0 {
                        running.commit(transaction, Durability::Written, LONG).unwrap();
                    } else {
                        transaction.commit(Durability::Written).unwrap();
                    }
                }
                _ => drop(orders.write(&order(id, total), &WriteOptions::default()).unwrap()),
            }
        }
        // Somewhere in the middle of what the mirror has to do.
        let some = random.below(150) as u64;
        until(LONG, || (running.stats().events >= begun + some.min(30)).then_some(()));
        let had = entries(&orders);
        disk.power_cut();
        let stats = running.stop();
        drop((store, orders));
        disk.power_on();
        let table = database.table();
        let (store, orders) = open(&disk, &ledgers);
        let has = entries(&orders);
        lost += usize::from(has != had);
        // What the mirror had yet to do is all that the table may lack: it goes on, and has no row that nobody wrote.
        let running = mirror(&orders, &postgres);
        assert!(running.flush(LONG), "{round}: {:?} after {stats:?}", running.stats());
        assert_eq!(database.table(), has, "{round}: the table had {table:?}");
        running.stop();
        store.close().unwrap();
    }
    assert!(lost > 0, "a power cut takes what was not synced");
    say(format_args!("mirror under power cuts: {total} writes, {lost} cuts of 12 that lost something"));
}
