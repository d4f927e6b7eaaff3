//! The simulator against itself.

use crate::run::{Setup, prove, run};

#[test]
fn a_handful_of_seeds_hold() {
    let (mut commits, mut crashes, mut compacted) = (0, 0, 0);
    let (mut decided, mut aborted, mut undecided) = (0, 0, 0);
    for seed in 0..40 {
        let outcome = prove(Setup { seed, steps: 150, lying_disk: false, verbose: false })
            .unwrap_or_else(|violation| panic!("seed {seed}: {violation:?}"));
        commits += outcome.commits;
        crashes += outcome.crashes;
        compacted += outcome.compacted;
        decided += outcome.decided;
        aborted += outcome.aborted;
        undecided += outcome.undecided;
    }
    assert!(commits > 500 && crashes > 50, "the runs did too little: {commits} commits, {crashes} crashes");
    assert!(decided > 50 && aborted > 50, "{decided} decisions and {aborted} aborts only");
    assert!(undecided > 0, "no crash took a decision");
    assert!(compacted > 20, "the runs compacted {compacted} segments only");
}

/// After a power cut a recovery made a segment void, whose predecessor was never synced. The next one took that segment for a proof that the
/// predecessor was, and told of damage where nothing was lost: all transactions were in doubt.
#[test]
fn a_segment_that_a_recovery_made_void_is_no_proof_of_what_came_before() {
    let setup = Setup { seed: 9_658_843_999_683_880_913, steps: 300, lying_disk: false, verbose: false };
    prove(setup).unwrap_or_else(|violation| panic!("{violation:?}"));
}

#[test]
fn a_disk_that_lies_about_syncs_is_found_out() {
    let caught = (0..20)
        .filter(|seed| run(Setup { seed: *seed, steps: 150, lying_disk: true, verbose: false }).is_err())
        .count();
    assert!(caught > 10, "only {caught} of 20 runs noticed");
}

#[test]
fn different_seeds_tell_different_stories() {
    let trace =
        |seed| run(Setup { seed, steps: 30, lying_disk: false, verbose: false }).map(|outcome| outcome.trace).ok();
    assert_ne!(trace(1), trace(2));
}
