//! Which series a partition has, by name and by what their tags are.
//!
//! May use: `names`, `postings`, `select`, `slots`, `watch`. Must not know: points.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use hashbrown::HashTable;
use roaring::RoaringBitmap;

use crate::key::Key;
use crate::names::{Name, Names};
use crate::postings::Postings;
use crate::select::{Match, Select};
use crate::slots::Slots;
use crate::watch::Watch;

/// The series of a partition.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    names: Names,
    /// By number; a series that was dropped leaves a gap, because numbers are not given twice.
    series: Slots<Named>,
    by_name: HashTable<u32>,
    databases: BTreeMap<Name, BTreeMap<Name, Metric>>,
    count: usize,
    bytes: usize,
}

/// A series' name: database, metric, field, and then the tags' names and values in turn.
#[derive(Debug)]
struct Named(Box<[Name]>);

/// The series of one metric.
#[derive(Debug, Default)]
struct Metric {
    all: Postings,
    fields: BTreeMap<Name, Postings>,
    tags: BTreeMap<Name, BTreeMap<Name, Postings>>,
}

/// How many series have what, for a page on cardinality.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cardinality {
    /// Series by metric.
    pub metrics: BTreeMap<String, u64>,
    /// Series by tag and value.
    pub pairs: BTreeMap<(String, String), u64>,
}

impl Named {
    fn hash(&self) -> u64 {
        hash(self.0.iter().copied())
    }

    /// Bytes of memory with its places in the index, nearly.
    fn bytes(&self) -> usize {
        24 + 4 * self.0.len() + 24 * self.tags().count()
    }

    fn head(&self) -> Option<(Name, Name, Name)> {
        match &*self.0 {
            [database, metric, field, ..] => Some((*database, *metric, *field)),
            _ => None,
        }
    }

    fn tags(&self) -> impl Iterator<Item = (Name, Name)> {
        self.0.get(3..).unwrap_or_default().chunks_exact(2).filter_map(|pair| match pair {
            [name, value] => Some((*name, *value)),
            _ => None,
        })
    }
}

