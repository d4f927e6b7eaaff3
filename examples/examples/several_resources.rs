//! One transaction over two resource managers of one's own and a key in the coordinator's store: all of it or nothing.
//!
//! A resource manager takes part by a few answers. A real one makes `prepare` durable before it answers, and lists what it
//! has prepared to recovery (`tm::ResourceManager`); PostgreSQL and MariaDB are there ready-made, see
//! docs/concepts/transactions.md.
//!
//! Run it: `cargo run -p holdfast-examples --example several_resources`
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::sync::{Arc, Mutex, PoisonError};

use holdfast::{Options, PutOptions, Store};
use tm::{Answer, Begin, BoxFuture, Branch, BranchName, Coordinator, Embedded, XaCode};

/// A purse that is never empty.
#[derive(Clone)]
struct Purse(Arc<Mutex<i64>>);

/// What one transaction does to it.
struct Payment {
    purse: Purse,
    change: i64,
}

impl Purse {
    fn new(coins: i64) -> Self {
        Self(Arc::new(Mutex::new(coins)))
    }

    fn coins(&self) -> i64 {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pay(&self, change: i64) -> Payment {
        Payment { purse: self.clone(), change }
    }
}

impl Payment {
    fn carry_out(&self) -> BoxFuture<'_, Answer> {
        *self.purse.0.lock().unwrap_or_else(PoisonError::into_inner) += self.change;
        Box::pin(async { XaCode::Ok.into() })
    }
}

impl Branch for Payment {
    fn prepare(&mut self) -> BoxFuture<'_, Answer> {
        let enough = self.purse.coins() + self.change >= 0;
        let refusal = || Answer::new(XaCode::RolledBackIntegrity, "there is not so much in the purse");
        Box::pin(async move { if enough { XaCode::Ok.into() } else { refusal() } })
    }

    fn commit_one_phase(&mut self) -> BoxFuture<'_, Answer> {
        self.carry_out()
    }

    fn commit(&mut self) -> BoxFuture<'_, Answer> {
        self.carry_out()
    }

    fn rollback(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async { XaCode::Ok.into() })
    }
}

async fn transfer(
    coordinator: &Coordinator,
    from: &Purse,
    to: &Purse,
    coins: i64,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut transaction = coordinator.begin(Begin::default())?;
    transaction.enlist(&BranchName::new("from")?, from.pay(-coins)).await?;
    transaction.enlist(&BranchName::new("to")?, to.pay(coins)).await?;
    let note = format!("{coins} coins");
    transaction.kv()?.put(b"transfers", b"newest", note.as_bytes(), &PutOptions::default())?;
    transaction.commit().await?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path(), Options::default())?;
    let coordinator = Coordinator::embedded(Embedded::over(store.clone()));
    let (ada, bo) = (Purse::new(10), Purse::new(0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        transfer(&coordinator, &ada, &bo, 7).await?;
        match transfer(&coordinator, &ada, &bo, 4).await {
            Err(refused) => println!("4 coins: {refused}"),
            Ok(()) => return Err("there were only 3".into()),
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    let newest = store.kv().get(b"transfers", b"newest")?.map(|note| String::from_utf8_lossy(&note.value).into_owned());
    println!("ada has {}, bo has {}, and the newest transfer is {newest:?}", ada.coins(), bo.coins());
    assert_eq!((ada.coins(), bo.coins(), newest.as_deref()), (3, 7, Some("7 coins")));
    Ok(store.close()?)
}
