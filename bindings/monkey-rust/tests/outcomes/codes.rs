//! Every answer of resource managers, against the table that programs in C are tested with: what the program is told is the same.
//!
//! What belongs to C alone is passed over: opening and beginning, chained transactions, switches that work by themselves. There an
//! `XA_RETRY` is tried again at once, so what was called is not compared with those.

use tm::Outcome;

use super::scene::{Scene, Stage};

const TABLE: &str = include_str!("../../../c/tests/data/codes.txt");

/// What C says to the outcome of a commit, or of a rollback.
fn told(call: &str, outcome: Outcome) -> &'static str {
    match (call, outcome) {
        ("commit", Outcome::Committed) | ("rollback", Outcome::RolledBack) => "TX_OK",
        ("commit", Outcome::RolledBack) => "TX_ROLLBACK",
        ("rollback", Outcome::Committed) => "TX_COMMITTED",
        (_, Outcome::Mixed) => "TX_MIXED",
        (_, Outcome::Hazard) => "TX_HAZARD",
        _ => panic!("{call} does not end as {outcome:?} here"),
    }
}

async fn play(scene: &Scene<'_>, call: &str) -> String {
    match call {
        "commit" => told(call, scene.commit().await).to_owned(),
        "rollback" => told(call, scene.rollback().await).to_owned(),
        _ => format!("committed=0,rolled-back=0,left=0,unreachable={}", scene.recover().await.down.len()),
    }
}

#[tokio::test]
async fn every_answer_is_told_as_the_table_for_c_has_it() {
    let stage = Stage::new();
    let (mut wrong, mut lines) = (Vec::new(), 0);
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (left, right) = line.split_once(" = ").unwrap();
        let (call, brackets) = left.split_once(' ').unwrap();
        if !["commit", "rollback", "recover"].contains(&call) || brackets.contains("[async") {
            continue;
        }
        let scripts = brackets.split('[').skip(1).map(|part| part.split(']').next().unwrap().replace(", ", "\n"));
        let scripts: Vec<String> = scripts.collect();
        let scene = stage.scene(&scripts.iter().map(String::as_str).collect::<Vec<_>>());
        let (expected, verbs) = right.split_once(" : ").unwrap_or((right, ""));
        let answer = play(&scene, call).await;
        let mut verbs: Vec<&str> = verbs.split_whitespace().collect();
        verbs.sort_unstable();
        let is_compared = call != "recover" && !brackets.contains("XA_RETRY");
        if answer != expected || (is_compared && scene.verbs() != verbs) {
            wrong.push(format!("{line}\n    answered {answer}, called {}", scene.verbs().join(" ")));
        }
        lines += 1;
    }
    assert!(lines > 200, "{lines}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
