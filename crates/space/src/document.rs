//! An entry's fields in stored form, shared by everybody who reads the entry.
//!
//! May use: `value`. Must not know: types, indexes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::value::{DEPTH_MAX, MapRef, Value, ValueRef, is_canonical_map, write_fields};

/// An entry's fields. Cheap to clone: clones share the bytes, which nobody changes.
///
/// Equal documents have equal bytes: fields lie in byte order of their names, and each value has one form.
#[derive(Clone, PartialEq, Eq)]
pub struct Document(Arc<[u8]>);

impl Document {
    /// A document of these fields.
    #[must_use]
    pub fn new(fields: &BTreeMap<String, Value>) -> Self {
        let mut bytes = Vec::new();
        write_fields(fields, &mut bytes);
        Self(bytes.into())
    }

    /// A document of these fields; of two with one name the later counts.
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
        Ok(Self(bytes.into()))
    }

    /// A document of fields in stored form.
    pub(crate) fn of_fields(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }

    /// A document whose bytes were checked before: by their checksum in the journal, or here.
    pub(crate) fn trusted(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// The bytes as they are stored.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The fields.
    #[must_use]
    pub fn fields(&self) -> MapRef<'_> {
        MapRef(&self.0)
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

    /// A copy of the fields that can be changed.
    #[must_use]
    pub fn to_fields(&self) -> BTreeMap<String, Value> {
        self.fields().iter().map(|(name, value)| (name.to_owned(), value.to_value())).collect()
    }
}

impl std::fmt::Debug for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.to_fields()).finish()
    }
}
