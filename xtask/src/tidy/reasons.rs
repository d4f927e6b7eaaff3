//! Every dependency from outside has a reason, written above it in the root's `[workspace.dependencies]`.
//!
//! One comment may cover the lines that follow it up to the next blank line. Members take what they need from there with
//! `workspace = true`, so that no dependency comes in by a side door.
//!
//! May use: `manifest`, `tree`. Must not know: which reasons are good.

use super::Finding;
use super::manifest::{Origin, manifests};
use super::tree::Tree;

const ROOT: &str = "Cargo.toml";
const SECTION: &str = "[workspace.dependencies]";

/// Members of no workspace, or of one of their own, write their versions themselves.
const OUTSIDE: &[&str] = &["fuzz/", "compare/"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = without_comment(tree.text(ROOT).unwrap_or_default());
    for manifest in manifests(tree) {
        if OUTSIDE.iter().any(|folder| manifest.path.starts_with(folder)) {
            continue;
        }
        for dependency in manifest.dependencies.iter().filter(|dependency| dependency.from == Origin::Registry) {
            let what = format!("`{}` must come from {SECTION}, with a reason there", dependency.package);
            findings.push(Finding::new(&manifest.path, what));
        }
    }
    findings
}

fn without_comment(root: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut inside, mut covered) = (false, false);
    for (index, line) in root.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            (inside, covered) = (line == SECTION, false);
        } else if line.is_empty() {
            covered = false;
        } else if line.starts_with('#') {
            covered = true;
        } else if inside && !covered && !line.contains("path = ") {
            let name = line.split(['=', '.', ' ']).next().unwrap_or(line);
            findings.push(Finding::at(ROOT, index, format!("`{name}` has no comment above it that says why")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::tree::Tree;

    #[test]
    fn a_dependency_needs_a_comment_above_and_ours_do_not() {
        let root = "[workspace.dependencies]\nbase = { path = \"crates/base\" }\nserde = \"1\"\n\n\
                    # tls: both doors\nrustls = \"1\"\ntokio-rustls = \"1\"\n\ntoml = \"1\"\n[profile.release]\nlto = true\n";
        let found: Vec<_> =
            check(&Tree::of(&[("Cargo.toml", root)])).into_iter().map(|finding| finding.place).collect();
        assert_eq!(found, ["Cargo.toml:3", "Cargo.toml:9"]);
    }

    #[test]
    fn a_member_takes_its_dependencies_from_the_root() {
        let member = "[package]\nname = \"holdfast-kv\"\n[dependencies]\nserde = \"1\"\ntoml.workspace = true\n";
        let found = check(&Tree::of(&[("crates/kv/Cargo.toml", member), ("fuzz/Cargo.toml", member)]));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].place, "crates/kv/Cargo.toml");
    }
}
