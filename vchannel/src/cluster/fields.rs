//! Reading TOML tables key by key, so that each mistake knows its line.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use madgate_gtm::transit::Rate;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::duration::{format_duration, parse_duration};
use super::mistake::Report;
use super::rate::{format_rate, parse_rate};
use super::settings::RATE_BOUNDS;
use super::size::{format_size, parse_size};
use super::suggestion::closest;

/// One table of the file: the keys that have not been taken out yet.
#[derive(Debug)]
pub(crate) struct Fields<'t> {
    table: DeTable<'t>,
    /// Where the table stands.
    pub(crate) span: Range<usize>,
    title: &'static str,
    /// Keys that are there under names that are none: they are not missing too.
    misspelt: Vec<String>,
}

/// A value with the bytes that it was read from.
pub(crate) type At<T> = (T, Range<usize>);

impl<'t> Fields<'t> {
    /// Opens a table that may have the `known` keys; any other is a mistake.
    pub(crate) fn open(
        table: DeTable<'t>,
        span: Range<usize>,
        title: &'static str,
        known: &[&str],
        report: &mut Report,
    ) -> Self {
        let mut misspelt = Vec::new();
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let meant = closest(name, known.iter().copied());
                misspelt.extend(meant.map(str::to_owned));
                let help = report
                    .did_you_mean(name, known.iter().copied())
                    .unwrap_or_else(|| format!("the keys of {title} are {}", known.join(", ")));
                report.mistake(
                    &key.span(),
                    format!("unknown key `{name}` in {title}"),
                    help,
                );
            }
        }
        Self {
            table,
            span,
            title,
            misspelt,
        }
    }

    /// Opens a value that has to be a table.
    pub(crate) fn open_value(
        value: Spanned<DeValue<'t>>,
        title: &'static str,
        known: &[&str],
        report: &mut Report,
    ) -> Option<Self> {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(table) => Some(Self::open(table, span, title, known, report)),
            // `[[session]]`
            DeValue::Array(_) if title.starts_with('[') && !title.starts_with("[[") => {
                let message = format!("{title} is written as a list of tables");
                let help = format!("write {title}, with one bracket on each side, and once");
                report.mistake(&span, message, help);
                None
            }
            other => {
                wrong_type(&span, title, "a table", &other, report);
                None
            }
        }
    }

    /// Takes a value of any type.
    pub(crate) fn take(&mut self, key: &str) -> Option<Spanned<DeValue<'t>>> {
        self.table.remove(key)
    }

    /// Whether something is written for `[[key]]`, right or wrong.
    pub(crate) fn has_tables(&self, key: &str) -> bool {
        let is_empty = |value: &DeValue<'_>| value.as_array().is_some_and(|list| list.is_empty());
        self.table
            .get(key)
            .is_some_and(|value| !is_empty(value.get_ref()))
    }

    /// Takes an array of tables, `[[key]]`. A table alone, `[key]`, is a mistake, and read on as
    /// what was meant.
    pub(crate) fn take_tables(
        &mut self,
        key: &'static str,
        report: &mut Report,
    ) -> Vec<Spanned<DeValue<'t>>> {
        let Some(value) = self.take(key) else {
            return Vec::new();
        };
        let span = value.span();
        match value.into_inner() {
            DeValue::Array(tables) => tables.into_iter().collect(),
            other => {
                let help = format!("write [[{key}]], with two brackets on each side");
                report.mistake(
                    &span,
                    format!("`{key}` is {}, not a list of tables", name(&other)),
                    help,
                );
                match other {
                    DeValue::Table(_) => vec![Spanned::new(span, other)],
                    _ => Vec::new(),
                }
            }
        }
    }

    /// Takes a string.
    pub(crate) fn string(&mut self, key: &str, report: &mut Report) -> Option<At<String>> {
        let value = self.take(key)?;
        let span = value.span();
        match value.into_inner() {
            DeValue::String(text) => Some((text.into_owned(), span)),
            other => {
                wrong_type(&span, key, "a string", &other, report);
                None
            }
        }
    }

    /// Takes a string that has to be there, and not empty.
    pub(crate) fn required_string(&mut self, key: &str, report: &mut Report) -> Option<At<String>> {
        if !self.has(key) {
            self.missing(key, report);
            return None;
        }
        let (text, span) = self.string(key, report)?;
        if text.is_empty() {
            report.mistake(&span, format!("`{key}` of {} is empty", self.title), "");
            return None;
        }
        Some((text, span))
    }

    /// Whether a key is there that has not been taken.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Reports that a key is missing.
    pub(crate) fn missing(&self, key: &str, report: &mut Report) {
        if self.misspelt.iter().any(|meant| meant == key) {
            return;
        }
        report.mistake(
            &self.span,
            format!("{} has no `{key}`", self.title),
            format!("add a line `{key} = …`"),
        );
    }

    /// Takes true or false.
    pub(crate) fn flag(&mut self, key: &str, report: &mut Report) -> Option<bool> {
        let value = self.take(key)?;
        let span = value.span();
        match value.into_inner() {
            DeValue::Boolean(flag) => Some(flag),
            other => {
                wrong_type(&span, key, "true or false", &other, report);
                None
            }
        }
    }

    /// Takes a list of strings.
    pub(crate) fn strings(
        &mut self,
        key: &str,
        report: &mut Report,
    ) -> Option<At<Vec<At<String>>>> {
        let value = self.take(key)?;
        let span = value.span();
        let values = match value.into_inner() {
            DeValue::Array(values) => values,
            other => {
                let help = match &other {
                    DeValue::String(text) => format!("write {key} = [\"{text}\"]"),
                    _ => format!("write {key} = [\"…\", \"…\"]"),
                };
                let message = format!("`{key}` should be a list of strings, not {}", name(&other));
                report.mistake(&span, message, help);
                return None;
            }
        };
        let mut strings = Vec::new();
        for value in values {
            let at = value.span();
            match value.into_inner() {
                DeValue::String(text) => strings.push((text.into_owned(), at)),
                other => wrong_type(&at, key, "a list of strings", &other, report),
            }
        }
        Some((strings, span))
    }

    /// Takes a list of whole numbers within `bounds`.
    pub(crate) fn integers(
        &mut self,
        key: &str,
        bounds: &RangeInclusive<u64>,
        report: &mut Report,
    ) -> Option<At<Vec<u64>>> {
        let value = self.take(key)?;
        let span = value.span();
        let DeValue::Array(values) = value.into_inner() else {
            report.mistake(
                &span,
                format!("`{key}` should be a list of whole numbers"),
                "",
            );
            return None;
        };
        let numbers = values
            .into_iter()
            .filter_map(|value| integer(value, key, bounds, report))
            .collect();
        Some((numbers, span))
    }

    /// Takes a whole number within `bounds`.
    pub(crate) fn integer(
        &mut self,
        key: &str,
        bounds: &RangeInclusive<u64>,
        report: &mut Report,
    ) -> Option<u64> {
        let value = self.take(key)?;
        integer(value, key, bounds, report)
    }

    /// Takes a size (`"64KiB"`, or a number of bytes) within `bounds`.
    pub(crate) fn size(
        &mut self,
        key: &str,
        bounds: &RangeInclusive<u64>,
        report: &mut Report,
    ) -> Option<u64> {
        let value = self.take(key)?;
        let span = value.span();
        let size = match value.get_ref() {
            DeValue::String(text) => parse_size(text),
            DeValue::Integer(_) => whole_number(value.get_ref()),
            _ => None,
        };
        let allowed = || {
            format!(
                "write {} to {}",
                format_size(*bounds.start()),
                format_size(*bounds.end())
            )
        };
        match size {
            Some(size) if bounds.contains(&size) => Some(size),
            Some(size) => {
                let message = format!("`{key}` of {} is out of bounds", format_size(size));
                report.mistake(&span, message, allowed());
                None
            }
            None => {
                report.mistake(
                    &span,
                    format!("`{key}` should be a size like \"64KiB\""),
                    allowed(),
                );
                None
            }
        }
    }

    /// Takes a duration (`"30s"`) within `bounds`.
    pub(crate) fn duration(
        &mut self,
        key: &str,
        bounds: &RangeInclusive<Duration>,
        report: &mut Report,
    ) -> Option<Duration> {
        let value = self.take(key)?;
        let span = value.span();
        let allowed = || {
            format!(
                "write {} to {}",
                format_duration(*bounds.start()),
                format_duration(*bounds.end())
            )
        };
        match value.get_ref().as_str().and_then(parse_duration) {
            Some(duration) if bounds.contains(&duration) => Some(duration),
            Some(duration) => {
                let message = format!("`{key}` of {} is out of bounds", format_duration(duration));
                report.mistake(&span, message, allowed());
                None
            }
            None => {
                let message = format!("`{key}` should be a duration like \"30s\" or \"50us\"");
                report.mistake(&span, message, allowed());
                None
            }
        }
    }

    /// Takes a rate (`"300Mbit/s"`).
    pub(crate) fn rate(&mut self, key: &str, report: &mut Report) -> Option<Rate> {
        let value = self.take(key)?;
        let rate = value.get_ref().as_str().and_then(parse_rate);
        let is_allowed = |rate: &Rate| RATE_BOUNDS.contains(&rate.bytes_per_second());
        let message = match rate {
            Some(rate) if is_allowed(&rate) => return Some(rate),
            Some(rate) => format!("`{key}` of {} is out of bounds", format_rate(rate)),
            None => format!("`{key}` should be a rate like \"300Mbit/s\" or \"64MiB/s\""),
        };
        report.mistake(&value.span(), message, "write 8kbit/s to 8000Gbit/s");
        None
    }

    /// Takes one of a few words.
    pub(crate) fn word<T: Clone>(
        &mut self,
        key: &str,
        words: &[(&str, T)],
        report: &mut Report,
    ) -> Option<T> {
        let (text, span) = self.string(key, report)?;
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let known: Vec<String> = words
                .iter()
                .map(|(word, _)| format!("\"{word}\""))
                .collect();
            let message = format!("`{key}` cannot be \"{text}\"");
            report.mistake(&span, message, format!("write {}", known.join(" or ")));
        }
        found.map(|(_, value)| value.clone())
    }

    /// Takes every key that is left, each with its string, in the order of the keys.
    pub(crate) fn into_strings(self, report: &mut Report) -> Vec<(At<String>, At<String>)> {
        let mut strings = Vec::with_capacity(self.table.len());
        for (key, value) in self.table {
            let (key_span, value_span) = (key.span(), value.span());
            let key = key.into_inner().into_owned();
            match value.into_inner() {
                DeValue::String(text) => {
                    strings.push(((key, key_span), (text.into_owned(), value_span)));
                }
                other => wrong_type(&value_span, &key, "a string", &other, report),
            }
        }
        strings
    }
}

fn integer(
    value: Spanned<DeValue<'_>>,
    key: &str,
    bounds: &RangeInclusive<u64>,
    report: &mut Report,
) -> Option<u64> {
    let help = || {
        format!(
            "write a whole number, {} to {}",
            bounds.start(),
            bounds.end()
        )
    };
    match value.get_ref() {
        DeValue::Integer(written) => {
            let number = whole_number(value.get_ref()).filter(|number| bounds.contains(number));
            if number.is_none() {
                let message = format!("`{key}` cannot be {}", written.as_str());
                report.mistake(&value.span(), message, help());
            }
            number
        }
        other => {
            let message = format!("`{key}` should be a whole number, not {}", name(other));
            report.mistake(&value.span(), message, help());
            None
        }
    }
}

fn whole_number(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

fn wrong_type(
    span: &Range<usize>,
    key: &str,
    expected: &str,
    found: &DeValue<'_>,
    report: &mut Report,
) {
    report.mistake(
        span,
        format!("`{key}` should be {expected}, not {}", name(found)),
        "",
    );
}

fn name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
