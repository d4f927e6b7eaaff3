//! The rules of the house that no compiler checks; one file for each rule, each a function from a tree to findings.
//!
//! May use: `tree`. Must not know: how anything is built or run.

mod arrows;
mod forbidden;
mod formats;
mod headers;
mod lengths;
mod links;
mod manifest;
mod names;
mod reasons;
mod tree;
mod walls;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use tree::Tree;

/// One breach of one rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The file, with `:line` when one line is to blame.
    place: String,
    what: String,
}

impl Finding {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }

    fn at(file: &str, line_index: usize, what: impl Into<String>) -> Self {
        Self::new(format!("{file}:{}", line_index.saturating_add(1)), what)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.what)
    }
}

type Check = fn(&Tree) -> Vec<Finding>;

const CHECKS: &[Check] = &[
    arrows::check,
    forbidden::check,
    formats::check,
    headers::check,
    lengths::check,
    links::check,
    names::check,
    reasons::check,
    walls::check,
];

/// Prints every finding; the exit code is 1 when there is one.
pub(crate) fn tidy(root: &Path) -> ExitCode {
    let tree = match Tree::load(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: cannot read {}: {error}", root.display());
            return ExitCode::FAILURE;
        }
    };
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(&tree)).collect();
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} files, {} checks, {} findings", tree.len(), CHECKS.len(), findings.len());
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
