//! Blocks: points of one series as they lie in sealed files. This is the specification of their form.
//!
//! Lengths and counts are LEB128, other integers little-endian.
//!
//!   block     count | times | runs | run*
//!   times     0, first 8, step                      regular: every point a step behind the one before
//!             1, unit 1, first 8, (step in units)*  steps between the points; units are 0 ns, 1 us, 2 ms, 3 s
//!             2, unit 1, first 8, bytes of packed   the same steps, packed
//!   run       kind 1 | count | column               values of one type, one after another
//!   column    floats: 0, bits 8                                   all the same
//!                     1, scale 1, integers, patches, (at, bits 8)*  the integers over 10^scale, but for the patches
//!                     2, bytes of packed                          packed as they are
//!             integers: integers; unsigned the same, as if signed
//!             booleans: a bit each, the first in the lowest of the first byte
//!             texts:    0, bytes of stored; or 1, plain length, bytes of lz4: (length, bytes) of each
//!   integers  0, (zigzag of the difference to the one before)*; or 1, bytes of packed
//!   packed    a chunk of pco's standalone format (pcodec.org), 1.0
//!
//! Format: docs/formats/series.md.
//!
//! Every double comes back bit by bit: numbers with few decimals are integers that, divided by a power of ten, are exactly that
//! double again; what is not (a NaN, 1e300) is a patch.
//!
//! May use: `points`, pco, lz4. Must not know: series, files.

use base::{Fields, put_string, put_varint, unzigzag, zigzag};
use pco::{ChunkConfig, DeltaSpec, ModeSpec};

use crate::error::{Error, Result};
use crate::points::Points;
use crate::value::{Kind, ValueRef};

/// Points in a block at most.
pub(crate) const BLOCK_POINTS_MAX: usize = 8192;
/// Below this many, packing costs more than it gives.
const PACK_FROM: usize = 48;
/// pco's effort: above 4 it takes half as much time again for a hundredth of the space.
const EFFORT: usize = 4;
/// Points that are looked at to choose how differences are taken.
const SAMPLE: usize = 512;
/// One in so many values may be a patch.
const PATCHES_SHARE: usize = 32;
/// Text of this many bytes is worth compressing.
const TEXT_COMPRESS_FROM: usize = 256;
/// Text of one block, unpacked, at most.
const TEXT_BYTES_MAX: usize = 1 << 28;

const UNITS: [u64; 4] = [1, 1_000, 1_000_000, 1_000_000_000];
const POWERS: [f64; 10] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
/// Integers beyond this may not come back from a division.
const DECIMAL_MAX: f64 = 9_007_199_254_740_991.0;

const MALFORMED: Error = Error::Malformed { what: "block of points" };

/// Appends points, which are sorted by time, each time once, and at most [`BLOCK_POINTS_MAX`].
pub(crate) fn encode(points: &Points, to: &mut Vec<u8>) {
    debug_assert!(points.is_sorted() && points.len() <= BLOCK_POINTS_MAX && !points.is_empty(), "a block's points");
    put_varint(to, points.len() as u64);
    put_times(points.times(), to);
    let runs = runs(points);
    put_varint(to, runs.len() as u64);
    for (kind, range) in runs {
        to.push(kind as u8);
        put_varint(to, range.len() as u64);
        let bits = points.bits().get(range.clone()).unwrap_or_default();
        match kind {
            Kind::Float => put_floats(bits, to),
            Kind::Integer | Kind::Unsigned => {
                let integers: Vec<i64> = bits.iter().map(|bits| bits.cast_signed()).collect();
                put_integers(&integers, to);
            }
            Kind::Boolean => put_booleans(bits, to),
            Kind::Text => put_texts(range.filter_map(|at| points.get(at)).map(|(_, value)| value), to),
        }
    }
}

fn runs(points: &Points) -> Vec<(Kind, std::ops::Range<usize>)> {
    if let Some(kind) = points.kind() {
        return vec![(kind, 0..points.len())];
    }
    let mut runs: Vec<(Kind, std::ops::Range<usize>)> = Vec::new();
    for at in 0..points.len() {
        let Some(kind) = points.kind_at(at) else { continue };
        match runs.last_mut() {
            Some((last, range)) if *last == kind => range.end = at + 1,
            _ => runs.push((kind, at..at + 1)),
        }
    }
    runs
}

