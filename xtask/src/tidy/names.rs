//! No module is named after nothing: `util`, `common`, or a second version of something.
//!
//! May use: `tree`. Must not know: better names.

use super::Finding;
use super::tree::Tree;

const EMPTY: &[&str] = &["util", "utils", "common", "helpers", "misc"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(".rs") {
        let stem = path.strip_suffix(".rs").unwrap_or(path);
        for part in stem.split('/').filter(|part| is_empty_name(part)) {
            findings.push(Finding::new(path, format!("`{part}` says nothing: name the module after what it holds")));
        }
        for (index, line) in text.lines().enumerate() {
            if let Some(name) = inline_module(line).filter(|name| is_empty_name(name)) {
                let what = format!("`mod {name}` says nothing: name the module after what it holds");
                findings.push(Finding::at(path, index, what));
            }
        }
    }
    findings
}

/// The name in `mod name {`; a module in a file of its own is found by the name of the file.
fn inline_module(line: &str) -> Option<&str> {
    let rest = line.trim_start();
    let rest = rest.strip_prefix("pub(crate) ").or_else(|| rest.strip_prefix("pub ")).unwrap_or(rest);
    rest.strip_prefix("mod ")?.strip_suffix('{').map(str::trim)
}

fn is_empty_name(name: &str) -> bool {
    let version = name
        .rsplit_once("_v")
        .is_some_and(|(_, digits)| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
    EMPTY.contains(&name) || version
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::tree::Tree;

    #[test]
    fn files_folders_and_inline_modules_are_looked_at() {
        let tree = Tree::of(&[
            ("crates/kv/src/util.rs", ""),
            ("crates/kv/src/common/table.rs", ""),
            ("crates/kv/src/merge_v2.rs", ""),
            ("crates/kv/src/lib.rs", "//! x\nmod helpers {\n}\nmod table;\n"),
            ("crates/kv/src/utility_curve.rs", ""),
            ("crates/kv/src/tlv_view.rs", ""),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|finding| finding.place).collect();
        assert_eq!(
            found,
            [
                "crates/kv/src/common/table.rs",
                "crates/kv/src/lib.rs:2",
                "crates/kv/src/merge_v2.rs",
                "crates/kv/src/util.rs"
            ]
        );
    }
}
