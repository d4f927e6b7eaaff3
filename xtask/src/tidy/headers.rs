//! Every source file opens by saying what it is for.
//!
//! May use: `tree`. Must not know: what a good header says.

use super::Finding;
use super::tree::Tree;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.texts(".rs")
        .filter(|(_, text)| header(text).trim().is_empty())
        .map(|(path, _)| Finding::new(path, "must open with a `//!` header that says what the file is for"))
        .collect()
}

/// The `//!` lines that a file opens with, without their slashes; empty when it opens with anything else.
pub(crate) fn header(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::tree::Tree;

    #[test]
    fn a_file_without_a_header_is_found() {
        let tree = Tree::of(&[
            ("a.rs", "//! What a is for.\nfn a() {}\n"),
            ("b.rs", "fn b() {}\n"),
            ("c.rs", "//!\nfn c() {}\n"),
            ("d.rs", "use std::fs;\n//! Too late.\n"),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|finding| finding.place).collect();
        assert_eq!(found, ["b.rs", "c.rs", "d.rs"]);
    }
}
