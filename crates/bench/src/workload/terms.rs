//! Index entries and the ranges that are asked for, as Riak's volume tests make them.
//!
//! A person's object has a date of birth (`19801231|name`), when it was modified, and some postcodes (`LS12|name`);
//! the name-like part is four random bytes in letters. The tests ask for two days of births with a filter on the name,
//! and for a part of one postcode district; both want the terms.
//!
//! May use: `base::Random`. Must not know: stores, how entries are stored.

use base::Random;

/// Index of dates of birth.
pub(crate) const BIRTHS: &str = "dateofbirth_bin";
/// Index of postcodes.
pub(crate) const POSTCODES: &str = "postcode_bin";
/// Index of times of modification.
pub(crate) const MODIFIED: &str = "lastmodified_bin";

/// Days that births are spread over, from 1933: 2 500 000 000 seconds.
const BIRTH_DAYS: u64 = 28_935;
const BIRTH_FIRST_YEAR: u64 = 1933;
/// Postcode areas of two letters; Britain has 124, and so have we.
const AREAS: u64 = 124;
const DISTRICTS: u64 = 26;
const NAME_LETTERS: usize = 6;
const MONTH_DAYS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// One entry of an object: index and term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) index: &'static str,
    pub(crate) term: Vec<u8>,
}

/// What is asked for: terms `from` to `to`, both inclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TermRange {
    pub(crate) index: &'static str,
    pub(crate) from: Vec<u8>,
    pub(crate) to: Vec<u8>,
    /// Only terms that match; the same for every store.
    pub(crate) filter: Option<Filter>,
}

/// A regular expression, and what it means for stores that have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filter {
    /// Eight digits, any three characters, a letter from a to d: `[0-9]{8}...[a-d]`.
    Born,
}

impl Filter {
    /// The expression.
    pub(crate) fn regex(self) -> &'static str {
        match self {
            Self::Born => "^[0-9]{8}...[a-d]",
        }
    }

    /// Whether the term matches [`Filter::regex`].
    pub(crate) fn matches(self, term: &[u8]) -> bool {
        match self {
            Self::Born => {
                term.get(..8).is_some_and(|date| date.iter().all(u8::is_ascii_digit))
                    && term.get(11).is_some_and(|letter| (b'a'..=b'd').contains(letter))
            }
        }
    }
}

impl TermRange {
    /// Whether an answer may hold this term.
    pub(crate) fn admits(&self, term: &[u8]) -> bool {
        self.from.as_slice() <= term
            && term <= self.to.as_slice()
            && self.filter.is_none_or(|filter| filter.matches(term))
    }
}

/// Makes entries and ranges.
#[derive(Debug)]
pub(crate) struct Terms {
    random: Random,
    modified: u64,
}

impl Terms {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), modified: 0 }
    }

    /// Entries of one object: a birth, a modification, and postcodes for the rest.
    pub(crate) fn entries(&mut self, count: usize) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(count);
        for place in 0..count {
            entries.push(match place {
                0 => {
                    let day = self.random.below(BIRTH_DAYS);
                    Entry { index: BIRTHS, term: format!("{}|{}", date(day), self.name()).into_bytes() }
                }
                1 => {
                    self.modified += 1;
                    Entry { index: MODIFIED, term: format!("20240101{:010}", self.modified).into_bytes() }
                }
                _ => {
                    let district = self.district();
                    Entry { index: POSTCODES, term: format!("{district}|{}", self.name()).into_bytes() }
                }
            });
        }
        entries
    }

    /// The fourth of one month of one year, with the filter.
    pub(crate) fn births(&mut self) -> TermRange {
        let year = BIRTH_FIRST_YEAR + self.random.below(79);
        let month = 1 + self.random.below(9);
        TermRange {
            index: BIRTHS,
            from: format!("{year}{month:02}04").into_bytes(),
            to: format!("{year}{month:02}05").into_bytes(),
            filter: Some(Filter::Born),
        }
    }

    /// Part of one district.
    pub(crate) fn postcodes(&mut self) -> TermRange {
        let district = self.district();
        let starts = ["ba", "ca", "da", "ea", "fa", "ga", "gb", "gc"];
        let start = usize::try_from(self.random.below(8)).ok().and_then(|n| starts.get(n)).unwrap_or(&"ba");
        TermRange {
            index: POSTCODES,
            from: format!("{district}|{start}").into_bytes(),
            to: format!("{district}|gd").into_bytes(),
            filter: None,
        }
    }

    /// As many successive days of births as should hold `wanted` entries if each of `objects` has one.
    pub(crate) fn births_of(&mut self, wanted: u64, objects: u64) -> TermRange {
        let days = (wanted * BIRTH_DAYS).div_ceil(objects.max(1)).clamp(1, BIRTH_DAYS);
        let first = self.random.below(BIRTH_DAYS - days + 1);
        TermRange {
            index: BIRTHS,
            from: date(first).into_bytes(),
            to: format!("{}~", date(first + days - 1)).into_bytes(),
            filter: None,
        }
    }

    fn district(&mut self) -> String {
        let area = self.random.below(AREAS);
        let letter = |n: u64| char::from(b'A' + u8::try_from(n % 26).unwrap_or(0));
        let district = 1 + self.random.below(DISTRICTS);
        format!("{}{}{district}", letter(area / 26), letter(area))
    }

    fn name(&mut self) -> String {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut bits = self.random.next();
        let letter = |_| {
            let letter = usize::try_from(bits % 64).ok().and_then(|n| LETTERS.get(n)).copied().unwrap_or(b'A');
            bits /= 64;
            char::from(letter)
        };
        (0..NAME_LETTERS).map(letter).collect()
    }
}

