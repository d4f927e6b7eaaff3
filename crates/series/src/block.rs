//! Blocks: points of one series as they lie in sealed files. This is the specification of their form.
//!
//! Lengths and counts are LEB128, other integers little-endian.
//!
//!   block     count | times | runs | run*
//!             0, paged block                      many points of one type: see `paged.rs`
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
//! Format: docs/formats/series.md
//!
//! Every double comes back bit by bit: numbers with few decimals are integers that, divided by a power of ten, are exactly that
//! double again; what is not (a NaN, 1e300) is a patch.
//!
//! May use: `points`, `paged`, pco, lz4. Must not know: series, files.

use base::{Fields, put_string, put_varint, unzigzag, zigzag};
use pco::{ChunkConfig, DeltaSpec, ModeSpec};

use crate::error::{Error, Result};
use crate::paged::{self, PagedBlock};
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
/// Text of one block, unpacked, at most: what is read. It is more than is written, so that one large text of its own fits.
const TEXT_BYTES_MAX: usize = 1 << 28;
/// A block ends where its text would be more than this, unless it is that of one point.
const TEXT_BYTES_FULL: usize = 16 << 20;

pub(crate) const UNITS: [u64; 4] = [1, 1_000, 1_000_000, 1_000_000_000];
pub(crate) const POWERS: [f64; 10] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
/// Integers beyond this may not come back from a division.
const DECIMAL_MAX: f64 = 9_007_199_254_740_991.0;

const MALFORMED: Error = Error::Malformed { what: "block of points" };

/// Where a block ends that begins with the point at `from`.
pub(crate) fn end(points: &Points, from: usize) -> usize {
    let limit = points.len().min(from + BLOCK_POINTS_MAX);
    if !points.has_text() {
        return limit;
    }
    let mut bytes = 0;
    let is_full = |at: &usize| {
        bytes += points.get(*at).map_or(0, |(_, value)| if let ValueRef::Text(text) = value { text.len() } else { 0 });
        bytes > TEXT_BYTES_FULL && *at > from
    };
    (from..limit).find(is_full).unwrap_or(limit)
}

/// Appends points, which are sorted by time, each time once, and no more than to where [`end`] says.
pub(crate) fn encode(points: &Points, to: &mut Vec<u8>) {
    debug_assert!(points.is_sorted() && points.len() <= BLOCK_POINTS_MAX && !points.is_empty(), "a block's points");
    if paged::is_for(points) {
        to.push(0);
        return paged::encode(points, to);
    }
    encode_whole(points, to);
}

fn encode_whole(points: &Points, to: &mut Vec<u8>) {
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
    let Some(first) = times.first() else { return };
    let steps = steps(times);
    let step = steps.first().copied().unwrap_or(0);
    if steps.iter().all(|one| *one == step) {
        to.push(0);
        to.extend_from_slice(&first.to_le_bytes());
        return put_varint(to, step);
    }
    let (number, unit) = unit(&steps);
    let in_units = steps.iter().map(|step| step / unit);
    let form = if times.len() < PACK_FROM { 1 } else { 2 };
    to.extend_from_slice(&[form, number]);
    to.extend_from_slice(&first.to_le_bytes());
    if form == 1 {
        in_units.for_each(|step| put_varint(to, step));
    } else {
        let steps: Vec<u64> = in_units.collect();
        put_string(to, &packed(&steps, &config(0)));
    }
}

/// Steps between sorted times: positive, though they may be beyond what 63 bits hold.
pub(crate) fn steps(times: &[i64]) -> Vec<u64> {
    let step = |pair: &[i64]| if let [a, b] = pair { b.wrapping_sub(*a).cast_unsigned() } else { 0 };
    times.windows(2).map(step).collect()
}

/// The largest unit that divides all steps, and its number.
pub(crate) fn unit(steps: &[u64]) -> (u8, u64) {
    let divides = |(_, unit): &(u8, u64)| steps.iter().all(|step| step % unit == 0);
    (0u8..4).zip(UNITS).rev().find(divides).unwrap_or((0, 1))
}

