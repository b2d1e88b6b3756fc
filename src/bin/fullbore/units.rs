//! Sizes and times as fio writes them, and numbers as people read them.

use std::time::Duration;

/// Parses a size: `4096`, `0x1000`, `128k`, `20m`, `1g`, `1gib`. As in fio, k is 1024.
pub fn size(text: &str) -> Result<u64, String> {
    let (number, suffix) = split(text)?;
    let unit = suffix.strip_suffix('b').unwrap_or(&suffix);
    let unit = unit.strip_suffix('i').filter(|unit| !unit.is_empty()).unwrap_or(unit);
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return Err(format!("no size ends in that: `{text}`; write 4096, 128k, 20m or 1g")),
    };
    number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is more than 64 bits hold"))
}

/// Parses a time: `10` and `10s` are seconds; `500ms`, `500msec`, `2m`, `1h`.
pub fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time: write 10, 10s, 2m or 500ms");
    let (number, suffix) = split(text).map_err(|_| wrong())?;
    let micros = match suffix.as_str() {
        "us" | "usec" => 1,
        "ms" | "msec" => 1_000,
        "" | "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return Err(wrong()),
    };
    let micros = number.checked_mul(micros).ok_or_else(|| format!("`{text}` is too long a time"))?;
    Ok(Duration::from_micros(micros))
}

/// Parses a switch that may carry a value, as fio's do: `--verify`, `--verify=0`.
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(format!("`{text}` is neither 1 nor 0")),
    }
}

/// The number and what is behind it, in small letters. Behind a hexadecimal one there is nothing: b is a digit, and fio would
/// pass over a k.
fn split(text: &str) -> Result<(u64, String), String> {
    let text = text.trim().to_ascii_lowercase();
    let (digits, radix) = text.strip_prefix("0x").map_or((text.as_str(), 10), |hex| (hex, 16));
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let (digits, suffix) = digits.split_at(end);
    if digits.is_empty() {
        return Err(format!("`{text}` does not start with a number; write whole numbers, like 128k or 10s"));
    }
    if radix == 16 && !suffix.is_empty() {
        return Err(format!("`{text}` is hexadecimal, and has no unit: write 0x{digits}, or like 128k"));
    }
    let number =
        u64::from_str_radix(digits, radix).map_err(|_| format!("`{digits}` is more than 64 bits hold"))?;
    Ok((number, suffix.trim().to_owned()))
}

/// A size for people and for fio: the largest unit that divides it, `20m`.
pub fn short(bytes: u64) -> String {
    for (shift, unit) in [(40, "t"), (30, "g"), (20, "m"), (10, "k")] {
        if bytes >= 1 << shift && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// A size for people: `20 MiB`, `1.5 GiB`.
pub fn human(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift {
            let whole = bytes.trailing_zeros() >= shift;
            let value = bytes as f64 / (1u64 << shift) as f64;
            return if whole { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") };
        }
    }
    format!("{bytes} bytes")
}

/// A duration for people, three digits: `431 us`, `12.3 ms`, `1.20 s`.
pub fn nanos(ns: u64) -> String {
    let value = ns as f64;
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (value / 1e3, "us"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$} {unit}")
}

/// The seconds left for people, as fio has them: `02m:30s`; `--` where nothing says it.
pub fn clock(left: Option<f64>) -> String {
    left.map_or("--".into(), |left| {
        let seconds = left.ceil() as u64;
        format!("{:02}m:{:02}s", seconds / 60, seconds % 60)
    })
}

/// A number of things: `1 lane`, `2 lanes`.
pub fn count(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,%+@^".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_fio_writes_them() {
        for (text, bytes) in
            [("4096", 4096), ("128k", 131_072), ("128K", 131_072), ("20m", 20 << 20), ("1g", 1 << 30)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for (text, bytes) in
            [("1gib", 1 << 30), ("1GiB", 1 << 30), ("2t", 2 << 40), ("4kb", 4096), ("512b", 512)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for (text, bytes) in [("1p", 1 << 50), ("4Ki", 4096), ("0x1000", 4096)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "k",
            "12x",
            "1.5g",
            "-1",
            "50%",
            "99999999999t",
            "1bib",
            "1ib",
            "0x",
            "0x10k",
            "99999999999999999999",
        ] {
            let error = size(text).expect_err(text);
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn times_as_fio_writes_them() {
        assert_eq!(time("10"), Ok(Duration::from_secs(10)));
        assert_eq!(time("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(time("1m"), Ok(Duration::from_secs(60)));
        assert_eq!(time("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!((time("250msec"), time("250000us")), (time("250ms"), time("250ms")));
        assert_eq!(
            (time("7usec"), time("1d")),
            (Ok(Duration::from_micros(7)), Ok(Duration::from_secs(86_400)))
        );
        assert!(time("x").is_err() && time("-1").is_err() && time("1.5s").is_err());
        assert!(time("1y").is_err() && time("").is_err() && time("99999999999999999h").is_err());
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!([short(20 << 20), short(1 << 30), short(5000)], ["20m", "1g", "5000"]);
        assert_eq!([human(1 << 30), human(3 << 29), human(100)], ["1 GiB", "1.5 GiB", "100 bytes"]);
        assert_eq!([count(1, "lane"), count(2, "lane")], ["1 lane", "2 lanes"]);
        assert_eq!([nanos(999), nanos(1_000), nanos(12_345_678)], ["999 ns", "1.00 us", "12.3 ms"]);
        assert_eq!([Some(149.5), None].map(clock), ["02m:30s", "--"]);
        assert_eq!([nanos(9_999_999), nanos(1_500_000_000)], ["10.0 ms", "1.50 s"]);
    }

    #[test]
    fn switches() {
        assert_eq!((switch("1"), switch("0")), (Ok(true), Ok(false)));
        assert!(switch("2").is_err());
    }
}