fn put_times(times: &[i64], to: &mut Vec<u8>) {
    let Some((&first, rest)) = times.split_first() else { return };
    // Steps between sorted times are positive, though they may be beyond what 63 bits hold.
    let step = rest.first().map_or(0, |second| second.wrapping_sub(first).cast_unsigned());
    let steps = || times.windows(2).map(|pair| if let [a, b] = pair { b.wrapping_sub(*a).cast_unsigned() } else { 0 });
    if steps().all(|one| one == step) {
        to.push(0);
        to.extend_from_slice(&first.to_le_bytes());
        return put_varint(to, step);
    }
    let unit = (0u8..4).zip(UNITS).rev().find(|(_, unit)| steps().all(|step| step % unit == 0)).unwrap_or((0, 1));
    let in_units = steps().map(|step| step / unit.1);
    let form = if times.len() < PACK_FROM { 1 } else { 2 };
    to.extend_from_slice(&[form, unit.0]);
    to.extend_from_slice(&first.to_le_bytes());
    if form == 1 {
        in_units.for_each(|step| put_varint(to, step));
    } else {
        let steps: Vec<u64> = in_units.collect();
        put_string(to, &packed(&steps, 0));
    }
}

fn packed<T: pco::data_types::Number>(numbers: &[T], order: usize) -> Vec<u8> {
    let delta = if order == 0 { DeltaSpec::NoOp } else { DeltaSpec::TryConsecutive(order) };
    let config =
        ChunkConfig::default().with_compression_level(EFFORT).with_mode_spec(ModeSpec::Classic).with_delta_spec(delta);
    pco::standalone::simple_compress(numbers, &config).expect("the settings are ones that pco has")
}

/// How often differences are to be taken before the numbers are packed: what makes them smallest in a sample.
fn best_order(integers: &[i64]) -> usize {
    let sample = integers.get(..integers.len().min(SAMPLE)).unwrap_or_default();
    let bits = |numbers: &[i64]| -> u64 {
        let middle = numbers.iter().fold(0i128, |sum, number| sum + i128::from(*number)) / numbers.len().max(1) as i128;
        numbers
            .iter()
            .map(|number| u64::from(128 - (i128::from(*number) - middle).unsigned_abs().leading_zeros()))
            .sum()
    };
    let differences = |numbers: &[i64]| -> Vec<i64> {
        numbers.windows(2).map(|pair| if let [a, b] = pair { b.wrapping_sub(*a) } else { 0 }).collect()
    };
    let once = differences(sample);
    let twice = differences(&once);
    let candidates = [bits(sample), bits(&once), bits(&twice)];
    (0..).zip(candidates).min_by_key(|(_, bits)| *bits).map_or(0, |(order, _)| order)
}

fn put_integers(integers: &[i64], to: &mut Vec<u8>) {
    if integers.len() < PACK_FROM {
        to.push(0);
        let mut before = 0i64;
        for integer in integers {
            put_varint(to, zigzag(integer.wrapping_sub(before)));
            before = *integer;
        }
        return;
    }
    to.push(1);
    put_string(to, &packed(integers, best_order(integers)));
}

fn put_floats(bits: &[u64], to: &mut Vec<u8>) {
    let Some(first) = bits.first() else { return };
    if bits.iter().all(|one| one == first) {
        to.push(0);
        to.extend_from_slice(&first.to_le_bytes());
        return;
    }
    if let Some((scale, integers, patches)) = decimals(bits) {
        to.extend_from_slice(&[1, scale]);
        put_integers(&integers, to);
        put_varint(to, patches.len() as u64);
        let mut before = 0;
        for at in patches {
            put_varint(to, at as u64 - before);
            to.extend_from_slice(&bits.get(at).copied().unwrap_or_default().to_le_bytes());
            before = at as u64;
        }
        return;
    }
    let floats: Vec<f64> = bits.iter().map(|bits| f64::from_bits(*bits)).collect();
    to.push(2);
    let config = ChunkConfig::default().with_compression_level(EFFORT);
    let bytes = pco::standalone::simple_compress(&floats, &config).expect("the settings are ones that pco has");
    put_string(to, &bytes);
}

/// The doubles as integers over a power of ten, and which of them are not.
fn decimals(bits: &[u64]) -> Option<(u8, Vec<i64>, Vec<usize>)> {
    let patches_max = bits.len() / PATCHES_SHARE;
    let mut integers = Vec::with_capacity(bits.len());
    let mut patches = Vec::new();
    'scales: for (scale, power) in (0u8..).zip(POWERS) {
        integers.clear();
        patches.clear();
        for (at, bits) in bits.iter().enumerate() {
            match decimal(*bits, power) {
                Some(integer) => integers.push(integer),
                None if patches.len() < patches_max => {
                    patches.push(at);
                    integers.push(integers.last().copied().unwrap_or(0));
                }
                None => continue 'scales,
            }
        }
        return Some((scale, integers, patches));
    }
    None
}

