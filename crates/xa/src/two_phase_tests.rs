//! Every answer at every call, for one and two branches, against a table that can be read.
//!
//! May use: everything of the crate.

use super::{Call, OtherWork, TwoPhase, TwoPhaseDecision, TwoPhaseOutcome};
use crate::codes::{BranchEnd, XaCode};
use crate::record::Heuristic;

/// What each code means, as an answer to prepare, to a commit in one phase, to a commit and to a rollback.
///
/// Prepare: `Y` can commit, `O` drops out, `G` is gone already, `N` must be rolled back.
/// Else: `C` committed, `R` rolled back, `M` mixed, `H` hazard, `P` pending, `-` rolled back by a further call; with an `f`
/// where it has to be forgotten.
const TABLE: [(XaCode, &str, &str, &str, &str); 24] = [
    (XaCode::Ok, "Y", "C", "C", "R"),
    (XaCode::ReadOnly, "O", "C", "C", "R"),
    (XaCode::RolledBack, "G", "R", "R", "R"),
    (XaCode::RolledBackCommunication, "G", "R", "R", "R"),
    (XaCode::RolledBackDeadlock, "G", "R", "R", "R"),
    (XaCode::RolledBackIntegrity, "G", "R", "R", "R"),
    (XaCode::RolledBackOther, "G", "R", "R", "R"),
    (XaCode::RolledBackProtocol, "G", "R", "R", "R"),
    (XaCode::RolledBackTimeout, "G", "R", "R", "R"),
    (XaCode::RolledBackTransient, "G", "R", "R", "R"),
    (XaCode::HeuristicHazard, "N", "Hf", "Hf", "Hf"),
    (XaCode::HeuristicCommit, "N", "Cf", "Cf", "Cf"),
    (XaCode::HeuristicRollback, "N", "Rf", "Rf", "Rf"),
    (XaCode::HeuristicMixed, "N", "Mf", "Mf", "Mf"),
    (XaCode::Retry, "N", "-", "P", "P"),
    (XaCode::NoMigrate, "N", "-", "P", "P"),
    (XaCode::Async, "N", "-", "P", "P"),
    (XaCode::ManagerError, "N", "R", "R", "R"),
    (XaCode::NotKnown, "G", "R", "C", "R"),
    (XaCode::Invalid, "N", "-", "P", "P"),
    (XaCode::Protocol, "N", "-", "P", "P"),
    (XaCode::ManagerDown, "N", "H", "P", "P"),
    (XaCode::Duplicate, "N", "-", "P", "P"),
    (XaCode::Outside, "N", "-", "P", "P"),
];

/// What a branch answers: to prepare or one phase, to commit, to rollback.
#[derive(Debug, Clone, Copy)]
struct Script {
    first: XaCode,
    commit: XaCode,
    rollback: XaCode,
}

/// What was seen of a run: the calls of each branch, in letters; those to the coordinator; the outcome.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    branches: Vec<String>,
    coordinator: String,
    outcome: TwoPhaseOutcome,
}

