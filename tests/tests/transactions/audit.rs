//! What has to hold when everybody who was killed is back: nothing in doubt, and both databases agree with each other and
//! with what programs were told.
//!
//! May use: `bank`, `books`, `tm`. Must not know: who killed whom.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

use holdfast::{Options, Page, Store};
use tm::{Begin, Coordinator, Embedded};

use crate::bank::{EACH, Reach, open};
use crate::books::Books;

/// How long recovery may take at the end: leases and back-off.
const CALM_TIME_MAX: Duration = Duration::from_secs(60);

/// What programs were told, by the transactions' ids.
#[derive(Default, Clone)]
pub(crate) struct Told {
    /// That it is committed.
    pub(crate) committed: Vec<String>,
    /// That it is rolled back.
    pub(crate) refused: Vec<String>,
}

/// Recovers what this coordinator's programs left, until nothing is found. Returns the transfers that its own store knows,
/// when it is in a folder.
pub(crate) async fn settled(reach: &Reach, place: &str) -> Vec<String> {
    let store = place.strip_prefix("dir:").map(|dir| Store::open(Path::new(dir), Options::default()).unwrap());
    let coordinator = match &store {
        Some(store) => Coordinator::embedded(Embedded::over(store.clone())),
        None => open(place).await.unwrap(),
    };
    // Becoming an owner ends earlier ones where the coordinator is in the program; a server waits for their leases.
    let _owner = coordinator.begin(Begin::default()).unwrap();
    let mut recovery = reach.recovery(&coordinator);
    let calm = async {
        loop {
            let report = recovery.run().await;
            if report.is_clean() && report.found.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    if tokio::time::timeout(CALM_TIME_MAX, calm).await.is_err() {
        panic!("still in doubt: {:?}", recovery.run().await);
    }
    let mut transfers = Vec::<String>::new();
    while let Some(store) = &store {
        let start = transfers.last().map_or(Bound::Unbounded, |last| Bound::Excluded(last.as_bytes()));
        let page = Page { bucket: b"transfers", start, end: Bound::Unbounded, limit: 500, values: false };
        let page = store.kv().page(&page).unwrap().value;
        transfers.extend(page.entries.into_iter().map(|(key, ..)| String::from_utf8(key).unwrap()));
        if !page.more {
            break;
        }
    }
    transfers
}

/// Waits until nobody has anything prepared, as somebody else recovers.
pub(crate) async fn until_calm(reach: &Reach) {
    let clients = reach.connect().await.unwrap();
    let calm = async {
        while clients.prepared().await != (0, 0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let is_calm = tokio::time::timeout(CALM_TIME_MAX, calm).await.is_ok();
    assert!(is_calm, "still in doubt: {:?}", clients.prepared().await);
}

/// Checks that nothing is in doubt, no money is lost, both know the same transfers, all of which somebody was told that they
/// are committed, and none of which it was told that they are not. Returns the transfers.
pub(crate) async fn audited(reach: &Reach, told: &Told, accounts: i64) -> Vec<String> {
    let (transfers, money) = agreed(reach, told).await;
    assert_eq!(money, 2 * accounts * EACH);
    transfers
}

/// The same, with as many accounts of each of two kinds in Holdfast besides, between all of which money moves.
pub(crate) async fn audited_with(books: &Books, reach: &Reach, told: &Told, accounts: i64) -> Vec<String> {
    let (transfers, money) = agreed(reach, told).await;
    books.know(&transfers).await;
    let [of_keys, of_entries] = books.money(accounts).await;
    assert_eq!(money + of_keys + of_entries, 4 * accounts * EACH, "{money} {of_keys} {of_entries}");
    transfers
}

/// Checks all but the sum. Returns the transfers, and the money of both databases.
async fn agreed(reach: &Reach, told: &Told) -> (Vec<String>, i64) {
    let clients = reach.connect().await.unwrap();
    let (here, there) = clients.money().await;
    let (transfers_here, transfers_there) = clients.transfers().await;
    assert_eq!(clients.prepared().await, (0, 0));
    let differ: BTreeSet<_> = transfers_here
        .iter()
        .collect::<BTreeSet<_>>()
        .symmetric_difference(&transfers_there.iter().collect())
        .copied()
        .collect();
    assert!(differ.is_empty(), "in one database only: {differ:?}");
    let is_there = |id: &&String| transfers_here.binary_search(id).is_ok();
    let lost: Vec<_> = told.committed.iter().filter(|id| !is_there(id)).collect();
    assert!(lost.is_empty(), "told as committed, and lost: {lost:?}");
    let kept: Vec<_> = told.refused.iter().filter(is_there).collect();
    assert!(kept.is_empty(), "told as rolled back, and committed: {kept:?}");
    (transfers_here, here + there)
}
