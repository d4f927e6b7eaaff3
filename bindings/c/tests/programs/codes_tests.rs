//! Every answer of resource managers, as a C program is told it: `tests/data/codes.txt`.

use crate::stage::{ASYNC, STATIC, Stage};

/// The switch of a monkey, and its script.
fn monkey(script: &str) -> (&'static str, &str) {
    script.strip_prefix("async").map_or((STATIC, script), |script| (ASYNC, script))
}

const TABLE: &str = include_str!("../data/codes.txt");

#[test]
fn every_answer_of_resource_managers_is_told_as_the_standard_has_it() {
    let mut wrong = Vec::new();
    let mut lines = 0;
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (left, right) = line.split_once(" = ").unwrap();
        let (call, brackets) = left.split_once(' ').unwrap();
        let scripts = brackets.split('[').skip(1).map(|part| part.split(']').next().unwrap().replace(", ", "\n"));
        let scripts: Vec<String> = scripts.collect();
        let monkeys: Vec<(&str, &str)> = scripts.iter().map(|script| monkey(script)).collect();
        let stage = Stage::of_monkeys(&monkeys);
        let words: Vec<&str> = match call {
            "open" => vec!["open"],
            "close" => vec!["open", "close"],
            "begin" => vec!["open", "begin"],
            "recover" => vec!["open", "recover"],
            "chained-commit" => vec!["open", "chained", "begin", "commit"],
            "chained-rollback" => vec!["open", "chained", "begin", "rollback"],
            end => vec!["open", "begin", end],
        };
        let answers = stage.play(&words);
        let (code, verbs) = right.split_once(" : ").unwrap_or((right, ""));
        let last = answers.last().and_then(|answer| answer.split(": ").nth(1)).unwrap_or_default();
        if last != code || (!verbs.is_empty() && stage.verbs() != verbs) {
            wrong.push(format!("{line}\n    answered {answers:?}, called {}", stage.verbs()));
        }
        lines += 1;
    }
    assert!(lines > 300, "{lines}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
