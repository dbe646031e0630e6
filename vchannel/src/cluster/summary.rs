//! Many names in few words: `a[0-3], gw`.

use std::fmt::Write as _;

/// Writes names with runs of numbers as ranges, `limit` of those at most.
///
/// ```
/// let names = ["a8", "a9", "a10", "gw", "b00", "b01"];
/// assert_eq!(madgate_vchannel::cluster::compact_names(names, 9), "a[8-10], gw, b[00-01]");
/// assert_eq!(madgate_vchannel::cluster::compact_names(names, 1), "a[8-10] and 2 more");
/// ```
#[must_use]
pub fn compact_names<'a>(names: impl IntoIterator<Item = &'a str>, limit: usize) -> String {
    let mut runs: Vec<Run<'a>> = Vec::new();
    let mut unwritten = 0;
    let mut last: Option<Run<'a>> = None;
    for name in names {
        if last.as_mut().is_some_and(|run| run.extend(name)) {
            continue;
        }
        match last.replace(Run::new(name)) {
            Some(run) if runs.len() < limit => runs.push(run),
            Some(_) => unwritten += 1,
            None => {}
        }
    }
    match last {
        Some(run) if runs.len() < limit => runs.push(run),
        Some(_) => unwritten += 1,
        None => {}
    }
    let mut out = String::new();
    for (index, run) in runs.iter().enumerate() {
        out.push_str(if index == 0 { "" } else { ", " });
        run.write(&mut out);
    }
    if unwritten > 0 {
        // Writing to a `String` cannot fail.
        let _ = write!(out, " and {unwritten} more");
    }
    out
}

/// Names that differ in their last number only, which counts up by one.
struct Run<'a> {
    prefix: &'a str,
    digits: &'a str,
    suffix: &'a str,
    last: u64,
    length: u64,
}

impl<'a> Run<'a> {
    fn new(name: &'a str) -> Self {
        let end = name
            .rfind(|c: char| c.is_ascii_digit())
            .map_or(0, |at| at + 1);
        let start = name[..end]
            .trim_end_matches(|c: char| c.is_ascii_digit())
            .len();
        let digits = &name[start..end];
        let last = digits.parse().unwrap_or(u64::MAX);
        Self {
            prefix: &name[..start],
            digits,
            suffix: &name[end..],
            last,
            length: 1,
        }
    }

    fn extend(&mut self, name: &str) -> bool {
        let Some(next) = self.last.checked_add(1).filter(|_| !self.digits.is_empty()) else {
            return false;
        };
        let width = if self.digits.starts_with('0') {
            self.digits.len()
        } else {
            0
        };
        let number = name
            .strip_prefix(self.prefix)
            .and_then(|rest| rest.strip_suffix(self.suffix))
            .filter(|number| *number == format!("{next:0width$}"));
        if number.is_some() {
            self.last = next;
            self.length += 1;
        }
        number.is_some()
    }

    fn write(&self, out: &mut String) {
        let Self {
            prefix,
            digits,
            suffix,
            last,
            length,
        } = self;
        let width = digits.len();
        let _ = if *length == 1 {
            write!(out, "{prefix}{digits}{suffix}")
        } else {
            write!(out, "{prefix}[{digits}-{last:0width$}]{suffix}")
        };
    }
}
