//! Continuous queries as they are kept: objects in a bucket of the store's own, one for each query. So a change of one is a batch as
//! any other, and backups, replay and compaction know nothing of them.
//!
//!   bucket   00 "cq"
//!   key      database, as its length in LEB128 and its bytes | name
//!   value    version 1 | through 8, little-endian: nanoseconds since 1970 | the statement that creates it
//!
//! Format: docs/formats/series.md
//!
//! The table in memory is read from there when it is first asked for. Its lock comes before those of partitions.
//!
//! May use: exclusive access, what the language keeps of a query. Must not know: when queries run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ::kv::{Compression, FoldRange, Indexes, Metadata, Reading, Stored};
use ::series::Rows;
use ::series::influxql::ContinuousQuery;
use base::{Fields, Signal, put_string};
use journal::Position;

use super::{Series, Written};
use crate::error::{Error, ErrorKind, Result};
use crate::exclusive::{Exclusive, Scope};
use crate::staged::Change;
use crate::store::{Inner, lock};

const BUCKET: &[u8] = b"\0cq";
const VERSION: u8 = 1;
/// Continuous queries of a store.
const QUERIES_MAX: usize = 1000;

/// By database and name; with the batch that changed it last.
type Table = BTreeMap<(String, String), (ContinuousQuery, Position)>;

/// The continuous queries of a store.
#[derive(Default)]
pub(crate) struct Queries {
    table: Mutex<Option<Table>>,
    changed: Arc<Signal>,
}

fn key(database: &str, name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(database.len() + name.len() + 2);
    put_string(&mut key, database.as_bytes());
    key.extend_from_slice(name.as_bytes());
    key
}

fn encode(query: &ContinuousQuery) -> Vec<u8> {
    let mut value = vec![VERSION];
    value.extend_from_slice(&query.through.to_le_bytes());
    value.extend_from_slice(query.text.as_bytes());
    value
}

fn decode(key: &[u8], value: &[u8]) -> Option<ContinuousQuery> {
    let mut fields = Fields(key);
    let database = fields.text()?.to_owned();
    let name = std::str::from_utf8(fields.0).ok()?.to_owned();
    let (version, rest) = value.split_first()?;
    let (through, text) = rest.split_at_checked(8)?;
    let through = i64::from_le_bytes(through.try_into().ok()?);
    let text = std::str::from_utf8(text).ok()?.to_owned();
    (*version == VERSION).then_some(ContinuousQuery { database, name, text, through })
}

impl Queries {
    /// The table, which is read when it is not there yet.
    fn table(&self, inner: &Inner) -> Result<MutexGuard<'_, Option<Table>>> {
        inner.check_open()?;
        let mut table = lock(&self.table);
        if table.is_none() {
            *table = Some(load(inner)?);
        }
        Ok(table)
    }
}

fn load(inner: &Inner) -> Result<Table> {
    let mut table = Table::new();
    let all = FoldRange::all(Some(BUCKET)).bounds(Reading::Query);
    for partition in &inner.partitions {
        partition.check()?;
        let mut items = partition.reader.items(&all, 0);
        while let Some(item) = items.step()? {
            let key = item.key_in(BUCKET);
            // Compaction may move a text while this goes on: a get looks again.
            let Some(object) = partition.reader.get(BUCKET, key, 0)?.value else { continue };
            let query = decode(key, &object.value)
                .ok_or_else(|| Error::new(ErrorKind::Corrupt, "a continuous query that is kept cannot be read"))?;
            table.insert((query.database.clone(), query.name.clone()), (query, inner.newest()));
        }
    }
    Ok(table)
}

fn put(exclusive: &mut Exclusive<'_>, query: &ContinuousQuery) -> Result<()> {
    let stored = Stored::new(&encode(query), Compression::None);
    let (metadata, indexes) = (Metadata::default(), Indexes::default());
    let change = Change::Put { stored, metadata, indexes, expires_ms: 0 };
    exclusive.stage(BUCKET, &key(&query.database, &query.name), change)
}

fn open<'i>(inner: &'i Inner, keys: &[Vec<u8>]) -> Result<Exclusive<'i>> {
    let keys: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (BUCKET, key.as_slice())).collect();
    Exclusive::open(inner, &Scope::Keys(&keys))
}

