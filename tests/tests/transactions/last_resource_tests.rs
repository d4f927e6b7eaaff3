//! PostgreSQL as the last resource: its commit is the decision, whoever dies around it. One test, because two servers take
//! seconds to start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast::{Options, PutOptions};
use mysql_async::prelude::Queryable;
use tempfile::TempDir;
use tm::{
    Answer, Begin, BoxFuture, Branch, BranchName, Coordinator, Decisions, Embedded, Fate, LastResource, MysqlBranch,
    Outcome, PostgresBranch, PostgresLastResource, PostgresManager, ResourceManager, Sharing, Transaction,
    TransactionId, XaCode,
};

use crate::bank::{Clients, MONEY, Reach, name};
use crate::databases::{MariaDb, Postgres};

struct Setting {
    postgres: Postgres,
    _mariadb: MariaDb,
    reach: Reach,
    clients: Clients,
    decisions: Embedded,
    coordinator: Coordinator,
    last: Arc<dyn LastResource>,
    _folder: TempDir,
}

/// What becomes of the commit that decides.
#[derive(Clone, Copy)]
enum Commit {
    Whole,
    /// It never gets there.
    Lost,
    /// It does, and its answer is lost.
    Unheard,
}

/// A branch of PostgreSQL between which and the program something goes wrong.
struct Between(PostgresBranch, Commit);

impl Branch for Between {
    fn prepare(&mut self) -> BoxFuture<'_, Answer> {
        self.0.prepare()
    }

    fn commit_one_phase(&mut self) -> BoxFuture<'_, Answer> {
        self.0.commit_one_phase()
    }

    fn commit_last<'a>(&'a mut self, others: &'a [BranchName]) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let lost = Answer::new(XaCode::ManagerDown, "the connection is gone");
            match self.1 {
                Commit::Whole => self.0.commit_last(others).await,
                Commit::Lost => lost,
                Commit::Unheard => {
                    assert_eq!(self.0.commit_last(others).await.code, XaCode::Ok);
                    lost
                }
            }
        })
    }

    fn commit(&mut self) -> BoxFuture<'_, Answer> {
        self.0.commit()
    }

    fn rollback(&mut self) -> BoxFuture<'_, Answer> {
        self.0.rollback()
    }
}

/// A last resource that may be out of reach.
struct Away {
    last: Arc<dyn LastResource>,
    is_away: Arc<AtomicBool>,
}

impl LastResource for Away {
    fn id(&self) -> tm::LastResourceId {
        self.last.id()
    }

    fn settle<'a>(&'a self, ids: &'a [TransactionId]) -> BoxFuture<'a, Result<Vec<bool>, String>> {
        match self.is_away.load(Ordering::SeqCst) {
            true => Box::pin(async { Err("it is away".to_owned()) }),
            false => self.last.settle(ids),
        }
    }

    fn let_go(&self, id: TransactionId) {
        self.last.let_go(id);
    }
}

impl Setting {
    async fn begin(&self, commit: Commit, timeout: Option<Duration>) -> Transaction {
        self.begin_with(&self.last, commit, timeout).await
    }

    async fn begin_with(&self, last: &Arc<dyn LastResource>, commit: Commit, timeout: Option<Duration>) -> Transaction {
        let begin = Begin { timeout, ..Begin::default() };
        let mut transaction = self.coordinator.begin_with_last(begin, last).unwrap();
        let branch = PostgresBranch::start(&self.clients.postgres, transaction.xid("postgres").unwrap()).await.unwrap();
        transaction.enlist_last(&name("postgres"), Between(branch, commit)).await.unwrap();
        let xid = transaction.xid("mariadb").unwrap();
        let branch = MysqlBranch::start(&self.clients.mariadb, &xid).await.unwrap();
        transaction.enlist(&name("mariadb"), branch).await.unwrap();
        transaction
    }

    async fn transfer(&self, transaction: &Transaction) -> String {
        let id = transaction.id().to_string();
        self.clients.transfer(&id, 1, 2, 5).await.unwrap();
        id
    }

