//! Sizes as people write them: `"64KiB"`.

const UNITS: [(&str, u64); 5] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// Reads a size: a whole number and `B`, `KiB`, `MiB`, `GiB` or `TiB`; without a unit it
/// counts bytes. Blanks between the two are allowed. `None` when it is no size, or does not
/// fit in 64 bits.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, factor) = UNITS
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))
        .unwrap_or((text, 1));
    let number = number.trim_end();
    if number.is_empty() || !number.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Writes a size with the largest unit that keeps it whole.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    UNITS
        .iter()
        .find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor))
        .map_or_else(
            || format!("{bytes}B"),
            |(unit, factor)| format!("{}{unit}", bytes / factor),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_and_without_units() {
        assert_eq!(parse_size("64KiB"), Some(65_536));
        assert_eq!(parse_size(" 256 MiB "), Some(256 << 20));
        assert_eq!(parse_size("17"), Some(17));
        assert_eq!(parse_size("0B"), Some(0));
        for bad in [
            "",
            "KiB",
            "-1",
            "+1",
            "1.5GiB",
            "64kb",
            "16777216TiB",
            "64 K",
        ] {
            assert_eq!(parse_size(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn formatting_reads_back() {
        for size in [0, 1, 1023, 1024, 65_536, 1 << 30, (1 << 30) + 1, u64::MAX] {
            assert_eq!(parse_size(&format_size(size)), Some(size));
        }
        assert_eq!(format_size(256 << 20), "256MiB");
    }
}
