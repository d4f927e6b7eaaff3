//! Blocks give back what was put into them, whole and page by page.

use proptest::prelude::*;

use super::*;
use crate::value::Value;

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

/// Points of one type in many pages, at regular times and at others.
fn many() -> Vec<Points> {
    let mut random = 7u64;
    let mut next = move |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut all = Vec::new();
    for count in [513usize, 1024, 1025, 5000, 8191, 8192] {
        for jitter in [1u64, 3_000] {
            let values: [&mut dyn FnMut(usize) -> Value; 7] = [
                &mut |at| Value::Float(at as f64 / 100.0),
                &mut |at| Value::Float(if at % 1000 == 77 { f64::NAN } else { (at % 17) as f64 * 0.01 }),
                &mut |at| Value::Float((at as f64).sin()),
                &mut |_| Value::Float(4.2),
                &mut |at| Value::Integer((at * at) as i64 - 5),
                &mut |at| Value::Unsigned(u64::MAX - at as u64),
                &mut |at| Value::Boolean(at % 3 == 0),
            ];
            for value in values {
                let mut points = Points::new();
                let mut time = -5_000_000_000;
                for at in 0..count {
                    points.push(time, value(at).as_ref());
                    time += 1_000_000_000 + next(jitter) as i64 * 1_000_000;
                }
                all.push(points);
            }
        }
    }
    all
}

#[test]
fn pages_are_read_one_by_one_and_together() {
    for points in many() {
        let mut bytes = Vec::new();
        encode(&points, &mut bytes);
        let block = Block::open(&bytes).unwrap();
        assert_eq!(block.pages(), points.len().div_ceil(paged::PAGE_POINTS));
        for page in (0..block.pages()).rev() {
            let mut back = Points::new();
            block.page(&bytes, page, &mut back).unwrap();
            assert_eq!(block.first(page), back.times().first().copied());
            let wanted = page * paged::PAGE_POINTS..points.len().min((page + 1) * paged::PAGE_POINTS);
            assert!(points.iter().skip(wanted.start).take(wanted.len()).eq(back.iter()), "page {page}");
        }
        assert!(block.page(&bytes, block.pages(), &mut Points::new()).is_err());
        round_trip(&points);
    }
}

#[test]
fn blocks_without_pages_are_read_as_before_and_pages_cost_little() {
    let (mut with, mut without) = (0, 0);
    for points in many() {
        let mut bytes = Vec::new();
        encode_whole(&points, &mut bytes);
        let mut back = Points::new();
        decode(&bytes, &mut back).unwrap();
        assert!(points.iter().eq(back.iter()));
        without += bytes.len();
        with += round_trip(&points);
    }
    assert!(with * 100 < without * 125, "{with} bytes with pages, {without} without");
}

#[test]
fn changed_bytes_of_pages_are_refused_or_other_points() {
    for points in many().into_iter().step_by(5) {
        let mut bytes = Vec::new();
        encode(&points, &mut bytes);
        for at in (0..bytes.len().min(200)).chain((200..bytes.len()).step_by(97)) {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            let _ = decode(&changed, &mut Points::new());
            let _ = decode(&bytes[..at], &mut Points::new());
        }
    }
}

fn value() -> impl Strategy<Value = crate::value::Value> {
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
