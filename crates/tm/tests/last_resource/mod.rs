//! Transactions that a last resource decides about.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use holdfast::Durability;
use holdfast_tm::{
    Begin, BoxFuture, BranchName, Coordinator, CoordinatorId, Decisions, Deed, Embedded, Error, LastResource,
    LastResourceId, Learned, Outcome, ResourceManager, TransactionId, Verdict, Vote, XaCode,
};

use super::monkey::Monkey;

/// A coordinator, and how durable each decision was to be.
struct Noting {
    embedded: Embedded,
    decided: Mutex<Vec<Option<Durability>>>,
}

impl Decisions for Noting {
    fn coordinator(&self) -> CoordinatorId {
        self.embedded.coordinator()
    }

    fn begin(&self, begin: Begin) -> Result<TransactionId, Error> {
        self.embedded.begin(begin)
    }

    fn commit(&self, id: TransactionId, branches: &[BranchName], how: Option<Durability>) -> Result<(), Error> {
        self.decided.lock().unwrap().push(how);
        self.embedded.commit(id, branches, how)
    }

    fn done(&self, id: TransactionId, done: &[Learned]) {
        self.embedded.done(id, done);
    }

    fn abort(&self, id: TransactionId) -> Result<(), Error> {
        self.embedded.abort(id)
    }

    fn record_deeds(&self, id: TransactionId, deeds: &[Deed]) -> Result<(), Error> {
        self.embedded.record_deeds(id, deeds)
    }

    fn verdicts(&self, ids: &[TransactionId]) -> Result<Vec<Verdict>, Error> {
        self.embedded.verdicts(ids)
    }

    fn enlist(&self, id: TransactionId, branches: &[BranchName]) -> Result<(), Error> {
        self.embedded.enlist(id, branches)
    }

    fn suspend(&self, id: TransactionId, branches: &[BranchName]) -> Result<(), Error> {
        self.embedded.suspend(id, branches)
    }

    fn resume(&self, id: TransactionId, number: u64) -> Result<(), Error> {
        self.embedded.resume(id, number)
    }

    fn prepared(&self, id: TransactionId, branch: &BranchName, part: Vote) -> Result<(), Error> {
        self.embedded.prepared(id, branch, part)
    }
}

/// A last resource that has committed whatever it is asked about, until it lets go of it.
#[derive(Default)]
struct Keeper {
    has_let_go: AtomicBool,
}

impl LastResource for Keeper {
    fn id(&self) -> LastResourceId {
        LastResourceId(7)
    }

    fn settle<'a>(&'a self, ids: &'a [TransactionId]) -> BoxFuture<'a, Result<Vec<bool>, String>> {
        Box::pin(async { Ok(ids.iter().map(|_| true).collect()) })
    }

    fn let_go(&self, _id: TransactionId) {
        self.has_let_go.store(true, Ordering::SeqCst);
    }
}

/// The last resource lets go of its decision then. At a coordinator that writes without waiting for the disk a power cut took the
/// copy as well, and the branch that was left was rolled back.
#[tokio::test]
async fn a_copy_of_the_last_resources_decision_is_on_the_disk_before_that_lets_go() {
    for (commit, copied) in [(XaCode::Ok, vec![]), (XaCode::ManagerDown, vec![Some(Durability::Synced)])] {
        let bank = super::bank();
        let noting = Arc::new(Noting { embedded: bank.embedded.clone(), decided: Mutex::default() });
        let coordinator = Coordinator::over(Arc::clone(&noting) as Arc<dyn Decisions>);
        let keeper = Arc::new(Keeper::default());
        let last: Arc<dyn LastResource> = Arc::clone(&keeper) as _;
        let mut transaction = coordinator.begin_with_last(Begin::default(), &last).unwrap();
        let (one, two) = (Monkey::new("one"), Monkey::new("two").answering("commit", commit));
        let xid = transaction.xid("one").unwrap();
        transaction.enlist_last(one.name(), one.branch(&xid)).await.unwrap();
        super::enlist(&mut transaction, &[&two]).await;
        let ended = transaction.commit().await;
        assert_eq!(ended.map_or_else(|failed| failed.outcome, |_| Outcome::Committed), Outcome::Committed);
        assert_eq!((one.calls(), two.calls()), (vec!["commit last"], vec!["prepare", "commit"]));
        assert_eq!(*noting.decided.lock().unwrap(), copied);
        assert!(keeper.has_let_go.load(Ordering::SeqCst));
    }
}
