//! Names with ranges in them: `a[00-63]` stands for 64 names.

use std::fmt::Write as _;

/// A text with ranges, each of which stands for every number in it.
///
/// `r[0-1]n[0-2]` is `r0n0 r0n1 r0n2 r1n0 r1n1 r1n2`: every combination, the last range
/// varies fastest. A range whose first number begins with a zero pads all its numbers to
/// that width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    pieces: Vec<PatternPiece>,
    lengths: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternPiece {
    Literal(Box<str>),
    Range { first: u64, width: usize },
}

/// Where the pattern stands, which decides what square brackets may mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatternKind {
    /// A node's name: brackets are ranges and nothing else.
    Name,
    /// An address: a bracket at the very start may also hold an IPv6 address.
    Address,
}

/// How the numbers of one pattern follow those of the pattern of a node's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alignment {
    /// Range by range, as in the name (or: every combination, in the same order).
    Combined,
    /// Every range advances with each node.
    Together,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong with a range, in words that follow "bad range: ".
    pub(crate) fn parse(text: &str, kind: PatternKind) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut lengths = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        let mut address_bracket_open = false;
        while let Some(at) = rest.find(['[', ']']) {
            let (before, from) = rest.split_at(at);
            literal.push_str(before);
            if let Some(inside) = from.strip_prefix('[') {
                let first_of_address =
                    kind == PatternKind::Address && pieces.is_empty() && literal.is_empty();
                let close = inside.find(['[', ']']);
                let content = close.filter(|at| inside[*at..].starts_with(']'));
                match content.map(|at| &inside[..at]) {
                    Some(range) if looks_like_range(range) => {
                        if !literal.is_empty() {
                            pieces.push(PatternPiece::Literal(literal.as_str().into()));
                            literal.clear();
                        }
                        let (piece, length) = parse_range(range)?;
                        pieces.push(piece);
                        lengths.push(length);
                        rest = &inside[range.len() + 1..];
                        continue;
                    }
                    _ if first_of_address => {
                        address_bracket_open = true;
                        literal.push('[');
                        rest = inside;
                    }
                    Some(other) => return Err(format!("`[{other}]` is not like `[0-3]`")),
                    None => return Err("`[` without its `]`".to_owned()),
                }
            } else if address_bracket_open {
                address_bracket_open = false;
                literal.push(']');
                rest = &from[1..];
            } else {
                return Err("`]` without its `[`".to_owned());
            }
        }
        literal.push_str(rest);
        if address_bracket_open {
            return Err("`[` without its `]`".to_owned());
        }
        if !literal.is_empty() {
            pieces.push(PatternPiece::Literal(literal.into()));
        }
        let pattern = Self { pieces, lengths };
        if pattern.checked_count().is_none() {
            return Err("stands for more names than can be counted".to_owned());
        }
        Ok(pattern)
    }

    /// How many texts it stands for.
    pub(crate) fn count(&self) -> u64 {
        self.checked_count().unwrap_or(u64::MAX)
    }

    fn checked_count(&self) -> Option<u64> {
        self.lengths
            .iter()
            .try_fold(1_u64, |count, length| count.checked_mul(*length))
    }

    /// How this pattern (of an address) follows `name`, or `None` when their lengths do not
    /// match.
    pub(crate) fn alignment(&self, name: &Self) -> Option<Alignment> {
        if self.lengths == name.lengths {
            return Some(Alignment::Combined);
        }
        let count = name.count();
        if !self.lengths.is_empty() && self.lengths.iter().all(|length| *length == count) {
            return Some(Alignment::Together);
        }
        (name.lengths.len() == 1 && self.count() == count).then_some(Alignment::Combined)
    }

    /// Writes the text at `index`, of those that it stands for, into `out`.
    pub(crate) fn expand(&self, index: u64, alignment: Alignment, out: &mut String) {
        out.clear();
        let mut remaining_count = self.count();
        let mut range = 0;
        for piece in &self.pieces {
            match piece {
                PatternPiece::Literal(text) => out.push_str(text),
                PatternPiece::Range { first, width } => {
                    let length = self.lengths[range];
                    range += 1;
                    remaining_count /= length;
                    let offset = match alignment {
                        Alignment::Combined => index / remaining_count % length,
                        Alignment::Together => index % length,
                    };
                    let number = first + offset;
                    // Writing to a `String` cannot fail.
                    let _ = write!(out, "{number:0width$}");
                }
            }
        }
    }
}

fn looks_like_range(text: &str) -> bool {
    text.contains('-')
        && text
            .bytes()
            .all(|byte| byte == b'-' || byte.is_ascii_digit())
}

/// Digits of a number in a range, with the zeros that it is padded with.
const LONGEST_NUMBER: usize = 20;