    /// Whether both have the transfer; they never differ.
    async fn has(&self, id: &str) -> bool {
        let (here, there) = self.reach.connect().await.unwrap().transfers().await;
        let id = id.to_owned();
        assert_eq!(here.contains(&id), there.contains(&id));
        here.contains(&id)
    }

    /// The rows of the table of decisions, with whether they are commits.
    async fn rows(&self) -> Vec<(String, bool)> {
        let query = format!("SELECT id, committed FROM {} ORDER BY id", self.table());
        let client = self.reach.postgres_manager().connect().await.unwrap();
        client.query(&query, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    fn table(&self) -> String {
        format!("holdfast.decisions_{:016x}", self.last.id().0)
    }

    async fn recovered(&self) -> Vec<Fate> {
        self.reach.recovery(&self.coordinator).run().await.found.iter().map(|found| found.fate).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_resource_decides_by_its_commit() {
    // It can prepare nothing: no branch of it ever is.
    let (postgres, mariadb) = (Postgres::start(0), MariaDb::start());
    let reach = Reach::new(&postgres.connection(), &mariadb.socket());
    reach.found().await;
    let folder = tempfile::tempdir().unwrap();
    let decisions = Embedded::open(folder.path(), Options::default()).unwrap();
    let coordinator = Coordinator::embedded(decisions.clone());
    assert!(reach.postgres_manager().check().await.concat().contains("max_prepared_transactions is 0"));
    assert_eq!(reach.postgres_manager().without_prepare().check().await, [""; 0]);
    let last = PostgresLastResource::open(&reach.postgres_manager()).await.unwrap();
    let clients = reach.connect().await.unwrap();
    let last: Arc<dyn LastResource> = Arc::new(last);
    let mut setting =
        Setting { postgres, _mariadb: mariadb, reach, clients, decisions, coordinator, last, _folder: folder };
    both_commit_and_the_decision_goes(&setting).await;
    what_it_refuses_is_rolled_back_everywhere(&setting).await;
    alone_it_keeps_no_decision(&setting).await;
    a_commit_waits_for_the_disk_whatever_the_session_says(&setting).await;
    an_answer_that_was_lost_is_asked_for(&setting).await;
    nobody_commits_what_was_asked_for_before(&setting).await;
    a_transaction_ends_at_its_deadline_and_after_a_day(&setting).await;
    a_program_that_cannot_ask_leaves_it_to_recovery(&setting).await;
    recovery_without_it_leaves_everything_alone(&setting).await;
    what_a_killed_program_left_is_swept(&setting).await;
    one_table_for_all_and_rights_are_asked_for_in_plain_words(&setting).await;
    only_one_branch_of_a_transaction_that_has_it(&setting).await;
    assert_eq!(setting.clients.prepared().await, (0, 0));
    setting.postgres.restart_with(Vec::new());
    setting.clients = setting.reach.connect().await.unwrap();
    where_the_store_takes_part_the_coordinator_decides(&setting).await;
}

async fn both_commit_and_the_decision_goes(setting: &Setting) {
    let transaction = setting.begin(Commit::Whole, None).await;
    let id = setting.transfer(&transaction).await;
    assert!(transaction.commit().await.unwrap().pending.is_empty());
    assert_eq!(setting.clients.money().await, (MONEY - 5, MONEY + 5));
    // The coordinator knows nothing of it.
    let status = setting.decisions.store().xa().status(id.parse().unwrap()).unwrap();
    assert_eq!(status.wait(holdfast::Durability::Written).unwrap().state, tm::State::Unknown);
    assert_eq!(setting.rows().await, [(id, true)]);
    // With the last of them nothing is left.
    let one = PostgresLastResource::open(&setting.reach.postgres_manager()).await.unwrap();
    for (id, _) in setting.rows().await {
        one.let_go(id.parse().unwrap());
    }
    drop(one);
    for _ in 0..600 {
        if setting.rows().await.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(setting.rows().await, []);
}

async fn what_it_refuses_is_rolled_back_everywhere(setting: &Setting) {
    let money = setting.clients.money().await;
    let deferred =
        "CREATE TABLE bank.once (id INT UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO bank.once VALUES (1)";
    setting.clients.postgres.batch_execute(deferred).await.unwrap();
    // A statement that failed and was not noticed; a constraint that is looked at by the commit itself.
    for (statement, word) in [("SELECT 1/0", "aborted"), ("INSERT INTO bank.once VALUES (1)", "once_id_key")] {
        let transaction = setting.begin(Commit::Whole, None).await;
        let id = setting.transfer(&transaction).await;
        let _ = setting.clients.postgres.batch_execute(statement).await;
        let failed = transaction.commit().await.unwrap_err();
        assert_eq!(failed.outcome, Outcome::RolledBack);
        assert!(failed.to_string().contains(word), "{failed}");
        assert!(!setting.has(&id).await);
    }
    // And what MariaDB refuses is never committed here.
    let transaction = setting.begin(Commit::Whole, None).await;
    let id = setting.transfer(&transaction).await;
    setting
        .clients
        .mariadb
        .lock()
        .await
        .query_drop(format!("XA END {0}; XA ROLLBACK {0}", literal(&transaction)))
        .await
        .unwrap();
    assert_eq!(transaction.commit().await.unwrap_err().outcome, Outcome::RolledBack);
    assert!(!setting.has(&id).await);
    // What the program ended itself is not known, and no transaction that it began since is taken for it.
    let transaction = setting.begin(Commit::Whole, None).await;
    let id = setting.transfer(&transaction).await;
    setting.clients.postgres.batch_execute("ROLLBACK; BEGIN").await.unwrap();
    assert_eq!(transaction.commit().await.unwrap_err().outcome, Outcome::Hazard);
    assert!(!setting.has(&id).await);
    assert_eq!((setting.clients.money().await, setting.rows().await), (money, Vec::new()));
}

fn literal(transaction: &Transaction) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("X'{}',X'{}',{}", hex(&transaction.id().to_bytes()), hex(b"mariadb"), tm::FORMAT_ID)
}

async fn alone_it_keeps_no_decision(setting: &Setting) {
    let mut transaction = setting.coordinator.begin_with_last(Begin::default(), &setting.last).unwrap();
    let branch = PostgresBranch::start(&setting.clients.postgres, transaction.xid("postgres").unwrap()).await.unwrap();
    transaction.enlist_last(&name("postgres"), branch).await.unwrap();
    setting
        .clients
        .postgres
        .batch_execute("UPDATE bank.accounts SET money = money WHERE id = 1; NOTIFY told")
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(setting.rows().await, []);
}

/// A trigger writes down what the session waits for when the decision is written.
async fn a_commit_waits_for_the_disk_whatever_the_session_says(setting: &Setting) {
    let trigger = format!(
        "CREATE TABLE bank.waits (word text);
         CREATE FUNCTION bank.note() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO bank.waits VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;
         CREATE TRIGGER note BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION bank.note()",
        setting.table()
    );
    let postgres = &setting.clients.postgres;
    postgres.batch_execute(&trigger).await.unwrap();
    for word in ["off", "local", "on"] {
        postgres.batch_execute(&format!("SET synchronous_commit = {word}")).await.unwrap();
        let transaction = setting.begin(Commit::Whole, None).await;
        setting.transfer(&transaction).await;
        transaction.commit().await.unwrap();
        // Of the session it stays what it was.
        let after: String = postgres.query_one("SHOW synchronous_commit", &[]).await.unwrap().get(0);
        assert_eq!(after, word);
    }
    let rows = postgres.query("SELECT word FROM bank.waits", &[]).await.unwrap();
    let waits: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(waits, ["on", "local", "on"]);
    postgres
        .batch_execute(&format!("RESET synchronous_commit; DROP TRIGGER note ON {0}; DELETE FROM {0}", setting.table()))
        .await
        .unwrap();
}

async fn an_answer_that_was_lost_is_asked_for(setting: &Setting) {
    for (commit, is_committed) in [(Commit::Lost, false), (Commit::Unheard, true)] {
        let transaction = setting.begin(commit, None).await;
        let id = setting.transfer(&transaction).await;
        let ended = transaction.commit().await;
        assert_eq!(ended.is_ok(), is_committed, "{ended:?}");
        if !is_committed {
            // It was told to nobody, and its own connection has it yet.
            assert_eq!(ended.unwrap_err().outcome, Outcome::RolledBack);
            let _ = setting.clients.postgres.batch_execute("ROLLBACK").await;
        }
        assert_eq!(setting.has(&id).await, is_committed);
    }
}

async fn nobody_commits_what_was_asked_for_before(setting: &Setting) {
    let transaction = setting.begin(Commit::Whole, None).await;
    let id = setting.transfer(&transaction).await;
    // Asked twice, it says the same.
    for _ in 0..2 {
        assert_eq!(setting.last.settle(&[transaction.id()]).await, Ok(vec![false]));
    }
    let failed = transaction.commit().await.unwrap_err();
    assert_eq!(failed.outcome, Outcome::RolledBack);
    assert!(
        failed.to_string().contains("recovery gave it up") && failed.to_string().contains("decisions_"),
        "{failed}"
    );
    assert!(!setting.has(&id).await);
    assert!(setting.rows().await.contains(&(id, false)));
    // Who asks while it commits waits for it. The row stands there, and the transaction is open.
    let (asked, row) =
        (setting.coordinator.begin_with_last(Begin::default(), &setting.last).unwrap().id(), setting.table());
    let insert = format!("BEGIN; INSERT INTO {row} (id, committed, branches) VALUES ('{asked}', true, 'mariadb')");
    setting.clients.postgres.batch_execute(&insert).await.unwrap();
    let asking = tokio::spawn({
        let last = Arc::clone(&setting.last);
        async move { last.settle(&[asked]).await }
    });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let other = setting.reach.connect().await.unwrap();
    while other.postgres.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(!asking.is_finished());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    setting.clients.postgres.batch_execute("COMMIT").await.unwrap();
    assert_eq!(asking.await.unwrap(), Ok(vec![true]));
}

async fn a_transaction_ends_at_its_deadline_and_after_a_day(setting: &Setting) {
    let transaction = setting.begin(Commit::Whole, Some(Duration::from_millis(20))).await;
    let id = setting.transfer(&transaction).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    let failed = transaction.commit().await.unwrap_err();
    assert_eq!(failed.outcome, Outcome::RolledBack);
    assert!(failed.to_string().contains("the transaction's deadline has passed ("), "{failed}");
    assert!(!setting.has(&id).await);
    let row = |began: &str, decided: &str, committed: bool| {
        format!(
            "INSERT INTO {} (id, committed, branches, began, decided) VALUES ('{began}', {committed}, '', \
             clock_timestamp() - interval '{began}', clock_timestamp() - interval '{decided}')",
            setting.table()
        )
    };
    let postgres = &setting.clients.postgres;
    postgres.batch_execute(&row("23 hours", "0", true)).await.unwrap();
    let refused = postgres.batch_execute(&row("25 hours", "0", true)).await.unwrap_err();
    assert!(refused.as_db_error().unwrap().message().contains("it_began_a_day_ago"));
    // So what was refused two days ago can come no more.
    postgres.batch_execute(&row("49 hours", "49 hours", false)).await.unwrap();
    postgres.batch_execute(&row("47 hours", "47 hours", false)).await.unwrap();
    let id = setting.coordinator.begin_with_last(Begin::default(), &setting.last).unwrap().id();
    assert_eq!(setting.last.settle(&[id]).await, Ok(vec![false]));
    let rows = setting.rows().await;
    assert!(
        rows.contains(&("47 hours".to_owned(), false)) && !rows.contains(&("49 hours".to_owned(), false)),
        "{rows:?}"
    );
    let removed = format!("DELETE FROM {} WHERE id LIKE '% hours'", setting.table());
    postgres.batch_execute(&removed).await.unwrap();
}

async fn a_program_that_cannot_ask_leaves_it_to_recovery(setting: &Setting) {
    for (commit, is_committed) in [(Commit::Lost, false), (Commit::Unheard, true)] {
        let is_away = Arc::new(AtomicBool::new(true));
        let away: Arc<dyn LastResource> = Arc::new(Away { last: Arc::clone(&setting.last), is_away });
        let transaction = setting.begin_with(&away, commit, None).await;
        let id = setting.transfer(&transaction).await;
        let failed = transaction.commit().await.unwrap_err();
        assert_eq!(failed.outcome, Outcome::Unknown);
        assert!(failed.to_string().contains("it is away"), "{failed}");
        assert_eq!(failed.pending, [name("postgres"), name("mariadb")]);
        if !is_committed {
            let _ = setting.clients.postgres.batch_execute("ROLLBACK").await;
        }
        // The program lives, and has said that it decides nothing any more.
        let told = setting.decisions.verdicts(&[id.parse().unwrap()]).unwrap();
        assert_eq!(told, [tm::Verdict::LastResource]);
        // MariaDB's connection has it.
        let verdict = if is_committed { Fate::Committed } else { Fate::RolledBack };
        let clients = setting.reach.connect().await.unwrap();
        let kill: Vec<u64> = clients
            .mariadb
            .lock()
            .await
            .query("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'root'")
            .await
            .unwrap();
        for connection in kill {
            let _ = clients.mariadb.lock().await.query_drop(format!("KILL {connection}")).await;
        }
        let mut fates = Vec::new();
        for _ in 0..600 {
            fates = setting.recovered().await;
            if fates == [verdict] {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(fates, [verdict]);
        assert_eq!(setting.has(&id).await, is_committed);
        *setting.clients.mariadb.lock().await = mysql_async::Conn::new(setting.reach.mariadb.clone()).await.unwrap();
    }
}

/// A branch in MariaDB that its program prepared and left.
async fn left(setting: &Setting, id: TransactionId) -> tm::Xid {
    let xid = tm::Xid { transaction: id, branch: name("mariadb") };
    let connection = mysql_async::Conn::new(setting.reach.mariadb.clone()).await.unwrap();
    let connection = Arc::new(tokio::sync::Mutex::new(connection));
    let mut branch = MysqlBranch::start(&connection, &xid).await.unwrap();
    let insert = format!("INSERT INTO bank.transfers VALUES ('{id}')");
    connection.lock().await.query_drop(insert).await.unwrap();
    assert_eq!(branch.prepare().await.code, XaCode::Ok);
    drop(branch);
    Arc::into_inner(connection).unwrap().into_inner().disconnect().await.unwrap();
    xid
}

async fn recovery_without_it_leaves_everything_alone(setting: &Setting) {
    let begun = setting.coordinator.begin_with_last(Begin::default(), &setting.last).unwrap().id();
    left(setting, begun).await;
    // While its program lives nobody decides for it.
    assert_eq!(setting.recovered().await, [Fate::Left]);
    setting.decisions.abort(begun).unwrap();
    let mariadb: Vec<Arc<dyn ResourceManager>> = setting.reach.managers().into_iter().skip(1).collect();
    let report = tm::Recovery::new(&setting.coordinator, mariadb, tm::Pace::default()).run().await;
    assert_eq!(report.found.iter().map(|found| found.fate).collect::<Vec<_>>(), [Fate::Left]);
    let why = &report.down.first().unwrap().reason;
    assert!(why.contains("none of these resource managers is it") && !report.is_clean(), "{why}");
    // Another database of the same name is not it.
    let elsewhere = setting.reach.postgres.replace("dbname=postgres", "dbname=template1").parse().unwrap();
    let mut managers = setting.reach.managers();
    managers[0] = Arc::new(PostgresManager::new(name("postgres"), elsewhere));
    let report = tm::Recovery::new(&setting.coordinator, managers, tm::Pace::default()).run().await;
    assert_eq!(report.found.iter().map(|found| found.fate).collect::<Vec<_>>(), [Fate::Left]);
    assert_eq!(setting.recovered().await, [Fate::RolledBack]);
    assert!(!setting.has(&begun.to_string()).await);
}

async fn what_a_killed_program_left_is_swept(setting: &Setting) {
    let ids = [0; 3].map(|_| setting.coordinator.begin_with_last(Begin::default(), &setting.last).unwrap().id());
    let [known, open, unnamed] = ids;
    // Many that are of others stood before, and were all that a sweep looked at.
    let others = format!(
        "INSERT INTO {} (id, committed, branches) SELECT 'a' || number, true, 'theirs' FROM generate_series(1, 10001) number",
        setting.table()
    );
    setting.clients.postgres.batch_execute(&others).await.unwrap();
    for (id, branches) in [(known, "mariadb"), (open, "mariadb"), (unnamed, "mariadb queue")] {
        let insert = format!(
            "INSERT INTO {} (id, committed, branches) VALUES ('{id}', true, '{branches}'); INSERT INTO bank.transfers VALUES ('{id}')",
            setting.table()
        );
        setting.clients.postgres.batch_execute(&insert).await.unwrap();
    }
    left(setting, open).await;
    let before = setting.rows().await;
    let managers = setting.reach.managers();
    // Not what is younger, nor of others.
    assert_eq!(tm::sweep(&setting.decisions, &managers, Duration::from_secs(60)).await, Ok(0));
    let others = tempfile::tempdir().unwrap();
    let others = Embedded::open(others.path(), Options::default()).unwrap();
    assert_eq!(tm::sweep(&others, &managers, Duration::ZERO).await, Ok(0));
    assert_eq!(setting.rows().await, before);
    // What is prepared somewhere, and what has a branch at a stranger's, stays.
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(tm::sweep(&setting.decisions, &managers, Duration::ZERO).await.unwrap() >= 1);
    let rows = setting.rows().await;
    let has = |id: TransactionId| rows.contains(&(id.to_string(), true));
    assert_eq!([known, open, unnamed].map(has), [false, true, true]);
    setting.decisions.abort(open).unwrap();
    assert_eq!(setting.recovered().await, [Fate::Committed]);
    assert!(setting.has(&open.to_string()).await);
    assert_eq!(tm::sweep(&setting.decisions, &managers, Duration::ZERO).await, Ok(1));
    let clean =
        format!("DELETE FROM {}; DELETE FROM bank.transfers WHERE id IN ('{known}', '{unnamed}')", setting.table());
    assert_eq!(setting.rows().await.iter().filter(|(id, _)| id.starts_with('a')).count(), 10_001);
    setting.clients.postgres.batch_execute(&clean).await.unwrap();
}

async fn one_table_for_all_and_rights_are_asked_for_in_plain_words(setting: &Setting) {
    let manager = setting.reach.postgres_manager();
    let again = PostgresLastResource::open(&manager).await.unwrap();
    assert_eq!(again.id(), setting.last.id());
    let grants =
        "CREATE ROLE clerk LOGIN; GRANT ALL ON SCHEMA bank TO clerk; GRANT ALL ON ALL TABLES IN SCHEMA bank TO clerk";
    for statement in [grants, "CREATE DATABASE shop"] {
        setting.clients.postgres.batch_execute(statement).await.unwrap();
    }
    let of = |from: &str, to: &str| {
        let config = setting.reach.postgres.replace(from, to).parse().unwrap();
        PostgresManager::new(name("postgres"), config)
    };
    // Who may not make it is told what it is about.
    let elsewhere =
        setting.reach.postgres.replace("user=postgres", "user=clerk").replace("dbname=postgres", "dbname=shop");
    let refused = PostgresLastResource::open(&PostgresManager::new(name("postgres"), elsewhere.parse().unwrap())).await;
    let refused = refused.err().unwrap();
    assert!(refused.contains("a table for decisions in the schema holdfast: permission denied"), "{refused}");
    // Where it is, the rights that are documented are enough.
    let clerk = of("user=postgres", "user=clerk");
    let client = Arc::new(clerk.connect().await.unwrap());
    for granted in [false, true] {
        if granted {
            let grant = format!(
                "GRANT USAGE ON SCHEMA holdfast TO clerk; GRANT SELECT, INSERT, DELETE ON {} TO clerk",
                setting.table()
            );
            setting.clients.postgres.batch_execute(&grant).await.unwrap();
        }
        let last: Arc<dyn LastResource> = match PostgresLastResource::open(&clerk).await {
            Ok(last) => Arc::new(last),
            Err(refused) => {
                let grant = format!("GRANT SELECT, INSERT, DELETE ON {} TO \"clerk\"", setting.table());
                assert!(!granted && refused.contains(&grant), "{refused}");
                Arc::clone(&setting.last)
            }
        };
        let mut transaction = setting.coordinator.begin_with_last(Begin::default(), &last).unwrap();
        let branch = PostgresBranch::start(&client, transaction.xid("postgres").unwrap()).await.unwrap();
        transaction.enlist_last(&name("postgres"), branch).await.unwrap();
        let branch = MysqlBranch::start(&setting.clients.mariadb, &transaction.xid("mariadb").unwrap()).await.unwrap();
        transaction.enlist(&name("mariadb"), branch).await.unwrap();
        let id = transaction.id();
        let insert = format!("INSERT INTO bank.transfers VALUES ('{id}')");
        client.batch_execute(&insert).await.unwrap();
        setting.clients.mariadb.lock().await.query_drop(insert).await.unwrap();
        let ended = transaction.commit().await;
        assert_eq!(setting.has(&id.to_string()).await, granted);
        if granted {
            ended.unwrap();
            assert_eq!(last.settle(&[id]).await, Ok(vec![true]));
        } else {
            let failed = ended.unwrap_err();
            assert!(failed.to_string().contains("permission denied for schema holdfast"), "{failed}");
        }
    }
}

async fn only_one_branch_of_a_transaction_that_has_it(setting: &Setting) {
    let shared = Begin { sharing: Sharing::Shared, ..Begin::default() };
    let refused = setting.coordinator.begin_with_last(shared, &setting.last).err().unwrap();
    assert!(refused.text.contains("the coordinator decides"), "{refused}");
    for has_last in [false, true] {
        let begin = Begin::default();
        let mut transaction = match has_last {
            true => setting.coordinator.begin_with_last(begin, &setting.last).unwrap(),
            false => setting.coordinator.begin(begin).unwrap(),
        };
        let xid = transaction.xid("postgres").unwrap();
        let branch = PostgresBranch::start(&setting.clients.postgres, xid).await.unwrap();
        let enlisted = transaction.enlist_last(&name("postgres"), branch).await;
        assert_eq!(enlisted.is_ok(), has_last);
        let other = setting.reach.connect().await.unwrap();
        let branch = PostgresBranch::start(&other.postgres, transaction.xid("second").unwrap()).await.unwrap();
        let refused = transaction.enlist_last(&name("second"), branch).await.unwrap_err();
        let word = if has_last { "already" } else { "begin_with_last" };
        assert!(refused.text.contains(word), "{refused}");
        transaction.rollback().await.unwrap();
    }
}

/// And where no branch was enlisted as the last.
async fn where_the_store_takes_part_the_coordinator_decides(setting: &Setting) {
    for by_store in [true, false] {
        let mut transaction = setting.coordinator.begin_with_last(Begin::default(), &setting.last).unwrap();
        let branch =
            PostgresBranch::start(&setting.clients.postgres, transaction.xid("postgres").unwrap()).await.unwrap();
        if by_store {
            transaction.enlist_last(&name("postgres"), branch).await.unwrap();
            transaction.kv().unwrap().put(b"b", b"k", b"v", &PutOptions::default()).unwrap();
        } else {
            transaction.enlist(&name("postgres"), branch).await.unwrap();
        }
        let branch = MysqlBranch::start(&setting.clients.mariadb, &transaction.xid("mariadb").unwrap()).await.unwrap();
        transaction.enlist(&name("mariadb"), branch).await.unwrap();
        let id = setting.transfer(&transaction).await;
        transaction.commit().await.unwrap();
        assert!(setting.has(&id).await);
        assert!(!setting.rows().await.iter().any(|(row, _)| *row == id));
    }
}
