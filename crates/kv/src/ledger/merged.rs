//! A range over the parts of a ledger: the youngest part that knows a key says what became of it.
//!
//! May use: the young map. Must not know: where the oldest part lies.

use std::cmp::Ordering;
use std::iter::Peekable;

use super::Slice;
use super::young::Range;
use crate::error::Result;

type Entry = (Slice, Slice);

/// Entries of two maps and what lies below them, ascending; removed ones are left out.
pub(super) struct Merged<T: Iterator> {
    young: Range,
    /// The map that was put aside, if there is one.
    rotated: Option<Range>,
    /// Looked at no sooner than needed: it may have to be read.
    oldest: Peekable<T>,
}

impl<T: Iterator<Item = Result<Entry>>> Merged<T> {
    pub(super) fn new(young: Range, rotated: Option<Range>, oldest: T) -> Self {
        Self { young, rotated, oldest: oldest.peekable() }
    }

    /// The next entry of the maps, a removed one as `None`, unless the oldest part's next comes before it.
    fn take_young(&mut self) -> Option<(Slice, Option<Slice>)> {
        let rotated = self.rotated.as_ref().and_then(Range::peek);
        let (least, in_young, in_rotated) = match (self.young.peek(), rotated) {
            (None, None) => return None,
            (Some(young), None) => (young, true, false),
            (None, Some(rotated)) => (rotated, false, true),
            (Some(young), Some(rotated)) => match (**young.0).cmp(&**rotated.0) {
                Ordering::Less => (young, true, false),
                Ordering::Equal => (young, true, true),
                Ordering::Greater => (rotated, false, true),
            },
        };
        let (key, change) = least;
        let hides = match self.oldest.peek() {
            None => false,
            Some(Ok((head, _))) if **head >= **key => **head == **key,
            Some(_) => return None,
        };
        let taken = (key.clone(), change.value.clone());
        if in_young {
            self.young.advance();
        }
        if in_rotated && let Some(rotated) = &mut self.rotated {
            rotated.advance();
        }
        if hides {
            self.oldest.next();
        }
        Some(taken)
    }
}

impl<T: Iterator<Item = Result<Entry>>> Iterator for Merged<T> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.take_young() {
                Some((key, Some(value))) => return Some(Ok((key, value))),
                Some((_, None)) => {}
                None => return self.oldest.next(),
            }
        }
    }
}
