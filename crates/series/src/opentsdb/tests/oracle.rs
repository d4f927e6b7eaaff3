//! What OpenTSDB's answers are, computed as slowly and plainly as they can be described: no step knows of any other's shortcut.
//!
//! May use: nothing of `opentsdb`. Must not know: how answers are made.

/// A number that was written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Whole(i64),
    Broken(f64),
}

impl Number {
    pub(super) fn double(self) -> f64 {
        match self {
            Number::Whole(number) => number as f64,
            Number::Broken(number) => number,
        }
    }
}

/// Points by time.
pub(super) type Line = Vec<(i64, Number)>;

#[derive(Debug, Clone)]
pub(super) struct Rate {
    pub(super) counter: Option<(i64, i64, bool)>,
}

#[derive(Debug, Clone)]
pub(super) struct Downsample {
    /// In nanoseconds; `None` for all.
    pub(super) interval: Option<i64>,
    pub(super) function: String,
    pub(super) fill: String,
}

#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) aggregator: String,
    pub(super) downsample: Option<Downsample>,
    pub(super) rate: Option<Rate>,
}

const HOUR: i64 = 3_600_000_000_000;

/// The answer for series that are put together.
pub(super) fn answer(asked: &Asked, series: &[Line]) -> Line {
    let lines: Vec<Line> = series.iter().map(|line| own(asked, line)).filter(|line: &Line| !line.is_empty()).collect();
    let first_shown = match &asked.downsample {
        Some(Downsample { interval: Some(interval), .. }) => asked.from - asked.from.rem_euclid(*interval),
        _ => asked.from,
    };
    let is_shown = |time: &i64| first_shown <= *time && *time <= asked.to;
    let keeps = !["count", "dev", "diff", "squareSum"].contains(&asked.aggregator.as_str());
    if let ([line], true) = (lines.as_slice(), keeps) {
        return line.iter().filter(|(time, _)| is_shown(time)).copied().collect();
    }
    let mut moments: Vec<i64> = lines.iter().flatten().map(|(time, _)| *time).filter(is_shown).collect();
    moments.sort_unstable();
    moments.dedup();
    let mut found = Vec::new();
    for moment in moments {
        let is_broken = lines.iter().any(|line| is_broken_at(line, moment));
        let values: Vec<Number> = lines.iter().filter_map(|line| value_at(asked, line, moment, is_broken)).collect();
        let values: Vec<Number> =
            if is_broken { values.iter().map(|value| Number::Broken(value.double())).collect() } else { values };
        found.push((moment, aggregate(&asked.aggregator, &values)));
    }
    found
}

/// What one series is before it is put together with others.
fn own(asked: &Asked, line: &Line) -> Line {
    let (from, to) = match asked.downsample {
        Some(_) => (asked.from, asked.to),
        None => (asked.from - asked.from.rem_euclid(HOUR), asked.to - asked.to.rem_euclid(HOUR) + HOUR - 1),
    };
    let mut line: Line = line.iter().filter(|(time, _)| from <= *time && *time <= to).copied().collect();
    if let Some(downsample) = &asked.downsample {
        line = reduce(asked, downsample, &line);
    }
    if let Some(rate) = &asked.rate {
        line = rates(rate, &line);
    }
    line
}

fn reduce(asked: &Asked, downsample: &Downsample, line: &Line) -> Line {
    if line.is_empty() {
        return Vec::new();
    }
    let doubles = |keep: &dyn Fn(i64) -> bool| -> Vec<Number> {
        line.iter().filter(|(time, _)| keep(*time)).map(|(_, value)| Number::Broken(value.double())).collect()
    };
    let Some(interval) = downsample.interval else {
        return vec![(asked.from, aggregate(&downsample.function, &doubles(&|_| true)))];
    };
    let mut start = asked.from - asked.from.rem_euclid(interval);
    let mut found = Vec::new();
    while start <= asked.to {
        let mine = doubles(&|time| start <= time && time < start + interval);
        if !mine.is_empty() {
            found.push((start, aggregate(&downsample.function, &mine)));
        } else if downsample.fill == "zero" {
            found.push((start, Number::Broken(0.0)));
        } else if downsample.fill != "none" {
            found.push((start, Number::Broken(f64::NAN)));
        }
        start += interval;
    }
    found
}

fn rates(rate: &Rate, line: &Line) -> Line {
    let mut found = Vec::new();
    for pair in line.windows(2) {
        let ((t0, v0), (t1, v1)) = (pair[0], pair[1]);
        let seconds = (t1 - t0) as f64 / 1e9;
        let mut difference = match (v0, v1) {
            (Number::Whole(v0), Number::Whole(v1)) => (v1 - v0) as f64,
            _ => v1.double() - v0.double(),
        };
        let mut result = difference / seconds;
        if let Some((max, reset, drops)) = rate.counter
            && difference < 0.0
        {
            if drops {
                continue;
            }
            difference = match (v0, v1) {
                (Number::Whole(v0), Number::Whole(v1)) => (i128::from(max) - i128::from(v0) + i128::from(v1)) as f64,
                _ => max as f64 - v0.double() + v1.double(),
            };
            result = difference / seconds;
            if reset > 0 && result > reset as f64 {
                result = 0.0;
            }
        }
        found.push((t1, Number::Broken(result)));
    }
    found
}

