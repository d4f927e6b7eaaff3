//! What cargo knows about the workspace: where it builds, which examples there are.
//!
//! May use: `run`, `serde_json`. Must not know: what the programs do.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::run;

#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) target: PathBuf,
    /// Names of examples in the package of examples.
    pub(crate) examples: Vec<String>,
}

impl Workspace {
    /// Asks `cargo metadata`.
    pub(crate) fn ask(root: &Path) -> Result<Self, String> {
        let mut command = run::cargo();
        command.current_dir(root).args(["metadata", "--no-deps", "--format-version", "1"]);
        let output = command.output().map_err(|error| format!("cannot run cargo metadata: {error}"))?;
        if !output.status.success() {
            return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Self::parse(&text).ok_or_else(|| "cargo metadata answered something unknown".to_owned())
    }

    fn parse(text: &str) -> Option<Self> {
        let answer: Value = serde_json::from_str(text).ok()?;
        let target = answer.get("target_directory")?.as_str()?.into();
        let mut examples = Vec::new();
        for package in answer.get("packages")?.as_array()? {
            for built in package.get("targets")?.as_array()? {
                let name = built.get("name")?.as_str()?.to_owned();
                let kinds: Vec<&str> = built.get("kind")?.as_array()?.iter().filter_map(Value::as_str).collect();
                if kinds.contains(&"example") && package.get("name")?.as_str()? == "holdfast-examples" {
                    examples.push(name);
                }
            }
        }
        examples.sort();
        Some(Self { target, examples })
    }
}

#[cfg(test)]
mod tests {
    use super::Workspace;

    #[test]
    fn examples_are_found() {
        let text = r#"{"target_directory": "/t", "packages": [
            {"name": "holdfast-examples", "targets": [{"name": "b", "kind": ["example"]}, {"name": "a", "kind": ["example"]}]},
            {"name": "holdfast-server", "targets": [{"name": "holdfast", "kind": ["bin"]}, {"name": "x", "kind": ["test"]}]}]}"#;
        let workspace = Workspace::parse(text).expect("the text above is what cargo prints");
        assert_eq!(workspace.examples, ["a", "b"]);
        assert_eq!(workspace.target.to_str(), Some("/t"));
    }
}
