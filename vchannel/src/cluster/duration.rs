//! Durations as people write them: `"30s"`.

use std::time::Duration;

const HOUR_SECONDS: u64 = 3600;

/// Reads a duration: a whole number and `us`, `ms`, `s`, `min` or `h`. Blanks between the two are
/// allowed; the unit must be there. `None` when it is no duration.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().ok()?;
    match unit.trim_start() {
        "us" | "µs" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "min" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(HOUR_SECONDS).map(Duration::from_secs),
        _ => None,
    }
}

/// Writes a duration with the largest unit that keeps it whole (to the microsecond); minutes are
/// written as seconds.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let micros = duration.as_micros();
    if micros != 0 && micros.is_multiple_of(1_000_000 * u128::from(HOUR_SECONDS)) {
        format!("{}h", duration.as_secs() / HOUR_SECONDS)
    } else if micros.is_multiple_of(1_000_000) {
        format!("{}s", micros / 1_000_000)
    } else if micros.is_multiple_of(1_000) {
        format!("{}ms", micros / 1_000)
    } else {
        format!("{micros}us")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_their_unit() {
        assert_eq!(parse_duration("30s"), Some(Duration::from_secs(30)));
        assert_eq!(parse_duration("500 ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_duration("50us"), Some(Duration::from_micros(50)));
        assert_eq!(parse_duration("2min"), Some(Duration::from_secs(120)));
        assert_eq!(parse_duration("24h"), Some(Duration::from_secs(86_400)));
        let huge = "99999999999999999999s";
        for bad in [
            "",
            "30",
            "s",
            "-1s",
            "1.5s",
            huge,
            "9999999999999999h",
            "1d",
        ] {
            assert_eq!(parse_duration(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn formatting_reads_back() {
        for micros in [
            0,
            1,
            50,
            1_000,
            1_500,
            1_000_000,
            90_000_000,
            3_600_000_000,
            5_400_000_000,
        ] {
            let duration = Duration::from_micros(micros);
            assert_eq!(parse_duration(&format_duration(duration)), Some(duration));
        }
    }
}
