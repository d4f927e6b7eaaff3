//! Memory that is fetched before it is looked at.
//!
//! May use: nothing. Must not know: what is there.

#![allow(unsafe_code, reason = "the processor's hint is an intrinsic that takes an address")]

/// Bytes that the processor fetches at once: a line, as the power of two.
const LINE_BITS: u32 = 6;
pub(crate) const LINE_BYTES: usize = 1 << LINE_BITS;
/// An address is known by its [`Area`] and a number of 32 bits for the line.
const AREA_BITS: u32 = 32 + LINE_BITS;

/// Which 256 GiB of memory something lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Area(usize);

/// Which line of its area something lies in: half an address, for a hint that may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Line(u32);

impl Area {
    /// That of this place.
    #[must_use]
    pub fn of<T: ?Sized>(place: &T) -> Self {
        Self(address(place) >> AREA_BITS)
    }
}

impl Line {
    /// That of this place.
    #[must_use]
    pub fn of<T: ?Sized>(place: &T) -> Self {
        let [a, b, c, d, ..] = (address(place) >> LINE_BITS).to_le_bytes();
        Self(u32::from_le_bytes([a, b, c, d]))
    }

    /// Like [`fetch_ahead`]. What lay there may have gone, or lie in another area: then it is for nothing.
    #[inline]
    pub fn fetch_ahead(self, area: Area) {
        self.fetch_lines_ahead(area, 1);
    }

    /// The same of so many lines, one behind the other.
    #[inline]
    pub fn fetch_lines_ahead(self, area: Area, lines: usize) {
        fetch_lines_ahead(area.0 << AREA_BITS | (self.0 as usize) << LINE_BITS, lines);
    }
}

fn address<T: ?Sized>(place: &T) -> usize {
    std::ptr::from_ref(place).cast::<u8>().addr()
}

/// Has the processor fetch the line of memory in which `place` begins, while the program goes on. A look-up that goes from one
/// place to the next waits for each, some hundred nanoseconds where the processor's caches do not hold it. Nothing happens where
/// there is no such hint.
#[inline]
pub fn fetch_ahead<T: ?Sized>(place: &T) {
    hint(std::ptr::from_ref(place).cast());
}

/// So many lines from this address on, one behind the other.
#[inline]
pub(crate) fn fetch_lines_ahead(address: usize, lines: usize) {
    for line in 0..lines {
        hint(std::ptr::without_provenance(address.wrapping_add(line << LINE_BITS)));
    }
}

#[inline]
fn hint(place: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint reads nothing, whatever it is given.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(place);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;

    #[test]
    fn area_and_line_are_where_something_lies() {
        let bytes = vec![0_u8; 1 << 20];
        for byte in bytes.iter().step_by(4_099) {
            let (area, line) = (Area::of(byte), Line::of(byte));
            let place = area.0 << AREA_BITS | (line.0 as usize) << LINE_BITS;
            assert_eq!(place, address(byte) & !((1 << LINE_BITS) - 1));
            line.fetch_ahead(area);
        }
        // What is nowhere harms nobody.
        Line(u32::MAX).fetch_ahead(Area(usize::MAX));
        Line::default().fetch_ahead(Area::default());
    }
}
