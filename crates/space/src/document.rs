//! An entry's fields in stored form, shared by everybody who reads the entry.
//!
//! May use: `base`, `value`. Must not know: types, indexes.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::value::{DEPTH_MAX, MapRef, Value, ValueRef, is_canonical_map, skip, write_fields};
use base::{Fields, SharedBytes};

/// An entry's fields. Cheap to clone: clones share the bytes, which nobody changes.
///
/// Equal documents have equal bytes: fields lie in byte order of their names, and each value has one form.
#[derive(Clone, PartialEq, Eq)]
pub struct Document(SharedBytes);

impl Document {
    /// A document of these fields.
    ///
    /// # Panics
    /// When it takes 4 GiB or more; a store refuses far smaller ones.
    #[must_use]
    pub fn new(fields: &BTreeMap<String, Value>) -> Self {
        let mut bytes = Vec::new();
        write_fields(fields, &mut bytes);
        Self::trusted(&bytes)
    }

    /// As [`Document::new`]; of two fields with one name the later counts.
    pub fn from_pairs<N: Into<String>, V: Into<Value>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        let fields = pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self::new(&fields)
    }

    /// A document that was stored, or came from elsewhere in stored form.
    ///
    /// # Errors
    /// `Malformed` when the bytes are no document, or not the one form that it has.
    pub fn from_stored(bytes: &[u8]) -> Result<Self> {
        if !is_canonical_map(bytes, DEPTH_MAX) {
            return Err(Error::Malformed { what: "document" });
        }
        Ok(Self::trusted(bytes))
    }

    /// A document whose bytes were checked before: by their checksum in the journal, or here.
    pub(crate) fn trusted(bytes: &[u8]) -> Self {
        Self(SharedBytes::new(bytes))
    }

    /// See [`SharedBytes::fetch_ahead`].
    pub(crate) fn fetch_ahead(&self, lines: usize) {
        self.0.fetch_ahead(lines);
    }

    /// The bytes as they are stored.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The fields.
    #[must_use]
    pub fn fields(&self) -> MapRef<'_> {
        MapRef(self.as_bytes())
    }

    /// The field of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<ValueRef<'_>> {
        self.fields().get(name)
    }

    /// The value at a path of names: `["address", "city"]`.
    #[must_use]
    pub fn at(&self, path: &[impl AsRef<str>]) -> Option<ValueRef<'_>> {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(self.get(first.as_ref())?, |value, name| match value {
            ValueRef::Map(map) => map.get(name.as_ref()),
            _ => None,
        })
    }

    /// This document with a field of this value, whatever it had there. Copies bytes: a copy of the fields takes many times as much.
    #[must_use]
    pub fn with(&self, name: &str, value: Value) -> Self {
        self.merged(&Self::from_pairs([(name, value)]))
    }

    /// This document with the fields of another one, which count where both have one.
    #[must_use]
    pub fn merged(&self, over: &Self) -> Self {
        let mut bytes = Vec::with_capacity(self.as_bytes().len() + over.as_bytes().len());
        let (mut left, mut right) = (Spans(Fields(self.as_bytes())), Spans(Fields(over.as_bytes())));
        let (mut old, mut new) = (left.next(), right.next());
        loop {
            let ((name, span), is_new) = match (old, new) {
                (None, None) => break,
                (Some(field), None) => (field, false),
                (None, Some(field)) => (field, true),
                (Some(old), Some(new)) if old.0 < new.0 => (old, false),
                (Some(_), Some(new)) => (new, true),
            };
            bytes.extend_from_slice(span);
            let is_replaced = is_new && old.is_some_and(|old| old.0 == name);
            if !is_new || is_replaced {
                old = left.next();
            }
            if is_new {
                new = right.next();
            }
        }
        Self::trusted(&bytes)
    }

    /// A copy of the fields that can be changed.
    #[must_use]
    pub fn to_fields(&self) -> BTreeMap<String, Value> {
        self.fields().iter().map(|(name, value)| (name.to_owned(), value.to_value())).collect()
    }
}

/// The fields as they are stored: the name, and all bytes of name and value.
struct Spans<'a>(Fields<'a>);

impl<'a> Iterator for Spans<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let all = self.0.0;
        let name = self.0.string()?;
        skip(&mut self.0)?;
        all.get(..all.len() - self.0.0.len()).map(|span| (name, span))
    }
}

impl std::fmt::Debug for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.to_fields()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::documents;

    proptest! {
        #[test]
        fn merged_is_as_a_map_is_extended(one in documents(), other in documents()) {
            let mut fields = one.to_fields();
            fields.extend(other.to_fields());
            prop_assert_eq!(one.merged(&other), Document::new(&fields));
            let name = one.fields().iter().next().map_or("a", |(name, _)| name);
            fields = one.to_fields();
            fields.insert(name.to_owned(), 7.into());
            prop_assert_eq!(one.with(name, 7.into()), Document::new(&fields));
        }
    }
}
