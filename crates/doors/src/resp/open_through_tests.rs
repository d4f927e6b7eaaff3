//! Commits through a table, which is one of the test's own here: what is answered, who waits, and how closing ends that.
//!
//! May use: the clients of `open_tests.rs`, the facade. Must not know: databases.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use holdfast::space::{NotThrough, ReadOptions, Wanted, WriteThrough};
use holdfast::{Committed, Durability, Error, ErrorKind, Transaction};

use super::*;

type Outcome = fn(Transaction, Durability) -> Result<Committed, NotThrough>;

/// A table that does with a transaction what the test says, when it says so.
struct Table {
    name: &'static str,
    outcome: Outcome,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    waiting: usize,
    /// How long each was to wait, at most, and how durable it was to be.
    asked: Vec<(Duration, Durability)>,
}

impl Table {
    fn following(entries: &Entries, outcome: Outcome) -> Arc<Self> {
        Self::named("jobs", entries, outcome)
    }

    fn named(name: &'static str, entries: &Entries, outcome: Outcome) -> Arc<Self> {
        let table = Arc::new(Table { name, outcome, state: Mutex::default(), changed: Condvar::new() });
        let dynamic: Arc<dyn WriteThrough> = table.clone();
        entries.follow_in(Arc::downgrade(&dynamic));
        table
    }

    fn close(&self, is_closed: bool) {
        self.state.lock().unwrap().is_closed = is_closed;
        self.changed.notify_all();
    }

    fn waiting(&self) -> usize {
        self.state.lock().unwrap().waiting
    }

    fn asked(&self) -> Vec<(Duration, Durability)> {
        std::mem::take(&mut self.state.lock().unwrap().asked)
    }
}

impl WriteThrough for Table {
    fn name(&self) -> &str {
        self.name
    }

    fn commit(
        &self,
        transaction: Transaction,
        durability: Durability,
        wait: Duration,
    ) -> Result<Committed, NotThrough> {
        let mut state = self.state.lock().unwrap();
        state.asked.push((wait, durability));
        state.waiting += 1;
        let (mut state, late) = self.changed.wait_timeout_while(state, wait, |state| state.is_closed).unwrap();
        state.waiting -= 1;
        drop(state);
        if late.timed_out() {
            return Err(NotThrough::Nothing(Error::new(ErrorKind::Timeout, "the table did not take it")));
        }
        (self.outcome)(transaction, durability)
    }
}

fn takes(transaction: Transaction, durability: Durability) -> Result<Committed, NotThrough> {
    transaction.commit(durability).map_err(NotThrough::of_commit)
}

fn is_behind(transaction: Transaction, durability: Durability) -> Result<Committed, NotThrough> {
    let committed = takes(transaction, durability)?;
    Err(NotThrough::TableBehind { committed, reason: Error::new(ErrorKind::Unavailable, "it is away") })
}

fn refuses(_: Transaction, _: Durability) -> Result<Committed, NotThrough> {
    Err(NotThrough::Nothing(Error::new(ErrorKind::Invalid, "no such customer")))
}

fn fails(_: Transaction, _: Durability) -> Result<Committed, NotThrough> {
    Err(NotThrough::Unknown(Error::new(ErrorKind::Unavailable, "the disk is gone")))
}

const LONG: &str = "TX.COMMIT THROUGH 60000";

fn write(client: &mut Client, id: u64) {
    client.check(&[("TX.BEGIN", ID), (&format!("SPACE.WRITE shop jobs {{\"id\":{id}}}"), &format!(":{id} :0"))]);
}

#[test]
fn the_answer_says_who_has_it() {
    let shop = shop(Order::Any);
    let mut one = shop.client();
    let cases: [(Outcome, &str, bool); 4] = [
        (takes, ":", true),
        (is_behind, "-BEHIND ", true),
        (refuses, "-ERR nothing was changed: no such customer", false),
        (fails, "-UNKNOWN whether it happened is not known: the disk is gone", false),
    ];
    for (id, (outcome, says, is_there)) in (1_u64..).zip(cases) {
        let table = Table::following(&shop.entries, outcome);
        write(&mut one, id);
        let reply = one.ask(LONG);
        assert!(reply.starts_with(says), "{reply}");
        let there = shop.entries.read(&Wanted::id(id), &ReadOptions::default()).unwrap();
        assert_eq!(there.is_some(), is_there, "{reply}");
        if let (Some(entry), Some(behind)) = (there, reply.strip_prefix("-BEHIND ")) {
            let (position, why) = behind.split_once(' ').unwrap();
            assert_eq!(position, entry.version.get().to_string(), "{reply}");
            assert!(why.ends_with("its table gets it when it can: it is away"), "{reply}");
        }
        // It has ended, whatever became of it, and nothing is locked.
        one.check(&[("TX.COMMIT", NONE_OPEN), ("TX.LIST", "")]);
        drop(table);
    }
    write(&mut one, 9);
    let stopped = "-UNAVAILABLE nothing was changed: the mirror of the type jobs has stopped, and takes nothing now";
    one.check(&[(LONG, stopped)]);
}

