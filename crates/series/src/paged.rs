//! Blocks in pages: many points of one type, of which some are unpacked without the others. This is the specification of their form.
//!
//!   paged block   count | kind 1 | times | column
//!   times         0, first 8, step                                regular: every point a step behind the one before
//!                 1, unit 1, first 8, (first of the page, less that of the page before, in units)*, packed
//!                                                                 steps from each point to the next; units as in `block.rs`
//!   column        floats:   0, bits 8                             all the same
//!                           1, scale 1, packed, patches, (at, bits 8)*   as in `block.rs`
//!                           2, packed                             packed as they are
//!                 integers: packed; unsigned the same, as if signed
//!                 booleans: a bit each, the first in the lowest of the first byte
//!   packed        bytes of meta, meta | (bytes of page)* | page*
//!   meta          header and chunk meta of pco's wrapped format (pcodec.org), 1.0; a page is one of that format
//!
//! Pages have [`PAGE_POINTS`] points, the last what is left. A page of steps leads from its points to the next ones, so the last has
//! one less than points, and is left out when that is none. Lengths and counts are LEB128, other integers little-endian.
//!
//! Format: docs/formats/series.md
//!
//! A query of an hour needs some hundred points of a block: a page is some microseconds of unpacking, a block more than thirty.
//!
//! May use: `block`, `points`, pco. Must not know: series, files.

use std::ops::Range;

use base::{Fields, put_string, put_varint};
use pco::data_types::Number;
use pco::wrapped::{ChunkDecompressor, FileCompressor, FileDecompressor};
use pco::{ChunkConfig, DecompressorScratch, PagingSpec};

use crate::block::{self, BLOCK_POINTS_MAX, POWERS, UNITS};
use crate::points::Points;
use crate::value::Kind;

/// Points of a page: pco unpacks 256 at a time, and a page costs some twenty bytes, a hundredth of a byte a point.
pub(crate) const PAGE_POINTS: usize = 512;

/// A block in pages that is looked into.
#[derive(Debug)]
pub(crate) struct PagedBlock {
    count: usize,
    kind: Kind,
    times: Times,
    values: Values,
}

#[derive(Debug)]
enum Times {
    Regular { first: i64, step: u64 },
    Steps { unit: u64, firsts: Vec<i64>, steps: Box<Packed<u64>> },
}

#[derive(Debug)]
enum Values {
    Same(u64),
    Decimals {
        power: f64,
        integers: Packed<i64>,
        patches: Vec<(usize, u64)>,
    },
    Floats(Packed<f64>),
    Integers(Packed<i64>),
    /// Where they lie in the bytes of the block.
    Booleans(Range<usize>),
}

/// Whether points are worth pages.
pub(crate) fn is_for(points: &Points) -> bool {
    points.len() > PAGE_POINTS && points.kind().is_some_and(|kind| kind != Kind::Text)
}

/// Appends points that [`is_for`] takes.
pub(crate) fn encode(points: &Points, to: &mut Vec<u8>) {
    let Some(kind) = points.kind() else { return };
    put_varint(to, points.len() as u64);
    to.push(kind as u8);
    put_times(points.times(), to);
    let integers = |bits: &[u64]| bits.iter().map(|bits| bits.cast_signed()).collect::<Vec<i64>>();
    match kind {
        Kind::Float => put_floats(points.bits(), to),
        Kind::Integer | Kind::Unsigned => put_integers(&integers(points.bits()), to),
        Kind::Boolean | Kind::Text => block::put_booleans(points.bits(), to),
    }
}

fn put_times(times: &[i64], to: &mut Vec<u8>) {
    let steps = block::steps(times);
    let (Some(first), Some(step)) = (times.first(), steps.first()) else { return };
    if steps.iter().all(|one| one == step) {
        to.push(0);
        to.extend_from_slice(&first.to_le_bytes());
        return put_varint(to, *step);
    }
    let (number, unit) = block::unit(&steps);
    to.extend_from_slice(&[1, number]);
    to.extend_from_slice(&first.to_le_bytes());
    let firsts = || times.iter().step_by(PAGE_POINTS);
    for (before, first) in firsts().zip(firsts().skip(1)) {
        put_varint(to, first.wrapping_sub(*before).cast_unsigned() / unit);
    }
    let steps: Vec<u64> = steps.iter().map(|step| step / unit).collect();
    put_packed(&steps, block::config(0), to);
}

fn put_integers(integers: &[i64], to: &mut Vec<u8>) {
    put_packed(integers, block::config(block::best_order(integers)), to);
}

