//! Every pair of answers of two resource managers, at every call, against an oracle of a few lines: that of the tests of C, in the
//! words of Rust.

use tm::{Fate, Outcome, ResourceManager, XaCode};

use super::scene::Stage;

/// What becomes of a branch that answers so to a commit. What is not said is committed, or will be by recovery.
fn at_commit(code: XaCode) -> Outcome {
    match code {
        XaCode::HeuristicMixed => Outcome::Mixed,
        XaCode::HeuristicHazard => Outcome::Hazard,
        XaCode::HeuristicRollback | XaCode::ManagerError => Outcome::RolledBack,
        code if code.name().starts_with("XA_RB") => Outcome::RolledBack,
        _ => Outcome::Committed,
    }
}

fn at_rollback(code: XaCode) -> Outcome {
    match code {
        XaCode::HeuristicMixed => Outcome::Mixed,
        XaCode::HeuristicHazard => Outcome::Hazard,
        XaCode::HeuristicCommit => Outcome::Committed,
        _ => Outcome::RolledBack,
    }
}

fn together(first: Outcome, second: Outcome) -> Outcome {
    let both = [first, second];
    let differ = both.contains(&Outcome::Committed) && both.contains(&Outcome::RolledBack);
    match () {
        () if both.contains(&Outcome::Mixed) || differ => Outcome::Mixed,
        () if both.contains(&Outcome::Hazard) => Outcome::Hazard,
        () => first,
    }
}

/// Scripts in which both answer `verb`, behind `before`.
fn scripts(before: &str, verb: &str, first: XaCode, second: XaCode) -> [String; 2] {
    [first, second].map(|code| format!("{before}\n{verb} {code}"))
}

fn all_pairs() -> impl Iterator<Item = (XaCode, XaCode)> {
    XaCode::ALL.into_iter().flat_map(|first| XaCode::ALL.into_iter().map(move |second| (first, second)))
}

#[tokio::test]
async fn two_answers_to_prepare_commit_and_rollback() {
    let stage = Stage::new();
    let can = |code| [XaCode::Ok, XaCode::ReadOnly].contains(&code);
    for (first, second) in all_pairs() {
        let [one, two] = scripts("", "prepare", first, second);
        let expected = if can(first) && can(second) { Outcome::Committed } else { Outcome::RolledBack };
        assert_eq!(stage.scene(&[&one, &two]).commit().await, expected, "prepare: {first} {second}");
        let [one, two] = scripts("", "commit", first, second);
        let expected = together(at_commit(first), at_commit(second));
        assert_eq!(stage.scene(&[&one, &two]).commit().await, expected, "commit: {first} {second}");
        let [one, two] = scripts("", "rollback", first, second);
        let expected = together(at_rollback(first), at_rollback(second));
        assert_eq!(stage.scene(&[&one, &two]).rollback().await, expected, "rollback: {first} {second}");
    }
}

/// Whoever does not end well has all rolled back.
#[tokio::test]
async fn two_answers_to_end() {
    let stage = Stage::new();
    for (first, second) in all_pairs() {
        let [one, two] = scripts("", "end", first, second);
        let expected = if [first, second] == [XaCode::Ok; 2] { Outcome::Committed } else { Outcome::RolledBack };
        assert_eq!(stage.scene(&[&one, &two]).commit().await, expected, "{first} {second}");
        assert_eq!(stage.scene(&[&one, &two]).rollback().await, Outcome::RolledBack, "{first} {second}");
    }
}

/// What is answered to forgetting changes nothing about what was done.
#[tokio::test]
async fn two_answers_to_forget() {
    let stage = Stage::new();
    for (first, second) in all_pairs() {
        let [one, two] = scripts("commit XA_HEURRB", "forget", first, second);
        assert_eq!(stage.scene(&[&one, &two]).commit().await, Outcome::RolledBack, "{first} {second}");
        let [one, two] = scripts("rollback XA_HEURCOM", "forget", first, second);
        assert_eq!(stage.scene(&[&one, &two]).rollback().await, Outcome::Committed, "{first} {second}");
    }
}

/// Each that cannot list is told of, whatever the other says.
#[tokio::test]
async fn two_answers_to_recover() {
    let stage = Stage::new();
    for (first, second) in all_pairs() {
        let [one, two] = scripts("", "recover", first, second);
        let scene = stage.scene(&[&one, &two]);
        let report = scene.recovery().run().await;
        let silent = [first, second].into_iter().zip(&scene.monkeys).filter(|(code, _)| code.number() < 0);
        let mut silent: Vec<_> = silent.map(|(_, monkey)| Some(monkey.name().clone())).collect();
        let mut told: Vec<_> = report.down.into_iter().map(|down| down.manager).collect();
        silent.sort();
        told.sort();
        assert_eq!(told, silent, "{first} {second}");
    }
}

/// What each answers recovery, which was told to commit or to roll back what both have prepared.
#[tokio::test]
async fn every_answer_to_recovery() {
    let stage = Stage::new();
    for code in XaCode::ALL {
        for verb in ["commit", "rollback"] {
            let is_silent = matches!(code.number(), 4 | 9 | -2 | -5 | -6 | -7 | -8 | -9);
            let script = format!("{verb} XAER_RMFAIL {code} XA_OK");
            let scene = stage.scene(&[&script, "prepare XA_OK XA_RBOTHER"]);
            let mut transaction = scene.begin().await;
            if verb == "rollback" {
                // One that is out of reach when it is to be rolled back, and is prepared.
                let other = scene.monkeys[1].start(&transaction.xid("monkey2").unwrap()).unwrap();
                transaction.enlist(&tm::BranchName::new("monkey2").unwrap(), other).await.unwrap();
            }
            let ended = transaction.commit().await;
            assert_eq!(ended.is_ok(), verb == "commit");
            let report = scene.recovery().run().await;
            assert_eq!(report.found.len(), 1, "{verb} {code}: {report:?}");
            let end = if verb == "commit" { at_commit(code) } else { at_rollback(code) };
            let expected = match (verb, end, code) {
                _ if is_silent => Fate::Postponed,
                ("commit", Outcome::Committed, XaCode::HeuristicCommit) => Fate::Heuristic,
                ("commit", Outcome::Committed, _) => Fate::Committed,
                ("rollback", Outcome::RolledBack, _) => Fate::RolledBack,
                _ => Fate::Heuristic,
            };
            assert_eq!(report.found[0].fate, expected, "{verb} {code}");
        }
    }
}