fn run(mut machine: TwoPhase, scripts: &[Script], decisions: &[TwoPhaseDecision]) -> Seen {
    let mut branches = vec![String::new(); scripts.len()];
    let mut coordinator = String::new();
    let mut decisions = decisions.iter();
    let mut calls = machine.next_calls();
    for _ in 0..20 {
        // The last call first: answers come in any order.
        let Some(call) = calls.pop() else { break };
        match call {
            Call::Prepare(branch) => {
                branches[branch].push('p');
                machine.answer(branch, scripts[branch].first);
            }
            Call::CommitOnePhase(branch) => {
                branches[branch].push('1');
                machine.answer(branch, scripts[branch].first);
            }
            Call::Commit(branch) => {
                branches[branch].push('c');
                machine.answer(branch, scripts[branch].commit);
            }
            Call::Rollback(branch) => {
                branches[branch].push('r');
                machine.answer(branch, scripts[branch].rollback);
            }
            Call::Forget(branch) => {
                branches[branch].push('f');
                machine.answer(branch, XaCode::Ok);
            }
            Call::Decide(prepared) => {
                coordinator.push_str(&format!("d{prepared:?}"));
                machine.decide(*decisions.next().unwrap());
            }
            Call::Abort => {
                coordinator.push('a');
                let doubted = coordinator.starts_with('d') && decisions.len() > 0;
                machine.decide(if doubted { *decisions.next().unwrap() } else { TwoPhaseDecision::Aborted });
            }
            Call::Done(_) => coordinator.push('D'),
            Call::Deeds(deeds) => {
                let wanted_rollback = branches.iter().any(|calls| calls.contains('r'));
                let is_news = |deed| deed != Heuristic::Rollback || !wanted_rollback;
                assert!(deeds.iter().all(|(_, deed)| is_news(*deed)), "that is none");
                coordinator.push('H');
            }
            Call::CommitLast(branch) => {
                branches[branch].push('l');
                machine.answer(branch, scripts[branch].first);
            }
            Call::AskLast(branch) => {
                branches[branch].push('?');
                machine.decide(*decisions.next().unwrap());
            }
            Call::LetGo => coordinator.push('L'),
        }
        calls.splice(0..0, machine.next_calls());
    }
    assert!(machine.next_calls().is_empty());
    let outcome = machine.outcome().expect("all calls were answered");
    Seen { branches, coordinator, outcome }
}

fn row(code: XaCode) -> (&'static str, &'static str, &'static str, &'static str) {
    let (_, prepare, one, commit, rollback) = TABLE.iter().find(|row| row.0 == code).unwrap();
    (prepare, one, commit, rollback)
}

/// The outcome of what happened to the parts.
fn outcome_of(parts: &str, decided_commit: bool) -> TwoPhaseOutcome {
    // What is pending will follow the decision.
    let parts = parts.replace('P', if decided_commit { "C" } else { "R" });
    let has = |letter: char| parts.contains(letter);
    if has('M') || (has('C') && has('R')) {
        TwoPhaseOutcome::Mixed
    } else if has('H') {
        TwoPhaseOutcome::Hazard
    } else if has('C') || (decided_commit && !has('R')) {
        TwoPhaseOutcome::Committed
    } else {
        TwoPhaseOutcome::RolledBack
    }
}

/// Whether it is what a resource manager did by itself against a rollback, which has to be recorded.
fn is_deed(part: &str) -> bool {
    part.ends_with('f') && part != "Rf"
}

