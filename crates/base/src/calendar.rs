//! The Gregorian calendar, before its beginning too, as days since 1970-01-01.
//!
//! Computed by Howard Hinnant's algorithms ("chrono-Compatible Low-Level Date Algorithms"), which hold for every year that times of
//! 64 bits reach.
//!
//! May use: nothing. Must not know: how dates are written.

/// Days from 1970-01-01 to a date; months and days count from 1.
#[must_use]
pub fn day_of_date(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The year, month and day that is so many days from 1970-01-01.
#[must_use]
pub fn date_of_day(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Days of a month.
#[must_use]
pub fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_day_follows_the_one_before() {
        let (mut year, mut month, mut day) = (1600, 1, 1);
        for number in day_of_date(1600, 1, 1)..day_of_date(2401, 1, 1) {
            assert_eq!((date_of_day(number), day_of_date(year, month, day)), ((year, month, day), number));
            day += 1;
            if day > days_in_month(year, month) {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
        assert_eq!(day_of_date(1970, 1, 1), 0);
    }
}
