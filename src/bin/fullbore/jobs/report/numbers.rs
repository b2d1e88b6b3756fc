//! Numbers as fio writes them for people: four digits and a prefix.

/// What stands behind a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    None,
    Byte,
    BytePerSecond,
}

/// `1082MiB/s`, `16.0KiB`, `12.3k`: at most four digits, in powers of 1024 or of 1000.
pub fn short(number: u64, binary: bool, unit: Unit) -> String {
    within(number, 4, binary, unit)
}

/// With at most so many digits.
pub fn within(mut number: u64, most: usize, binary: bool, unit: Unit) -> String {
    let step: u64 = if binary { 1024 } else { 1000 };
    let digits = |number: u64| number.to_string().len();
    let (mut power, mut rest) = (0, 0);
    while digits(number) > most && power < 6 {
        rest = number % step;
        number /= step;
        power += 1;
    }
    let prefix = match (power, binary) {
        (0, _) => String::new(),
        (_, true) => format!("{}i", ["", "K", "M", "G", "T", "P", "E"][power]),
        (_, false) => ["", "k", "M", "G", "T", "P", "E"][power].to_owned(),
    };
    let unit = match unit {
        Unit::None => "",
        Unit::Byte => "B",
        Unit::BytePerSecond => "B/s",
    };
    let room = most - digits(number).min(most);
    if power == 0 || room < 2 {
        let up = u64::from(power > 0 && rest >= step / 2);
        return format!("{}{prefix}{unit}", number + up);
    }
    let decimals = room - 1;
    let scale = 10u64.pow(decimals as u32);
    // Rounded, and what comes to a whole is carried (fio drops it there).
    let part = (rest * scale + step / 2) / step;
    format!("{}.{:0decimals$}{prefix}{unit}", number + part / scale, part % scale)
}

/// The unit in which times are shown: its name, and what they are divided by.
pub fn unit_of(least: u64, most: u64, deviation: f64) -> (&'static str, f64) {
    match () {
        () if least > 2_000_000 && most > 99_999_999 && deviation > 1_000_000.0 => ("msec", 1e6),
        () if least > 2_000 && most > 99_999 && deviation > 1_000.0 => ("usec", 1e3),
        () => ("nsec", 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_that_fio_prints() {
        for (number, binary, unit, text) in [
            (131_072, true, Unit::Byte, "128KiB"),
            (16_384, true, Unit::Byte, "16.0KiB"),
            (8_192, true, Unit::Byte, "8192B"),
            (1 << 20, true, Unit::Byte, "1024KiB"),
            (1082 << 20, true, Unit::BytePerSecond, "1082MiB/s"),
            (10_800_000, false, Unit::BytePerSecond, "10.8MB/s"),
            (10_800_000, true, Unit::BytePerSecond, "10.3MiB/s"),
            (33_554_432, false, Unit::Byte, "33.6MB"),
            (20_971_520, false, Unit::BytePerSecond, "21.0MB/s"),
            (8658, false, Unit::None, "8658"),
            (12_345, false, Unit::None, "12.3k"),
            (123_567, false, Unit::None, "124k"),
            (0, true, Unit::Byte, "0B"),
        ] {
            assert_eq!(short(number, binary, unit), text, "{number}");
        }
        // fio's times have six digits.
        for (number, text) in [(117_327, "117327"), (4_089_512, "4089.5k"), (9_229_160, "9229.2k")] {
            assert_eq!(within(number, 6, false, Unit::None), text);
        }
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        assert_eq!(unit_of(1_000, 500_000, 9_000.0).0, "nsec");
        assert_eq!(unit_of(188_000, 13_656_000, 633_000.0).0, "usec");
        assert_eq!(unit_of(9_000_000, 200_000_000, 5_000_000.0).0, "msec");
    }
}
