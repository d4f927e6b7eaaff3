//! Objects by bucket and key, in the process or on a server.
//!
//! May use: `call`, `embedded`, `remote`, the facade. Must not know: sockets.

pub(crate) mod listing;

use holdfast::{
    Committed, Compression, Condition, Durability, Head, IndexCursor, IndexPage, IndexQuery, Indexes, Metadata, Object,
    PutOptions, Result, Scope, Shown, Term, Value,
};

use crate::call::{Call, How, Step};
use crate::client::Place;
use crate::remote::{Again, Reply, Words, strange};
pub use listing::Keys;

/// Objects by bucket and key. See [`holdfast::Kv`].
#[derive(Clone)]
pub struct Kv {
    place: Place,
}

/// A query of one index, with what it is asked of. See [`IndexQuery`].
#[derive(Debug, Clone)]
pub struct IndexRange {
    /// Lowest term.
    pub from: Term,
    /// Highest term, of the same kind; the same as `from` asks for objects with just that term.
    pub to: Term,
    /// Only terms that this expression matches somewhere: see [`holdfast::regex()`].
    pub term_regex: Option<String>,
    /// Most entries to return, from 1; a server gives 10,000 at the most.
    pub limit: usize,
    /// Go on where an earlier page ended.
    pub after: Option<IndexCursor>,
}

impl Kv {
    pub(crate) fn new(place: Place) -> Self {
        Self { place }
    }

    /// Puts an object; waits for the store's durability unless it is told another: [`holdfast::Kv::put`].
    ///
    /// # Errors
    /// As there.
    pub fn put(
        &self,
        bucket: &[u8],
        key: &[u8],
        value: &[u8],
        options: &PutOptions,
        durability: Option<Durability>,
    ) -> Call<Committed> {
        match &self.place {
            Place::Here(here) => {
                let store = here.store().clone();
                let (bucket, key, value, options) = (bucket.to_vec(), key.to_vec(), value.to_vec(), options.clone());
                let (here, durability) = (here.clone(), durability.unwrap_or(store.durability()));
                Call::new(move |how| {
                    if how == How::Wait {
                        // The store's own way is the fastest.
                        return Step::Done(store.kv().put_at(&bucket, &key, &value, &options, durability));
                    }
                    let put = here.shown(Some(durability), move || {
                        let mut exclusive = store.exclusive(&Scope::Keys(&[(&bucket, &key)]))?;
                        exclusive.put(&bucket, &key, &value, &options)?;
                        exclusive.commit().map(committed)
                    });
                    put.step(how)
                })
            }
            Place::There(there) => {
                if let Err(error) = there.check_bytes("value", value.len()) {
                    return Call::done(Err(error));
                }
                let words = put_words(bucket, key, value, options).durability(durability);
                there.call(&words, Again::MustNot, read_put)
            }
        }
    }

    /// The object: [`holdfast::Kv::get`].
    ///
    /// # Errors
    /// As there.
    pub fn get(&self, bucket: &[u8], key: &[u8]) -> Call<Option<Object>> {
        match &self.place {
            Place::Here(here) => {
                let (store, bucket, key) = (here.store().clone(), bucket.to_vec(), key.to_vec());
                here.shown(Some(store.durability()), move || store.kv().peek(&bucket, &key))
            }
            Place::There(there) => {
                let all = [
                    Words::new("MULTI"),
                    named("KV.HEAD", bucket, key),
                    named("KV.GET", bucket, key),
                    Words::new("EXEC"),
                ];
                there.call_together(&all, Again::May, |replies| {
                    let exec = replies.into_iter().next_back().unwrap_or(Reply::Null);
                    let [head, object] = exec.items()?;
                    let (Some(head), Some(object)) = (head.some()?, object.some()?) else { return Ok(None) };
                    let [value, _, _] = object.items()?;
                    Ok(Some(Object { head: read_head(&head)?, value: Value::from_vec(value.bytes()?) }))
                })
            }
        }
    }

    /// The value alone, which costs a server less than the whole object.
    ///
    /// # Errors
    /// As [`Kv::get`].
    pub fn get_value(&self, bucket: &[u8], key: &[u8]) -> Call<Option<Vec<u8>>> {
        match &self.place {
            Place::Here(_) => self.get(bucket, key).then(|object| Ok(object.map(|object| object.value.to_vec()))),
            Place::There(there) => there.call(&named("KV.GET", bucket, key), Again::May, |reply| {
                let Some(object) = reply.some()? else { return Ok(None) };
                let [value, _, _] = object.items()?;
                value.bytes().map(Some)
            }),
        }
    }

