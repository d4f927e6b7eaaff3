//! No source file is too long to read from the top.
//!
//! May use: `tree`. Must not know: why a file is long.

use super::Finding;
use super::tree::Tree;

const LINES_MAX: usize = 600;
const TEST_LINES_MAX: usize = 1000;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.texts(".rs")
        .filter_map(|(path, text)| {
            let lines = text.lines().count();
            let lines_max = if is_test(path) { TEST_LINES_MAX } else { LINES_MAX };
            (lines > lines_max).then(|| Finding::new(path, format!("{lines} lines, at most {lines_max}: split it")))
        })
        .collect()
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.ends_with("_tests.rs") || path.starts_with("tests/") || path.contains("/tests/")
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::tree::Tree;

    #[test]
    fn tests_may_be_longer_than_code_and_both_have_an_end() {
        let (code, tests, long) = ("x\n".repeat(601), "x\n".repeat(1000), "x\n".repeat(1001));
        let tree = Tree::of(&[
            ("crates/kv/src/engine.rs", &code),
            ("crates/kv/src/engine_tests.rs", &tests),
            ("crates/kv/tests/behaviour.rs", &tests),
            ("crates/kv/src/tests.rs", &long),
            ("crates/kv/src/short.rs", &code[..1200]),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|finding| finding.place).collect();
        assert_eq!(found, ["crates/kv/src/engine.rs", "crates/kv/src/tests.rs"]);
    }
}
