//! Windows of time: `GROUP BY time(length, offset)`.
//!
//! May use: nothing. Must not know: what is in them.

/// Windows of one length, which begin at multiples of it and an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) length: i64,
    offset: i64,
}

impl Window {
    pub(crate) fn new(length: i64, offset: i64) -> Self {
        let length = length.max(1);
        Self { length, offset: offset.rem_euclid(length) }
    }

    /// Windows begin at multiples of their length and this.
    pub(crate) fn offset(&self) -> i64 {
        self.offset
    }

    /// Where the window of a time begins; the first one is cut off where times begin.
    pub(crate) fn start(&self, time: i64) -> i64 {
        let within = (i128::from(time) - i128::from(self.offset)).rem_euclid(i128::from(self.length));
        time.saturating_sub(i64::try_from(within).unwrap_or(0))
    }

    /// The last time of the window of a time.
    pub(crate) fn last(&self, time: i64) -> i64 {
        let within = (i128::from(time) - i128::from(self.offset)).rem_euclid(i128::from(self.length));
        let left = i128::from(self.length) - 1 - within;
        time.saturating_add(i64::try_from(left).unwrap_or(i64::MAX))
    }
}

/// The indices of sorted times that lie in one window after the other, with the window's start; all of them with 0 when there
/// are no windows.
pub(crate) struct Runs<'a> {
    times: &'a [i64],
    window: Option<Window>,
    at: usize,
}

impl<'a> Runs<'a> {
    pub(crate) fn new(times: &'a [i64], window: Option<Window>) -> Self {
        Self { times, window, at: 0 }
    }
}

impl Iterator for Runs<'_> {
    type Item = (i64, std::ops::Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.times.get(self.at..)?;
        let first = *rest.first()?;
        let (start, length) = match self.window {
            None => (0, rest.len()),
            Some(window) => {
                let last = window.last(first);
                (window.start(first), rest.partition_point(|time| *time <= last))
            }
        };
        let from = self.at;
        self.at += length.max(1);
        Some((start, from..self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_its_window() {
        for (length, offset, time, start, last) in [
            (10, 0, 25, 20, 29),
            (10, 0, -1, -10, -1),
            (10, 3, 12, 3, 12),
            (10, -7, 13, 13, 22),
            (10, 0, i64::MAX, i64::MAX - 7, i64::MAX),
            (i64::MAX, 0, 5, 0, i64::MAX - 1),
            (10, 0, i64::MIN, i64::MIN, i64::MIN + 7),
        ] {
            let window = Window::new(length, offset);
            assert_eq!((window.start(time), window.last(time)), (start, last), "{length} {offset} {time}");
        }
        let runs: Vec<_> = Runs::new(&[1, 9, 10, 35], Some(Window::new(10, 0))).collect();
        assert_eq!(runs, [(0, 0..2), (10, 2..3), (30, 3..4)]);
        assert_eq!(Runs::new(&[1, 99], None).collect::<Vec<_>>(), [(0, 0..2)]);
    }
}
