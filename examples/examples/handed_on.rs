//! One transaction that goes from one part of a program to the next, with a resource manager of one's own that survives the crash of
//! the first: what it has prepared is recovery's.
//!
//! The two parts are tasks of one program here. In two programs the coordinator is a server
//! (`Coordinator::connect(RemoteOptions::new("host:7411"))`), and the id goes along as text.
//!
//! Run it: `cargo run -p holdfast-examples --example handed_on`
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast::{Options, Store};
use tm::{
    Answer, Begin, BoxFuture, Branch, BranchName, Coordinator, Embedded, InDoubt, Pace, Recovery, ResourceManager,
    Sharing, XaCode, Xid,
};

type Problem = Box<dyn std::error::Error>;

/// A shelf of goods. A real one would keep `prepared` on a disk.
#[derive(Clone)]
struct Shelf(Arc<Inner>);

struct Inner {
    name: BranchName,
    goods: Mutex<Goods>,
}

#[derive(Default)]
struct Goods {
    count: i64,
    prepared: BTreeMap<String, (Xid, i64)>,
}

/// What one transaction does to it.
struct Change {
    shelf: Shelf,
    xid: Xid,
    by: i64,
}

impl Shelf {
    fn new(name: &str, count: i64) -> Result<Self, Problem> {
        let goods = Mutex::new(Goods { count, ..Goods::default() });
        Ok(Self(Arc::new(Inner { name: BranchName::new(name)?, goods })))
    }

    fn goods(&self) -> MutexGuard<'_, Goods> {
        self.0.goods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, xid: Xid, by: i64) -> Change {
        Change { shelf: self.clone(), xid, by }
    }

    /// Ends what is prepared. That it is surely gone is an answer too: somebody else ended it.
    fn end(&self, xid: &Xid, commits: bool) -> Answer {
        let mut goods = self.goods();
        let Some((_, by)) = goods.prepared.remove(&xid.to_string()) else { return XaCode::NotKnown.into() };
        goods.count += if commits { by } else { 0 };
        XaCode::Ok.into()
    }
}

impl Branch for Change {
    fn prepare(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async {
            let mut goods = self.shelf.goods();
            if goods.count + self.by < 0 {
                return Answer::new(XaCode::RolledBackIntegrity, "there is not so much on the shelf");
            }
            goods.prepared.insert(self.xid.to_string(), (self.xid.clone(), self.by));
            XaCode::Ok.into()
        })
    }

    fn commit_one_phase(&mut self) -> BoxFuture<'_, Answer> {
        self.shelf.goods().count += self.by;
        Box::pin(async { XaCode::Ok.into() })
    }

    fn commit(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async { self.shelf.end(&self.xid, true) })
    }

    fn rollback(&mut self) -> BoxFuture<'_, Answer> {
        self.shelf.end(&self.xid, false);
        Box::pin(async { XaCode::Ok.into() })
    }
}

impl ResourceManager for Shelf {
    fn name(&self) -> &BranchName {
        &self.0.name
    }

    fn in_doubt(&self) -> BoxFuture<'_, Result<InDoubt, String>> {
        Box::pin(async {
            let branches: Vec<Xid> = self.goods().prepared.values().map(|(xid, _)| xid.clone()).collect();
            Ok(branches.into())
        })
    }

    fn commit<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        Box::pin(async { self.end(xid, true) })
    }

    fn rollback<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        Box::pin(async { self.end(xid, false) })
    }
}

/// Takes goods from a shelf, and says which transaction the next one is to go on with.
async fn send(coordinator: &Coordinator, from: &Shelf, count: i64) -> Result<String, Problem> {
    // With a timeout it goes on when this program has ended.
    let timeout = Some(Duration::from_secs(30));
    let mut transaction = coordinator.begin(Begin { timeout, sharing: Sharing::Shared })?;
    let xid = transaction.xid(from.name().as_str())?;
    transaction.enlist(from.name(), from.change(xid, -count)).await?;
    let suspended = transaction.suspend().await?;
    // As if the program died: what is dropped here stays prepared.
    Ok(suspended.id().to_string())
}

/// Puts them on another, and decides.
async fn receive(coordinator: &Coordinator, to: &Shelf, id: &str, count: i64) -> Result<(), Problem> {
    let mut transaction = coordinator.resume(id).await?;
    let xid = transaction.xid(to.name().as_str())?;
    transaction.enlist(to.name(), to.change(xid, count)).await?;
    transaction.commit().await?;
    Ok(())
}

async fn hand_on(coordinator: &Coordinator) -> Result<(), Problem> {
    let (harbour, shop) = (Shelf::new("harbour", 10)?, Shelf::new("shop", 0)?);
    let id = send(coordinator, &harbour, 7).await?;
    receive(coordinator, &shop, &id, 7).await?;
    println!("the shop has {}, and the harbour still {}", shop.goods().count, harbour.goods().count);
    let managers: Vec<Arc<dyn ResourceManager>> = vec![Arc::new(harbour.clone()), Arc::new(shop.clone())];
    let report = Recovery::new(coordinator, managers, Pace::default()).run().await;
    println!("recovery found {} in doubt; the harbour has {}", report.found.len(), harbour.goods().count);
    assert_eq!((shop.goods().count, harbour.goods().count, report.found.len()), (7, 3, 1));

    // More than there is: nothing is sent, and there is nothing to go on with.
    let refused = send(coordinator, &harbour, 4).await.map(drop).map_err(|problem| problem.to_string());
    println!("{refused:?}");
    assert!(refused.is_err_and(|text| text.contains("not so much")));
    Ok(())
}

fn main() -> Result<(), Problem> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path(), Options::default())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let coordinator = Coordinator::embedded(Embedded::over(store.clone()));
    runtime.block_on(hand_on(&coordinator))?;
    drop((coordinator, runtime));
    Ok(store.close()?)
}
