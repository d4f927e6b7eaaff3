//! Texts of queries that were parsed lately, for whoever is sent texts: protocols, whose clients send the same ones with other
//! parameters all the time.
//!
//! There are two generations. What is new, and what is asked for again, goes to the young one; when that is full the old one is
//! forgotten and the young one becomes the old. So what is used stays, without an order that every use would have to change: who finds
//! a text in the young generation, which is the rule, shares the lock with all others.
//!
//! What is kept is bounded by number and by memory, and one that would take much of it is not kept: it would push out many.
//!
//! May use: `prepared`. Must not know: stores, types.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use super::prepared::PreparedQuery;
use crate::error::Result;
use crate::stats::QueryCacheStats;
use crate::store::Store;

/// How much a cache of parsed queries keeps.
#[derive(Debug, Clone, Copy)]
struct Room {
    /// Most queries of a generation.
    queries: usize,
    /// Most bytes of memory of a generation.
    bytes: usize,
    /// Most bytes of memory of one query.
    query_bytes: usize,
}

/// 1,024 queries and 4 MiB in both generations.
const ROOM: Room = Room { queries: 512, bytes: 2 << 20, query_bytes: 64 << 10 };

/// The parsed queries of a store.
#[derive(Debug)]
pub(crate) struct QueryCache {
    room: Room,
    kept: RwLock<Generations>,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug, Default)]
struct Generations {
    young: Generation,
    old: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    queries: BTreeMap<Arc<str>, PreparedQuery>,
    bytes: usize,
}

impl Store {
    /// The query that a text says, for who is sent texts: the store remembers those that it was asked for lately, 1,024 of them and 4 MiB at
    /// the most, and parses one of these no more. A query that takes more than 64 KiB is not remembered. A program that knows its queries
    /// keeps a [`PreparedQuery`] of each instead.
    ///
    /// # Errors
    /// As [`PreparedQuery::new`].
    pub fn prepared(&self, sql: &str) -> Result<PreparedQuery> {
        self.inner().query_cache.prepared(sql)
    }
}

impl Default for QueryCache {
    fn default() -> Self {
        Self::new(ROOM)
    }
}

impl QueryCache {
    fn new(room: Room) -> Self {
        Self { room, kept: RwLock::default(), hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
    }

    fn prepared(&self, sql: &str) -> Result<PreparedQuery> {
        if let Some(found) = self.find(sql) {
            self.hits.fetch_add(1, Relaxed);
            return Ok(found);
        }
        self.misses.fetch_add(1, Relaxed);
        // Without the lock: it takes many times as long as finding one.
        let parsed = PreparedQuery::new(sql)?;
        if parsed.memory_bytes() <= self.room.query_bytes {
            self.keep(parsed.clone());
        }
        Ok(parsed)
    }

    fn find(&self, sql: &str) -> Option<PreparedQuery> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = kept.young.queries.get(sql) {
            return Some(found.clone());
        }
        let found = kept.old.queries.get(sql).cloned()?;
        drop(kept);
        self.keep(found.clone());
        Some(found)
    }

    /// Has a query be among the young ones.
    fn keep(&self, query: PreparedQuery) {
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        let forgotten = kept.add(query, self.room);
        drop(kept);
        // Outside of the lock: these may be hundreds.
        drop(forgotten);
    }

    pub(crate) fn stats(&self) -> QueryCacheStats {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        let (young, old) = (&kept.young, &kept.old);
        QueryCacheStats {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            queries: (young.queries.len() + old.queries.len()) as u64,
            bytes: (young.bytes + old.bytes) as u64,
        }
    }
}

impl Generations {
    /// Adds a query to the young ones; returns those that are forgotten for it.
    fn add(&mut self, query: PreparedQuery, room: Room) -> Option<Generation> {
        // Somebody else may have parsed it, or found it, at the same time.
        if self.young.queries.contains_key(query.sql()) {
            return None;
        }
        self.old.remove(&query);
        let bytes = query.memory_bytes();
        let is_full = self.young.queries.len() >= room.queries || self.young.bytes + bytes > room.bytes;
        let forgotten = is_full.then(|| std::mem::replace(&mut self.old, std::mem::take(&mut self.young)));
        self.young.bytes += bytes;
        self.young.queries.insert(Arc::clone(query.text()), query);
        forgotten
    }
}

impl Generation {
    fn remove(&mut self, query: &PreparedQuery) {
        if let Some(removed) = self.queries.remove(query.sql()) {
            self.bytes -= removed.memory_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: Room = Room { queries: 4, bytes: 1 << 20, query_bytes: 8 << 10 };

    fn text(number: usize) -> String {
        format!("a = {number}")
    }

    fn counts(cache: &QueryCache) -> (u64, u64, u64) {
        let QueryCacheStats { hits, misses, queries, .. } = cache.stats();
        (hits, misses, queries)
    }

    #[test]
    fn a_text_is_parsed_once_and_another_is_another() {
        let cache = QueryCache::new(TINY);
        let first = cache.prepared("a = ?").unwrap();
        let again = cache.prepared("a = ?").unwrap();
        assert!(Arc::ptr_eq(first.text(), again.text()));
        assert_eq!(cache.prepared("a =  ?").unwrap().sql(), "a =  ?");
        assert_eq!(counts(&cache), (1, 2, 2));
    }

    #[test]
    fn what_is_wrong_is_told_each_time_and_not_kept() {
        let cache = QueryCache::new(TINY);
        let errors: Vec<String> = (0..2).map(|_| cache.prepared("a =").unwrap_err().to_string()).collect();
        assert_eq!(errors[0], errors[1]);
        assert_eq!(errors[0], PreparedQuery::new("a =").unwrap_err().to_string());
        assert_eq!(counts(&cache), (0, 2, 0));
    }

    #[test]
    fn what_is_used_stays_and_what_is_not_goes() {
        let cache = QueryCache::new(TINY);
        for number in 0..100 {
            cache.prepared(&text(number)).unwrap();
            cache.prepared("used = ?").unwrap();
            let (_, _, queries) = counts(&cache);
            assert!(queries <= 8, "{queries} after {number}");
        }
        let (hits, misses, _) = counts(&cache);
        assert_eq!((hits, misses), (99, 101), "the one that was used was parsed once");
        cache.prepared(&text(0)).unwrap();
        assert_eq!(counts(&cache).1, 102, "the first was forgotten");
    }

    #[test]
    fn memory_is_bounded_whatever_the_texts_are() {
        let one = PreparedQuery::new(&text(0)).unwrap().memory_bytes();
        let cache = QueryCache::new(Room { queries: 1000, bytes: 3 * one, query_bytes: 2 * one });
        for number in 0..10 {
            cache.prepared(&text(number)).unwrap();
            assert!(cache.stats().bytes <= 6 * one as u64);
        }
        let large = format!("a IN ({})", vec!["12345"; 500].join(","));
        let before = cache.stats();
        for _ in 0..2 {
            cache.prepared(&large).unwrap();
        }
        let after = cache.stats();
        assert_eq!((after.misses, after.queries), (before.misses + 2, before.queries), "too large to be kept");
        for number in 0..1000 {
            cache.prepared(&text(number % 2)).unwrap();
        }
        let kept = cache.kept.read().unwrap();
        for generation in [&kept.young, &kept.old] {
            assert_eq!(generation.bytes, generation.queries.values().map(PreparedQuery::memory_bytes).sum::<usize>());
        }
    }
}