fn parse_range(text: &str) -> Result<(PatternPiece, u64), String> {
    let bad = || format!("`[{text}]` is not like `[0-3]`");
    let (first_text, last_text) = text.split_once('-').ok_or_else(bad)?;
    if first_text.len().max(last_text.len()) > LONGEST_NUMBER {
        return Err("a number of a range is too long".to_owned());
    }
    let first: u64 = first_text.parse().map_err(|_| bad())?;
    let last: u64 = last_text.parse().map_err(|_| bad())?;
    if last < first {
        return Err(format!("`[{text}]` runs backwards"));
    }
    let padded = first_text.len() > 1 && first_text.starts_with('0');
    let last_padded = last_text.len() > 1 && last_text.starts_with('0');
    if (padded || last_padded) && first_text.len() != last_text.len() {
        return Err(format!(
            "`[{text}]` is padded with zeros to two different widths"
        ));
    }
    let width = if padded { first_text.len() } else { 0 };
    let length = (last - first).checked_add(1).ok_or_else(bad)?;
    Ok((PatternPiece::Range { first, width }, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand_all(text: &str, kind: PatternKind) -> Vec<String> {
        let pattern = Pattern::parse(text, kind).unwrap();
        let mut out = String::new();
        (0..pattern.count())
            .map(|index| {
                pattern.expand(index, Alignment::Combined, &mut out);
                out.clone()
            })
            .collect()
    }

    #[test]
    fn ranges_expand_with_the_last_fastest() {
        assert_eq!(expand_all("gw", PatternKind::Name), ["gw"]);
        assert_eq!(
            expand_all("a[08-10]x", PatternKind::Name),
            ["a08x", "a09x", "a10x"]
        );
        assert_eq!(
            expand_all("a[9-11]", PatternKind::Name),
            ["a9", "a10", "a11"]
        );
        assert_eq!(
            expand_all("r[0-1]n[0-1]", PatternKind::Name),
            ["r0n0", "r0n1", "r1n0", "r1n1"]
        );
    }

    #[test]
    fn numbers_are_bounded() {
        for digits in [LONGEST_NUMBER, LONGEST_NUMBER + 1, 70_000] {
            let zeros = "0".repeat(digits);
            let text = format!("h[{zeros}-{zeros}]");
            let pattern = Pattern::parse(&text, PatternKind::Address);
            assert_eq!(pattern.is_ok(), digits == LONGEST_NUMBER);
        }
    }

    #[test]
    fn addresses_may_be_ipv6() {
        assert_eq!(
            expand_all("[fd00::[1-2]]:7100", PatternKind::Address),
            ["[fd00::1]:7100", "[fd00::2]:7100"]
        );
        assert_eq!(
            expand_all("[::1]:[7-8]", PatternKind::Address),
            ["[::1]:7", "[::1]:8"]
        );
        assert!(Pattern::parse("[::1]", PatternKind::Name).is_err());
    }

    #[test]
    fn bad_ranges_are_named() {
        for bad in [
            "a[3-0]",
            "a[0-3",
            "a0-3]",
            "a[]",
            "a[-3]",
            "a[0-]",
            "a[x-y]",
            "a[00-9]",
            "a[0-1-2]",
            "a[0-99999999999999999999]",
            "a[0-18446744073709551615]",
            "a[0-9999999999][0-9999999999]",
        ] {
            assert!(Pattern::parse(bad, PatternKind::Name).is_err(), "{bad}");
        }
        assert!(Pattern::parse("10.0.0.[x]:1", PatternKind::Address).is_err());
    }

    #[test]
    fn addresses_follow_names() {
        let name = Pattern::parse("a[0-3]", PatternKind::Name).unwrap();
        let at = |text: &str, index| {
            let pattern = Pattern::parse(text, PatternKind::Address).unwrap();
            let alignment = pattern.alignment(&name)?;
            let mut out = String::new();
            pattern.expand(index, alignment, &mut out);
            Some(out)
        };
        assert_eq!(at("10.0.0.[1-4]:7", 2).as_deref(), Some("10.0.0.3:7"));
        assert_eq!(
            at("10.0.0.[1-4]:[70-73]", 2).as_deref(),
            Some("10.0.0.3:72")
        );
        assert_eq!(at("10.0.[0-1].[0-1]:7", 2).as_deref(), Some("10.0.1.0:7"));
        assert_eq!(at("10.0.0.[1-5]:7", 2), None);
        assert_eq!(at("10.0.0.1:7", 2), None);
        let grid = Pattern::parse("r[0-1]n[0-2]", PatternKind::Name).unwrap();
        let ports = Pattern::parse("h:[10-15]", PatternKind::Address).unwrap();
        assert_eq!(ports.alignment(&grid), Some(Alignment::Together));
        let swapped = Pattern::parse("h[0-2]:[0-1]", PatternKind::Address).unwrap();
        assert_eq!(swapped.alignment(&grid), None);
    }
}
