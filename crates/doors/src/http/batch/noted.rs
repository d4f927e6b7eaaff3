//! What is noted on an object besides its value, as JSON and back: metadata and entries of secondary indexes.
//!
//!   "metadata": {"owner": "ada", "raw": {"$bytes": "AAEK"}}
//!   "indexes": {"age_int": [36, 37], "city_bin": "Ulm"}
//!
//! The suffix of an index says the type of its terms, as in headers and paths.
//!
//! May use: the facade, `fields`, `indexes`, `metadata`. Must not know: how objects are written.

use std::collections::BTreeMap;

use holdfast::space::Value;
use holdfast::{Indexes, Metadata, Term};

use crate::http::failure::Failure;
use crate::http::fields::Fields;
use crate::http::{indexes, metadata, uri};

/// The metadata that fields say, the content type among it.
pub(super) fn metadata_of(fields: &mut Fields) -> Result<Metadata, Failure> {
    let mut pairs = Vec::new();
    if let Some(kind) = fields.text("content_type")? {
        metadata::check_type(kind.as_bytes())?;
        pairs.push((metadata::TYPE_NAME.to_vec(), kind.into_bytes()));
    }
    for (name, value) in map(fields, "metadata")? {
        if name.is_empty() || name.starts_with(':') {
            let text = "a name of metadata is not empty and does not begin with a colon; content_type stands beside it";
            return Err(Failure::bad(text));
        }
        let value = bytes(value)
            .ok_or_else(|| Failure::bad(format!("metadata {name} has to be a text, or {{\"$bytes\": base64}}")))?;
        pairs.push((name.into_bytes(), value));
    }
    Ok(Metadata::from_pairs(pairs))
}

/// The index entries that fields say.
pub(super) fn indexes_of(fields: &mut Fields) -> Result<Indexes, Failure> {
    let mut pairs = Vec::new();
    for (name, terms) in map(fields, "indexes")? {
        let (index, kind) = indexes::index_of(name.as_bytes())?;
        let terms = if let Value::List(terms) = terms { terms } else { vec![terms] };
        for term in terms {
            let term =
                match (kind, term) {
                    (indexes::Kind::Integer, Value::I64(number)) => Term::Integer(number),
                    (indexes::Kind::Integer, _) => {
                        return Err(Failure::bad(format!("a term of {name} is a whole number of 64 bits")));
                    }
                    (indexes::Kind::Binary, term) => Term::Binary(bytes(term).ok_or_else(|| {
                        Failure::bad(format!("a term of {name} is a text, or {{\"$bytes\": base64}}"))
                    })?),
                };
            pairs.push((index.clone(), term));
        }
    }
    Ok(Indexes::from_pairs(pairs))
}

/// Metadata as JSON, without the content type.
pub(super) fn metadata_json(metadata: &Metadata) -> String {
    let shown = metadata.iter().filter(|(name, _)| *name != metadata::TYPE_NAME);
    Value::Map(shown.map(|(name, value)| (name_text(name), bytes_value(value))).collect()).to_json()
}

/// Index entries as JSON, of each index and type a list.
pub(super) fn indexes_json(entries: &Indexes) -> String {
    let mut all: BTreeMap<String, Value> = BTreeMap::new();
    for (name, term) in entries.iter() {
        let (kind, term) = match term {
            Term::Integer(number) => (indexes::Kind::Integer, Value::I64(number)),
            Term::Binary(term) => (indexes::Kind::Binary, bytes_value(&term)),
        };
        let name = format!("{}{}", name_text(name), kind.suffix());
        let list = all.entry(name).or_insert_with(|| Value::List(Vec::new()));
        if let Value::List(terms) = list {
            terms.push(term);
        }
    }
    Value::Map(all).to_json()
}

fn map(fields: &mut Fields, name: &str) -> Result<BTreeMap<String, Value>, Failure> {
    match fields.take(name) {
        None => Ok(BTreeMap::new()),
        Some(Value::Map(map)) => Ok(map),
        Some(_) => Err(Failure::bad(format!("{name} has to be an object"))),
    }
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.into_bytes()),
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

fn bytes_value(bytes: &[u8]) -> Value {
    std::str::from_utf8(bytes).map_or_else(|_| Value::Bytes(bytes.to_vec()), |text| Value::String(text.to_owned()))
}

/// A name that is no text, which other doors may have given, is percent-encoded.
fn name_text(name: &[u8]) -> String {
    std::str::from_utf8(name).map_or_else(|_| uri::encode(name), str::to_owned)
}