fn is_broken_at(line: &Line, moment: i64) -> bool {
    let is_broken = |point: Option<&(i64, Number)>| matches!(point, Some((_, Number::Broken(_))));
    let is_over = line.last().is_some_and(|(time, _)| *time < moment);
    let current = line.iter().rfind(|(time, _)| *time <= moment).filter(|_| !is_over);
    let next = line.iter().find(|(time, _)| *time > moment);
    is_broken(current) || is_broken(next)
}

fn value_at(asked: &Asked, line: &Line, moment: i64, is_broken: bool) -> Option<Number> {
    if let Some((_, value)) = line.iter().find(|(time, _)| *time == moment) {
        return Some(*value);
    }
    let (t0, v0) = *line.iter().rfind(|(time, _)| *time < moment)?;
    let (t1, v1) = *line.iter().find(|(time, _)| *time > moment)?;
    if asked.rate.is_some() {
        return Some(v0);
    }
    Some(match asked.aggregator.as_str() {
        "zimsum" | "count" | "first" | "last" | "squareSum" if is_broken => Number::Broken(0.0),
        "zimsum" | "count" | "first" | "last" | "squareSum" => Number::Whole(0),
        "mimmin" if is_broken => Number::Broken(f64::MAX),
        "mimmin" => Number::Whole(i64::MAX),
        "mimmax" if is_broken => Number::Broken(f64::MIN),
        "mimmax" => Number::Whole(i64::MIN),
        _ => match (v0, v1) {
            (Number::Whole(v0), Number::Whole(v1)) if !is_broken => {
                let way = i128::from(moment - t0) * i128::from(v1 - v0) / i128::from(t1 - t0);
                Number::Whole(v0 + i64::try_from(way).unwrap())
            }
            _ => {
                let share = (moment - t0) as f64 / (t1 - t0) as f64;
                Number::Broken(v0.double() + share * (v1.double() - v0.double()))
            }
        },
    })
}

/// The aggregate of numbers: of whole ones only when all are.
pub(super) fn aggregate(name: &str, values: &[Number]) -> Number {
    let whole: Option<Vec<i64>> =
        values.iter().map(|value| if let Number::Whole(number) = value { Some(*number) } else { None }).collect();
    match whole {
        Some(whole) => {
            let all: Vec<f64> = whole.iter().map(|number| *number as f64).collect();
            Number::Whole(match name {
                "sum" | "zimsum" => whole.iter().sum(),
                "avg" => whole.iter().sum::<i64>() / whole.len() as i64,
                "min" | "mimmin" => *whole.iter().min().unwrap(),
                "max" | "mimmax" => *whole.iter().max().unwrap(),
                "count" => whole.len() as i64,
                "mult" => whole.iter().fold(1_i64, |product, number| product.wrapping_mul(*number)),
                "first" => whole[0],
                "last" | "none" => *whole.last().unwrap(),
                "diff" => whole.last().unwrap() - whole[0],
                "squareSum" => whole.iter().map(|number| number * number).sum(),
                "median" => {
                    let mut sorted = whole.clone();
                    sorted.sort_unstable();
                    sorted[sorted.len() / 2]
                }
                _ => double(name, &all) as i64,
            })
        }
        None => Number::Broken(double(name, &values.iter().map(|value| value.double()).collect::<Vec<f64>>())),
    }
}

fn double(name: &str, values: &[f64]) -> f64 {
    if name == "mult" {
        return values.iter().product();
    }
    let real: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    let count = real.len() as f64;
    let mut sorted = real.clone();
    sorted.sort_by(f64::total_cmp);
    if name == "count" {
        return count;
    }
    if real.is_empty() {
        return f64::NAN;
    }
    let mean = real.iter().sum::<f64>() / count;
    match name {
        "sum" | "zimsum" => real.iter().sum(),
        "avg" => mean,
        "min" | "mimmin" => sorted[0],
        "max" | "mimmax" => sorted[sorted.len() - 1],
        "dev" => (real.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt(),
        "first" => real[0],
        "last" | "none" => real[real.len() - 1],
        "diff" => real[real.len() - 1] - real[0],
        "squareSum" => real.iter().map(|value| value * value).sum(),
        "median" => sorted[sorted.len() / 2],
        _ => percentile(name, &sorted),
    }
}

/// As Apache Commons Math 3 describes its types LEGACY, R_3 and R_7: places are counted from 1.
fn percentile(name: &str, sorted: &[f64]) -> f64 {
    let digits: String = name.chars().skip_while(|it| !it.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    let percent = if digits == "999" { 99.9 } else { digits.parse::<f64>().unwrap() };
    let (share, count) = (percent / 100.0, sorted.len() as f64);
    let at = |place: f64| sorted[(place.clamp(1.0, count) as usize) - 1];
    if name.ends_with("r3") {
        let place = share * count;
        // The nearest, and the even one of two that are as near.
        let (below, above) = (place.floor(), place.floor() + 1.0);
        let nearest = match (place - below).total_cmp(&0.5) {
            std::cmp::Ordering::Less => below,
            std::cmp::Ordering::Greater => above,
            std::cmp::Ordering::Equal => {
                if below % 2.0 == 0.0 {
                    below
                } else {
                    above
                }
            }
        };
        return at(nearest);
    }
    let place = if name.ends_with("r7") { (count - 1.0) * share + 1.0 } else { (count + 1.0) * share };
    let place = place.clamp(1.0, count);
    let (below, above) = (at(place.floor()), at(place.floor() + 1.0));
    below + (place - place.floor()) * (above - below)
}
