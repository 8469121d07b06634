//! The proleptic Gregorian calendar, on days and microseconds since 1970.

/// Microseconds of a day.
pub(crate) const DAY: i64 = 86_400_000_000;

/// A moment, split into its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    pub year: i64,
    /// From 1.
    pub month: i64,
    /// From 1.
    pub day: i64,
    /// Microseconds since midnight.
    pub time: i64,
}

impl Moment {
    pub(crate) fn new(micros: i64) -> Self {
        let (days, time) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
        let (year, month, day) = civil(days);
        Self { year, month, day, time }
    }

    /// Returns the microseconds since 1970; `None` beyond 290 000 years.
    pub(crate) fn micros(self) -> Option<i64> {
        days(self.year, self.month, self.day).checked_mul(DAY)?.checked_add(self.time)
    }

    /// Returns the months since the year 0.
    pub(crate) fn months(self) -> i64 {
        self.year * 12 + self.month - 1
    }

    /// Returns the moment `months` later, on the last day of the month at most.
    pub(crate) fn plus_months(self, months: i64) -> Self {
        let total = self.months() + months;
        let (year, month) = (total.div_euclid(12), total.rem_euclid(12) + 1);
        Self { year, month, day: self.day.min(days_of_month(year, month)), ..self }
    }

    /// Returns the day of the year, from 1.
    pub(crate) fn day_of_year(self) -> i64 {
        days(self.year, self.month, self.day) - days(self.year, 1, 1) + 1
    }

    /// Returns the day of the week: 0 is Sunday.
    pub(crate) fn weekday(self) -> i64 {
        weekday(days(self.year, self.month, self.day))
    }
}

/// Returns the days since 1970 of a date (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
pub(crate) fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Returns the year, month and day of a number of days since 1970.
pub(crate) fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Returns the day of the week of a number of days since 1970: 0 is Sunday.
pub(crate) fn weekday(days: i64) -> i64 {
    (days + 4).rem_euclid(7)
}

/// Returns the number of days of a month.
pub(crate) fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns true if a date exists.
pub(crate) fn exists(year: i64, month: i64, day: i64) -> bool {
    (1..=12).contains(&month) && (1..=days_of_month(year, month)).contains(&day)
}

/// Returns the days since 1970 of a date that exists and that DATE has.
pub(crate) fn date(year: impl Into<i64>, month: impl Into<i64>, day: impl Into<i64>) -> Option<i32> {
    let (year, month, day) = (year.into(), month.into(), day.into());
    exists(year, month, day).then(|| i32::try_from(days(year, month, day)).ok())?
}

/// Returns the ISO year and week of a number of days since 1970.
pub(crate) fn iso_week(days_since: i64) -> (i64, i64) {
    let monday_based = (weekday(days_since) + 6) % 7;
    let thursday = days_since - monday_based + 3;
    let (year, _, _) = civil(thursday);
    (year, (thursday - days(year, 1, 1)) / 7 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_five_centuries_is_found_again() {
        for n in days(1700, 1, 1)..days(2200, 1, 1) {
            let (year, month, day) = civil(n);
            assert_eq!(days(year, month, day), n);
            assert!(exists(year, month, day));
        }
        assert_eq!([date(1970, 1, 2), date(2023, 2, 29), date(2024, 13, 1)], [Some(1), None, None]);
        assert_eq!((days(1970, 1, 1), weekday(0)), (0, 4));
    }

    #[test]
    fn weeks_follow_iso_8601() {
        assert_eq!(iso_week(days(2024, 12, 30)), (2025, 1));
        assert_eq!(iso_week(days(2021, 1, 3)), (2020, 53));
        assert_eq!(iso_week(days(2024, 1, 1)), (2024, 1));
    }

    #[test]
    fn months_end_on_their_last_day() {
        let at = Moment::new(days(2024, 1, 31) * DAY + 5);
        assert_eq!(at.plus_months(1), Moment { year: 2024, month: 2, day: 29, time: 5 });
        assert_eq!(at.plus_months(-11).micros(), Some(days(2023, 2, 28) * DAY + 5));
    }
}
