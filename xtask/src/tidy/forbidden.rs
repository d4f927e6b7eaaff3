//! Words that must not be in any source file: unfinished code, tests that do not run, hidden surface.
//!
//! May use: `tree`. Must not know: Rust's grammar; a forbidden word is forbidden in comments too.

use super::Finding;
use super::tree::Tree;

/// Words and reasons; written in two halves so that this file may pass its own check.
const WORDS: &[(&str, &str)] = &[
    (concat!("todo", "!"), "unfinished code does not land"),
    (concat!("unimplemented", "!"), "unfinished code does not land"),
    (concat!("dbg", "!"), "a debugging aid was left behind"),
    (concat!("#[", "ignore"), "a test that does not run is no test"),
    (concat!("doc", "(hidden)"), "what is public is documented, what is not documented is private"),
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(".rs") {
        for (index, line) in text.lines().enumerate() {
            for (word, reason) in WORDS.iter().filter(|(word, _)| line.contains(word)) {
                findings.push(Finding::at(path, index, format!("`{word}`: {reason}")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::tree::Tree;

    #[test]
    fn each_word_is_found_with_its_line() {
        let text = concat!("//! x\n#[", "ignore = \"slow\"]\nfn x() { todo", "!() }\n#[doc", "(hidden)]\n");
        let found: Vec<_> = check(&Tree::of(&[("x.rs", text)])).into_iter().map(|finding| finding.place).collect();
        assert_eq!(found, ["x.rs:2", "x.rs:3", "x.rs:4"]);
    }

    #[test]
    fn other_files_may_speak_of_them() {
        assert!(check(&Tree::of(&[("STYLE.md", concat!("No doc", "(hidden)."))])).is_empty());
    }
}
