//! What PostgreSQL and MariaDB do in transactions. One test, because two servers take seconds to start.

use std::time::Duration;

use holdfast::Options;
use mysql_async::prelude::Queryable;
use tempfile::TempDir;
use tm::{Begin, Branch, Coordinator, Decisions, Embedded, Fate, MysqlBranch, Outcome, PostgresBranch, XaCode};

use crate::bank::{MONEY, Reach, name};
use crate::databases::{MariaDb, Postgres};

struct Setting {
    postgres: Postgres,
    mariadb: MariaDb,
    reach: Reach,
    decisions: Embedded,
    coordinator: Coordinator,
    _folder: TempDir,
}

fn embedded() -> (TempDir, Embedded) {
    let folder = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(folder.path(), Options::default()).unwrap();
    (folder, embedded)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_databases_take_part_in_transactions() {
    let postgres = Postgres::start(0);
    let mariadb = MariaDb::start();
    let reach = Reach::new(&postgres.connection(), &mariadb.socket());
    reach.found().await;
    let (folder, decisions) = embedded();
    let coordinator = Coordinator::embedded(decisions.clone());
    let mut setting = Setting { postgres, mariadb, reach, decisions, coordinator, _folder: folder };
    a_database_that_cannot_prepare_is_found_out(&mut setting).await;
    both_commit_or_neither(&setting).await;
    a_statement_that_failed_is_never_committed(&setting).await;
    a_transaction_that_the_program_began_itself_is_not_taken_for_the_branch(&setting).await;
    a_transaction_that_is_dropped_leaves_its_connections_usable(&setting).await;
    a_deadlock_rolls_one_back(&setting).await;
    a_branch_whose_connection_is_open_is_not_believed_to_be_gone(&setting).await;
    a_prepared_branch_that_changed_nothing_is_no_loss(&setting).await;
    prepared_branches_survive_a_restart_of_their_database(&mut setting).await;
    neighbours_are_left_alone(&setting).await;
    branches_that_changed_nothing_drop_out_when_they_may_be_asked(&setting).await;
    a_session_may_be_idle_in_a_branch_until_the_deadline(&setting).await;
}

/// A program that hung between two statements kept its locks for ever, whatever deadline its transaction had.
async fn a_session_may_be_idle_in_a_branch_until_the_deadline(setting: &Setting) {
    let clients = setting.reach.connect().await.unwrap();
    let idle_ms = async || -> i32 {
        let setting = "SELECT setting::int FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'";
        clients.postgres.query_one(setting, &[]).await.unwrap().get(0)
    };
    for (timeout, least, most) in [(None, 0, 0), (Some(Duration::from_secs(3600)), 3_000_000, 3_600_000)] {
        let mut transaction = setting.coordinator.begin(Begin { timeout, ..Begin::default() }).unwrap();
        let xid = transaction.xid("idle").unwrap();
        let branch = PostgresBranch::start(&clients.postgres, xid).await.unwrap();
        transaction.enlist(&name("idle"), branch).await.unwrap();
        // A statement that takes a snapshot would forbid this.
        clients.postgres.batch_execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE").await.unwrap();
        let idle = idle_ms().await;
        assert!((least..=most).contains(&idle), "{idle}");
        transaction.commit().await.unwrap();
        assert_eq!(idle_ms().await, 0, "it is the branch's alone");
    }
}

/// The branch's name is taken in PostgreSQL, so that nothing can be prepared under it: what commits all the same dropped out.
async fn branches_that_changed_nothing_drop_out_when_they_may_be_asked(setting: &Setting) {
    let clients = setting.reach.connect().await.unwrap();
    let (money, prepared) = (clients.money().await, clients.prepared().await);
    let start = async |transaction: &mut tm::Transaction, asking: bool| {
        let xid = transaction.xid("asked").unwrap();
        let branch = PostgresBranch::start(&clients.postgres, xid).await.unwrap();
        let branch = if asking { branch.asking() } else { branch };
        transaction.enlist(&name("asked"), branch).await.unwrap();
        let started = MysqlBranch::start(&clients.mariadb, &transaction.xid("shop").unwrap()).await.unwrap();
        transaction.enlist(&name("shop"), started).await.unwrap();
        let update = "UPDATE bank.accounts SET money = money + 1 WHERE id = 2";
        clients.mariadb.lock().await.query_drop(update).await.unwrap();
    };
    let row = "SELECT money FROM bank.accounts WHERE id = 1";
    let other = setting.reach.connect().await.unwrap();
    for (asking, statement, commits) in [
        (true, row, true),
        (false, row, false),
        (true, "UPDATE bank.accounts SET money = money WHERE id = 1", false),
        (true, "SELECT money FROM bank.accounts WHERE id = 1 FOR UPDATE", false),
        (true, "UPDATE bank.accounts SET money = money WHERE id = 1; NOTIFY told", false),
        (false, "NOTIFY told", false),
    ] {
        let mut transaction = setting.coordinator.begin(Begin::default()).unwrap();
        let taken = format!("BEGIN; PREPARE TRANSACTION '{}'", transaction.xid("asked").unwrap());
        other.postgres.batch_execute(&taken).await.unwrap();
        start(&mut transaction, asking).await;
        clients.postgres.batch_execute(statement).await.unwrap();
        let ended = transaction.commit().await;
        assert_eq!(ended.is_ok(), commits, "{statement}: {ended:?}");
        // One that was refused rolled back what it found under its name.
        let _ = other.postgres.batch_execute(&taken.replace("BEGIN; PREPARE TRANSACTION", "ROLLBACK PREPARED")).await;
    }
    assert_eq!(clients.money().await, (money.0, money.1 + 1));
    // A statement that failed is never taken for nothing; and a transaction that is rolled back elsewhere did not change anything.
    let mut transaction = setting.coordinator.begin(Begin::default()).unwrap();
    start(&mut transaction, true).await;
    assert!(clients.postgres.batch_execute("SELECT 1/0").await.is_err());
    assert_eq!(transaction.commit().await.unwrap_err().outcome, Outcome::RolledBack);
    assert_eq!((clients.money().await, clients.prepared().await), ((money.0, money.1 + 1), prepared));
}

async fn a_database_that_cannot_prepare_is_found_out(setting: &mut Setting) {
    let managers = setting.reach.managers();
    let found = managers[0].check().await;
    assert!(found.len() == 1 && found[0].contains("max_prepared_transactions is 0"), "{found:?}");
    assert!(managers[1].check().await.is_empty());
    // And before anybody checks, nothing is half done.
    let clients = setting.reach.connect().await.unwrap();
    let transaction = clients.begin(&setting.coordinator).await.unwrap();
    clients.transfer("never", 1, 2, 5).await.unwrap();
    let failed = transaction.commit().await.unwrap_err();
    assert_eq!(failed.outcome, Outcome::RolledBack);
    assert!(failed.to_string().contains("prepared transactions are disabled"), "{failed}");
    assert_eq!(clients.money().await, (MONEY, MONEY));
    drop(clients);
    setting.postgres.kill();
    setting.postgres.run(20);
    assert!(setting.reach.managers()[0].check().await.is_empty());
    let stranger = Reach::new("host=127.0.0.1 port=1 user=nobody", "/nowhere".as_ref());
    for manager in stranger.managers() {
        let found = manager.check().await;
        assert!(found.len() == 1 && found[0].starts_with("cannot connect"), "{found:?}");
    }
}

async fn both_commit_or_neither(setting: &Setting) {
    let clients = setting.reach.connect().await.unwrap();
    let transaction = clients.begin(&setting.coordinator).await.unwrap();
    clients.transfer("first", 1, 2, 5).await.unwrap();
    assert!(transaction.commit().await.unwrap().pending.is_empty());
    let transaction = clients.begin(&setting.coordinator).await.unwrap();
    clients.transfer("second", 1, 2, 5).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(clients.money().await, (MONEY - 5, MONEY + 5));
    // One branch alone, of each.
    for money in [5, 0] {
        let mut transaction = setting.coordinator.begin(Begin::default()).unwrap();
        let xid = transaction.xid("one").unwrap();
        let update = format!("UPDATE bank.accounts SET money = money + {money} WHERE id = 1");
        if money > 0 {
            transaction
                .enlist(&name("one"), PostgresBranch::start(&clients.postgres, xid).await.unwrap())
                .await
                .unwrap();
            clients.postgres.batch_execute(&update).await.unwrap();
        } else {
            transaction.enlist(&name("one"), MysqlBranch::start(&clients.mariadb, &xid).await.unwrap()).await.unwrap();
            clients
                .mariadb
                .lock()
                .await
                .query_drop("UPDATE bank.accounts SET money = money - 5 WHERE id = 2")
                .await
                .unwrap();
        }
        transaction.commit().await.unwrap();
    }
    assert_eq!((clients.money().await, clients.prepared().await), ((MONEY, MONEY), (0, 0)));
}

async fn a_statement_that_failed_is_never_committed(setting: &Setting) {
    let clients = setting.reach.connect().await.unwrap();
    for alone in [false, true] {
        let transaction = if alone {
            let mut transaction = setting.coordinator.begin(Begin::default()).unwrap();
            let xid = transaction.xid("one").unwrap();
            transaction
                .enlist(&name("one"), PostgresBranch::start(&clients.postgres, xid).await.unwrap())
                .await
                .unwrap();
            transaction
        } else {
            let transaction = clients.begin(&setting.coordinator).await.unwrap();
            clients.transfer("lost", 1, 2, 5).await.unwrap();
            transaction
        };
        // The program did not look whether this worked.
        assert!(clients.postgres.batch_execute("SELECT 1/0").await.is_err());
        let failed = transaction.commit().await.unwrap_err();
        assert_eq!(failed.outcome, Outcome::RolledBack, "{failed}");
        assert_eq!((clients.money().await, clients.prepared().await), ((MONEY, MONEY), (0, 0)));
    }
    // MariaDB goes on after a statement that failed, as it does in its own transactions.
    let transaction = clients.begin(&setting.coordinator).await.unwrap();
    clients.transfer("kept", 1, 2, 0).await.unwrap();
    assert!(clients.mariadb.lock().await.query_drop("INSERT INTO bank.transfers VALUES ('kept')").await.is_err());
    transaction.commit().await.unwrap();
}

/// What was open was committed as the branch, which had been rolled back, or committed alone; and a branch of one that was not
/// open at all was said to be committed.
async fn a_transaction_that_the_program_began_itself_is_not_taken_for_the_branch(setting: &Setting) {
    let clients = setting.reach.connect().await.unwrap();
    let (money, prepared) = (clients.money().await, clients.prepared().await);
    let count = "UPDATE bank.accounts SET money = money + 1 WHERE id = 2";
    for (ending, outcome) in [
        ("ROLLBACK; BEGIN", Some(Outcome::Hazard)),
        ("COMMIT; BEGIN", Some(Outcome::Hazard)),
        ("ROLLBACK AND CHAIN", Some(Outcome::Hazard)),
        ("COMMIT AND CHAIN", Some(Outcome::Hazard)),
        ("ROLLBACK", Some(Outcome::Hazard)),
        ("SAVEPOINT s; RESET ALL; ROLLBACK TO s; RELEASE s", None),
    ] {
        for (asks, alone) in [(false, false), (true, false), (false, true)] {
            let mut transaction = setting.coordinator.begin(Begin::default()).unwrap();
            let xid = transaction.xid("own").unwrap();
            let branch = PostgresBranch::start(&clients.postgres, xid).await.unwrap();
            transaction.enlist(&name("own"), if asks { branch.asking() } else { branch }).await.unwrap();
            if !alone {
                let branch = MysqlBranch::start(&clients.mariadb, &transaction.xid("shop").unwrap()).await.unwrap();
                transaction.enlist(&name("shop"), branch).await.unwrap();
                clients.mariadb.lock().await.query_drop(format!("{count} AND 1 = 0")).await.unwrap();
            }
            clients.postgres.batch_execute(&format!("{ending}; SELECT 1")).await.unwrap();
            let failed = transaction.commit().await.err();
            assert_eq!(failed.as_ref().map(|failed| failed.outcome), outcome, "{ending}: {failed:?}");
            let is_told = |failed: tm::Failed| failed.to_string().contains("the program ended the branch itself");
            assert!(failed.is_none_or(is_told));
        }
    }
    assert_eq!((clients.money().await, clients.prepared().await), (money, prepared));
}

async fn a_transaction_that_is_dropped_leaves_its_connections_usable(setting: &Setting) {
    let clients = setting.reach.connect().await.unwrap();
    let transaction = clients.begin(&setting.coordinator).await.unwrap();
    clients.transfer("dropped", 1, 2, 5).await.unwrap();
    drop(transaction);
    // What it began to do comes first on PostgreSQL's connection; MariaDB's is tried until it is free.
    let transaction = loop {
        match clients.begin(&setting.coordinator).await {
            Ok(transaction) => break transaction,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    clients.transfer("after", 1, 2, 0).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!((clients.money().await, clients.prepared().await), ((MONEY, MONEY), (0, 0)));
}

async fn a_deadlock_rolls_one_back(setting: &Setting) {
    let (one, two) = (setting.reach.connect().await.unwrap(), setting.reach.connect().await.unwrap());
    let first = one.begin(&setting.coordinator).await.unwrap();
    let second = two.begin(&setting.coordinator).await.unwrap();
    let lock = |id: i32| format!("UPDATE bank.accounts SET money = money + 1 WHERE id = {id}");
    one.mariadb.lock().await.query_drop(lock(1)).await.unwrap();
    two.mariadb.lock().await.query_drop(lock(2)).await.unwrap();
    let (first_connection, second_connection) = (one.mariadb.clone(), two.mariadb.clone());
    let (left, right) =
        tokio::join!(async move { first_connection.lock().await.query_drop(lock(2)).await }, async move {
            second_connection.lock().await.query_drop(lock(1)).await
        },);
    assert!(left.is_err() != right.is_err(), "{left:?} {right:?}");
    let (victim, survivor) = if left.is_err() { (first, second) } else { (second, first) };
    let failed = victim.commit().await.unwrap_err();
    assert_eq!(failed.outcome, Outcome::RolledBack, "{failed}");
    survivor.rollback().await.unwrap();
    assert_eq!(one.prepared().await, (0, 0));
    for clients in [&one, &two] {
        clients.begin(&setting.coordinator).await.unwrap().commit().await.unwrap();
    }
}

/// A prepared branch of MariaDB belongs to its connection while that is open, and is unknown to all others.
async fn a_branch_whose_connection_is_open_is_not_believed_to_be_gone(setting: &Setting) {
    let clients = setting.reach.connect().await.unwrap();
    let transaction = setting.coordinator.begin(Begin::default()).unwrap();
    let xid = transaction.xid("mariadb").unwrap();
    let mut branch = MysqlBranch::start(&clients.mariadb, &xid).await.unwrap();
    let insert = "INSERT INTO bank.transfers VALUES ('slow')";
    clients.mariadb.lock().await.query_drop(insert).await.unwrap();
    assert_eq!(branch.prepare().await.code, XaCode::Ok);
    let manager = &setting.reach.managers()[1];
    assert_eq!(manager.in_doubt().await.unwrap(), vec![xid.clone()].into());
    assert_eq!(manager.commit(&xid).await.code, XaCode::Retry);
    drop((branch, clients));
    let clients = setting.reach.connect().await.unwrap();
    let committed = async {
        // The server notices by itself that the connection is closed.
        loop {
            match manager.commit(&xid).await.code {
                XaCode::Retry => tokio::task::yield_now().await,
                code => break code,
            }
        }
    };
    let code = tokio::time::timeout(Duration::from_secs(30), committed).await.unwrap();
    assert_eq!((code, manager.commit(&xid).await.code), (XaCode::Ok, XaCode::NotKnown));
    clients.mariadb.lock().await.query_drop("DELETE FROM bank.transfers WHERE id = 'slow'").await.unwrap();
}

/// When its connection ended MariaDB let it go; the commit was refused as of one that was rolled back, which was recorded as a
/// heuristic rollback, and people were told to compare data.
async fn a_prepared_branch_that_changed_nothing_is_no_loss(setting: &Setting) {
    let manager = &setting.reach.managers()[1];
    for (statement, end) in [
        ("SELECT 1", XaCode::ReadOnly),
        ("SELECT * FROM bank.accounts WHERE id = 1 FOR UPDATE", XaCode::ReadOnly),
        ("UPDATE bank.accounts SET money = money WHERE id = 1", XaCode::ReadOnly),
        ("UPDATE bank.accounts SET money = money + 0 WHERE id = 1", XaCode::ReadOnly),
        ("INSERT INTO bank.transfers VALUES ('kept by recovery')", XaCode::Ok),
    ] {
        let clients = setting.reach.connect().await.unwrap();
        let transaction = setting.coordinator.begin(Begin::default()).unwrap();
        let xid = transaction.xid("mariadb").unwrap();
        let mut branch = MysqlBranch::start(&clients.mariadb, &xid).await.unwrap();
        clients.mariadb.lock().await.query_drop(statement).await.unwrap();
        assert_eq!(branch.prepare().await.code, XaCode::Ok);
        drop((branch, clients));
        let committed = async {
            loop {
                match manager.commit(&xid).await.code {
                    XaCode::Retry => tokio::task::yield_now().await,
                    code => break code,
                }
            }
        };
        assert_eq!(tokio::time::timeout(Duration::from_secs(30), committed).await.unwrap(), end, "{statement}");
        assert!(manager.in_doubt().await.unwrap().branches.is_empty());
    }
    let clients = setting.reach.connect().await.unwrap();
    clients.mariadb.lock().await.query_drop("DELETE FROM bank.transfers WHERE id = 'kept by recovery'").await.unwrap();
}

async fn prepared_branches_survive_a_restart_of_their_database(setting: &mut Setting) {
    let mut ids = Vec::new();
    for (id, account, is_decided) in [("decided", 3, true), ("undecided", 4, false)] {
        let clients = setting.reach.connect().await.unwrap();
        let transaction = setting.coordinator.begin(Begin::default()).unwrap();
        let xids = ["postgres", "mariadb"].map(|name| transaction.xid(name).unwrap());
        let mut here = PostgresBranch::start(&clients.postgres, xids[0].clone()).await.unwrap();
        let mut there = MysqlBranch::start(&clients.mariadb, &xids[1]).await.unwrap();
        clients.transfer(id, account, account, 7).await.unwrap();
        assert_eq!((here.prepare().await.code, there.prepare().await.code), (XaCode::Ok, XaCode::Ok));
        if is_decided {
            let names = ["postgres", "mariadb"].map(name);
            setting.decisions.commit(transaction.id(), &names, None).unwrap();
        }
        ids.push(transaction.id());
    }
    setting.postgres.kill();
    setting.mariadb.kill();
    let mut recovery = setting.reach.recovery(&setting.coordinator);
    assert_eq!(recovery.run().await.down.len(), 2);
    setting.postgres.run(20);
    setting.mariadb.run();
    let report = recovery.run().await;
    let fates = |fate| report.found.iter().filter(|found| found.fate == fate).count();
    assert_eq!((fates(Fate::Committed), fates(Fate::Left)), (2, 2), "{report:?}");
    setting.decisions.abort(ids[1]).unwrap();
    let report = recovery.run().await;
    assert_eq!(report.found.iter().filter(|found| found.fate == Fate::RolledBack).count(), 2, "{report:?}");
    let clients = setting.reach.connect().await.unwrap();
    assert_eq!((clients.money().await, clients.prepared().await), ((MONEY - 7, MONEY + 7), (0, 0)));
    assert!(recovery.run().await.found.is_empty());
}

/// Prepared by somebody else, and by another coordinator of Holdfast.
async fn neighbours_are_left_alone(setting: &Setting) {
    let clients = setting.reach.connect().await.unwrap();
    let insert = "INSERT INTO bank.transfers VALUES";
    for (client, name) in [("a", "somebody"), ("b", "hfxa1.nonsense"), ("c", "hfxa1_like")] {
        let prepare = format!("BEGIN; {insert} ('{client}'); PREPARE TRANSACTION '{name}'");
        clients.postgres.batch_execute(&prepare).await.unwrap();
    }
    let prepare = format!("XA START 'somebody'; {insert} ('a'); XA END 'somebody'; XA PREPARE 'somebody'");
    clients.mariadb.lock().await.query_drop(prepare).await.unwrap();
    drop(clients);

    let (_folder, their_decisions) = embedded();
    let other = Coordinator::embedded(their_decisions.clone());
    let clients = setting.reach.connect().await.unwrap();
    let theirs = other.begin(Begin::default()).unwrap();
    let mut here = PostgresBranch::start(&clients.postgres, theirs.xid("postgres").unwrap()).await.unwrap();
    clients.postgres.batch_execute(&format!("{insert} ('theirs')")).await.unwrap();
    assert_eq!(here.prepare().await.code, XaCode::Ok);

    assert!(setting.reach.recovery(&setting.coordinator).run().await.found.is_empty());
    assert_eq!(clients.prepared().await, (4, 1));
    their_decisions.abort(theirs.id()).unwrap();
    let report = setting.reach.recovery(&other).run().await;
    assert_eq!((report.found.len(), report.found[0].fate), (1, Fate::RolledBack));
    assert_eq!(clients.prepared().await, (3, 1));
}
