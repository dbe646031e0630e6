//! What a gateway does, as a log line and as JSON.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use madgate_gateway::Counters;
use serde_json::{Value, json};

use crate::units::{counted, grouped, rate, size};

/// The counters, as one JSON object.
pub(crate) fn object(counters: &Counters) -> Value {
    let networks: Vec<Value> = counters
        .networks
        .iter()
        .map(|network| {
            json!({
                "name": network.name,
                "receives": network.receives,
                "received_bytes": network.received_bytes,
                "sends": network.sends,
                "sent_bytes": network.sent_bytes,
                "blocked": network.blocked,
                "sleeps": network.sleeps,
                "leaves": network.leaves,
            })
        })
        .collect();
    json!({
        "frames": counters.frames,
        "bytes": counters.bytes,
        "copies": counters.copies,
        "copied_bytes": counters.copied_bytes,
        "copies_per_frame": counters.copies_per_frame(),
        "spliced_frames": counters.spliced_frames,
        "parked_copies": counters.parked_copies,
        "parked_bytes": counters.parked_bytes,
        "flows_opened": counters.flows_opened,
        "refused": counters.refused,
        "stale": counters.stale,
        "corrupt": counters.corrupt,
        "misbehaved": counters.misbehaved,
        "flows": counters.flows,
        "flow_limit": counters.flow_limit,
        "links": counters.links,
        "queued_bytes": counters.queued_bytes,
        "promised_bytes": counters.promised_bytes,
        "networks": networks,
    })
}

/// Writes the counters to a file, which others see whole or not at all.
pub(crate) fn write(path: &Path, counters: &Counters) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    fs::write(&beside, format!("{}\n", object(counters)))?;
    fs::rename(&beside, path)
}

/// What happened between two looks, in one line.
pub(crate) fn line(before: &Counters, now: &Counters, between: Duration) -> String {
    let bytes = now.bytes.saturating_sub(before.bytes);
    let frames = now.frames.saturating_sub(before.frames);
    format!(
        "{} in {}; {} of {}, {}, {} queued, {} promised",
        rate(bytes, between),
        counted(frames, "frame"),
        counted(now.flows, "flow"),
        grouped(now.flow_limit.into()),
        counted(now.links, "link"),
        size(now.queued_bytes),
        size(now.promised_bytes),
    )
}
