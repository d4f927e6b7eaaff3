//! Relative links in the pages lead somewhere.
//!
//! May use: `tree`. Must not know: the network; links out of the project are not followed, nor anchors.

use super::Finding;
use super::tree::Tree;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(".md") {
        let mut fenced = false;
        for (index, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
            } else if !fenced {
                for target in targets(line).into_iter().filter(|target| !leads_somewhere(tree, path, target)) {
                    findings.push(Finding::at(path, index, format!("the link `{target}` leads nowhere")));
                }
            }
        }
    }
    findings
}

/// What stands in `](here)` and after `[name]:`, outside of inline code.
fn targets(line: &str) -> Vec<String> {
    let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("code");
    let mut found = Vec::new();
    let mut rest = prose.as_str();
    while let Some((_, after)) = rest.split_once("](") {
        let Some((target, behind)) = after.split_once(')') else { break };
        found.push(target.to_owned());
        rest = behind;
    }
    let definition = prose.split_once("]: ").filter(|(name, _)| name.starts_with('[') && !name.starts_with("[^"));
    found.extend(definition.map(|(_, target)| target.to_owned()));
    found
}

fn leads_somewhere(tree: &Tree, page: &str, target: &str) -> bool {
    let target = target.split_whitespace().next().unwrap_or_default().trim_matches(['<', '>']);
    let target = target.split('#').next().unwrap_or_default();
    if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let whole = target.strip_prefix('/').map_or_else(|| format!("{folder}/{target}"), str::to_owned);
    resolve(&whole).is_some_and(|path| tree.exists(&path))
}

/// The path without `.` and `..`; `None` when it leaves the project.
fn resolve(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::tree::Tree;

    #[test]
    fn broken_links_are_found_and_others_left_alone() {
        let page = "[a](../README.md#top) [b](missing.md) [c](https://example.org/x) `[d](code.md)`\n\
                    ```\n[e](fenced.md)\n```\n[f]: gone.md\n[g](#here) [h](formats/) [i](../../outside.md)\n";
        let tree = Tree::of(&[("README.md", ""), ("docs/page.md", page), ("docs/formats/journal.md", "")]);
        let found: Vec<_> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "docs/page.md:1: the link `missing.md` leads nowhere",
                "docs/page.md:5: the link `gone.md` leads nowhere",
                "docs/page.md:6: the link `../../outside.md` leads nowhere",
            ]
        );
    }
}