/// The integer that divided by the power of ten is exactly this double.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "it is below 2^53, and checked by its bits"
)]
fn decimal(bits: u64, power: f64) -> Option<i64> {
    let scaled = f64::from_bits(bits) * power;
    if scaled.is_nan() || scaled.abs() >= DECIMAL_MAX {
        return None;
    }
    // Halves away from zero, without the call that rounding costs.
    let integer = (scaled + 0.5f64.copysign(scaled)) as i64;
    ((integer as f64 / power).to_bits() == bits).then_some(integer)
}

fn put_booleans(bits: &[u64], to: &mut Vec<u8>) {
    for eight in bits.chunks(8) {
        to.push((0..).zip(eight).fold(0u8, |byte, (at, bit)| byte | (u8::from(*bit != 0) << at)));
    }
}

fn put_texts<'a>(texts: impl Iterator<Item = ValueRef<'a>>, to: &mut Vec<u8>) {
    let mut plain = Vec::new();
    for value in texts {
        if let ValueRef::Text(text) = value {
            put_string(&mut plain, text.as_bytes());
        }
    }
    if plain.len() < TEXT_COMPRESS_FROM {
        to.push(0);
        return put_string(to, &plain);
    }
    to.push(1);
    put_varint(to, plain.len() as u64);
    put_string(to, &lz4_flex::block::compress(&plain));
}

/// Appends a block's points to `points`. The bytes end with the block.
///
/// # Errors
/// [`Error::Malformed`].
pub(crate) fn decode(bytes: &[u8], points: &mut Points) -> Result<()> {
    let mut from = Fields(bytes);
    read(&mut from, points).filter(|()| from.0.is_empty()).ok_or(MALFORMED)
}

fn read(from: &mut Fields<'_>, points: &mut Points) -> Option<()> {
    let count = usize::try_from(from.varint()?).ok().filter(|count| (1..=BLOCK_POINTS_MAX).contains(count))?;
    let times = read_times(from, count)?;
    let mut rest = times.as_slice();
    for _ in 0..from.varint()? {
        let kind = Kind::of(from.u8()?)?;
        let count = usize::try_from(from.varint()?).ok().filter(|count| *count > 0)?;
        let (mine, behind) = rest.split_at_checked(count)?;
        rest = behind;
        match kind {
            Kind::Float => points.extend_bits(kind, mine, &read_floats(from, count)?),
            Kind::Integer | Kind::Unsigned => {
                let bits: Vec<u64> = read_integers(from, count)?.iter().map(|one| one.cast_unsigned()).collect();
                points.extend_bits(kind, mine, &bits);
            }
            Kind::Boolean => {
                let bytes = from.take(count.div_ceil(8))?;
                let bits = bytes.iter().flat_map(|byte| (0..8).map(move |at| u64::from(byte >> at & 1)));
                points.extend_bits(kind, mine, &bits.take(count).collect::<Vec<_>>());
            }
            Kind::Text => read_texts(from, mine, points)?,
        }
    }
    rest.is_empty().then_some(())
}

fn read_times(from: &mut Fields<'_>, count: usize) -> Option<Vec<i64>> {
    let form = from.u8()?;
    let unit = if form == 0 { 1 } else { *UNITS.get(usize::from(from.u8()?))? };
    let mut time = from.u64()?.cast_signed();
    let mut times = Vec::with_capacity(count);
    times.push(time);
    let mut step_by = |step: u64| {
        let step = step.checked_mul(unit)?;
        let next = time.checked_add_unsigned(step).filter(|next| *next > time)?;
        time = next;
        times.push(next);
        Some(())
    };
    match form {
        0 => {
            let step = from.varint()?;
            (1..count).try_for_each(|_| step_by(step))?;
        }
        1 => (1..count).try_for_each(|_| step_by(from.varint()?))?,
        2 => unpack::<u64>(from, count - 1)?.into_iter().try_for_each(step_by)?,
        _ => return None,
    }
    Some(times)
}

fn unpack<T: pco::data_types::Number + Default>(from: &mut Fields<'_>, count: usize) -> Option<Vec<T>> {
    let mut numbers = vec![T::default(); count];
    let progress = pco::standalone::simple_decompress_into(from.string()?, &mut numbers).ok()?;
    (progress.n_processed == count && progress.finished).then_some(numbers)
}

fn read_integers(from: &mut Fields<'_>, count: usize) -> Option<Vec<i64>> {
    match from.u8()? {
        0 => {
            let mut before = 0i64;
            (0..count)
                .map(|_| {
                    before = before.wrapping_add(unzigzag(from.varint()?));
                    Some(before)
                })
                .collect()
        }
        1 => unpack(from, count),
        _ => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "what was encoded is below 2^53")]
