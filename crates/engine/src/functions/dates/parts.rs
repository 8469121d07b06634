//! Parts of dates and timestamps, by their names in DuckDB and PostgreSQL.

use crate::calendar::{self, DAY, Moment};

/// A part of a date or timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Millennium,
    Century,
    Decade,
    Year,
    Isoyear,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    /// A part that is only read, by the name of the macro for it.
    Read(&'static str),
}

impl Part {
    /// Returns the part of a name in any case, singular, plural or short.
    pub(crate) fn parse(name: &str) -> Option<Part> {
        Some(match name.trim().to_lowercase().as_str() {
            "millennium" | "millennia" | "mil" | "mils" => Part::Millennium,
            "century" | "centuries" | "cent" | "c" => Part::Century,
            "decade" | "decades" | "dec" | "decs" => Part::Decade,
            "year" | "years" | "yr" | "yrs" | "y" => Part::Year,
            "isoyear" => Part::Isoyear,
            "quarter" | "quarters" => Part::Quarter,
            "month" | "months" | "mon" | "mons" => Part::Month,
            "week" | "weeks" | "w" | "weekofyear" => Part::Week,
            "day" | "days" | "d" | "dayofmonth" => Part::Day,
            "hour" | "hours" | "hr" | "hrs" | "h" => Part::Hour,
            "minute" | "minutes" | "min" | "mins" | "m" => Part::Minute,
            "second" | "seconds" | "sec" | "secs" | "s" => Part::Second,
            "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" => Part::Millisecond,
            "microsecond" | "microseconds" | "us" | "usec" | "usecs" => Part::Microsecond,
            "dayofweek" | "weekday" | "dow" => Part::Read("dow"),
            "isodow" => Part::Read("isodow"),
            "dayofyear" | "doy" => Part::Read("doy"),
            "yearweek" => Part::Read("yearweek"),
            "era" => Part::Read("era"),
            "epoch" => Part::Read("epoch"),
            "julian" => Part::Read("julian"),
            _ => return None,
        })
    }

    /// Returns the name of the function that reads the part.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Millennium => "millennium",
            Part::Century => "century",
            Part::Decade => "decade",
            Part::Year => "year",
            Part::Isoyear => "isoyear",
            Part::Quarter => "quarter",
            Part::Month => "month",
            Part::Week => "week",
            Part::Day => "day",
            Part::Hour => "hour",
            Part::Minute => "minute",
            Part::Second => "second",
            Part::Millisecond => "millisecond",
            Part::Microsecond => "microsecond",
            Part::Read(name) => name,
        }
    }

    /// Returns the months of the part; `None` if it is not a number of months.
    fn months(self) -> Option<i64> {
        Some(match self {
            Part::Millennium => 12_000,
            Part::Century => 1200,
            Part::Decade => 120,
            Part::Year | Part::Isoyear => 12,
            Part::Quarter => 3,
            Part::Month => 1,
            _ => return None,
        })
    }

    /// Returns the microseconds of the part; `None` if they differ.
    fn micros(self) -> Option<i64> {
        Some(match self {
            Part::Week => 7 * DAY,
            Part::Day => DAY,
            Part::Hour => 3_600_000_000,
            Part::Minute => 60_000_000,
            Part::Second => 1_000_000,
            Part::Millisecond => 1000,
            Part::Microsecond => 1,
            _ => return None,
        })
    }

    /// Returns the number of boundaries of the part between two moments.
    pub(crate) fn boundaries(self, from: i64, to: i64) -> Option<i64> {
        if self == Part::Isoyear {
            let year = |micros: i64| calendar::iso_week(micros.div_euclid(DAY)).0;
            return Some(year(to) - year(from));
        }
        if let Some(months) = self.months() {
            let number = |micros| Moment::new(micros).months().div_euclid(months);
            return Some(number(to) - number(from));
        }
        if self == Part::Week {
            // DuckDB counts days, not Mondays.
            return Some(Part::Day.boundaries(from, to)? / 7);
        }
        let unit = self.micros()?;
        let number = |micros: i64| micros.div_euclid(unit);
        Some(number(to) - number(from))
    }

    /// Returns the number of complete parts between two moments.
    pub(crate) fn complete(self, from: i64, to: i64) -> Option<i64> {
        let Some(months) = self.months() else { return Some((to - from) / self.micros()?) };
        if to < from {
            return Some(-self.complete(to, from)?);
        }
        let (start, end) = (Moment::new(from), Moment::new(to));
        let mut number = end.months() - start.months();
        if start.plus_months(number).micros()? > to {
            number -= 1;
        }
        Some(number / months)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(year: i64, month: i64, day: i64) -> i64 {
        calendar::days(year, month, day) * DAY
    }

    #[test]
    fn boundaries_and_complete_parts_differ() {
        let (from, to) = (at(2024, 1, 31), at(2024, 2, 1));
        assert_eq!((Part::Month.boundaries(from, to), Part::Month.complete(from, to)), (Some(1), Some(0)));
        let weeks = |day| Part::Week.boundaries(at(2024, 1, 8), at(2024, 1, day));
        assert_eq!([weeks(14), weeks(15), weeks(2), weeks(1)], [Some(0), Some(1), Some(0), Some(-1)]);
        assert_eq!(Part::Month.complete(at(2024, 1, 31), at(2024, 2, 29)), Some(1));
        assert_eq!(Part::Month.complete(at(2024, 2, 29), at(2024, 1, 31)), Some(-1));
        assert_eq!(Part::Year.complete(at(2000, 5, 5), at(2024, 5, 4)), Some(23));
    }
}
