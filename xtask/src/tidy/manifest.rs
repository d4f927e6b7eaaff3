//! What the checks need from a `Cargo.toml`: its package name and what it depends on, by package name.
//!
//! May use: `tree`, `toml`. Must not know: which dependency is allowed.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::tree::Tree;

/// One manifest that has a package.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) path: String,
    pub(crate) package: String,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The package's own name, whatever it is called here.
    pub(crate) package: String,
    pub(crate) kind: Kind,
    pub(crate) from: Origin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Build,
    Dev,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `workspace = true`
    Workspace,
    /// `path = ".."`
    Path,
    /// A version written on the spot.
    Registry,
}

const SECTIONS: &[(&str, Kind)] =
    &[("dependencies", Kind::Normal), ("build-dependencies", Kind::Build), ("dev-dependencies", Kind::Dev)];

/// Every manifest of the tree that has a package; unreadable ones are left to cargo, which says it better.
pub(crate) fn manifests(tree: &Tree) -> Vec<Manifest> {
    let renames = renames(tree);
    tree.texts("Cargo.toml")
        .filter_map(|(path, text)| {
            let table: Table = text.parse().ok()?;
            let package = table.get("package")?.get("name")?.as_str()?.to_owned();
            let mut dependencies = Vec::new();
            collect(&table, &renames, &mut dependencies);
            for target in table.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values) {
                if let Some(table) = target.as_table() {
                    collect(table, &renames, &mut dependencies);
                }
            }
            Some(Manifest { path: path.to_owned(), package, dependencies })
        })
        .collect()
}

/// Names in the root's `[workspace.dependencies]` that stand for a package of another name.
fn renames(tree: &Tree) -> BTreeMap<String, String> {
    let root = tree.text("Cargo.toml").and_then(|text| text.parse::<Table>().ok()).unwrap_or_default();
    let shared = root.get("workspace").and_then(|workspace| workspace.get("dependencies")).and_then(Value::as_table);
    shared
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name.clone(), value.get("package")?.as_str()?.to_owned())))
        .collect()
}

fn collect(table: &Table, renames: &BTreeMap<String, String>, into: &mut Vec<Dependency>) {
    for &(section, kind) in SECTIONS {
        for (name, value) in table.get(section).and_then(Value::as_table).into_iter().flatten() {
            let from = if value.get("workspace").is_some() {
                Origin::Workspace
            } else if value.get("path").is_some() {
                Origin::Path
            } else {
                Origin::Registry
            };
            let own_name = value.get("package").and_then(Value::as_str);
            let shared_name = if from == Origin::Workspace { renames.get(name).map(String::as_str) } else { None };
            let package = own_name.or(shared_name).unwrap_or(name).to_owned();
            into.push(Dependency { package, kind, from });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Origin, manifests};
    use crate::tidy::tree::Tree;

    #[test]
    fn a_dependency_is_named_by_its_package_wherever_it_is_renamed() {
        let tree = Tree::of(&[
            (
                "Cargo.toml",
                "[workspace.dependencies]\nbase = { path = \"crates/base\", package = \"holdfast-base\" }\n",
            ),
            (
                "crates/kv/Cargo.toml",
                "[package]\nname = \"holdfast-kv\"\n[dependencies]\nbase.workspace = true\n\
                 j = { path = \"../journal\", package = \"holdfast-journal\" }\n\
                 [target.'cfg(unix)'.dev-dependencies]\nlibc = \"1\"\n",
            ),
        ]);
        let found = manifests(&tree);
        let flat: Vec<_> = found[0].dependencies.iter().map(|d| (d.package.as_str(), d.kind, d.from)).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(
            flat,
            [
                ("holdfast-base", Kind::Normal, Origin::Workspace),
                ("holdfast-journal", Kind::Normal, Origin::Path),
                ("libc", Kind::Dev, Origin::Registry),
            ]
        );
    }
}