impl Inner {
    /// The continuous queries, sorted by database and name, and the newest batch that changed one.
    pub(super) fn continuous_queries(&self) -> Result<(Vec<ContinuousQuery>, Position)> {
        let table = self.queries.table(self)?;
        let all = || table.iter().flat_map(BTreeMap::values);
        let newest = all().map(|(_, position)| *position).max().unwrap_or(Position::ZERO);
        Ok((all().map(|(query, _)| query.clone()).collect(), newest))
    }

    fn create_continuous_query(&self, query: &ContinuousQuery) -> Result<Position> {
        let mut table = self.queries.table(self)?;
        let Some(known) = table.as_mut() else { return Ok(Position::ZERO) };
        let name = (query.database.clone(), query.name.clone());
        match known.get(&name) {
            Some((there, position)) if there.text == query.text => return Ok(*position),
            Some((_, position)) => {
                let error = Error::new(ErrorKind::Conflict, "continuous query already exists");
                return Err(error.resting_on(*position));
            }
            None if known.len() >= QUERIES_MAX => {
                return Err(Error::new(
                    ErrorKind::Limit,
                    format!("there are at most {QUERIES_MAX} continuous queries"),
                ));
            }
            None => {}
        }
        self.check_key(b"cq", &key(&query.database, &query.name))?;
        let mut exclusive = open(self, &[key(&query.database, &query.name)])?;
        put(&mut exclusive, query)?;
        let position = exclusive.commit()?.position;
        known.insert(name, (query.clone(), position));
        drop(table);
        self.queries.changed.raise();
        Ok(position)
    }

    fn note_continuous_query(&self, ran: &ContinuousQuery, through: i64) -> Result<Option<Position>> {
        let mut table = self.queries.table(self)?;
        let name = (ran.database.clone(), ran.name.clone());
        let known = table.as_mut().and_then(|known| known.get_mut(&name));
        // Another of its name may have been created since.
        let Some((query, changed)) = known.filter(|(query, _)| query == ran) else { return Ok(None) };
        let noted = ContinuousQuery { through, ..query.clone() };
        let mut exclusive = open(self, &[key(&ran.database, &ran.name)])?;
        put(&mut exclusive, &noted)?;
        let position = exclusive.commit()?.position;
        (*query, *changed) = (noted, position);
        Ok(Some(position))
    }

    /// Forgets the queries that are meant, as one batch with what else is added to it. None of them writes any more when it is done,
    /// and nobody adds one before: see [`Inner::write_while`].
    pub(super) fn drop_continuous_queries<'i>(
        &'i self,
        is_meant: impl Fn(&ContinuousQuery) -> bool,
        add: impl FnOnce(&mut Exclusive<'i>) -> Result<()>,
    ) -> Result<Option<Position>> {
        let mut table = self.queries.table(self)?;
        let Some(known) = table.as_mut() else { return Ok(None) };
        let meant: Vec<(String, String)> =
            known.iter().filter(|(_, (query, _))| is_meant(query)).map(|(name, _)| name.clone()).collect();
        let keys: Vec<Vec<u8>> = meant.iter().map(|(database, name)| key(database, name)).collect();
        let mut exclusive = open(self, &keys)?;
        keys.iter().try_for_each(|key| exclusive.stage(BUCKET, key, Change::Delete))?;
        add(&mut exclusive)?;
        let position = exclusive.commit()?.position;
        meant.iter().for_each(|name| drop(known.remove(name)));
        drop(table);
        self.queries.changed.raise();
        Ok((position != Position::ZERO).then_some(position))
    }