/// What must be seen of a commit of two branches, or of one with other work.
fn expected(scripts: &[Script], other: OtherWork, decisions: &[TwoPhaseDecision]) -> Seen {
    let votes: Vec<&str> = scripts.iter().map(|script| row(script.first).0).collect();
    let mut branches = vec![String::from("p"); scripts.len()];
    let mut coordinator = String::new();
    let prepared: Vec<usize> = (0..scripts.len()).filter(|branch| votes[*branch] == "Y").collect();
    let refused = votes.contains(&"G") || votes.contains(&"N");
    let alone = other == OtherWork::Nothing;
    if !refused && prepared.is_empty() && alone {
        return Seen { branches, coordinator, outcome: TwoPhaseOutcome::Committed };
    }
    let mut decision = TwoPhaseDecision::Aborted;
    if !refused {
        coordinator = format!("d{prepared:?}");
        decision = decisions[0];
        if decision == TwoPhaseDecision::Unknown && other == OtherWork::Local && prepared.is_empty() {
            return Seen { branches, coordinator, outcome: TwoPhaseOutcome::Unknown };
        }
        if decision == TwoPhaseDecision::Unknown {
            coordinator.push('a');
            decision = decisions[1];
        }
        if decision == TwoPhaseDecision::Unknown {
            return Seen { branches, coordinator, outcome: TwoPhaseOutcome::Unknown };
        }
    }
    let commit = decision == TwoPhaseDecision::Committed;
    if !commit && other == OtherWork::Shared && !coordinator.ends_with('a') {
        coordinator.push('a');
    }
    let (mut parts, mut has_deeds) = (String::new(), false);
    if !alone {
        parts.push(if commit { 'C' } else { 'R' });
    }
    for (branch, script) in scripts.iter().enumerate() {
        match votes[branch] {
            "O" => continue,
            "G" => parts.push('R'),
            _ => {
                let (_, _, of_commit, of_rollback) = row(if commit { script.commit } else { script.rollback });
                // Its prepare may be on the way yet.
                let is_late = script.first == XaCode::ManagerDown && script.rollback == XaCode::NotKnown;
                let of_rollback = if is_late { "P" } else { of_rollback };
                branches[branch].push(if commit { 'c' } else { 'r' });
                let part = if commit { of_commit } else { of_rollback };
                branches[branch].push_str(&part[1..]);
                has_deeds |= !commit && is_deed(part);
                parts.push_str(&part[..1]);
            }
        }
    }
    if !commit && parts.contains('P') && !coordinator.ends_with('a') {
        // Somebody may be prepared and out of reach.
        coordinator.push('a');
    }
    if has_deeds {
        coordinator.push('H');
    }
    let gone = |branch: &usize| {
        let late = scripts[*branch].rollback;
        late == XaCode::NotKnown || row(late).3 == "P"
    };
    let doubted = !refused && decisions[0] == TwoPhaseDecision::Unknown && !commit;
    if doubted && !prepared.is_empty() && prepared.iter().all(gone) {
        // Nobody was there to be rolled back: who knows what they did.
        return Seen { branches, coordinator, outcome: TwoPhaseOutcome::Unknown };
    }
    let knows = |branch: &usize| row(scripts[*branch].commit).2 != "P";
    if commit && prepared.iter().any(knows) {
        coordinator.push('D');
    }
    Seen { branches, coordinator, outcome: outcome_of(&parts, commit) }
}

#[test]
fn the_table_has_every_code() {
    let mut codes: Vec<XaCode> = TABLE.iter().map(|row| row.0).collect();
    codes.sort();
    codes.dedup();
    assert_eq!(codes.len(), XaCode::ALL.len());
}

#[test]
fn one_branch_alone_commits_in_one_phase_whatever_it_answers() {
    for first in XaCode::ALL {
        for rollback in XaCode::ALL {
            let script = Script { first, commit: XaCode::Ok, rollback };
            let (_, one, _, back) = row(first);
            let back = if one == "-" { row(rollback).3 } else { back };
            let expected = match one {
                "-" => Seen {
                    branches: vec![format!("1r{}", &back[1..])],
                    coordinator: if is_deed(back) { "H".to_owned() } else { String::new() },
                    outcome: outcome_of(&back[..1], false),
                },
                // It is recorded first.
                end if end.ends_with('f') => continue,
                end => {
                    Seen { branches: vec!["1".to_owned()], coordinator: String::new(), outcome: outcome_of(end, true) }
                }
            };
            let seen = run(TwoPhase::commit(&[0], OtherWork::Nothing), &[script], &[]);
            assert_eq!(seen, expected, "{first} {rollback}");
        }
    }
}

/// Only its program was told, and nobody else could find out once it was forgotten.
#[test]
fn what_one_branch_alone_did_by_itself_is_recorded_before_it_is_forgotten() {
    for (first, _, one, ..) in TABLE.into_iter().filter(|row| row.2.ends_with('f')) {
        for decisions in DECISIONS {
            let (coordinator, calls) = match decisions {
                [TwoPhaseDecision::Committed] => ("d[0]D", "1f"),
                [TwoPhaseDecision::Aborted] => ("d[0]H", "1f"),
                [_, TwoPhaseDecision::Committed] => ("d[0]aD", "1f"),
                [_, TwoPhaseDecision::Aborted] => ("d[0]aH", "1f"),
                // It remembers, and recovery has it recorded.
                _ => ("d[0]a", "1"),
            };
            let script = Script { first, commit: XaCode::Ok, rollback: XaCode::Ok };
            let (branches, coordinator) = (vec![calls.to_owned()], coordinator.to_owned());
            // What the coordinator says changes nothing about what was done.
            let expected = Seen { branches, coordinator, outcome: outcome_of(&one[..1], true) };
            for machine in [TwoPhase::commit(&[0], OtherWork::Nothing), TwoPhase::commit_with_last(&[0], 0)] {
                assert_eq!(run(machine, &[script], decisions), expected, "{first} {decisions:?}");
            }
        }
    }
}

