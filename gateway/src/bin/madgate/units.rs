//! Numbers as people read them.

use std::time::Duration;

/// Bytes, in decimal units: `"268.4 MB"`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = float(bytes);
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A duration with three digits or so: `"0.41 s"`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 10.0 {
        format!("{seconds:.2} s")
    } else {
        format!("{seconds:.1} s")
    }
}

/// Bytes per time: `"650 MB/s"`.
pub(crate) fn rate(bytes: u64, took: Duration) -> String {
    let megabytes = mb_per_s(bytes, took);
    if megabytes >= 1000.0 {
        format!("{:.2} GB/s", megabytes / 1000.0)
    } else if megabytes >= 10.0 {
        format!("{megabytes:.0} MB/s")
    } else {
        format!("{megabytes:.2} MB/s")
    }
}

/// Megabytes per second.
pub(crate) fn mb_per_s(bytes: u64, took: Duration) -> f64 {
    per_second(bytes, took) / 1e6
}

/// A count per second.
pub(crate) fn per_second(count: u64, took: Duration) -> f64 {
    float(count) / took.as_secs_f64().max(1e-9)
}

/// A count with a comma every three digits.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A count with what is counted: `"1 node"`, `"2 nodes"`. The word takes an `s`.
pub(crate) fn counted(count: impl TryInto<u64>, what: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(count))
}

/// A count as a floating-point number, exact to 53 bits.
#[expect(
    clippy::cast_precision_loss,
    reason = "what is printed has far fewer digits"
)]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(999), "999 B");
        assert_eq!(size(1000), "1.0 kB");
        assert_eq!(size(999_999), "1.0 MB");
        assert_eq!(size(268_435_456), "268.4 MB");
        assert_eq!(size(u64::MAX), "18446744.1 TB");
        assert_eq!(rate(650_000_000, Duration::from_secs(1)), "650 MB/s");
        assert_eq!(rate(3_370_000_000, Duration::from_secs(1)), "3.37 GB/s");
        assert_eq!(duration(Duration::from_millis(414)), "0.41 s");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(123), "123");
        assert_eq!(counted(0_u64, "link"), "0 links");
        assert_eq!(counted(1_usize, "link"), "1 link");
        assert_eq!(counted(12_345_u32, "link"), "12,345 links");
    }
}
