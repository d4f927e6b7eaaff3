//! Crates import only along the arrows of the picture in `ARCHITECTURE.md`.
//!
//! Build and normal dependencies must be arrows of the picture. Tests may reach further down, to whatever the picture
//! lets their crate reach in several steps, and never up or sideways.
//!
//! May use: `manifest`. Must not know: what the crates do.

use std::collections::BTreeSet;

use super::Finding;
use super::manifest::{Kind, manifests};
use super::tree::Tree;

/// Everything that only programs and tools may stand on.
const BELOW: &[&str] =
    &["base", "journal", "kv", "space", "series", "xa", "holdfast", "tm", "grid", "client", "doors", "cluster", "c"];

/// What exists only for tests.
const FOR_TESTS: &[&str] = &["xa-monkey", "xa-monkey-rust"];

/// Who may import whom; names are package names without the leading `holdfast-`.
const PICTURE: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("journal", &["base"]),
    ("kv", &["journal", "base"]),
    ("space", &["journal", "base"]),
    ("series", &["journal", "base"]),
    ("xa", &["base"]),
    ("holdfast", &["kv", "space", "series", "xa", "journal", "base"]),
    ("script", &[]),
    ("tm", &["holdfast", "xa"]),
    ("grid", &["holdfast", "tm", "client"]),
    ("client", &["holdfast"]),
    ("doors", &["holdfast", "script"]),
    ("cluster", &["holdfast"]),
    ("server", &["holdfast", "tm", "doors", "grid", "cluster", "base"]),
    ("bench", BELOW),
    ("compare", BELOW),
    ("fuzz", BELOW),
    ("sim", &["base", "journal", "kv", "space", "series", "xa", "holdfast"]),
    ("examples", &["holdfast", "tm", "grid", "client"]),
    ("c", &["holdfast", "tm"]),
    ("xa-monkey", &[]),
    ("xa-monkey-rust", &["tm", "xa-monkey"]),
    ("python", &["holdfast"]),
    ("tests", &[]),
    ("xtask", &[]),
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in manifests(tree) {
        let from = short(&manifest.package);
        let Some(direct) = allowed(from) else {
            let what = format!("`{}` is not in the picture: add it there and to xtask's copy", manifest.package);
            findings.push(Finding::new(manifest.path, what));
            continue;
        };
        let reachable = reachable(from);
        for dependency in &manifest.dependencies {
            let to = short(&dependency.package);
            let ours = allowed(to).is_some() && (dependency.package.starts_with("holdfast") || to == "xtask");
            let permitted = match dependency.kind {
                Kind::Normal | Kind::Build => direct.contains(&to),
                Kind::Dev => reachable.contains(to) || from == "tests" || FOR_TESTS.contains(&to),
            };
            if ours && !permitted {
                findings.push(Finding::new(&manifest.path, format!("{from} -> {to} is not an arrow of the picture")));
            }
        }
    }
    findings
}

fn short(package: &str) -> &str {
    package.strip_prefix("holdfast-").unwrap_or(package)
}

fn allowed(name: &str) -> Option<&'static [&'static str]> {
    PICTURE.iter().find(|(from, _)| *from == name).map(|(_, to)| *to)
}

fn reachable(name: &str) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&'static str> = allowed(name).unwrap_or_default().to_vec();
    while let Some(name) = next.pop() {
        if found.insert(name) {
            next.extend(allowed(name).unwrap_or_default());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::tree::Tree;

    fn findings(package: &str, dependencies: &str) -> Vec<String> {
        let manifest = format!("[package]\nname = \"{package}\"\n{dependencies}");
        check(&Tree::of(&[("crates/x/Cargo.toml", &manifest)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn engines_do_not_import_each_other() {
        let found = findings("holdfast-kv", "[dependencies]\nholdfast-space = { path = \"../space\" }\n");
        assert_eq!(found, ["crates/x/Cargo.toml: kv -> space is not an arrow of the picture"]);
    }

    #[test]
    fn arrows_of_the_picture_pass_and_strangers_are_not_ours() {
        let dependencies = "[dependencies]\nholdfast-journal = \"1\"\nholdfast-base = \"1\"\nserde = \"1\"\n";
        assert!(findings("holdfast-kv", dependencies).is_empty());
    }

    #[test]
    fn nothing_imports_upwards() {
        assert_eq!(findings("holdfast-base", "[dependencies]\nholdfast-journal = \"1\"\n").len(), 1);
        assert_eq!(findings("holdfast-kv", "[dependencies]\nholdfast = \"1\"\n").len(), 1);
        assert_eq!(findings("holdfast-journal", "[dev-dependencies]\nholdfast-sim = \"1\"\n").len(), 1);
    }

    #[test]
    fn tests_of_a_crate_may_reach_further_down_than_the_crate() {
        assert!(findings("holdfast-doors", "[dev-dependencies]\nholdfast-base = \"1\"\n").is_empty());
        assert_eq!(findings("holdfast-doors", "[dependencies]\nholdfast-base = \"1\"\n").len(), 1);
    }

    #[test]
    fn what_exists_for_tests_is_for_tests_alone() {
        assert!(findings("holdfast-c", "[dev-dependencies]\nholdfast-xa-monkey = \"1\"\n").is_empty());
        assert_eq!(findings("holdfast-c", "[dependencies]\nholdfast-xa-monkey = \"1\"\n").len(), 1);
    }

    #[test]
    fn a_crate_that_nobody_drew_is_a_finding() {
        assert_eq!(findings("holdfast-extras", "").len(), 1);
    }
}
