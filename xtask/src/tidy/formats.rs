//! Every format has a page, and every page a source file that defines it.
//!
//! A source file that defines a format says `Layout` in its header, and on a line of its own
//! `Format: docs/formats/<page>.md`. A page that no source file names describes nothing.
//!
//! May use: `headers`, `tree`. Must not know: any format.

use std::collections::BTreeSet;

use super::Finding;
use super::headers::header;
use super::tree::Tree;

const PAGES: &str = "docs/formats/";
const INDEX: &str = "docs/formats/README.md";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut named = BTreeSet::new();
    for (path, text) in tree.texts(".rs").filter(|(path, _)| !path.starts_with("xtask/")) {
        let header = header(text);
        let pages: Vec<&str> = header.lines().filter_map(|line| line.trim().strip_prefix("Format: ")).collect();
        if header.contains("Layout") && pages.is_empty() {
            findings.push(Finding::new(path, format!("defines a layout but has no line `Format: {PAGES}<page>.md`")));
        }
        for page in pages {
            let page = page.trim().trim_end_matches('.').trim_matches('`');
            let page = if page.ends_with(".md") { page.to_owned() } else { format!("{page}.md") };
            if tree.text(&page).is_none() || !page.starts_with(PAGES) {
                findings.push(Finding::new(path, format!("names the format page {page}, which does not exist")));
            }
            named.insert(page);
        }
    }
    for (page, _) in tree.texts(".md").filter(|(page, _)| page.starts_with(PAGES) && *page != INDEX) {
        if !named.contains(page) {
            findings.push(Finding::new(page, format!("no source file says `Format: {page}` in its header")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::tree::Tree;

    #[test]
    fn pages_and_sources_name_each_other() {
        let tree = Tree::of(&[
            ("a.rs", "//! A.\n//!\n//! Format: docs/formats/a.md\n//! Layout: x\n"),
            ("b.rs", "//! B.\n//!\n//! Layout: x\n"),
            ("c.rs", "//! C.\n//! Format: docs/formats/c.md\n"),
            ("docs/formats/README.md", ""),
            ("docs/formats/a.md", ""),
            ("docs/formats/lonely.md", ""),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|finding| finding.place).collect();
        assert_eq!(found, ["b.rs", "c.rs", "docs/formats/lonely.md"]);
    }
}
