//! The values of a series: five families, as iot-benchmark has them, in hundredths and with two decimals when they are written.
//!
//! A value is a function of seed, series and row alone. So any point can be made again when it comes back, in any order, and no
//! buffer of values is used twice: a store that remembers what it saw before gains nothing.
//!
//! May use: nothing. Must not know: protocols, time.

/// What kind of values a series has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// It grows by the same amount from row to row, for ever.
    Line,
    /// A sine of 500 to 1500 rows, which is no whole number of them.
    Sine,
    /// Low and high in turn, 50 to 250 rows each.
    Square,
    /// Evenly spread from 0 to 100.
    Random,
    /// The same value in every row.
    Constant,
}

/// The families in the order in which sensors take them.
const FAMILIES: [Family; 5] = [Family::Line, Family::Sine, Family::Square, Family::Random, Family::Constant];
/// Values are between 0 and this, but for lines, which go on.
const HUNDREDTHS_MAX: u64 = 10_000;

/// Which series of which run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) seed: u64,
    pub(crate) device: u32,
    pub(crate) sensor: u32,
}

/// The values of one series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wave {
    family: Family,
    seed: u64,
    /// Level or middle, in hundredths.
    level: u64,
    /// Slope in ten-thousandths a row, height, or rows of half a period.
    shape: u64,
    /// Radians a row, and at row 0.
    turn: (f64, f64),
}

impl Wave {
    /// The series of a sensor: sensors take the families in turn.
    pub(crate) fn new(origin: Origin) -> Self {
        let at = (u64::from(origin.device) << 32) | u64::from(origin.sensor);
        let seed = mixed(mixed(origin.seed) ^ at);
        let number = |which: u64, bound: u64| mixed(seed ^ which) % bound;
        let kind = usize::try_from(origin.sensor).unwrap_or_default() % FAMILIES.len();
        let family = FAMILIES.get(kind).copied().unwrap_or(Family::Constant);
        let share = |which| number(which, 1 << 32) as f64 / (1_u64 << 32) as f64;
        let shape = match family {
            Family::Line => 5_000 + number(2, 200_000),
            Family::Square => 50 + number(2, 200),
            Family::Sine | Family::Random | Family::Constant => 0,
        };
        let around = std::f64::consts::TAU;
        let turn = (around / (500.0 + 1_000.0 * share(3)), around * share(4));
        Self { family, seed, level: number(1, HUNDREDTHS_MAX / 2), shape, turn }
    }

    /// The value in a row, in hundredths.
    pub(crate) fn hundredths(&self, row: u64) -> u64 {
        match self.family {
            Family::Line => self.level + row * self.shape / 10_000,
            Family::Sine => {
                let (each, first) = self.turn;
                let half = HUNDREDTHS_MAX as f64 / 2.0;
                (half + half * (first + each * row as f64).sin()).round() as u64
            }
            Family::Square if (row / self.shape.max(1)).is_multiple_of(2) => self.level,
            Family::Square => self.level + HUNDREDTHS_MAX / 2,
            Family::Random => mixed(self.seed ^ row.rotate_left(20)) % (HUNDREDTHS_MAX + 1),
            Family::Constant => self.level,
        }
    }
}

/// What a reader gets back for so many hundredths: the double that is nearest to the text.
pub(crate) fn as_read(hundredths: u64) -> f64 {
    // Both are exact below 2^53, and a division rounds as a parser does.
    hundredths as f64 / 100.0
}

/// All bits depend on all bits (the mixer of splitmix64).
fn mixed(bits: u64) -> u64 {
    base::Random::new(bits).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(device: u32, sensor: u32) -> Wave {
        Wave::new(Origin { seed: 7, device, sensor })
    }

    fn rows(wave: &Wave, of: std::ops::Range<u64>) -> Vec<u64> {
        of.map(|row| wave.hundredths(row)).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_values_in_any_order_and_another_gives_others() {
        for sensor in 0..10 {
            let forwards = rows(&wave(3, sensor), 0..2_000);
            let backwards: Vec<u64> = (0..2_000).rev().map(|row| wave(3, sensor).hundredths(row)).collect();
            assert!(forwards.iter().eq(backwards.iter().rev()));
            assert_ne!(forwards, rows(&Wave::new(Origin { seed: 8, device: 3, sensor }), 0..2_000));
            assert_ne!(forwards, rows(&wave(4, sensor), 0..2_000), "another device");
        }
    }

    #[test]
    fn each_family_looks_as_its_name_says() {
        let of = |sensor| rows(&wave(0, sensor), 0..10_000);
        let steps: Vec<u64> = of(0).windows(2).map(|pair| pair[1] - pair[0]).collect();
        let (least, most) = (steps.iter().min().unwrap(), steps.iter().max().unwrap());
        assert!(most - least <= 1 && *most > 0, "a line grows evenly: {least} to {most}");
        let sine = of(1);
        assert!(*sine.iter().min().unwrap() < 20 && *sine.iter().max().unwrap() > 9_980);
        assert!(sine.windows(2).all(|pair| pair[0].abs_diff(pair[1]) < 70), "a sine has no jumps");
        let mut levels = of(2);
        levels.dedup();
        assert!(levels.len() > 30, "a square wave changes sides");
        levels.sort_unstable();
        levels.dedup();
        assert_eq!(levels.len(), 2, "between two levels");
        let mut random = of(3);
        assert!(random.iter().all(|value| *value <= HUNDREDTHS_MAX));
        random.sort_unstable();
        random.dedup();
        assert!(random.len() > 6_000, "random values seldom meet: {}", random.len());
        let mut constant = of(4);
        constant.dedup();
        assert_eq!(constant.len(), 1);
    }

    #[test]
    fn nothing_repeats_itself_but_what_must() {
        // A buffer of rows that is used again would show as a period; only squares and constants may have one.
        for sensor in [1, 3] {
            let values = rows(&wave(1, sensor), 0..6_000);
            for period in 1..3_000 {
                assert!((0..3_000).any(|row| values[row] != values[row + period]), "{sensor} repeats after {period}");
            }
        }
    }

    #[test]
    fn a_value_is_read_as_the_double_that_its_text_means() {
        for hundredths in (0..200_000).chain([123_456_789_012, 9_999_999_999_999]) {
            let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
            assert_eq!(as_read(hundredths).to_bits(), text.parse::<f64>().unwrap().to_bits(), "{text}");
        }
    }
}