fn put_floats(bits: &[u64], to: &mut Vec<u8>) {
    let Some(first) = bits.first() else { return };
    if bits.iter().all(|one| one == first) {
        to.push(0);
        return to.extend_from_slice(&first.to_le_bytes());
    }
    if let Some((scale, integers, patches)) = block::decimals(bits) {
        to.extend_from_slice(&[1, scale]);
        put_integers(&integers, to);
        return block::put_patches(bits, &patches, to);
    }
    let floats: Vec<f64> = bits.iter().map(|bits| f64::from_bits(*bits)).collect();
    to.push(2);
    put_packed(&floats, block::float_config(), to);
}

fn sizes(count: usize) -> impl Iterator<Item = usize> {
    (0..count.div_ceil(PAGE_POINTS)).map(move |page| (count - page * PAGE_POINTS).min(PAGE_POINTS))
}

fn put_packed<T: Number>(numbers: &[T], config: ChunkConfig, to: &mut Vec<u8>) {
    let sizes: Vec<usize> = sizes(numbers.len()).collect();
    let count = sizes.len();
    let config = config.with_paging_spec(PagingSpec::Exact(sizes));
    let pack = || {
        let file = FileCompressor::default();
        let mut chunk = file.chunk_compressor(numbers, &config)?;
        let meta = chunk.write_meta(file.write_header(Vec::new())?)?;
        let pages = (0..count).map(|page| chunk.write_page(page, Vec::new())).collect::<Result<Vec<_>, _>>()?;
        Ok::<_, pco::errors::PcoError>((meta, pages))
    };
    let (meta, pages) = pack().expect("the settings are ones that pco has, and memory can be written to");
    put_string(to, &meta);
    pages.iter().for_each(|page| put_varint(to, page.len() as u64));
    pages.iter().for_each(|page| to.extend_from_slice(page));
}

/// A packed column that is looked into.
#[derive(Debug)]
struct Packed<T: Number> {
    chunk: ChunkDecompressor<T>,
    /// Where the pages lie in the bytes of the block.
    pages: Vec<Range<usize>>,
}

impl<T: Number + Default> Packed<T> {
    /// Reads where the pages of a column lie; `bytes` are those of the block whose end `from` is.
    fn read(from: &mut Fields<'_>, bytes: usize, count: usize) -> Option<Self> {
        let (file, meta) = FileDecompressor::new(from.string()?).ok()?;
        let (chunk, rest) = file.chunk_decompressor::<T, _>(meta).ok()?;
        let lens = sizes(count).map(|_| usize::try_from(from.varint()?).ok()).collect::<Option<Vec<_>>>()?;
        let mut pages = Vec::with_capacity(lens.len());
        for len in lens {
            pages.push(taken(from, bytes, len)?);
        }
        rest.is_empty().then_some(Self { chunk, pages })
    }

    /// The numbers of a page: `count` of them.
    fn page(&self, bytes: &[u8], page: usize, count: usize) -> Option<Vec<T>> {
        let bytes = bytes.get(self.pages.get(page)?.clone())?;
        let mut numbers = vec![T::default(); count];
        let mut scratch = DecompressorScratch::default();
        let mut reader = self.chunk.page_decompressor_with_scratch(bytes, count, &mut scratch).ok()?;
        let progress = reader.read(&mut numbers).ok()?;
        (progress.n_processed == count && progress.finished).then_some(numbers)
    }
}

/// Takes bytes, and says where they lie in those of the block.
fn taken(from: &mut Fields<'_>, bytes: usize, len: usize) -> Option<Range<usize>> {
    let start = bytes.checked_sub(from.0.len())?;
    from.take(len)?;
    Some(start..start + len)
}

impl PagedBlock {
    /// Reads what stands before the pages. `from` has the rest of a block of so many bytes.
    pub(crate) fn read(from: &mut Fields<'_>, bytes: usize) -> Option<Self> {
        let count = usize::try_from(from.varint()?).ok();
        let count = count.filter(|count| (PAGE_POINTS + 1..=BLOCK_POINTS_MAX).contains(count))?;
        let kind = Kind::of(from.u8()?).filter(|kind| *kind != Kind::Text)?;
        let times = read_times(from, bytes, count)?;
        let values = match kind {
            Kind::Float => read_floats(from, bytes, count)?,
            Kind::Integer | Kind::Unsigned => Values::Integers(Packed::read(from, bytes, count)?),
            Kind::Boolean | Kind::Text => Values::Booleans(taken(from, bytes, count.div_ceil(8))?),
        };
        from.0.is_empty().then_some(Self { count, kind, times, values })
    }