    /// Writes what a statement selects, as long as its database is there, and the continuous query whose run it is: both go under
    /// the same lock, so that neither comes back by a run that was under way.
    ///
    /// # Errors
    /// The inner one when one of them is gone.
    pub(super) fn write_while(
        &self,
        rows: &mut Rows,
        query: Option<&ContinuousQuery>,
    ) -> Result<std::result::Result<Written, String>> {
        // Not under the lock, as far as that can be.
        self.await_room_for_series(rows.len())?;
        let table = self.queries.table(self)?;
        let is_kept = |query: &ContinuousQuery| {
            let name = (query.database.clone(), query.name.clone());
            table.as_ref().and_then(|known| known.get(&name)).is_some_and(|(there, _)| there == query)
        };
        if query.is_some_and(|query| !is_kept(query)) {
            return Ok(Err("the continuous query was dropped while it ran".to_owned()));
        }
        let database = rows.database();
        if !self.partitions.iter().any(|partition| partition.series().databases().any(|known| known == database)) {
            return Ok(Err(format!("database not found: {database}")));
        }
        self.write_series(rows).map(Ok)
    }
}

impl Series {
    /// The continuous queries of all databases, sorted by database and name.
    ///
    /// # Errors
    /// `Corrupt` when one that is kept cannot be read.
    pub fn continuous_queries(&self) -> Result<Vec<ContinuousQuery>> {
        self.store.inner().continuous_queries().map(|(queries, _)| queries)
    }

    /// Keeps a continuous query. Does not wait for durability. One that is there and says the same stays as it is. Nothing here
    /// runs it: see [`Series::wait_for_continuous_queries`].
    ///
    /// # Errors
    /// `Conflict` when one of its name says something else, on which it [rests](Error::rests_on); `Limit` when there are too many; `Unavailable` when the disk refuses.
    pub fn create_continuous_query(&self, query: &ContinuousQuery) -> Result<Position> {
        self.store.inner().create_continuous_query(query)
    }

    /// Forgets a continuous query. Does not wait for durability. `None` if there is none.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses.
    pub fn drop_continuous_query(&self, database: &str, name: &str) -> Result<Option<Position>> {
        let is_meant = |query: &ContinuousQuery| query.database == database && query.name == name;
        self.store.inner().drop_continuous_queries(is_meant, |_| Ok(()))
    }

    /// Notes how far a query has come, if it still is as it `ran`. Does not wait for durability. `None` if it was dropped, or
    /// another of its name created.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses.
    pub fn note_continuous_query(&self, ran: &ContinuousQuery, through: i64) -> Result<Option<Position>> {
        self.store.inner().note_continuous_query(ran, through)
    }

    /// Whether a query still is as it was told.
    ///
    /// # Errors
    /// As [`Series::continuous_queries`].
    pub fn keeps_continuous_query(&self, query: &ContinuousQuery) -> Result<bool> {
        let inner = self.store.inner();
        let table = inner.queries.table(inner)?;
        let name = (query.database.clone(), query.name.clone());
        Ok(table.as_ref().and_then(|known| known.get(&name)).is_some_and(|(there, _)| there == query))
    }

    /// Blocks until continuous queries were created or dropped, or [`Series::wake_continuous_queries`] was called, at most for
    /// `timeout`. For the one thread that runs them.
    pub fn wait_for_continuous_queries(&self, timeout: Duration) {
        self.store.inner().queries.changed.wait(Some(timeout));
    }

    /// Ends the wait.
    pub fn wake_continuous_queries(&self) {
        self.store.inner().queries.changed.raise();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again_and_what_is_damaged_is_refused() {
        let query = ContinuousQuery {
            database: "d\u{e9}".into(),
            name: "q 1".into(),
            text: "CREATE".into(),
            through: -0x0102_0304_0506_0708,
        };
        let (key, value) = (key(&query.database, &query.name), encode(&query));
        // The format: docs/formats/series.md.
        assert_eq!(key, b"\x03d\xc3\xa9q 1");
        assert_eq!(value, b"\x01\xf8\xf8\xf9\xfa\xfb\xfc\xfd\xfeCREATE");
        assert_eq!(decode(&key, &value), Some(query));
        for cut in 0..9 {
            assert_eq!(decode(&key, value.get(..cut).unwrap()), None);
        }
        assert_eq!(decode(b"\x09d", &value), None);
        assert_eq!(decode(&key, b"\x02\0\0\0\0\0\0\0\0x"), None);
        assert_eq!(decode(&key, b"\x01\0\0\0\0\0\0\0\0\xff"), None);
    }
}