const DECISIONS: [&[TwoPhaseDecision]; 5] = [
    &[TwoPhaseDecision::Committed],
    &[TwoPhaseDecision::Aborted],
    &[TwoPhaseDecision::Unknown, TwoPhaseDecision::Committed],
    &[TwoPhaseDecision::Unknown, TwoPhaseDecision::Aborted],
    &[TwoPhaseDecision::Unknown, TwoPhaseDecision::Unknown],
];

#[test]
fn one_branch_and_other_work_whatever_anybody_answers() {
    for other in [OtherWork::Local, OtherWork::Shared, OtherWork::Elsewhere] {
        for decisions in DECISIONS {
            for first in XaCode::ALL {
                for second in XaCode::ALL {
                    let script = [Script { first, commit: second, rollback: second }];
                    let seen = run(TwoPhase::commit(&[0], other), &script, decisions);
                    assert_eq!(seen, expected(&script, other, decisions), "{other:?} {decisions:?} {script:?}");
                }
            }
        }
    }
}

#[test]
fn two_branches_whatever_anybody_answers() {
    let all = XaCode::ALL.as_slice();
    let any = &[XaCode::Ok][..];
    for first in XaCode::ALL {
        for second in XaCode::ALL {
            let votes = [row(first).0, row(second).0];
            let refused = votes.iter().any(|vote| "GN".contains(vote));
            // Who is not asked again answers nothing else; nobody decides after a refusal.
            let late = votes.map(|vote| if "YN".contains(vote) { all } else { any });
            for decisions in if refused { &DECISIONS[..1] } else { &DECISIONS[..] } {
                for other in [OtherWork::Nothing, OtherWork::Local, OtherWork::Shared, OtherWork::Elsewhere] {
                    for (one, two) in late[0].iter().flat_map(|one| late[1].iter().map(move |two| (*one, *two))) {
                        let scripts = [
                            Script { first, commit: one, rollback: one },
                            Script { first: second, commit: two, rollback: two },
                        ];
                        let seen = run(TwoPhase::commit(&[0, 0], other), &scripts, decisions);
                        let expected = expected(&scripts, other, decisions);
                        assert_eq!(seen, expected, "{other:?} {decisions:?} {scripts:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_rollback_asks_all_and_a_shared_one_tells_the_coordinator() {
    for first in XaCode::ALL {
        for second in XaCode::ALL {
            let script = |rollback| Script { first: XaCode::Ok, commit: XaCode::Ok, rollback };
            let (one, other) = (row(first).3, row(second).3);
            for (work, told) in [(OtherWork::Nothing, ""), (OtherWork::Shared, "a")] {
                let seen = run(TwoPhase::rollback(2, work), &[script(first), script(second)], &[]);
                let own = if work == OtherWork::Shared { "R" } else { "" };
                let expected = Seen {
                    branches: vec![format!("r{}", &one[1..]), format!("r{}", &other[1..])],
                    coordinator: format!("{told}{}", if is_deed(one) || is_deed(other) { "H" } else { "" }),
                    outcome: outcome_of(&format!("{own}{}{}", &one[..1], &other[..1]), false),
                };
                assert_eq!(seen, expected, "{first} {second}");
            }
        }
    }
}

#[test]
fn groups_commit_one_after_the_other_and_one_that_is_down_holds_nobody_up() {
    let mut machine = TwoPhase::commit(&[2, 1, 2], OtherWork::Nothing);
    assert_eq!(machine.next_calls(), [Call::Prepare(0), Call::Prepare(1), Call::Prepare(2)]);
    for branch in [2, 0, 1] {
        machine.answer(branch, XaCode::Ok);
    }
    assert_eq!(machine.next_calls(), [Call::Decide(vec![0, 1, 2])]);
    machine.decide(TwoPhaseDecision::Committed);
    assert_eq!(machine.next_calls(), [Call::Commit(1)]);
    machine.answer(1, XaCode::ManagerDown);
    assert_eq!(machine.next_calls(), [Call::Commit(0), Call::Commit(2)]);
    machine.answer(2, XaCode::Ok);
    assert_eq!((machine.next_calls(), machine.outcome()), (vec![], None));
    machine.answer(0, XaCode::Ok);
    let ends = vec![(0, BranchEnd::Committed), (2, BranchEnd::Committed)];
    assert_eq!(machine.next_calls(), [Call::Done(ends)]);
    assert_eq!(machine.outcome(), Some(TwoPhaseOutcome::Committed));
    assert!(machine.is_pending());
    assert_eq!(machine.end_of(1), Some(BranchEnd::Pending));
}

/// Found by the simulator: the connection broke while a branch was prepared, its rollback through another one found nothing,
/// and then the first request was carried out. The branch stayed prepared for as long as its program lived.
#[test]
fn a_prepare_without_an_answer_may_come_late_so_the_coordinator_is_told_of_the_abort() {
    let mut machine = TwoPhase::commit(&[0, 0], OtherWork::Nothing);
    assert_eq!(machine.next_calls(), [Call::Prepare(0), Call::Prepare(1)]);
    machine.answer(0, XaCode::ManagerDown);
    machine.answer(1, XaCode::Ok);
    assert_eq!(machine.next_calls(), [Call::Rollback(0), Call::Rollback(1)]);
    machine.answer(0, XaCode::NotKnown);
    machine.answer(1, XaCode::Ok);
    assert_eq!((machine.next_calls(), machine.outcome()), (vec![Call::Abort], None));
    machine.decide(TwoPhaseDecision::Aborted);
    assert_eq!((machine.next_calls(), machine.outcome()), (vec![], Some(TwoPhaseOutcome::RolledBack)));
    assert!(machine.is_pending());
}

/// Found by the simulator: the answer to the request to forget was lost. The resource manager listed the branch for as long as
/// its program lived, because the coordinator presumes nothing of programs that live.
#[test]
fn what_is_not_forgotten_is_told_the_coordinator_so_that_recovery_may_end_it() {
    let mut prepared = TwoPhase::commit(&[0, 0], OtherWork::Nothing);
    prepared.next_calls();
    prepared.answer(0, XaCode::Ok);
    prepared.answer(1, XaCode::Ok);
    prepared.next_calls();
    prepared.decide(TwoPhaseDecision::Aborted);
    prepared.next_calls();
    prepared.answer(0, XaCode::HeuristicHazard);
    prepared.answer(1, XaCode::Ok);
    let mut active = TwoPhase::rollback(1, OtherWork::Nothing);
    active.next_calls();
    active.answer(0, XaCode::HeuristicHazard);
    let mut alone = TwoPhase::commit(&[0], OtherWork::Nothing);
    alone.next_calls();
    alone.answer(0, XaCode::HeuristicHazard);
    alone.next_calls();
    alone.decide(TwoPhaseDecision::Aborted);
    let deeds = vec![Call::Deeds(vec![(0, Heuristic::Hazard)])];
    for (machine, recorded) in [(prepared, deeds.clone()), (active, deeds.clone()), (alone, deeds)] {
        for code in XaCode::ALL {
            let mut machine = machine.clone();
            assert_eq!(machine.next_calls(), [recorded.clone(), vec![Call::Forget(0)]].concat());
            machine.answer(0, code);
            if !matches!(code, XaCode::Ok | XaCode::NotKnown) {
                assert_eq!((machine.next_calls(), machine.outcome()), (vec![Call::Abort], None), "{code}");
                machine.decide(TwoPhaseDecision::Unknown);
            }
            assert_eq!((machine.next_calls(), machine.outcome()), (vec![], Some(TwoPhaseOutcome::Hazard)), "{code}");
        }
    }
}

/// Its decision is kept with what it did by itself: recovery finds that.
#[test]
fn what_is_not_forgotten_of_a_commit_needs_nobody_to_be_told() {
    let mut machine = TwoPhase::commit(&[0], OtherWork::Local);
    machine.next_calls();
    machine.answer(0, XaCode::Ok);
    machine.next_calls();
    machine.decide(TwoPhaseDecision::Committed);
    machine.next_calls();
    machine.answer(0, XaCode::HeuristicCommit);
    let done = Call::Done(vec![(0, BranchEnd::Heuristic(Heuristic::Commit))]);
    assert_eq!(machine.next_calls(), [done, Call::Forget(0)]);
    machine.answer(0, XaCode::ManagerDown);
    assert_eq!((machine.next_calls(), machine.outcome()), (vec![], Some(TwoPhaseOutcome::Committed)));
}

#[test]
fn nothing_at_all_and_local_work_alone() {
    let mut nothing = TwoPhase::commit(&[], OtherWork::Nothing);
    assert_eq!((nothing.next_calls(), nothing.outcome()), (vec![], Some(TwoPhaseOutcome::Committed)));
    let mut local = TwoPhase::commit(&[], OtherWork::Local);
    assert_eq!(local.next_calls(), [Call::Decide(vec![])]);
    local.decide(TwoPhaseDecision::Committed);
    assert_eq!((local.next_calls(), local.outcome()), (vec![], Some(TwoPhaseOutcome::Committed)));
}

/// The coordinator was told of an abort then, knew of nothing else, and what had happened was called rolled back.
#[test]
fn local_work_alone_whose_answer_was_lost_is_not_known() {
    for answers in [&[][..], &[XaCode::ReadOnly]] {
        let mut local = TwoPhase::commit(&vec![0; answers.len()], OtherWork::Local);
        let calls = local.next_calls();
        answers.iter().enumerate().for_each(|(number, answer)| local.answer(number, *answer));
        let decide = if answers.is_empty() { calls } else { local.next_calls() };
        assert_eq!(decide, [Call::Decide(vec![])]);
        local.decide(TwoPhaseDecision::Unknown);
        assert_eq!((local.next_calls(), local.outcome()), (vec![], Some(TwoPhaseOutcome::Unknown)));
    }
    let mut elsewhere = TwoPhase::commit(&[], OtherWork::Elsewhere);
    elsewhere.next_calls();
    elsewhere.decide(TwoPhaseDecision::Unknown);
    assert_eq!(elsewhere.next_calls(), [Call::Abort]);
}

#[test]
#[should_panic = "was not asked"]
fn an_answer_nobody_waits_for_is_a_fault_of_the_caller() {
    let mut machine = TwoPhase::commit(&[0, 0], OtherWork::Nothing);
    machine.answer(0, XaCode::Ok);
    machine.answer(0, XaCode::Ok);
}

/// One ordinary branch and the last resource's, in either order, with every answer of both.
#[test]
fn a_last_resource_decides_by_its_own_commit() {
    let all = XaCode::ALL;
    let ways = all.into_iter().flat_map(|first| all.into_iter().map(move |last| (first, last)));
    let ways = ways.flat_map(|(first, last)| all.into_iter().map(move |second| (first, last, second)));
    for (first, last, second) in ways {
        for (asked, copied, at) in [
            (TwoPhaseDecision::Committed, TwoPhaseDecision::Committed, 0),
            (TwoPhaseDecision::Committed, TwoPhaseDecision::Aborted, 1),
            (TwoPhaseDecision::Committed, TwoPhaseDecision::Unknown, 1),
            (TwoPhaseDecision::Aborted, TwoPhaseDecision::Unknown, 1),
            (TwoPhaseDecision::Unknown, TwoPhaseDecision::Unknown, 0),
        ] {
            last_decides([first, last, second], asked, copied, at);
        }
    }
}

/// The other branch answers `first` to its prepare and `second` to the decision, the last resource `last` to its commit.
fn last_decides([first, last, second]: [XaCode; 3], asked: TwoPhaseDecision, copied: TwoPhaseDecision, at: usize) {
    let other = 1 - at;
    let mut scripts = [Script { first, commit: second, rollback: second }; 2];
    scripts[at] = Script { first: last, commit: XaCode::Ok, rollback: XaCode::Ok };
    let (vote, ..) = row(first);
    // One that drops out does not matter any more.
    let (_, _, commit, rollback) = if vote == "O" { ("", "", "", "") } else { row(second) };
    let (_, one_phase, ..) = row(last);
    // What the last resource's commit came to: committed, rolled back, not known, or not even begun.
    let decision = match one_phase.chars().next().unwrap() {
        letter @ ('C' | 'R') if !one_phase.ends_with('f') => letter,
        '-' => '-',
        _ => '?',
    };
    let is_prepared = vote == "Y";
    let is_asked = decision == '?' && matches!(vote, "Y" | "O");
    // Without a copy it is told by an abort that it has one to ask; should the answer have been lost it hears the same.
    let decisions = [asked, copied, TwoPhaseDecision::Committed];
    let seen = run(TwoPhase::commit_with_last(&[0, 0], at), &scripts, &decisions[usize::from(!is_asked)..]);
    let of_last = &seen.branches[at];
    let case = format!("prepare {first}, last {last}, then {second}, {asked:?}, {copied:?}: {seen:?}");
    match vote {
        "G" | "N" => {
            assert_eq!(of_last, "r", "{case}");
            assert_ne!(seen.outcome, TwoPhaseOutcome::Committed, "{case}");
            return;
        }
        _ => {}
    }
    let is_committed = match (decision, asked) {
        ('C', _) | ('?', TwoPhaseDecision::Committed) => Some(true),
        ('?', TwoPhaseDecision::Unknown) => None,
        _ => Some(false),
    };
    let calls = if is_asked {
        "l?"
    } else if decision == '-' {
        "lr"
    } else {
        "l"
    };
    assert_eq!(of_last, calls, "{case}");
    match is_committed {
        Some(true) => {
            // Whom it cannot tell, and who remembers, has to be able to learn it while this program lives.
            let is_left = commit == "P" || commit.ends_with('f');
            let done = if commit == "P" { "" } else { "D" };
            let copy = format!("d[{other}]");
            let coordinator = match copied {
                _ if !is_left => "L".to_owned(),
                TwoPhaseDecision::Committed => format!("{copy}{done}L"),
                TwoPhaseDecision::Aborted | TwoPhaseDecision::Unknown => format!("{copy}a{done}L"),
            };
            assert_eq!(seen.coordinator, coordinator, "{case}");
            let calls = match commit.ends_with('f') {
                _ if !is_prepared => "p",
                true => "pcf",
                false => "pc",
            };
            assert_eq!(seen.branches[other], calls, "{case}");
            assert_eq!(seen.outcome, outcome_of(&format!("C{commit}"), true), "{case}");
        }
        Some(false) => {
            assert!(seen.branches[other].starts_with(if is_prepared { "pr" } else { "p" }), "{case}");
            assert!(!seen.coordinator.contains(['L', 'd']), "{case}");
            assert_eq!(seen.outcome, outcome_of(&format!("R{rollback}"), false), "{case}");
        }
        // It is recovery's, which the coordinator has to know.
        None => {
            assert_eq!((seen.branches[other].as_str(), seen.coordinator.as_str()), ("p", "a"), "{case}");
            assert_eq!(seen.outcome, TwoPhaseOutcome::Unknown, "{case}");
        }
    }
}

#[test]
fn a_last_resource_that_is_alone_commits_in_one_phase() {
    let script = Script { first: XaCode::Ok, commit: XaCode::Ok, rollback: XaCode::Ok };
    let seen = run(TwoPhase::commit_with_last(&[3], 0), &[script], &[]);
    assert_eq!((seen.branches, seen.coordinator.as_str()), (vec!["1".to_owned()], ""));
    assert_eq!(seen.outcome, TwoPhaseOutcome::Committed);
}
