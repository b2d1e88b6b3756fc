//! Values in fio's spelling. Each refusal says what to write.

use crate::units;

/// Bytes, or a part of what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    Bytes(u64),
    Percent(u64),
}

impl Amount {
    /// Of so many bytes; a percentage is rounded down to whole 4k, as fio does to whole blocks.
    pub fn of(self, bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (u128::from(bytes) * u128::from(percent) / 100) as u64 / 4096 * 4096,
        }
    }
}

pub fn amount(text: &str) -> Result<Amount, String> {
    match text.strip_suffix('%') {
        Some(percent) => match percent.parse() {
            Ok(percent @ 1..=100) => Ok(Amount::Percent(percent)),
            _ => Err(format!("`{text}` is no percentage: write 1% to 100%")),
        },
        None => units::size(text).map(Amount::Bytes),
    }
}

/// A whole number; as in fio it may end as sizes do.
pub fn int(text: &str) -> Result<u64, String> {
    units::size(text).map_err(|_| format!("`{text}` is no whole number: write one like 8"))
}

/// An int within bounds.
pub fn int_in(text: &str, least: u64, most: u64) -> Result<u64, String> {
    match int(text)? {
        number if number < least || number > most => {
            Err(format!("{number} is out of range: give {least} to {most}"))
        }
        number => Ok(number),
    }
}

/// One value for reads, and one for writes; the second is the first unless it is there. An empty one is none.
pub fn pair<T: Copy>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<[Option<T>; 2], String> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let one = |part: &str| if part.is_empty() { Ok(None) } else { parse(part).map(Some) };
    match parts[..] {
        [both] => one(both).map(|value| [value, value]),
        [read, write] | [read, write, _] => Ok([one(read)?, one(write)?]),
        _ => Err(format!("`{text}` has too many parts: write one for reads and one for writes, like 10m,5m")),
    }
}

/// Numbers and ranges of them: `0-3,8`. Ascending, each once.
pub fn numbers(text: &str) -> Result<Vec<u32>, String> {
    const MOST: u32 = 1 << 16;
    let wrong = || format!("`{text}` is no list of numbers: write one like 0-3,8");
    let mut all = Vec::new();
    for part in text.split([',', ':']) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let parse = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        let (first, last) = (parse(first)?, parse(last)?);
        if first > last || last >= MOST {
            return Err(wrong());
        }
        all.extend(first..=last);
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Percentiles: `50:99:99.9`, ascending.
pub fn percentiles(text: &str) -> Result<Vec<f64>, String> {
    let parse = |part: &str| match part.trim().parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 100.0 => Ok(value),
        _ => Err(format!("`{part}` is no percentile: write a list like 50:99:99.9")),
    };
    let mut all = text.split([':', ',']).map(parse).collect::<Result<Vec<_>, _>>()?;
    all.sort_by(f64::total_cmp);
    all.dedup();
    if all.len() > 20 { Err("more than 20 percentiles: leave some out".into()) } else { Ok(all) }
}

/// One of some words.
pub fn word<'a>(text: &str, words: &[&'a str]) -> Result<&'a str, String> {
    let found = words.iter().find(|word| **word == text);
    found.copied().ok_or_else(|| format!("`{text}` is none of {}", words.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_may_be_parts() {
        assert_eq!(amount("1m"), Ok(Amount::Bytes(1 << 20)));
        assert_eq!(amount("50%").map(|half| half.of(10 << 20)), Ok(5 << 20));
        assert_eq!(amount("33%").map(|third| third.of(100_000)), Ok(32_768));
        assert!(amount("0%").is_err() && amount("101%").is_err() && amount("x%").is_err());
    }

    #[test]
    fn pairs_are_of_reads_and_writes() {
        assert_eq!(pair("8", int), Ok([Some(8), Some(8)]));
        assert_eq!(pair("8,4", int), Ok([Some(8), Some(4)]));
        assert_eq!(pair("8,", int), Ok([Some(8), None]));
        assert_eq!(pair(",4", int), Ok([None, Some(4)]));
        assert!(pair("1,2,3,4", int).is_err() && pair("x", int).is_err());
    }

    #[test]
    fn lists_of_numbers_have_ranges() {
        assert_eq!(numbers("0-2,8,1"), Ok(vec![0, 1, 2, 8]));
        assert!(
            numbers("3-1").is_err()
                && numbers("").is_err()
                && numbers("0-99999999").is_err()
                && numbers("a").is_err()
        );
    }

    #[test]
    fn percentiles_ascend() {
        assert_eq!(percentiles("99.9:50:99"), Ok(vec![50.0, 99.0, 99.9]));
        assert!(percentiles("101").is_err() && percentiles("0").is_err() && percentiles("").is_err());
    }

    #[test]
    fn numbers_and_words() {
        assert_eq!((int("0x10"), int(" 7 "), int("7k")), (Ok(16), Ok(7), Ok(7168)));
        assert!(int("7x").is_err() && int("").is_err() && int_in("9", 1, 8).unwrap_err().contains("1 to 8"));
        assert_eq!(word("b", &["a", "b"]), Ok("b"));
        assert!(word("c", &["a", "b"]).unwrap_err().contains("a, b"));
    }
}