/// How numbers are packed of which differences are taken so often.
pub(crate) fn config(order: usize) -> ChunkConfig {
    let delta = if order == 0 { DeltaSpec::NoOp } else { DeltaSpec::TryConsecutive(order) };
    float_config().with_mode_spec(ModeSpec::Classic).with_delta_spec(delta)
}

/// How doubles are packed that are no decimals.
pub(crate) fn float_config() -> ChunkConfig {
    ChunkConfig::default().with_compression_level(EFFORT)
}

fn packed<T: pco::data_types::Number>(numbers: &[T], config: &ChunkConfig) -> Vec<u8> {
    pco::standalone::simple_compress(numbers, config).expect("the settings are ones that pco has")
}

/// How often differences are to be taken before the numbers are packed: what makes them smallest in a sample.
pub(crate) fn best_order(integers: &[i64]) -> usize {
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
    put_string(to, &packed(integers, &config(best_order(integers))));
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
        return put_patches(bits, &patches, to);
    }
    let floats: Vec<f64> = bits.iter().map(|bits| f64::from_bits(*bits)).collect();
    to.push(2);
    put_string(to, &packed(&floats, &float_config()));
}

/// Appends what a column of decimals leaves out.
pub(crate) fn put_patches(bits: &[u64], patches: &[usize], to: &mut Vec<u8>) {
    put_varint(to, patches.len() as u64);
    let mut before = 0;
    for at in patches {
        put_varint(to, (at - before) as u64);
        to.extend_from_slice(&bits.get(*at).copied().unwrap_or_default().to_le_bytes());
        before = *at;
    }
}

/// Tells what a column of so many decimals leaves out.
pub(crate) fn read_patches(from: &mut Fields<'_>, count: usize, mut tell: impl FnMut(usize, u64)) -> Option<()> {
    let mut at = 0usize;
    for _ in 0..from.varint()? {
        at = at.checked_add(usize::try_from(from.varint()?).ok()?).filter(|at| *at < count)?;
        tell(at, from.u64()?);
    }
    Some(())
}

/// The doubles as integers over a power of ten, and which of them are not.
pub(crate) fn decimals(bits: &[u64]) -> Option<(u8, Vec<i64>, Vec<usize>)> {
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

pub(crate) fn put_booleans(bits: &[u64], to: &mut Vec<u8>) {
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

/// A block that is looked into.
#[derive(Debug)]
pub(crate) enum Block {
    /// Its points are unpacked together.
    Whole,
    Paged(Box<PagedBlock>),
}

impl Block {
    /// Looks into a block; the bytes end with it.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    pub(crate) fn open(bytes: &[u8]) -> Result<Self> {
        match bytes.split_first() {
            Some((0, rest)) => {
                let block = PagedBlock::read(&mut Fields(rest), bytes.len()).ok_or(MALFORMED)?;
                Ok(Self::Paged(Box::new(block)))
            }
            _ => Ok(Self::Whole),
        }
    }

    pub(crate) fn pages(&self) -> usize {
        if let Self::Paged(block) = self { block.pages() } else { 1 }
    }

    /// The first time of a page that is not the first.
    pub(crate) fn first(&self, page: usize) -> Option<i64> {
        if let Self::Paged(block) = self { block.first(page) } else { None }
    }

    /// Appends the points of a page; `bytes` are those that were looked into.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    pub(crate) fn page(&self, bytes: &[u8], page: usize, points: &mut Points) -> Result<()> {
        match self {
            Self::Paged(block) => block.page(bytes, page, points).ok_or(MALFORMED),
            Self::Whole => {
                let mut from = Fields(bytes);
                read(&mut from, points).filter(|()| from.0.is_empty()).ok_or(MALFORMED)
            }
        }
    }
}

/// Appends a block's points to `points`. The bytes end with the block.
///
/// # Errors
/// [`Error::Malformed`].
pub(crate) fn decode(bytes: &[u8], points: &mut Points) -> Result<()> {
    let block = Block::open(bytes)?;
    (0..block.pages()).try_for_each(|page| block.page(bytes, page, points))
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
            read_patches(from, count, |at, patch| {
                if let Some(place) = bits.get_mut(at) {
                    *place = patch;
                }
            })?;
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
mod tests;
