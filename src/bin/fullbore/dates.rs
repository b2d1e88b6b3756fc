//! Times as dates, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// Days and seconds of the day since 1970, and the date as year, month and day.
fn calendar(time: SystemTime) -> (u64, u64, [u64; 3]) {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let (since, rest) = (seconds / 86_400, seconds % 86_400);
    // Days are counted from 1 March of a year 0 of 400-year eras, so that a leap day ends its year.
    let days = since + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (since, rest, [year + era * 400 + u64::from(month <= 2), month, day])
}

/// A time as RFC 3339 writes it, in UTC.
pub fn date(time: SystemTime) -> String {
    let (_, rest, [year, month, day]) = calendar(time);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// A time as ctime(3) writes it, in UTC.
pub fn ctime(time: SystemTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (since, rest, [year, month, day]) = calendar(time);
    let (weekday, month) = (DAYS[since as usize % 7], MONTHS[month as usize - 1]);
    format!("{weekday} {month} {day:2} {:02}:{:02}:{:02} {year}", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_are_right_over_leap_days() {
        let at = |seconds| date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(at(1_796_000_000), "2026-11-30T00:53:20Z");
        assert_eq!(ctime(UNIX_EPOCH + Duration::from_secs(1_796_007_447)), "Mon Nov 30 02:57:27 2026");
    }
}
