//! Texts by number: each name is kept once, however many series have it.
//!
//! May use: hashbrown. Must not know: what is named.

use hashbrown::HashTable;

/// The number of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name(u32);

impl Name {
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// All texts.
#[derive(Debug, Default)]
pub(crate) struct Names {
    texts: Vec<Box<str>>,
    by_text: HashTable<u32>,
    bytes: usize,
}

impl Names {
    /// The number of a text that is there.
    pub(crate) fn find(&self, text: &str) -> Option<Name> {
        let texts = &self.texts;
        let is_it = |at: &u32| texts.get(*at as usize).is_some_and(|one| **one == *text);
        self.by_text.find(base::hash64(text.as_bytes()), is_it).copied().map(Name)
    }

    /// The number of a text, which is added when it is not there.
    pub(crate) fn add(&mut self, text: &str) -> Name {
        if let Some(name) = self.find(text) {
            return name;
        }
        let at = u32::try_from(self.texts.len()).expect("there are fewer names than memory for them");
        self.texts.push(text.into());
        self.bytes += text.len() + 24;
        let texts = &self.texts;
        let hash = |at: &u32| texts.get(*at as usize).map_or(0, |text| base::hash64(text.as_bytes()));
        self.by_text.insert_unique(base::hash64(text.as_bytes()), at, hash);
        Name(at)
    }

    /// The text.
    pub(crate) fn text(&self, name: Name) -> &str {
        self.texts.get(name.0 as usize).map_or("", |text| text)
    }

    /// Bytes of memory, nearly.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