/// Names are numbers given one after another, so they are mixed well rather than quickly read.
fn hash(names: impl Iterator<Item = Name>) -> u64 {
    names.fold(0, |hash: u64, name| {
        (hash.rotate_left(23) ^ u64::from(name.number())).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

impl Catalog {
    /// How many series there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The number that the next new series gets.
    pub(crate) fn next(&self) -> u32 {
        u32::try_from(self.series.next()).expect("a partition has fewer series than 32 bits count")
    }

    /// Bytes of memory, nearly.
    pub(crate) fn bytes(&self) -> usize {
        self.names.bytes() + self.bytes + self.series.bytes() + 5 * self.by_name.capacity()
    }

    /// The number of a series; `row` is its name but for the field.
    pub(crate) fn find(&self, row: &Key, field: &str) -> Option<u32> {
        let mut wanted = Vec::with_capacity(3 + 2 * row.tags.len());
        for text in [&row.database, &row.metric, field] {
            wanted.push(self.names.find(text)?);
        }
        for (name, value) in &row.tags {
            wanted.push(self.names.find(name)?);
            wanted.push(self.names.find(value)?);
        }
        let is_it = |at: &u32| self.named(*at).is_some_and(|named| *named.0 == *wanted);
        self.by_name.find(hash(wanted.iter().copied()), is_it).copied()
    }

    /// One of the series of a metric's field, whatever their tags are.
    pub(crate) fn one_of(&self, row: &Key, field: &str) -> Option<u32> {
        let [database, metric, field] = [&row.database, &row.metric, field].map(|text| self.names.find(text));
        self.databases.get(&database?)?.get(&metric?)?.fields.get(&field?)?.first()
    }

    fn named(&self, number: u32) -> Option<&Named> {
        self.series.get(number)
    }

    /// Whether the series is there.
    pub(crate) fn has(&self, number: u32) -> bool {
        self.named(number).is_some()
    }

    /// Adds a series with a number that was never used.
    pub(crate) fn add(&mut self, number: u32, key: &Key) {
        if (number as usize) < self.series.next() {
            return;
        }
        let mut named: Vec<Name> = [&key.database, &key.metric, &key.field].map(|text| self.names.add(text)).into();
        for (name, value) in &key.tags {
            named.push(self.names.add(name));
            named.push(self.names.add(value));
        }
        let named = Named(named.into());
        let Some((database, metric, field)) = named.head() else { return };
        let metric = self.databases.entry(database).or_default().entry(metric).or_default();
        metric.all.insert(number);
        metric.fields.entry(field).or_default().insert(number);
        for (name, value) in named.tags() {
            metric.tags.entry(name).or_default().entry(value).or_default().insert(number);
        }
        let hash = named.hash();
        self.bytes += named.bytes();
        self.count += 1;
        self.series.put(number, named);
        let series = &self.series;
        let hashed = |at: &u32| series.get(*at).map_or(0, Named::hash);
        self.by_name.insert_unique(hash, number, hashed);
    }

    /// Sees to it that numbers below this one are not given again.
    pub(crate) fn skip_to(&mut self, next: u32) {
        self.series.skip_to(next as usize);
    }

    /// Removes a series. False if it was not there.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        let Some(named) = self.series.take(number) else { return false };
        if let Ok(found) = self.by_name.find_entry(named.hash(), |at| *at == number) {
            found.remove();
        }
        self.count -= 1;
        self.bytes -= named.bytes();
        // What the table has grown to is given back when most of it is empty.
        if self.count < self.by_name.capacity() / 4 {
            let series = &self.series;
            self.by_name.shrink_to(2 * self.count, |at| series.get(*at).map_or(0, Named::hash));
        }
        let Some((database, metric, field)) = named.head() else { return true };
        let Some(metrics) = self.databases.get_mut(&database) else { return true };
        if let Some(of) = metrics.get_mut(&metric) {
            of.all.remove(number);
            remove_from(&mut of.fields, field, number);
            for (name, value) in named.tags() {
                if let Some(values) = of.tags.get_mut(&name) {
                    remove_from(values, value, number);
                    if values.is_empty() {
                        of.tags.remove(&name);
                    }
                }
            }
            if of.all.is_empty() {
                metrics.remove(&metric);
            }
        }
        if metrics.is_empty() {
            self.databases.remove(&database);
        }
        true
    }

    /// The name of a series.
    pub(crate) fn key(&self, number: u32) -> Option<Key> {
        let named = self.named(number)?;
        let (database, metric, field) = named.head()?;
        let [database, metric, field] = [database, metric, field].map(|name| self.names.text(name).to_owned());
        let text = |name| self.names.text(name).to_owned();
        let tags = named.tags().map(|(name, value)| (text(name), text(value))).collect();
        Some(Key { database, metric, tags, field })
    }

    /// The numbers of the series that are there.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        (0..self.next()).filter(|number| self.has(*number))
    }

    /// The series that are meant, unless the search is ended.
    pub(crate) fn select(&self, select: &Select, watch: &Watch<'_>) -> ControlFlow<(), RoaringBitmap> {
        let mut found = RoaringBitmap::new();
        let Some(metrics) = self.names.find(&select.database).and_then(|name| self.databases.get(&name)) else {
            return ControlFlow::Continue(found);
        };
        match &select.metric {
            Some(Match::In(names)) => {
                for metric in names.iter().filter_map(|name| metrics.get(&self.names.find(name)?)) {
                    found |= self.select_in(metric, select, watch)?;
                }
            }
            wanted => {
                for (name, metric) in metrics {
                    let name = self.names.text(*name);
                    watch.pass(name)?;
                    if wanted.as_ref().is_none_or(|wanted| wanted.matches(name)) {
                        found |= self.select_in(metric, select, watch)?;
                    }
                }
            }
        }
        ControlFlow::Continue(found)
    }

    fn select_in(&self, metric: &Metric, select: &Select, watch: &Watch<'_>) -> ControlFlow<(), RoaringBitmap> {
        let mut narrowed: Option<RoaringBitmap> = None;
        let mut narrow = |by: RoaringBitmap| match &mut narrowed {
            Some(narrowed) => *narrowed &= by,
            none => *none = Some(by),
        };
        if let Some(field) = &select.field {
            narrow(self.meant(&metric.fields, (field, &metric.all), watch)?);
        }
        let nothing = BTreeMap::new();
        for wanted in &select.tags {
            let values = self.names.find(&wanted.tag).and_then(|name| metric.tags.get(&name));
            narrow(self.meant(values.unwrap_or(&nothing), (&wanted.value, &metric.all), watch)?);
        }
        ControlFlow::Continue(narrowed.unwrap_or_else(|| {
            let mut all = RoaringBitmap::new();
            metric.all.add_to(&mut all);
            all
        }))
    }

    /// The series of which the value is meant; those that have none count as the empty string.
    fn meant(
        &self,
        values: &BTreeMap<Name, Postings>,
        (wanted, all): (&Match, &Postings),
        watch: &Watch<'_>,
    ) -> ControlFlow<(), RoaringBitmap> {
        let mut found = RoaringBitmap::new();
        if wanted.matches("") {
            // All but those with a value that is not meant: most often fewer than those that are.
            all.add_to(&mut found);
            for (value, postings) in values {
                let value = self.names.text(*value);
                watch.pass(value)?;
                if !wanted.matches(value) {
                    postings.take_from(&mut found);
                }
            }
            return ControlFlow::Continue(found);
        }
        if let Match::In(names) = wanted {
            for postings in names.iter().filter_map(|name| values.get(&self.names.find(name)?)) {
                postings.add_to(&mut found);
            }
            return ControlFlow::Continue(found);
        }
        for (value, postings) in values {
            let value = self.names.text(*value);
            watch.pass(value)?;
            if wanted.matches(value) {
                postings.add_to(&mut found);
            }
        }
        ControlFlow::Continue(found)
    }

    /// The databases that have series.
    pub(crate) fn databases(&self) -> impl Iterator<Item = &str> {
        self.databases.keys().map(|name| self.names.text(*name))
    }

    fn metrics_of(&self, database: &str) -> impl Iterator<Item = (&str, &Metric)> {
        let metrics = self.names.find(database).and_then(|name| self.databases.get(&name));
        metrics.into_iter().flatten().map(|(name, metric)| (self.names.text(*name), metric))
    }

    /// The metrics of a database.
    pub(crate) fn metrics(&self, database: &str) -> impl Iterator<Item = &str> {
        self.metrics_of(database).map(|(name, _)| name)
    }

    /// The names of tags in a database; some come more than once.
    pub(crate) fn tag_names(&self, database: &str) -> impl Iterator<Item = &str> {
        self.metrics_of(database).flat_map(|(_, metric)| metric.tags.keys().map(|name| self.names.text(*name)))
    }

    /// The values of tags in a database; some come more than once.
    pub(crate) fn tag_values(&self, database: &str) -> impl Iterator<Item = &str> {
        let values = self.metrics_of(database).flat_map(|(_, metric)| metric.tags.values().flat_map(BTreeMap::keys));
        values.map(|name| self.names.text(*name))
    }

    /// The metrics of a database, each with each of its fields.
    pub(crate) fn fields(&self, database: &str) -> impl Iterator<Item = (&str, &str)> {
        self.metrics_of(database)
            .flat_map(move |(metric, of)| of.fields.keys().map(move |field| (metric, self.names.text(*field))))
    }

    /// The series of a metric's field.
    pub(crate) fn of_field(&self, database: &str, metric: &str, field: &str) -> RoaringBitmap {
        let mut found = RoaringBitmap::new();
        let series = self.names.find(field).and_then(|field| self.metric(database, metric)?.fields.get(&field));
        if let Some(series) = series {
            series.add_to(&mut found);
        }
        found
    }

    /// The metrics of a database, each with the name of each tag of it.
    pub(crate) fn tags(&self, database: &str) -> impl Iterator<Item = (&str, &str)> {
        self.metrics_of(database)
            .flat_map(move |(metric, of)| of.tags.keys().map(move |tag| (metric, self.names.text(*tag))))
    }

    /// The values of a tag in a metric, or in all of a database; each once.
    pub(crate) fn values(&self, database: &str, metric: Option<&str>, tag: &str) -> impl Iterator<Item = &str> {
        let tag = self.names.find(tag);
        let of_tag = |metric: &Metric| {
            let values = tag.and_then(|tag| metric.tags.get(&tag));
            values.into_iter().flat_map(BTreeMap::keys).copied().collect::<Vec<_>>()
        };
        let mut values = match metric {
            Some(metric) => self.metric(database, metric).map(of_tag).unwrap_or_default(),
            None => self.metrics_of(database).flat_map(|(_, metric)| of_tag(metric)).collect(),
        };
        values.sort_unstable();
        values.dedup();
        values.into_iter().map(|value| self.names.text(value))
    }

    fn metric(&self, database: &str, metric: &str) -> Option<&Metric> {
        self.databases.get(&self.names.find(database)?)?.get(&self.names.find(metric)?)
    }

    /// Adds how many series have what in a database, unless the search is ended.
    pub(crate) fn count_into(&self, database: &str, to: &mut Cardinality, watch: &Watch<'_>) -> ControlFlow<()> {
        for (name, metric) in self.metrics_of(database) {
            watch.pass(name)?;
            *to.metrics.entry(name.to_owned()).or_default() += metric.all.len();
            for (tag, values) in &metric.tags {
                let tag = self.names.text(*tag);
                for (value, postings) in values {
                    let value = self.names.text(*value);
                    watch.pass(value)?;
                    *to.pairs.entry((tag.to_owned(), value.to_owned())).or_default() += postings.len();
                }
            }
        }
        ControlFlow::Continue(())
    }
}

fn remove_from(values: &mut BTreeMap<Name, Postings>, value: Name, number: u32) {
    if let Some(postings) = values.get_mut(&value) {
        postings.remove(number);
        if postings.is_empty() {
            values.remove(&value);
        }
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;
    use crate::model::key;

    /// A regular expression over the values of a million series went on to its end, whoever waited.
    #[test]
    fn a_search_that_finds_nothing_ends_when_it_is_told_to() {
        let mut catalog = Catalog::default();
        for n in 0..2_000 {
            catalog.add(n, &key("db", &format!("m{}", n % 2), &format!("host=host-number-{n}"), "value"));
        }
        let (asked, last) = (std::cell::Cell::new(0), std::cell::Cell::new(u64::MAX));
        let go_on = || {
            asked.set(asked.get() + 1);
            if asked.get() < last.get() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let until = |nth| {
            asked.set(0);
            last.set(nth);
        };
        let regex = || Match::Regex(Regex::new("nobody").unwrap());
        let select = Select { database: "db".into(), ..Select::default() };
        let no_host = select.clone().and_tag("host", regex());
        let any_host = select.clone().and_tag("host", Match::NotRegex(Regex::new("nobody").unwrap()));
        let no_metric = Select { metric: Some(regex()), ..select };
        let search = |select: &Select| catalog.select(select, &Watch::new(&go_on));
        for select in [&no_host, &any_host] {
            until(u64::MAX);
            assert!(search(select).is_continue() && (5..20).contains(&asked.get()), "{}", asked.get());
            until(3);
            assert!(search(select).is_break() && asked.get() == 3, "{}", asked.get());
        }
        until(1);
        assert!(search(&no_metric).is_continue(), "two metrics are nothing");
        let count = || catalog.count_into("db", &mut Cardinality::default(), &Watch::new(&go_on));
        assert!(count().is_break() && asked.get() == 1);
    }

    #[test]
    fn what_is_selected_is_what_the_keys_say() {
        let mut catalog = Catalog::default();
        let keys: Vec<Key> = (0..200u32)
            .map(|n| {
                let tags = match n % 4 {
                    0 => format!("host=h{n},dc=d{}", n % 5),
                    1 => format!("host=h{n}"),
                    2 => format!("dc=d{}", n % 7),
                    _ => String::new(),
                };
                key(
                    ["db", "other"][n as usize % 2],
                    ["cpu", "mem", "net"][n as usize % 3],
                    &tags,
                    ["value", "x"][n as usize / 150],
                )
            })
            .collect();
        let mut there: BTreeMap<u32, Key> = BTreeMap::new();
        for key in &keys {
            if catalog.find(key, &key.field).is_none() {
                there.insert(catalog.next(), key.clone());
                catalog.add(catalog.next(), key);
            }
        }
        let check = |catalog: &Catalog, there: &BTreeMap<u32, Key>| {
            let tag = |name: &str, value| crate::select::TagMatch { tag: name.into(), value };
            let regex = |text| Regex::new(text).unwrap();
            let matches: Vec<Option<Match>> = vec![
                None,
                Some(Match::is("cpu")),
                Some(Match::NotIn(vec!["cpu".into()])),
                Some(Match::Regex(regex("^(cpu|net)$"))),
                Some(Match::NotRegex(regex("e"))),
            ];
            for metric in &matches {
                for tags in [
                    vec![],
                    vec![tag("host", Match::present())],
                    vec![tag("host", Match::is(""))],
                    vec![tag("dc", Match::In(vec!["d0".into(), "d3".into(), "none".into()]))],
                    vec![tag("dc", Match::In(vec!["d0".into(), String::new()]))],
                    vec![tag("dc", Match::NotIn(vec!["d0".into()])), tag("host", Match::Regex(regex("h1.*")))],
                    vec![tag("dc", Match::Regex(regex("^$|d1"))), tag("nosuch", Match::NotRegex(regex("x")))],
                ] {
                    for field in [None, Some(Match::is("x"))] {
                        let select =
                            Select { database: "db".into(), metric: metric.clone(), field, tags: tags.clone() };
                        let found = catalog.select(&select, &Watch::new(&|| ControlFlow::Continue(())));
                        let found: Vec<u32> = found.continue_value().unwrap().iter().collect();
                        let wanted: Vec<u32> =
                            there.iter().filter(|(_, key)| select.matches(key)).map(|(number, _)| *number).collect();
                        assert_eq!(found, wanted, "{select:?}");
                    }
                }
            }
        };
        check(&catalog, &there);
        for (number, key) in &there {
            assert_eq!((catalog.find(key, &key.field), catalog.key(*number)), (Some(*number), Some(key.clone())));
        }
        for number in (0..200).step_by(3) {
            assert_eq!(catalog.remove(number), there.remove(&number).is_some());
        }
        check(&catalog, &there);
        assert_eq!(catalog.numbers().collect::<Vec<_>>(), there.keys().copied().collect::<Vec<_>>());
        for number in there.keys() {
            catalog.remove(*number);
        }
        assert_eq!((catalog.len(), catalog.databases().count()), (0, 0));
    }
}
