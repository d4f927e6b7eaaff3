//! Parts of dates in UTC, of moments as seconds since 1970.
//!
//! May use: nothing. Must not know: series.

/// A function of seconds since 1970.
pub(crate) fn by_name(name: &str) -> Option<fn(f64) -> f64> {
    Some(match name {
        "minute" => |seconds| part(seconds, |date| date.second_of_day / 60 % 60),
        "hour" => |seconds| part(seconds, |date| date.second_of_day / 3600),
        // 1970 began on a Thursday; Sunday is 0.
        "day_of_week" => |seconds| part(seconds, |date| (date.day + 4).rem_euclid(7)),
        "day_of_month" => |seconds| part(seconds, |date| date.day_of_month),
        "day_of_year" => |seconds| part(seconds, |date| date.day - day_of(date.year, 1) + 1),
        "days_in_month" => |seconds| {
            part(seconds, |date| {
                let (year, month) = if date.month == 12 { (date.year + 1, 1) } else { (date.year, date.month + 1) };
                day_of(year, month) - day_of(date.year, date.month)
            })
        },
        "month" => |seconds| part(seconds, |date| date.month),
        "year" => |seconds| part(seconds, |date| date.year),
        _ => return None,
    })
}

struct Date {
    /// Days since 1970.
    day: i64,
    second_of_day: i64,
    year: i64,
    month: i64,
    day_of_month: i64,
}

/// Further than this there are no dates: the year 1,000,000 or so.
const SECONDS_MAX: f64 = 3e13;

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "within the bounds of dates")]
fn part(seconds: f64, of: impl Fn(&Date) -> i64) -> f64 {
    if seconds.is_nan() || seconds.abs() > SECONDS_MAX {
        return f64::NAN;
    }
    let seconds = seconds.trunc() as i64;
    let (day, second_of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // A guess by the average length of years, which is at most a year too early.
    let mut year = 1969 + (day * 400).div_euclid(146_097);
    while day_of(year + 1, 1) <= day {
        year += 1;
    }
    let month = (2..=12).rev().find(|month| day_of(year, *month) <= day).unwrap_or(1);
    of(&Date { day, second_of_day, year, month, day_of_month: day - day_of(year, month) + 1 }) as f64
}

/// The first day of a month, in days since 1970.
fn day_of(year: i64, month: i64) -> i64 {
    let before = year - 1;
    let leaps = before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
    let is_leap = year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0);
    let months = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let month_days = usize::try_from(month - 1).ok().and_then(|at| months.get(at)).copied().unwrap_or(0);
    before * 365 + leaps - 719_162 + month_days + i64::from(is_leap && month > 2)
}

#[cfg(test)]
mod tests {
    use super::by_name;

    #[test]
    fn parts_are_those_of_the_calendar() {
        for (seconds, parts) in [
            (0.0, [0.0, 0.0, 4.0, 1.0, 1.0, 31.0, 1.0, 1970.0]),
            (1_709_210_096.0, [34.0, 12.0, 4.0, 29.0, 60.0, 29.0, 2.0, 2024.0]),
            (951_782_400.0, [0.0, 0.0, 2.0, 29.0, 60.0, 29.0, 2.0, 2000.0]),
            (1_735_689_599.0, [59.0, 23.0, 2.0, 31.0, 366.0, 31.0, 12.0, 2024.0]),
            (-1.0, [59.0, 23.0, 3.0, 31.0, 365.0, 31.0, 12.0, 1969.0]),
            (4_107_542_400.0, [0.0, 0.0, 1.0, 1.0, 60.0, 31.0, 3.0, 2100.0]),
        ] {
            let names =
                ["minute", "hour", "day_of_week", "day_of_month", "day_of_year", "days_in_month", "month", "year"];
            assert_eq!(names.map(|name| by_name(name).unwrap()(seconds)), parts, "{seconds}");
        }
        assert!(by_name("year").unwrap()(1e300).is_nan() && by_name("year").unwrap()(f64::NAN).is_nan());
        assert!(by_name("year").unwrap()(-3e13) < 0.0 && by_name("year").unwrap()(3e13) > 900_000.0);
    }
}