    pub(crate) fn pages(&self) -> usize {
        self.count.div_ceil(PAGE_POINTS)
    }

    /// The first time of a page.
    pub(crate) fn first(&self, page: usize) -> Option<i64> {
        match &self.times {
            Times::Regular { first, step } => {
                first.checked_add_unsigned(step.checked_mul(u64::try_from(page.checked_mul(PAGE_POINTS)?).ok()?)?)
            }
            Times::Steps { firsts, .. } => firsts.get(page).copied(),
        }
    }

    /// Appends the points of a page.
    pub(crate) fn page(&self, bytes: &[u8], page: usize, points: &mut Points) -> Option<()> {
        let from = page * PAGE_POINTS;
        let count = self.count.checked_sub(from).filter(|left| *left > 0)?.min(PAGE_POINTS);
        let mut times = Vec::with_capacity(count);
        let mut time = self.first(page)?;
        times.push(time);
        let mut step_by = |step: u64| {
            time = time.checked_add_unsigned(step).filter(|next| *next > time)?;
            times.push(time);
            Some(())
        };
        match &self.times {
            Times::Regular { step, .. } => (1..count).try_for_each(|_| step_by(*step))?,
            Times::Steps { unit, steps, .. } => {
                let packed = (self.count - 1 - from).min(PAGE_POINTS);
                let steps = if packed == 0 { Vec::new() } else { steps.page(bytes, page, packed)? };
                steps.into_iter().take(count - 1).try_for_each(|step| step_by(step.checked_mul(*unit)?))?;
            }
        }
        let bits = self.bits(bytes, page, (from, count))?;
        points.extend_bits(self.kind, &times, &bits);
        Some(())
    }

    #[expect(clippy::cast_precision_loss, reason = "what was encoded is below 2^53")]
    fn bits(&self, bytes: &[u8], page: usize, (from, count): (usize, usize)) -> Option<Vec<u64>> {
        Some(match &self.values {
            Values::Same(bits) => vec![*bits; count],
            Values::Decimals { power, integers, patches } => {
                let integers = integers.page(bytes, page, count)?;
                let mut bits: Vec<u64> = integers.iter().map(|integer| (*integer as f64 / power).to_bits()).collect();
                let start = patches.partition_point(|(at, _)| *at < from);
                for (at, patch) in patches.iter().skip(start).take_while(|(at, _)| *at < from + count) {
                    *bits.get_mut(at - from)? = *patch;
                }
                bits
            }
            Values::Floats(floats) => floats.page(bytes, page, count)?.iter().map(|float| float.to_bits()).collect(),
            Values::Integers(all) => all.page(bytes, page, count)?.iter().map(|one| one.cast_unsigned()).collect(),
            Values::Booleans(place) => {
                // Pages begin with a byte.
                let mine = bytes.get(place.clone())?.get(from / 8..)?;
                let bits = mine.iter().flat_map(|byte| (0..8).map(move |at| u64::from(byte >> at & 1)));
                bits.take(count).collect()
            }
        })
    }
}

fn read_times(from: &mut Fields<'_>, bytes: usize, count: usize) -> Option<Times> {
    match from.u8()? {
        0 => {
            let (first, step) = (from.u64()?.cast_signed(), from.varint()?);
            let last = first.checked_add_unsigned(step.checked_mul(count as u64 - 1)?)?;
            (last > first).then_some(Times::Regular { first, step })
        }
        1 => {
            let unit = *UNITS.get(usize::from(from.u8()?))?;
            let mut first = from.u64()?.cast_signed();
            let mut firsts = vec![first];
            for _ in 1..count.div_ceil(PAGE_POINTS) {
                let step = from.varint()?.checked_mul(unit)?;
                first = first.checked_add_unsigned(step).filter(|next| *next > first)?;
                firsts.push(first);
            }
            Some(Times::Steps { unit, firsts, steps: Box::new(Packed::read(from, bytes, count - 1)?) })
        }
        _ => None,
    }
}

fn read_floats(from: &mut Fields<'_>, bytes: usize, count: usize) -> Option<Values> {
    Some(match from.u8()? {
        0 => Values::Same(from.u64()?),
        1 => {
            let power = *POWERS.get(usize::from(from.u8()?))?;
            let integers = Packed::read(from, bytes, count)?;
            let mut patches = Vec::new();
            block::read_patches(from, count, |at, bits| patches.push((at, bits)))?;
            Values::Decimals { power, integers, patches }
        }
        2 => Values::Floats(Packed::read(from, bytes, count)?),
        _ => return None,
    })
}