#[test]
fn a_commit_through_a_table_is_as_durable_as_was_asked_for() {
    let shop = shop_with(Order::Any, |options| options.durability = Some(Durability::Written));
    let table = Table::following(&shop.entries, takes);
    let mut one = shop.client();
    for (write, commit, durability) in [
        ("", "", "written"),
        (" DURABILITY synced", "", "synced"),
        (" DURABILITY synced", " DURABILITY written", "written"),
        ("", " DURABILITY synced", "synced"),
    ] {
        one.check(&[("TX.BEGIN", ID), (&format!("SPACE.WRITE shop jobs {{\"id\":1}}{write}"), ":1 :0")]);
        one.check(&[("SPACE.WRITE shop jobs {\"id\":2}", ":2 :0")]);
        one.commit(&format!("TX.COMMIT THROUGH 5000{commit}"));
        let asked = table.asked();
        assert_eq!(asked.len(), 1);
        assert!(asked[0].0 <= Duration::from_secs(5), "{asked:?}");
        assert_eq!(asked[0].1.to_string(), durability, "{write} {commit}");
    }
}

#[test]
fn who_waits_for_tables_keeps_nobody_else_waiting() {
    // Two may.
    let shop = shop_with(Order::Any, |options| options.limits.transaction_waits_max = 2);
    let table = Table::following(&shop.entries, takes);
    table.close(true);
    let mut waiting = [shop.client(), shop.client()];
    for (client, id) in waiting.iter_mut().zip(1..) {
        write(client, id);
        client.send(LONG);
    }
    until("both wait", || table.waiting() == 2);
    let (mut third, mut other) = (shop.client(), shop.client());
    write(&mut third, 3);
    let begun = Instant::now();
    let no_turn = "-TIMEOUT nothing was changed: too many others wait for this table; begin again";
    third.check(&[("TX.COMMIT THROUGH 50", no_turn)]);
    assert!(begun.elapsed() >= Duration::from_millis(50), "it waited as long as it was to");
    third.check(&[("TX.COMMIT", NONE_OPEN)]);
    // Nor do those of other tables wait, and who needs none.
    let others = shop.store.space("shop").declare(Definition::new("shop", "others")).unwrap();
    let _open = Table::named("others", &others, takes);
    third.check(&[("TX.BEGIN", ID), ("SPACE.WRITE shop others {\"id\":1}", ":1 :0")]);
    third.commit("TX.COMMIT THROUGH 5000");
    third.check(&[("TX.BEGIN", ID), ("SET a b", "+OK")]);
    third.commit("TX.COMMIT THROUGH 5000");
    // Others commit, wait for locks and for entries.
    write(&mut other, 4);
    other.commit("TX.COMMIT");
    other.check(&[("TX.BEGIN", ID)]);
    other.send("SPACE.TAKE shop jobs ID 5 BLOCK 0");
    until("it waits", || shop.entries.waiters() == 1);
    write(&mut third, 5);
    third.commit("TX.COMMIT");
    assert!(other.reply().starts_with("{\"id\":5}"));
    assert_eq!(shop.entries.usage().entries, 2, "what waits has not happened");
    table.close(false);
    for client in &mut waiting {
        assert!(client.reply().starts_with(':'));
    }
    assert_eq!(shop.entries.usage().entries, 4);
}

#[test]
fn a_transaction_that_waits_for_its_turn_is_not_given_its_time_anew() {
    let shop = shop_with(Order::Any, |options| options.limits.transaction_waits_max = 1);
    let table = Table::following(&shop.entries, takes);
    table.close(true);
    let (mut one, mut two) = (shop.client(), shop.client());
    write(&mut one, 1);
    one.send("TX.COMMIT THROUGH 300");
    until("it waits", || table.waiting() == 1);
    write(&mut two, 2);
    two.send("TX.COMMIT THROUGH 60000");
    let late = "-TIMEOUT nothing was changed: the table did not take it";
    assert_eq!(one.reply(), late);
    until("it has its turn", || table.waiting() == 1);
    table.close(false);
    assert!(two.reply().starts_with(':'));
    let asked = table.asked();
    assert!(asked[1].0 < Duration::from_secs(60), "{asked:?}");
}

#[test]
fn closing_the_door_waits_for_no_table() {
    let shop = shop(Order::Any);
    let table = Table::following(&shop.entries, takes);
    table.close(true);
    let mut one = shop.client();
    write(&mut one, 1);
    one.send(LONG);
    until("it waits", || table.waiting() == 1);
    let begun = Instant::now();
    shop.server.running.stop();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    table.close(false);
    // Nobody is told any more what becomes of it, which is what a lost answer is.
    until("it is over", || shop.store.open_transactions().is_empty());
}
