//! A table by number, of which many are gone: numbers are not given twice.
//!
//! May use: nothing. Must not know: what is numbered.

/// Numbers that lie in memory together; a stretch of which none is left takes eight bytes.
const STRETCH: usize = 256;

/// What is there by number.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    stretches: Vec<Option<Box<Stretch<T>>>>,
    /// The number behind the last that was ever there.
    next: usize,
}

#[derive(Debug)]
struct Stretch<T> {
    count: usize,
    slots: Vec<Option<T>>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { stretches: Vec::new(), next: 0 }
    }
}

impl<T> Slots<T> {
    /// The number behind the last that was ever there, or skipped.
    pub(crate) fn next(&self) -> usize {
        self.next
    }

    /// Sees to it that [`Slots::next`] is at least this.
    pub(crate) fn skip_to(&mut self, next: usize) {
        self.next = self.next.max(next);
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let at = number as usize;
        self.stretches.get(at / STRETCH)?.as_ref()?.slots.get(at % STRETCH)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let at = number as usize;
        self.stretches.get_mut(at / STRETCH)?.as_mut()?.slots.get_mut(at % STRETCH)?.as_mut()
    }

    /// Puts something in its place.
    pub(crate) fn put(&mut self, number: u32, value: T) {
        let at = number as usize;
        self.skip_to(at + 1);
        if self.stretches.len() <= at / STRETCH {
            self.stretches.resize_with(at / STRETCH + 1, || None);
        }
        let Some(place) = self.stretches.get_mut(at / STRETCH) else { return };
        let stretch = place.get_or_insert_with(|| Box::new(Stretch { count: 0, slots: Vec::new() }));
        if stretch.slots.len() <= at % STRETCH {
            stretch.slots.resize_with(at % STRETCH + 1, || None);
        }
        if let Some(slot) = stretch.slots.get_mut(at % STRETCH) {
            stretch.count += usize::from(slot.replace(value).is_none());
        }
    }

    /// Takes something out of its place.
    pub(crate) fn take(&mut self, number: u32) -> Option<T> {
        let at = number as usize;
        let place = self.stretches.get_mut(at / STRETCH)?;
        let stretch = place.as_mut()?;
        let taken = stretch.slots.get_mut(at % STRETCH)?.take()?;
        stretch.count -= 1;
        if stretch.count == 0 {
            *place = None;
        }
        Some(taken)
    }

    /// Bytes of memory but for what the values point to.
    pub(crate) fn bytes(&self) -> usize {
        let of = |stretch: &Option<Box<Stretch<T>>>| {
            stretch
                .as_ref()
                .map_or(0, |stretch| size_of::<Stretch<T>>() + stretch.slots.capacity() * size_of::<Option<T>>())
        };
        self.stretches.iter().map(|stretch| 8 + of(stretch)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_takes_nearly_nothing() {
        let mut slots = Slots::default();
        (0..10_000u32).for_each(|number| slots.put(number, u64::from(number)));
        assert_eq!((slots.get(9_999), slots.next(), slots.get(10_000)), (Some(&9_999), 10_000, None));
        let full = slots.bytes();
        for number in 0..9_990 {
            assert_eq!(slots.take(number), Some(u64::from(number)));
            assert_eq!(slots.take(number), None);
        }
        assert!(slots.bytes() * 20 < full, "{} of {full} bytes", slots.bytes());
        assert_eq!((slots.get(9_995), slots.get(5), slots.next()), (Some(&9_995), None, 10_000));
        slots.skip_to(20_000);
        slots.put(20_000, 1);
        *slots.get_mut(20_000).unwrap() += 1;
        assert_eq!((slots.get(20_000), slots.get(19_999), slots.next()), (Some(&2), None, 20_001));
    }
}
