//! Reads foreign bytes as commands, as an end of a sealed file, as a block and its pages, as a rollup, as a manifest and as a register of time series: nothing
//! panics, and what is applied can be sealed.
//!
//! Run: `cargo +nightly fuzz run series_sealed`. May use: `series`, `journal`.
#![no_main]

use journal::Position;
use libfuzzer_sys::fuzz_target;
use series::{
    BlockAt, Engine, Manifest, PackedBlock, Points, Range, Register, RollupAt, Sealer, SeriesId, Unit, read_sealed_block,
    read_sealed_end, read_sealed_rollup,
};

fuzz_target!(|input: &[u8]| {
    let mut engine = Engine::default();
    let _ = engine.apply(Position::new(8), input);
    let frozen = engine.rotate(Position::new(8));
    let mut sealer = Sealer::default();
    for (number, points) in &frozen.series {
        sealer.add(SeriesId { partition: 0, number: *number }, points);
    }
    let (_, bytes, made) = sealer.finish();
    for at in &made.index.blocks {
        let from = usize::try_from(at.offset).expect("it is in memory");
        let block = bytes.get(from..from + at.bytes as usize).expect("the file has its blocks");
        read_sealed_block(at, block, &mut Points::new()).expect("what was sealed is read");
    }
    let _ = read_sealed_end(input, 16);
    let _ = Manifest::decode(input);
    let _ = Register::read(input, &mut |_| ());
    let series = SeriesId { partition: 0, number: 0 };
    let bytes = u32::try_from(input.len()).unwrap_or(0);
    let at = BlockAt { series, range: Range::ALL, points: 1, offset: 0, bytes, crc: base::crc32c(input) };
    let _ = read_sealed_block(&at, input, &mut Points::new());
    let _ = read_sealed_rollup(&RollupAt { unit: Unit::Day, at }, input);
    if let Ok(block) = PackedBlock::open(&at, input.to_vec()) {
        for page in 0..=block.pages() {
            let _ = (block.page_range(page), block.page(page, &mut Points::new()));
        }
    }
});
