//! Changing a value in the text of a cluster file, and nothing else of it.

use madgate_vchannel::cluster::{DEFAULT_SPIN, WaitPolicy, format_duration, format_size};
use toml_edit::{Array, Document, DocumentMut, Item, TableLike, TomlError};

use super::{Name, Value};

/// The second key of a waiting policy.
const SPIN: &str = "spin";

/// Writes a value where its knob stands. Fails where the file has no such table, which a file
/// that could be read has.
pub(super) fn set(document: &mut DocumentMut, name: &Name, value: &Value) -> Result<(), String> {
    let section = name.knob.section;
    let table = if section.is_named() {
        named(document, section.prefix(), &name.of)
    } else {
        let item = document
            .entry(section.prefix())
            .or_insert_with(toml_edit::table);
        item.as_table_like_mut()
    };
    let table = table.ok_or_else(|| format!("the file has no place for {name}"))?;
    match value {
        Value::Wait(policy) => set_wait(table, *policy),
        value => put(table, name.knob.key, plain(value)),
    }
    Ok(())
}

/// The table of an array of tables that has this name. TOML writes such an array in two ways.
fn named<'a>(
    document: &'a mut DocumentMut,
    key: &str,
    name: &str,
) -> Option<&'a mut dyn TableLike> {
    let is_it = |table: &dyn TableLike| table.get("name").and_then(Item::as_str) == Some(name);
    match document.get_mut(key)? {
        Item::ArrayOfTables(tables) => tables
            .iter_mut()
            .find(|table| is_it(*table))
            .map(|table| -> &mut dyn TableLike { table }),
        item => item
            .as_array_mut()?
            .iter_mut()
            .filter_map(toml_edit::Value::as_inline_table_mut)
            .find(|table| is_it(*table))
            .map(|table| -> &mut dyn TableLike { table }),
    }
}

/// The text of a document in which these values were set. Keys that make no sense beside them go;
/// a comment on the line of such a key stays where it was, as a line of its own.
pub(super) fn text(
    document: &DocumentMut,
    values: &[(&Name, &Value)],
) -> Result<String, TomlError> {
    let mut text = document.to_string();
    for (name, value) in values {
        let looks = matches!(value, Value::Wait(WaitPolicy::Adaptive { .. }));
        if matches!(value, Value::Wait(_)) && !looks {
            text = without(&text, name.knob.section.prefix(), SPIN)?;
        }
    }
    Ok(text)
}

/// A text whose lines end as those of `original` do, if they all end in one way.
pub(super) fn with_line_ends_of(original: &str, text: String) -> String {
    let ends = original.matches('\n').count();
    let is_crlf = ends > 0 && original.matches("\r\n").count() == ends;
    if is_crlf {
        text.replace("\r\n", "\n").replace('\n', "\r\n")
    } else {
        text
    }
}

/// A text without a key of a section, if it has it.
fn without(text: &str, section: &str, key: &str) -> Result<String, TomlError> {
    let document = Document::parse(text)?;
    let table = document.get(section).and_then(Item::as_table_like);
    let Some((written, item)) = table.and_then(|table| table.get_key_value(key)) else {
        return Ok(text.to_owned());
    };
    let (Some(name), Some(value)) = (written.span(), item.span()) else {
        return Ok(text.to_owned());
    };
    let start = text[..name.start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[value.end..]
        .find('\n')
        .map_or(text.len(), |at| value.end + at + 1);
    let before = &text[start..name.start];
    let behind = text[value.end..end].trim_start_matches([' ', '\t', ',']);
    let is_alone = before.trim().is_empty() || before.ends_with('.');
    let kept = match behind.trim_end() {
        "" => String::new(),
        comment if comment.starts_with('#') => {
            let indent = &before[..before.len() - before.trim_start().len()];
            format!("{indent}{behind}")
        }
        _ => return without_in_line(text, section, key),
    };
    if !is_alone {
        return without_in_line(text, section, key);
    }
    Ok([&text[..start], &kept, &text[end..]].concat())
}

/// The same of a key that shares its line with others.
fn without_in_line(text: &str, section: &str, key: &str) -> Result<String, TomlError> {
    let mut document: DocumentMut = text.parse()?;
    let table = document.get_mut(section).and_then(Item::as_table_like_mut);
    if let Some(table) = table {
        drop(table.remove(key));
    }
    Ok(document.to_string())
}

/// A waiting policy is two keys; the second one is a mistake beside any other policy, and goes
/// when the [`text`] is made.
fn set_wait(table: &mut dyn TableLike, policy: WaitPolicy) {
    let (word, spin) = match policy {
        WaitPolicy::Sleep => ("sleep", None),
        WaitPolicy::Spin => ("spin", None),
        WaitPolicy::Adaptive { spin } => ("adaptive", Some(spin)),
    };
    put(table, "wait", word.into());
    if let Some(spin) = spin
        && (spin != DEFAULT_SPIN || table.contains_key(SPIN))
    {
        put(table, SPIN, format_duration(spin).into());
    }
}

fn plain(value: &Value) -> toml_edit::Value {
    match value {
        // Counts are far below what a TOML integer holds; a larger one is refused as one.
        Value::Count(count) => i64::try_from(*count).unwrap_or(i64::MAX).into(),
        Value::Size(bytes) => format_size(*bytes).into(),
        Value::Flag(flag) => (*flag).into(),
        Value::Pin(processors) => {
            let processors = processors
                .iter()
                .map(|processor| i64::try_from(*processor).unwrap_or(i64::MAX));
            processors.collect::<Array>().into()
        }
        Value::Word(_) | Value::Wait(_) => value.to_string().into(),
    }
}

/// Writes a value; one that is there keeps the space and the comment around it.
fn put(table: &mut dyn TableLike, key: &str, mut value: toml_edit::Value) {
    match table.get_mut(key) {
        Some(item) => {
            if let Some(old) = item.as_value() {
                *value.decor_mut() = old.decor().clone();
            }
            *item = Item::Value(value);
        }
        None => drop(table.insert(key, Item::Value(value))),
    }
}
