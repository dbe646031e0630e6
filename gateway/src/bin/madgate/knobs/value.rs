//! The values of knobs, as people write them and as a cluster file has them.

use std::fmt;

use madgate_vchannel::cluster::{
    WaitPolicy, format_duration, format_size, parse_duration, parse_size,
};

/// What the values of a knob look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A whole number.
    Count,
    /// Bytes.
    Size,
    /// Yes or no.
    Flag,
    /// One of a few words.
    Word,
    /// A waiting policy, which the file writes in two keys.
    Wait,
    /// Processors.
    Pin,
}

/// The value of a knob. Its bounds are for the cluster file to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Count(u64),
    Size(u64),
    Flag(bool),
    Word(String),
    Wait(WaitPolicy),
    Pin(Vec<usize>),
}

impl Value {
    /// Reads a value: `2`, `64KiB`, `true`, `inline`, `adaptive 50us`, `0,1` or `none`.
    pub(crate) fn parse(kind: Kind, text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (value, expected) = match kind {
            Kind::Count => (text.parse().ok().map(Self::Count), "a whole number"),
            Kind::Size => (parse_size(text).map(Self::Size), "a size like 64KiB"),
            Kind::Flag => (text.parse().ok().map(Self::Flag), "true or false"),
            Kind::Word => {
                let is_word =
                    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase());
                (is_word.then(|| Self::Word(text.to_owned())), "a word")
            }
            Kind::Wait => (
                wait(text).map(Self::Wait),
                "sleep, spin, or adaptive and how long, like adaptive 50us",
            ),
            Kind::Pin => (
                pin(text).map(Self::Pin),
                "none, or processors with commas between them",
            ),
        };
        value.ok_or_else(|| format!("expected {expected}, not {text:?}"))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Size(bytes) => f.write_str(&format_size(*bytes)),
            Self::Flag(flag) => flag.fmt(f),
            Self::Word(word) => f.write_str(word),
            Self::Wait(WaitPolicy::Sleep) => f.write_str("sleep"),
            Self::Wait(WaitPolicy::Spin) => f.write_str("spin"),
            Self::Wait(WaitPolicy::Adaptive { spin }) => {
                write!(f, "adaptive {}", format_duration(*spin))
            }
            Self::Pin(processors) if processors.is_empty() => f.write_str("none"),
            Self::Pin(processors) => {
                let texts: Vec<String> = processors.iter().map(usize::to_string).collect();
                f.write_str(&texts.join(","))
            }
        }
    }
}

fn wait(text: &str) -> Option<WaitPolicy> {
    match text {
        "sleep" => Some(WaitPolicy::Sleep),
        "spin" => Some(WaitPolicy::Spin),
        _ => {
            let spin = parse_duration(text.strip_prefix("adaptive ")?)?;
            Some(WaitPolicy::Adaptive { spin })
        }
    }
}

fn pin(text: &str) -> Option<Vec<usize>> {
    if text == "none" {
        return Some(Vec::new());
    }
    text.split(',')
        .map(|processor| processor.trim().parse().ok())
        .collect()
}
