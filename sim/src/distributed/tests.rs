//! The world of distributed transactions against itself.

use std::collections::BTreeMap;

use super::{all_points, fixed_seeds, prove, run};
use crate::run::Setup;

fn setup(seed: u64) -> Setup {
    Setup { seed, steps: 1500, lying_disk: false, verbose: false }
}

#[test]
fn a_handful_of_seeds_tell_the_same_story_twice_and_each_another() {
    let prove = |seed| prove(setup(seed)).unwrap_or_else(|violation| panic!("seed {seed}: {violation:?}"));
    let traces: Vec<u64> = (1_000..1_010).map(|seed| prove(seed).trace).collect();
    assert!(traces.windows(2).all(|two| two[0] != two[1]), "{traces:?}");
}

#[test]
fn every_crash_point_is_struck_at_both_passages_by_the_fixed_seeds() {
    let mut struck: BTreeMap<_, u64> = BTreeMap::new();
    let (mut told, mut recovered, mut resumed) = (0, 0, 0);
    for seed in fixed_seeds() {
        let did = run(setup(seed)).unwrap_or_else(|violation| panic!("seed {seed}: {violation:?}"));
        did.struck.into_iter().for_each(|(at, count)| *struck.entry(at).or_default() += count);
        told += did.told;
        recovered += did.recovered;
        resumed += did.resumed;
    }
    let missed: Vec<String> = super::missed(&struck);
    assert!(missed.is_empty(), "no kill struck at {missed:#?}");
    assert!(all_points().len() > 60 && told > 10_000 && recovered > 3_000, "{told} told, {recovered} recovered");
    assert!(resumed > 100, "only {resumed} committed by who resumed them");
}

#[test]
fn a_point_that_no_kill_struck_is_named() {
    let missed = super::missed(&BTreeMap::new());
    assert_eq!(missed.len(), 2 * all_points().len());
    assert_eq!(missed[0], "Application: Before Open, passage 1");
}

#[test]
fn a_disk_that_lies_about_syncs_breaks_transactions_apart() {
    let broken = |seed: &u64| run(Setup { lying_disk: true, ..setup(*seed) }).is_err();
    let caught = (0..40).filter(broken).count();
    assert!(caught > 4, "only {caught} of 40 runs noticed");
}
