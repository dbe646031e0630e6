//! Changing a value in the text of a cluster file, and nothing else of it.

use madgate_vchannel::cluster::{DEFAULT_SPIN, WaitPolicy, format_duration, format_size};
use toml_edit::{Array, DocumentMut, Item, TableLike};

use super::{Name, Value};

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

/// A waiting policy is two keys; the second one is a mistake beside any other policy.
fn set_wait(table: &mut dyn TableLike, policy: WaitPolicy) {
    let (word, spin) = match policy {
        WaitPolicy::Sleep => ("sleep", None),
        WaitPolicy::Spin => ("spin", None),
        WaitPolicy::Adaptive { spin } => ("adaptive", Some(spin)),
    };
    put(table, "wait", word.into());
    match spin {
        Some(spin) if spin != DEFAULT_SPIN || table.contains_key("spin") => {
            put(table, "spin", format_duration(spin).into());
        }
        Some(_) => {}
        None => drop(table.remove("spin")),
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
