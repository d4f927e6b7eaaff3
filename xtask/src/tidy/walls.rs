//! Every inner crate stands behind the determinism wall: its `clippy.toml` is a link to `lints/inner.toml`.
//!
//! A copy would drift, and a missing file lets clippy pass everything, silently.
//!
//! May use: `tree`. Must not know: what the wall forbids.

use super::Finding;
use super::tree::Tree;

const INNER: &[&str] = &["journal", "kv", "space", "series", "xa", "holdfast"];
const WALL: &str = "lints/inner.toml";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !tree.exists(WALL) {
        findings.push(Finding::new(WALL, "the determinism wall is missing"));
    }
    for name in INNER {
        let folder = format!("crates/{name}");
        if !tree.exists(&format!("{folder}/Cargo.toml")) {
            continue;
        }
        let link = format!("{folder}/clippy.toml");
        if tree.link(&link) != Some("../../lints/inner.toml") {
            findings.push(Finding::new(link, format!("must be a symbolic link to ../../{WALL}")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::tree::Tree;

    #[test]
    fn an_inner_crate_needs_the_link_and_a_copy_will_not_do() {
        let files = &[
            ("lints/inner.toml", ""),
            ("crates/kv/Cargo.toml", ""),
            ("crates/xa/Cargo.toml", ""),
            ("crates/xa/clippy.toml", ""),
        ];
        let tree = Tree::of(files).with_link("crates/kv/clippy.toml", "../../lints/inner.toml");
        let found = check(&tree);
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().starts_with("crates/xa/clippy.toml"));
    }

    #[test]
    fn outer_crates_need_no_wall() {
        assert!(check(&Tree::of(&[("lints/inner.toml", ""), ("crates/doors/Cargo.toml", "")])).is_empty());
    }
}