/// Eight digits of the day that lies so many days after the first of 1933.
fn date(mut day: u64) -> String {
    let mut year = BIRTH_FIRST_YEAR;
    let leap = |year: u64| u64::from(year.is_multiple_of(4));
    while day >= 365 + leap(year) {
        day -= 365 + leap(year);
        year += 1;
    }
    let mut month = 1;
    for days in MONTH_DAYS {
        let days = if month == 2 { days + leap(year) } else { days };
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    format!("{year}{month:02}{:02}", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (day, text) in [
            (0, "19330101"),
            (31, "19330201"),
            (364, "19331231"),
            (365 * 3 + 59, "19360229"),
            (365 * 4 + 1, "19370101"),
            (BIRTH_DAYS - 1, "20120321"),
        ] {
            assert_eq!(date(day), text, "{day}");
        }
        assert!((0..BIRTH_DAYS - 1).all(|day| date(day) < date(day + 1)), "dates sort as days");
    }

    #[test]
    fn an_object_has_as_many_entries_as_wanted_of_the_three_indexes() {
        let mut terms = Terms::new(1);
        let names: Vec<_> = terms.entries(4).iter().map(|entry| entry.index).collect();
        assert_eq!(names, [BIRTHS, MODIFIED, POSTCODES, POSTCODES]);
        assert!(terms.entries(0).is_empty());
        assert_ne!(terms.entries(4), terms.entries(4));
    }

    #[test]
    fn a_range_of_births_for_a_thousand_has_about_a_thousand() {
        for objects in [20_000, 60_000] {
            let mut terms = Terms::new(1);
            let mut births: Vec<_> = (0..objects).map(|_| terms.entries(1).remove(0).term).collect();
            births.sort_unstable();
            let found: usize = (0..50)
                .map(|_| {
                    let range = terms.births_of(1_000, objects);
                    births.iter().filter(|term| range.admits(term)).count()
                })
                .sum();
            assert!((930..1_090).contains(&(found / 50)), "{}", found / 50);
        }
        let all = Terms::new(1).births_of(1_000, 10);
        assert_eq!(all.from, b"19330101");
    }

    #[test]
    fn the_ranges_of_the_mix_find_what_the_mix_puts() {
        let mut terms = Terms::new(1);
        let entries: Vec<_> = (0..100_000).flat_map(|_| terms.entries(4)).collect();
        let mut count = |make: fn(&mut Terms) -> TermRange| -> usize {
            let ranges: Vec<_> = (0..20).map(|_| make(&mut terms)).collect();
            let found = |range: &TermRange| {
                entries.iter().filter(|entry| entry.index == range.index && range.admits(&entry.term)).count()
            };
            ranges.iter().map(found).sum()
        };
        // 100 000 births over 28 935 days, the 4th of a month, 4 of 64 letters: 0.2 each.
        assert!((1..20).contains(&count(Terms::births)));
        // 200 000 postcodes over 3 224 districts, up to 5.1 of 64 first letters, 2.6 on average: 2.5 each.
        assert!((20..110).contains(&count(Terms::postcodes)));
    }

    #[test]
    fn the_filter_means_what_its_expression_says() {
        for (term, matches) in [
            ("19801231|xya", true),
            ("19801231|xyd0", true),
            ("19801231|xye", false),
            ("1980123|xyza", false),
            ("", false),
        ] {
            assert_eq!(Filter::Born.matches(term.as_bytes()), matches, "{term}");
        }
    }
}
