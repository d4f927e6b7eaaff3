//! Many entries of a store of this process.

use holdfast::space::Definition;
use holdfast::{Options, Store};

use super::*;
use crate::Client;

/// An awaited call took the first by itself and then as many as the LIMIT said, so one too many.
#[test]
fn a_limit_counts_also_when_taking_many_is_awaited() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Options::default()).unwrap();
    let jobs = Client::embedded(&store).unwrap().space("shop").declare(Definition::new("shop", "jobs")).wait().unwrap();
    for number in 0..9_i64 {
        jobs.write(&Document::from_pairs([("id", number)]), &WriteOptions::default()).wait().unwrap();
    }
    // LIMIT, max, taken.
    for (limit, max, taken) in [(2, 100, 2), (0, 100, 0), (3, 1, 1), (1, 3, 1), (100, 100, 5)] {
        let wanted = Wanted::query(&format!("id >= 0 LIMIT {limit}"), &[]).unwrap();
        let got = crate::call::block_on(jobs.take_many(&wanted, max, &ReadOptions::default())).unwrap();
        assert_eq!(got.len(), taken, "LIMIT {limit}, max {max}");
    }
    assert_eq!(jobs.count(&Wanted::all()).wait().unwrap(), 0);
}