    /// What is known of the object, without touching its value: [`holdfast::Kv::head`].
    ///
    /// # Errors
    /// As there.
    pub fn head(&self, bucket: &[u8], key: &[u8]) -> Call<Option<Head>> {
        match &self.place {
            Place::Here(here) => {
                let (store, bucket, key) = (here.store().clone(), bucket.to_vec(), key.to_vec());
                here.shown(Some(store.durability()), move || store.kv().peek_head(&bucket, &key))
            }
            Place::There(there) => there.call(&named("KV.HEAD", bucket, key), Again::May, |reply| {
                reply.some()?.as_ref().map(read_head).transpose()
            }),
        }
    }

    /// Removes an object if the condition holds: [`holdfast::Kv::delete`]. `None` if there was none.
    ///
    /// # Errors
    /// As there.
    pub fn delete(
        &self,
        bucket: &[u8],
        key: &[u8],
        condition: Condition,
        durability: Option<Durability>,
    ) -> Call<Option<Committed>> {
        match &self.place {
            Place::Here(here) => {
                let (store, bucket, key) = (here.store().clone(), bucket.to_vec(), key.to_vec());
                here.shown(Some(durability.unwrap_or(store.durability())), move || {
                    let mut exclusive = store.exclusive(&Scope::Keys(&[(&bucket, &key)]))?;
                    let head = exclusive.head(&bucket, &key)?;
                    check(condition, head.as_ref()).map_err(|error| error.resting_on(exclusive.seen()))?;
                    let there = exclusive.delete(&bucket, &key)?;
                    let Shown { value, position } = committed(exclusive.commit()?);
                    Ok(Shown { value: there.then_some(value), position })
                })
            }
            Place::There(there) => {
                let words = delete_words(bucket, key, condition).durability(durability);
                there.call(&words, Again::MustNot, read_delete)
            }
        }
    }

    /// A page of an index, as of one instant: [`holdfast::Kv::index`].
    ///
    /// # Errors
    /// As there; `Invalid` when the two ends are of different kinds.
    pub fn index(&self, bucket: &[u8], index: &[u8], range: &IndexRange) -> Call<IndexPage> {
        match &self.place {
            Place::Here(here) => {
                let (store, bucket, index, range) =
                    (here.store().clone(), bucket.to_vec(), index.to_vec(), range.clone());
                here.shown(Some(store.durability()), move || {
                    let term_regex = range.term_regex.as_deref().map(holdfast::regex).transpose()?;
                    store.kv().index(&IndexQuery {
                        bucket: &bucket,
                        index: &index,
                        from: &range.from,
                        to: &range.to,
                        term_regex: term_regex.as_ref(),
                        limit: range.limit.max(1),
                        after: range.after.as_ref(),
                    })
                })
            }
            Place::There(there) => match index_words(bucket, index, range) {
                Ok(words) => there.call(&words, Again::May, read_index),
                Err(error) => Call::done(Err(error)),
            },
        }
    }
}

fn committed(committed: Committed) -> Shown<Committed> {
    Shown { position: committed.position, value: committed }
}

fn conflict(text: &str) -> holdfast::Error {
    holdfast::Error::new(holdfast::ErrorKind::Conflict, text)
}

/// What a server says too when a condition does not hold.
pub(crate) fn check(condition: Condition, head: Option<&Head>) -> Result<()> {
    let holds = match condition {
        Condition::None => true,
        Condition::Absent => head.is_none(),
        Condition::Present => head.is_some(),
        Condition::Version(version) => head.is_some_and(|head| head.version == version),
    };
    if holds { Ok(()) } else { Err(conflict("the object is not as the condition wants it: read it again")) }
}

pub(crate) fn named(command: &str, bucket: &[u8], key: &[u8]) -> Words {
    Words::new(command).and(bucket).and(key)
}

/// KV.PUT; a condition that does not hold is an error, also within a batch.
pub(crate) fn put_words(bucket: &[u8], key: &[u8], value: &[u8], options: &PutOptions) -> Words {
    let mut words = condition(named("KV.PUT", bucket, key).and(value), options.condition);
    if options.keep_expiry {
        words.add("KEEPTTL");
    } else if let Some(at) = options.expires_ms {
        words = words.and("PXAT").and(at.to_string());
    }
    for (name, value) in options.metadata.iter() {
        words = words.and("META").and(name).and(value);
    }
    for (index, term) in options.indexes.iter() {
        words = match term {
            Term::Integer(number) => words.and("INDEXINT").and(index).and(number.to_string()),
            Term::Binary(bytes) => words.and("INDEX").and(index).and(bytes),
        };
    }
    match options.compression {
        Some(compression) => words.and("COMPRESSION").and(compression.to_string()),
        None => words,
    }
}

