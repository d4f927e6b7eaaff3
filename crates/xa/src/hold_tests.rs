//! What is suspended takes no room that others need, and who says that he is a program is one.

use std::time::Duration;

use super::{Held, at, id, name};
use crate::error::TableError;
use crate::hold::{Resumer, SUSPENDED_MAX};
use crate::id::OwnerId;
use crate::owners::Lease;
use crate::table::{Commit, Patience};

#[test]
fn what_is_suspended_ends_within_a_month_and_leaves_half_of_the_table() {
    let mut held = Held::new();
    let most = held.limits.xa_transactions_max as u64;
    let owner = held.open(Lease::For(Duration::from_secs(10)), at(0)).unwrap();
    let longest = SUSPENDED_MAX.as_secs();
    let (far, never) = (id(owner, 1, longest + 1, true), id(owner, 2, 0, true));
    assert_eq!(held.table.suspend(far, None, &[], at(0)).unwrap_err(), TableError::TooLongSuspended);
    let _ = held.table.suspend(far, None, &[], at(1)).unwrap();
    let _ = held.table.suspend(never, None, &[name(1)], at(0)).unwrap();
    let refused = (3..=most).find_map(|number| {
        // As another program does that takes part before.
        let _ = held.table.enlist(id(owner, number, 60, true), None, &[name(1)], at(1)).unwrap();
        let suspended = held.table.suspend(id(owner, number, 60, true), None, &[name(1)], at(1));
        suspended.err().map(|error| (number, error))
    });
    let (number, error) = refused.unwrap();
    assert!(matches!(error, TableError::Limit { .. }), "{error}");
    assert!(number <= most / 2 + 3, "{number} of {most}");
    // Who is suspended already may say so again, and others commit.
    let _ = held.table.suspend(id(owner, 3, 60, true), None, &[name(1)], at(1)).unwrap();
    let plan = held.table.commit(id(owner, most, 0, false), &[name(1)], Patience::Over, at(1)).unwrap();
    assert_eq!(held.write(plan), Commit::Decided);
}

#[test]
fn a_program_is_an_owner_that_there_is_and_suspends_what_it_resumed_itself() {
    let mut held = Held::new();
    let first = held.open(Lease::Held, at(0)).unwrap();
    let second = held.open(Lease::Held, at(0)).unwrap();
    let (id, nobody) = (id(first, 1, 60, true), OwnerId(77));
    let unknown = TableError::NoSuchOwner(nobody);
    assert_eq!(held.table.enlist(id, Some(nobody), &[name(1)], at(0)).unwrap_err(), unknown);
    assert_eq!(held.table.suspend(id, Some(nobody), &[name(1)], at(0)).unwrap_err(), unknown);
    let _ = held.table.suspend(id, Some(first), &[name(1)], at(0)).unwrap();
    let resumer = |by| Resumer { by: Some(by), number: Some(1) };
    assert_eq!(held.table.resume(id, resumer(nobody), at(0)).unwrap_err(), unknown);
    let _ = held.table.resume(id, resumer(second), at(0)).unwrap();
    for by in [None, Some(first)] {
        assert_eq!(held.table.suspend(id, by, &[], at(0)).unwrap_err(), TableError::Resumed(id));
    }
    let _ = held.table.suspend(id, Some(second), &[name(2)], at(0)).unwrap();
}
