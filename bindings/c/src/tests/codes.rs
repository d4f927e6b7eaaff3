//! Every answer of resource managers, and what the program is told: `tests/data/codes.txt`.

use super::scene::{ASYNC, STATIC, Scene};
use crate::abi::{
    TX_CHAINED, TX_COMMITTED, TX_ERROR, TX_FAIL, TX_HAZARD, TX_MIXED, TX_NO_BEGIN, TX_OK, TX_OUTSIDE, TX_ROLLBACK,
};
use crate::control::End;
use crate::manager::Recovered;
use tm::ErrorKind;

const TABLE: &str = include_str!("../../tests/data/codes.txt");

fn number(name: &str) -> i32 {
    match name.strip_suffix("_NO_BEGIN").unwrap_or(name) {
        _ if name == "TX_NO_BEGIN" => TX_NO_BEGIN,
        plain if plain != name => number(plain) + TX_NO_BEGIN,
        "TX_OK" => TX_OK,
        "TX_OUTSIDE" => TX_OUTSIDE,
        "TX_ROLLBACK" => TX_ROLLBACK,
        "TX_MIXED" => TX_MIXED,
        "TX_HAZARD" => TX_HAZARD,
        "TX_ERROR" => TX_ERROR,
        "TX_FAIL" => TX_FAIL,
        "TX_COMMITTED" => TX_COMMITTED,
        _ => panic!("{name} is no answer"),
    }
}

/// The switch of a monkey, and its script.
fn monkey(script: &str) -> (&'static str, &str) {
    script.strip_prefix("async").map_or((STATIC, script), |script| (ASYNC, script))
}

/// What a recovery counts, as the program shows it.
fn recovered(scene: &mut Scene) -> String {
    assert_eq!(scene.open(), TX_OK);
    let Recovered { committed, rolled_back, left, unreachable } = scene.thread.recover().unwrap();
    format!("committed={committed},rolled-back={rolled_back},left={left},unreachable={unreachable}")
}

fn play(scene: &mut Scene, call: &str) -> i32 {
    let opened = scene.open();
    if call == "open" {
        return opened;
    }
    assert_eq!(opened, TX_OK);
    if let Some(how) = call.strip_prefix("chained-") {
        assert_eq!(scene.thread.set_control(TX_CHAINED), TX_OK);
        return play(scene, how);
    }
    if call == "close" {
        return scene.thread.close();
    }
    let begun = scene.thread.begin();
    if call == "begin" {
        return begun;
    }
    assert_eq!(begun, TX_OK);
    scene.thread.end(if call == "commit" { End::Commit } else { End::Rollback })
}

/// An abort that was refused was once taken for a decision to commit: a user without rights would have committed branches
/// that nobody had decided about.
#[test]
fn a_refused_abort_after_a_lost_answer_commits_nothing() {
    let mut scene = Scene::new(&[(STATIC, ""), (STATIC, "")]);
    *scene.memory.refusal.lock().unwrap() = Some(ErrorKind::Unknown);
    *scene.memory.refuses_aborts.lock().unwrap() = true;
    assert_eq!(play(&mut scene, "commit"), TX_HAZARD);
    assert_eq!(scene.verbs(), "end end prepare prepare");
    assert_eq!((scene.prepared(0), scene.prepared(1)), (1, 1));
}

#[test]
fn every_answer_is_told_as_the_standard_has_it() {
    let mut wrong = Vec::new();
    let mut lines = 0;
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (left, right) = line.split_once(" = ").unwrap();
        let (call, brackets) = left.split_once(' ').unwrap();
        let scripts: Vec<String> =
            brackets.split('[').skip(1).map(|part| part.split(']').next().unwrap().replace(", ", "\n")).collect();
        let monkeys: Vec<(&str, &str)> = scripts.iter().map(|script| monkey(script)).collect();
        let mut scene = Scene::new(&monkeys);
        let (code, verbs) = right.split_once(" : ").unwrap_or((right, ""));
        let (answer, expected) = match call {
            "recover" => (recovered(&mut scene), code.to_owned()),
            _ => (play(&mut scene, call).to_string(), number(code).to_string()),
        };
        if answer != expected || (!verbs.is_empty() && scene.verbs() != verbs) {
            wrong.push(format!("{line}\n    answered {answer}, called {}", scene.verbs()));
        }
        lines += 1;
    }
    assert!(lines > 300, "{lines}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