fn read_floats(from: &mut Fields<'_>, count: usize) -> Option<Vec<u64>> {
    match from.u8()? {
        0 => Some(vec![from.u64()?; count]),
        1 => {
            let power = *POWERS.get(usize::from(from.u8()?))?;
            let integers = read_integers(from, count)?;
            let mut bits: Vec<u64> = integers.iter().map(|integer| (*integer as f64 / power).to_bits()).collect();
            let mut at = 0usize;
            for _ in 0..from.varint()? {
                at = at.checked_add(usize::try_from(from.varint()?).ok()?)?;
                *bits.get_mut(at)? = from.u64()?;
            }
            Some(bits)
        }
        2 => Some(unpack::<f64>(from, count)?.iter().map(|float| float.to_bits()).collect()),
        _ => None,
    }
}

fn read_texts(from: &mut Fields<'_>, times: &[i64], points: &mut Points) -> Option<()> {
    let unpacked;
    let plain = match from.u8()? {
        0 => from.string()?,
        1 => {
            let len = usize::try_from(from.varint()?).ok().filter(|len| *len <= TEXT_BYTES_MAX)?;
            unpacked = lz4_flex::block::decompress(from.string()?, len).ok()?;
            &unpacked
        }
        _ => return None,
    };
    let mut texts = Fields(plain);
    for time in times {
        points.push(*time, ValueRef::Text(texts.text()?));
    }
    texts.0.is_empty().then_some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(points: &Points) -> usize {
        let mut bytes = Vec::new();
        encode(points, &mut bytes);
        let mut back = Points::new();
        decode(&bytes, &mut back).unwrap();
        assert!(points.iter().eq(back.iter()), "{points:?} came back as {back:?}");
        bytes.len()
    }

    fn of_floats(values: impl IntoIterator<Item = f64>) -> Points {
        let mut points = Points::new();
        for (second, value) in (1_700_000_000i64..).zip(values) {
            points.push_float(second * 1_000_000_000, value);
        }
        points
    }

    #[test]
    fn doubles_come_back_bit_by_bit() {
        for values in [
            vec![0.1, 0.2, 0.30000000000000004, f64::NAN, f64::from_bits(0x7ff8_0000_dead_beef), -0.0, 0.0],
            vec![1e300, -1e300, f64::MIN_POSITIVE, 5e-324, f64::INFINITY, f64::NEG_INFINITY],
            vec![1.25; 100],
            (0..5000).map(|n| f64::from(n) / 100.0).collect(),
            (0..5000).map(|n| if n == 77 { f64::NAN } else { f64::from(n % 17) * 0.01 }).collect(),
            (0..5000).map(|n| f64::from(n).sin()).collect(),
        ] {
            round_trip(&of_floats(values));
        }
    }

    #[test]
    fn regular_series_with_few_decimals_take_little() {
        let line = of_floats((0..2000).map(|n| f64::from(n * 37) / 100.0));
        let sine = of_floats((0..2000).map(|n| (f64::from(n) / 160.0).sin()).map(|x| (x * 10_000.0).round() / 100.0));
        let constant = of_floats([42.42; 2000]);
        let bytes = [round_trip(&line), round_trip(&sine), round_trip(&constant)];
        assert!(bytes[0] < 200 && bytes[1] < 1000 && bytes[2] < 32, "{bytes:?}");
    }

    fn value() -> impl Strategy<Value = crate::value::Value> {
        use crate::value::Value;
        prop_oneof![
            4 => any::<i16>().prop_map(|n| Value::Float(f64::from(n) / 100.0)),
            1 => any::<u64>().prop_map(|bits| Value::Float(f64::from_bits(bits))),
            1 => any::<i64>().prop_map(Value::Integer),
            1 => any::<u64>().prop_map(Value::Unsigned),
            1 => any::<bool>().prop_map(Value::Boolean),
            1 => ".{0,8}".prop_map(|text| Value::Text(text.into())),
        ]
    }

    proptest! {
        #[test]
        fn whatever_is_written_comes_back(
            steps in prop::collection::vec((prop_oneof![Just(1_000_000_000i64), 1i64..5, 1i64..i64::MAX / 400], value()), 1..200),
            start in any::<i32>(),
        ) {
            let mut points = Points::new();
            let mut time = i64::from(start);
            for (step, value) in &steps {
                time += step;
                points.push(time, value.as_ref());
            }
            round_trip(&points);
        }

        #[test]
        fn foreign_bytes_are_refused_and_nothing_worse(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes, &mut Points::new());
        }

        #[test]
        fn changed_bytes_are_refused_or_other_points(at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut bytes = Vec::new();
            encode(&of_floats((0..100).map(|n| f64::from(n * n) / 10.0)), &mut bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let _ = decode(&bytes, &mut Points::new());
        }
    }
}
