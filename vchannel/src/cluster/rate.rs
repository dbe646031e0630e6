//! Rates as people write them: `"300Mbit/s"`.

use madgate_gtm::transit::Rate;

use super::size::{format_size, parse_size};

/// What follows a number of bits, and how many bits it stands for. Networks count in tens.
const BIT_UNITS: [(&str, u64); 4] = [
    ("Gbit/s", 1_000_000_000),
    ("Mbit/s", 1_000_000),
    ("kbit/s", 1_000),
    ("bit/s", 1),
];

/// Reads a rate: a whole number of bits (`bit/s`, `kbit/s`, `Mbit/s`, `Gbit/s`, powers of ten) or
/// a size of bytes (`B/s` to `TiB/s`, powers of two) each second. Blanks between number and unit
/// are allowed; the unit must be there. `None` when it is no rate, or less than a byte a second.
#[must_use]
pub fn parse_rate(text: &str) -> Option<Rate> {
    let text = text.trim();
    let in_bits = BIT_UNITS
        .iter()
        .find_map(|(unit, bits)| Some((text.strip_suffix(unit)?.trim_end(), *bits)));
    let bytes = match in_bits {
        Some((number, bits)) if number.bytes().all(|digit| digit.is_ascii_digit()) => {
            number.parse::<u64>().ok()?.checked_mul(bits)? / 8
        }
        Some(_) => return None,
        None => parse_size(text.strip_suffix("/s").filter(|size| size.ends_with('B'))?)?,
    };
    Rate::from_bytes_per_second(bytes)
}

/// Writes a rate with the largest unit that keeps it whole: in bits where that is shorter.
#[must_use]
pub fn format_rate(rate: Rate) -> String {
    let bytes = rate.bytes_per_second();
    let in_bytes = format!("{}/s", format_size(bytes));
    let Some(bits) = bytes.checked_mul(8) else {
        return in_bytes;
    };
    let in_bits = BIT_UNITS
        .iter()
        .find(|(_, unit)| bits.is_multiple_of(*unit))
        .map(|(name, unit)| format!("{}{name}", bits / unit));
    in_bits
        .filter(|in_bits| in_bits.len() <= in_bytes.len())
        .unwrap_or(in_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Option<u64> {
        parse_rate(text).map(Rate::bytes_per_second)
    }

    #[test]
    fn rates_in_bits_and_bytes() {
        assert_eq!(bytes("300Mbit/s"), Some(37_500_000));
        assert_eq!(bytes(" 1 Gbit/s "), Some(125_000_000));
        assert_eq!(bytes("8bit/s"), Some(1));
        assert_eq!(bytes("64KiB/s"), Some(65_536));
        assert_eq!(bytes("17 B/s"), Some(17));
        for bad in [
            "",
            "300",
            "300Mbit",
            "Mbit/s",
            "-1Mbit/s",
            "+1Mbit/s",
            "1.5Gbit/s",
            "7bit/s",
            "0B/s",
            "64/s",
            "64KB/s",
            "99999999999999999999bit/s",
            "18446744073709551615Gbit/s",
        ] {
            assert_eq!(bytes(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn formatting_reads_back() {
        for text in ["300Mbit/s", "1Gbit/s", "64KiB/s", "1MiB/s", "3B/s"] {
            let rate = parse_rate(text).unwrap();
            assert_eq!(parse_rate(&format_rate(rate)), Some(rate), "{text}");
        }
        for text in ["300Mbit/s", "1Gbit/s", "64KiB/s"] {
            assert_eq!(format_rate(parse_rate(text).unwrap()), text);
        }
        let most = Rate::from_bytes_per_second(u64::MAX).unwrap();
        assert_eq!(parse_rate(&format_rate(most)), Some(most));
    }
}
