//! Merging what the partitions hold, each in order, into one order.
//!
//! A tournament tree of losers (Knuth, "Sorting and Searching", 5.4.1): what follows the least is found by one comparison
//! on each level. What is compared is a *tag* (`kv::Bounds::tag`); the places themselves are looked at when tags are the same.
//!
//! May use: `kv`. Must not know: what is merged, and for whom.

use kv::{IndexEntries, Items};

/// Things in order.
pub(crate) trait Source {
    /// Steps to the next thing, the first one at first; false when there is none.
    fn advance(&mut self) -> kv::Result<bool>;

    /// The place of the thing it stands on; places compare as bytes.
    fn place(&self) -> &[u8];

    /// A number that compares as the place does, unless it is the same.
    fn tag(&self) -> u128;
}

impl Source for Items {
    fn advance(&mut self) -> kv::Result<bool> {
        Self::advance(self)
    }

    fn place(&self) -> &[u8] {
        Self::place(self)
    }

    fn tag(&self) -> u128 {
        Self::tag(self)
    }
}

impl Source for IndexEntries {
    fn advance(&mut self) -> kv::Result<bool> {
        Self::advance(self)
    }

    fn place(&self) -> &[u8] {
        Self::place(self)
    }

    fn tag(&self) -> u128 {
        Self::tag(self)
    }
}

/// The least of the next things of all sources, again and again.
pub(crate) struct Merge<S> {
    sources: Vec<S>,
    /// Who lost at each node of the tree, which is laid out as a heap; in front, where a heap has nothing, who lost never.
    losers: Vec<Runner>,
}

/// A source in the tournament.
#[derive(Clone, Copy)]
struct Runner {
    source: usize,
    /// Of what the source stands on; the greatest there is when it has come to its end.
    tag: u128,
    is_over: bool,
}

impl Runner {
    /// Before everybody: whoever meets it waits there.
    const NOBODY: Self = Self { source: usize::MAX, tag: 0, is_over: false };

    /// Whether it comes before another of the same tag.
    #[cold]
    fn precedes<S: Source>(&self, other: &Self, sources: &[S]) -> bool {
        let place = |of: &Self| sources.get(of.source).map(Source::place);
        (self.is_over, place(self)) < (other.is_over, place(other))
    }
}

impl<S: Source> Merge<S> {
    pub(crate) fn new(sources: impl Iterator<Item = S>) -> kv::Result<Self> {
        let sources: Vec<S> = sources.collect();
        let mut merge = Self { losers: vec![Runner::NOBODY; sources.len().max(1)], sources };
        (0..merge.sources.len()).try_for_each(|source| merge.advance(source))?;
        Ok(merge)
    }

    /// Steps on with a source and plays its games from its leaf up.
    fn advance(&mut self, number: usize) -> kv::Result<()> {
        let Some(source) = self.sources.get_mut(number) else { return Ok(()) };
        let there = source.advance()?;
        let tag = if there { source.tag() } else { u128::MAX };
        let mut runner = Runner { source: number, tag, is_over: !there };
        let mut node = number.midpoint(self.sources.len());
        while node > 0 {
            let Some(loser) = self.losers.get_mut(node) else { return Ok(()) };
            // Only of those whose tags are the same anything else is looked at.
            let is_less = loser.tag < runner.tag || (loser.tag == runner.tag && loser.precedes(&runner, &self.sources));
            if is_less {
                std::mem::swap(loser, &mut runner);
            }
            node /= 2;
        }
        if let Some(winner) = self.losers.first_mut() {
            *winner = runner;
        }
        Ok(())
    }

    /// The source that stands on the least thing, and its number; nothing at the end.
    pub(crate) fn least(&self) -> Option<(usize, &S)> {
        let winner = self.losers.first().filter(|winner| !winner.is_over)?;
        Some((winner.source, self.sources.get(winner.source)?))
    }

    /// Passes the least thing.
    pub(crate) fn pass(&mut self) -> kv::Result<()> {
        let winner = self.losers.first().map(|winner| winner.source);
        winner.map_or(Ok(()), |source| self.advance(source))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use base::Random;
    use kv::{Bounds, Reading};

    use super::*;

    struct Words {
        left: std::vec::IntoIter<Vec<u8>>,
        on: Vec<u8>,
        bounds: Bounds,
    }

    impl Source for Words {
        fn advance(&mut self) -> kv::Result<bool> {
            Ok(self.left.next().map(|word| self.on = word).is_some())
        }

        fn place(&self) -> &[u8] {
            &self.on
        }

        fn tag(&self) -> u128 {
            self.bounds.tag(&self.on)
        }
    }

    fn words(random: &mut Random, begin: &[u8]) -> Vec<Vec<u8>> {
        let word = |random: &mut Random| {
            let len = usize::try_from(random.below(20)).unwrap();
            let byte = |random: &mut Random| [0, 1, b'a', 0xFF][usize::try_from(random.below(4)).unwrap()];
            begin.iter().copied().chain((0..len).map(|_| byte(random))).collect()
        };
        let mut words: Vec<Vec<u8>> = (0..random.below(30)).map(|_| word(random)).collect();
        words.sort();
        words
    }

    #[test]
    fn what_is_merged_comes_in_order_and_whole() {
        let mut random = Random::new(1);
        for sources in 0..20 {
            let begin = if sources % 2 == 0 { &b"bucket"[..] } else { b"" };
            let all: Vec<_> = (0..sources).map(|_| words(&mut random, begin)).collect();
            let end = [begin, &[0xFF; 30]].concat();
            let bounds = Bounds::new(Bound::Included(begin.to_vec()), Bound::Included(end), Reading::Query);
            let source = |words: &Vec<Vec<u8>>| Words {
                left: words.clone().into_iter(),
                on: Vec::new(),
                bounds: bounds.clone(),
            };
            let mut merge = Merge::new(all.iter().map(source)).unwrap();
            let mut merged = Vec::new();
            while let Some((number, source)) = merge.least() {
                assert!(all[number].contains(&source.place().to_vec()));
                merged.push(source.place().to_vec());
                merge.pass().unwrap();
            }
            let mut wanted = all.concat();
            wanted.sort();
            assert_eq!(merged, wanted, "{sources}");
        }
    }
}
