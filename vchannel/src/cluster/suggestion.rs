//! Names that nothing has, and what they were probably meant to be.

use std::fmt;

use super::MAX_NAME_BYTES;

/// A name that the cluster file does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    /// What was asked for: "node" or "channel".
    kind: &'static str,
    name: String,
    /// A name of this kind that is close to it.
    closest: Option<String>,
}

impl UnknownName {
    /// Of this kind there are only the `known`.
    pub(super) fn new<'a>(
        kind: &'static str,
        name: &str,
        known: impl Iterator<Item = &'a str>,
    ) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            closest: closest(name, known).map(str::to_owned),
        }
    }

    /// The name that was asked for.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, .. } = self;
        write!(formatter, "the cluster file has no {kind} {name:?}; ")?;
        match &self.closest {
            Some(closest) => write!(formatter, "did you mean {closest:?}?"),
            None if name.contains('[') => write!(formatter, "name one {kind}, not a range of them"),
            None => write!(formatter, "`madgate check` lists the {kind}s that it has"),
        }
    }
}

impl std::error::Error for UnknownName {}

/// `did you mean "left"?`, where one of `known` is close to `name`.
pub(crate) fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    closest(name, known).map(|other| format!("did you mean \"{other}\"?"))
}

/// What of `known` the name was probably meant to be.
pub(crate) fn closest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let close = |other: &str| {
        let limit = 1 + name.len().min(other.len()) / 4;
        (other.len().abs_diff(name.len()) <= limit)
            .then(|| edit_distance(name, other))
            .filter(|distance| *distance <= limit)
    };
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    known
        .take(MAX_SUGGESTIONS_COMPARED)
        .filter_map(|other| Some((close(other)?, other)))
        .min()
        .map(|(_, other)| other)
}

/// Suggestions are looked for among this many names at most.
const MAX_SUGGESTIONS_COMPARED: usize = 4096;

/// Optimal string alignment distance: insertions, deletions, changes and swaps of neighbours.
fn edit_distance(from: &str, to: &str) -> usize {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for i in 0..from.len() {
        let mut row = vec![i + 1];
        for j in 0..to.len() {
            let change = last[j] + usize::from(from[i] != to[j]);
            let mut best = change.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && from[i] == to[j - 1] && from[i - 1] == to[j] {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_are_close() {
        let known = ["left", "right"];
        assert_eq!(
            did_you_mean("lfet", known.into_iter()).as_deref(),
            Some("did you mean \"left\"?")
        );
        assert_eq!(did_you_mean("middle", known.into_iter()), None);
        assert_eq!(did_you_mean("", known.into_iter()), None);
        let long = "l".repeat(MAX_NAME_BYTES + 1);
        assert_eq!(did_you_mean(&long, [long.as_str()].into_iter()), None);
    }

    #[test]
    fn an_unknown_name_says_what_to_do_next() {
        let say = |name| UnknownName::new("node", name, ["a0", "gw"].into_iter()).to_string();
        assert_eq!(
            say("ao"),
            "the cluster file has no node \"ao\"; did you mean \"a0\"?"
        );
        assert_eq!(
            say("elsewhere"),
            "the cluster file has no node \"elsewhere\"; `madgate check` lists the nodes that it has"
        );
        assert_eq!(
            say("a[0-3]"),
            "the cluster file has no node \"a[0-3]\"; name one node, not a range of them"
        );
    }
}
