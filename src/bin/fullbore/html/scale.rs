//! Where a value lies on an axis, and which of them are named.

/// From the least to the most of an axis, as a share of its length.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    least: f64,
    most: f64,
    log: bool,
}

impl Scale {
    /// An axis from nothing, or, where powers are equally far apart, from the least value.
    pub fn over(values: impl Iterator<Item = f64>, log: bool) -> Self {
        let usable = values.filter(|value| value.is_finite() && (!log || *value > 0.0));
        let (low, high) = usable.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        if low > high {
            return Self { least: if log { 1.0 } else { 0.0 }, most: if log { 10.0 } else { 1.0 }, log };
        }
        if log {
            // One value alone is in the middle.
            let (least, most) = if high / low < 1.01 { (low / 2.0, high * 2.0) } else { (low, high) };
            return Self { least, most, log };
        }
        Self { least: 0.0, most: if high > 0.0 { high } else { 1.0 }, log }
    }

    /// As far as the next value with a name, so that the highest has room above it.
    pub fn rounded(self) -> Self {
        let step = step(self.most, 5.0);
        Self { most: (self.most / step - 1e-9).ceil() * step, ..self }
    }

    pub fn place(self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.least) / self.least).ln() / (self.most / self.least).ln()
        } else {
            (value - self.least) / (self.most - self.least)
        };
        share.clamp(0.0, 1.0)
    }

    /// The values that are named.
    pub fn ticks(self) -> Vec<f64> {
        if !self.log {
            let step = step(self.most, 5.0);
            return (0..=(self.most / step + 1e-9) as u32).map(|n| f64::from(n) * step).collect();
        }
        let decades = (self.most / self.least).log10();
        let parts: &[f64] = if decades < 1.5 {
            &[1.0, 2.0, 3.0, 5.0, 7.0]
        } else if decades < 3.5 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let (from, to) = (self.least.log10().floor() as i32, self.most.log10().ceil() as i32);
        let all = (from..=to).flat_map(|power| parts.iter().map(move |part| part * 10f64.powi(power)));
        all.filter(|tick| (self.least * 0.999..=self.most * 1.001).contains(tick)).collect()
    }
}

/// 1, 2 or 5 with noughts: so that about so many fit.
fn step(most: f64, parts: f64) -> f64 {
    let raw = most / parts;
    let power = 10f64.powf(raw.log10().floor());
    let part = [1.0, 2.0, 5.0, 10.0].into_iter().find(|part| part * power >= raw * 0.999).unwrap_or(10.0);
    part * power
}

/// A number with as few digits as tell it from others of its size.
pub fn short(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        // Three that count: 0.0005 and 0.001 are not the same tick.
        size => (2.0 - size.log10().floor()).min(9.0) as usize,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}
