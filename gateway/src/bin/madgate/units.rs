//! Numbers as people read and write them.

use std::time::Duration;

use madgate_vchannel::cluster::parse_duration;

/// The shortest interval at which something is said, as each takes lines of a log.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// The longest.
const MAX_INTERVAL: Duration = Duration::from_secs(24 * 3600);

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

/// How often something is to be said.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text).ok_or("expected a time such as 500ms, 5s or 1min")?;
    if (MIN_INTERVAL..=MAX_INTERVAL).contains(&interval) {
        Ok(interval)
    } else {
        Err("expected 10ms at least, and a day at most".into())
    }
}

/// Bytes per time: `"650 MB/s"`.
pub(crate) fn rate(bytes: u64, took: Duration) -> String {
    bandwidth(mb_per_s(bytes, took))
}

/// Megabytes per second, with three digits and the unit that suits: `"650 MB/s"`, `"7.95 kB/s"`.
pub(crate) fn bandwidth(mb_per_s: f64) -> String {
    const UNITS: [&str; 3] = ["B/s", "kB/s", "MB/s"];
    let mut value = mb_per_s * 1e6;
    for unit in UNITS {
        if value < 999.5 {
            return format!("{} {unit}", three_digits(value));
        }
        value /= 1000.0;
    }
    // However many of them: those of the fastest links read best so.
    format!("{value:.2} GB/s")
}

/// A number with three digits, or all that it has before its point.
pub(crate) fn three_digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// How many a second: few with three digits, many with a comma every three digits.
pub(crate) fn frequency(per_second: f64) -> String {
    if per_second < 99.95 {
        three_digits(per_second)
    } else {
        grouped(whole(per_second))
    }
}

/// Rounded, as a count; what is negative or too large for one is the nearest.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates"
)]
pub(crate) fn whole(value: f64) -> u64 {
    value.round() as u64
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
    fn what_is_said_all_the_time_is_not_said() {
        assert_eq!(interval("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(interval("24h"), Ok(Duration::from_secs(86_400)));
        for text in ["0s", "9999us", "86401s", "often"] {
            assert!(interval(text).is_err(), "{text}");
        }
    }

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
        for (mb_per_s, expected) in [
            (0.0, "0 B/s"),
            (0.000_5, "500 B/s"),
            (0.007_95, "7.95 kB/s"),
            (0.999_4, "999 kB/s"),
            (0.999_6, "1.00 MB/s"),
            (43.21, "43.2 MB/s"),
            (999.6, "1.00 GB/s"),
            (12_345.0, "12.35 GB/s"),
        ] {
            assert_eq!(bandwidth(mb_per_s), expected);
        }
        for (per_second, expected) in [
            (0.0, "0"),
            (0.119, "0.12"),
            (7.5, "7.50"),
            (64.1, "64.1"),
            (12_345.4, "12,345"),
        ] {
            assert_eq!(frequency(per_second), expected);
        }
        assert_eq!(duration(Duration::from_millis(414)), "0.41 s");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(123), "123");
        assert_eq!(counted(0_u64, "link"), "0 links");
        assert_eq!(counted(1_usize, "link"), "1 link");
        assert_eq!(counted(12_345_u32, "link"), "12,345 links");
    }
}