pub(crate) fn delete_words(bucket: &[u8], key: &[u8], wanted: Condition) -> Words {
    condition(named("KV.DEL", bucket, key), wanted)
}

fn condition(words: Words, condition: Condition) -> Words {
    match condition {
        Condition::None => words,
        Condition::Absent => words.and("NX").and("STRICT"),
        Condition::Present => words.and("XX").and("STRICT"),
        Condition::Version(version) => words.and("IFVERSION").and(version.get().to_string()).and("STRICT"),
    }
}

/// `[version, durability]`.
pub(crate) fn read_put(reply: Reply) -> Result<Committed> {
    let [version, _] = reply.items()?;
    Ok(Committed { position: version.position()? })
}

/// `[whether it was there, version, durability]`.
pub(crate) fn read_delete(reply: Reply) -> Result<Option<Committed>> {
    let [there, version, _] = reply.items()?;
    Ok((there.unsigned()? != 0).then_some(Committed { position: version.position()? }))
}

pub(crate) fn pairs(reply: &Reply) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let Reply::Map(pairs) = reply else { return Err(strange(reply)) };
    pairs.iter().map(|(name, value)| Ok((name.clone().bytes()?, value.clone().bytes()?))).collect()
}

fn term(reply: Reply) -> Result<Term> {
    match reply {
        Reply::Integer(number) => Ok(Term::Integer(number)),
        other => other.bytes().map(Term::Binary),
    }
}

/// `[[index, term] ...]`.
pub(crate) fn terms(reply: Reply) -> Result<Vec<(Vec<u8>, Term)>> {
    let pair = |index: Reply| {
        let [name, of] = index.items()?;
        Ok((name.bytes()?, term(of)?))
    };
    reply.list()?.into_iter().map(pair).collect()
}

pub(crate) fn read_head(reply: &Reply) -> Result<Head> {
    let number = |name: &str| reply.field(name).and_then(Reply::unsigned);
    let compression: Compression = reply.field("compression")?.text()?.parse().map_err(|_| strange(reply))?;
    let expires = reply.field("expires")?.clone();
    Ok(Head {
        version: reply.field("version")?.position()?,
        value_bytes: number("bytes")?,
        checksum: u32::try_from(number("checksum")?).map_err(|_| strange(reply))?,
        expires_ms: expires.some()?.map(|at| at.unsigned()).transpose()?,
        modified_ms: number("modified")?,
        metadata: Metadata::from_pairs(pairs(reply.field("metadata")?)?),
        indexes: Indexes::from_pairs(terms(reply.field("indexes")?.clone())?),
        compression,
    })
}

pub(crate) fn index_words(bucket: &[u8], index: &[u8], range: &IndexRange) -> Result<Words> {
    let mut words = Words::new("KV.INDEX").and(bucket).and(index).and("TERMS");
    words = match (&range.from, &range.to) {
        (Term::Integer(from), Term::Integer(to)) => {
            words.and("INT").and("FROM").and(from.to_string()).and("TO").and(to.to_string())
        }
        (Term::Binary(from), Term::Binary(to)) => words.and("FROM").and(from).and("TO").and(to),
        _ => {
            let text = "both ends of a range of terms are integers, or both are bytes";
            return Err(holdfast::Error::new(holdfast::ErrorKind::Invalid, text));
        }
    };
    if let Some(regex) = &range.term_regex {
        words = words.and("REGEX").and(regex);
    }
    if let Some(after) = &range.after {
        words = words.and("AFTER").and(after.encode());
    }
    Ok(words.and("LIMIT").and(range.limit.clamp(1, i64::MAX as usize).to_string()))
}

/// `[[key, term] ..., where to go on, durability]`.
pub(crate) fn read_index(reply: Reply) -> Result<IndexPage> {
    let [entries, next, _] = reply.items()?;
    let mut page = IndexPage::default();
    for entry in entries.list()? {
        let [key, of] = entry.items()?;
        page.entries.push((&term(of)?).into(), &key.bytes()?);
    }
    page.next = next.some()?.map(|next| IndexCursor::decode(&next.text()?)).transpose()?;
    Ok(page)
}
