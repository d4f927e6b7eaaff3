//! The files of the project, read once; checks look only at this, so that their tests can make trees up.
//!
//! May use: std. Must not know: what any file means.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Folders that hold what programs made, not what people wrote.
const SKIPPED: &[&str] = &["target", "node_modules", "holdfast-data", "__pycache__", ".git"];

/// Folders deeper than this are a loop or a mistake.
const DEPTH_MAX: usize = 16;

#[derive(Debug)]
enum Entry {
    Text(String),
    /// A symbolic link, with the target as written.
    Link(String),
    Binary,
}

/// Paths from the root, with `/`, to contents.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    entries: BTreeMap<String, Entry>,
}

impl Tree {
    pub(crate) fn load(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.load_folder(root, "", 0)?;
        Ok(tree)
    }

    fn load_folder(&mut self, folder: &Path, prefix: &str, depth: usize) -> io::Result<()> {
        if depth > DEPTH_MAX {
            return Ok(());
        }
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if SKIPPED.contains(&name.as_str()) {
                continue;
            }
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.load_folder(&entry.path(), &format!("{path}/"), depth.saturating_add(1))?;
            } else if kind.is_symlink() {
                let target = fs::read_link(entry.path())?;
                self.entries.insert(path, Entry::Link(target.to_string_lossy().into_owned()));
            } else if kind.is_file() {
                let content = String::from_utf8(fs::read(entry.path())?);
                self.entries.insert(path, content.map_or(Entry::Binary, Entry::Text));
            }
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Text files whose path ends so, in the order of their paths.
    pub(crate) fn texts<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.entries.iter().filter_map(move |(path, entry)| match entry {
            Entry::Text(text) if path.ends_with(ending) => Some((path.as_str(), text.as_str())),
            _ => None,
        })
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        match self.entries.get(path)? {
            Entry::Text(text) => Some(text),
            Entry::Link(_) | Entry::Binary => None,
        }
    }

    pub(crate) fn link(&self, path: &str) -> Option<&str> {
        match self.entries.get(path)? {
            Entry::Link(target) => Some(target),
            Entry::Text(_) | Entry::Binary => None,
        }
    }

    /// Whether a file, link or folder of this path exists; the empty path is the root.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.entries.contains_key(path)
            || self.entries.range(folder.clone()..).next().is_some_and(|(found, _)| found.starts_with(&folder))
    }
}

#[cfg(test)]
impl Tree {
    /// A made-up tree of text files.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let entries = files.iter().map(|(path, text)| ((*path).to_owned(), Entry::Text((*text).to_owned())));
        Self { entries: entries.collect() }
    }

    pub(crate) fn with_link(mut self, path: &str, target: &str) -> Self {
        self.entries.insert(path.to_owned(), Entry::Link(target.to_owned()));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn a_folder_exists_when_a_file_is_in_it() {
        let tree = Tree::of(&[("docs/formats/journal.md", ""), ("docs.md", "")]);
        assert!(tree.exists("docs") && tree.exists("docs/formats") && tree.exists("docs.md") && tree.exists(""));
        assert!(!tree.exists("doc") && !tree.exists("docs/for"));
    }
}
