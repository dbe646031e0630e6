//! How the links of a network are tuned: the optional keys of `[[network]]`.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use madgate_tm::{Protocol, Tuning};

use super::fields::Fields;
use super::mistake::Report;

/// Keys that only networks with protocol tcp have.
pub(super) const TCP_KEYS: [&str; 5] = [
    "socket_buffer",
    "unsent",
    "urgent_unsent",
    "keepalive",
    "user_timeout",
];
/// Keys that only networks with protocol shm have.
pub(super) const SHM_KEYS: [&str; 4] = ["slot_bytes", "slots", "urgent_slots", "directory"];

/// Allowed kernel buffers, and bytes that it may hold unsent.
const BUFFER_BOUNDS: RangeInclusive<u64> = (4 << 10)..=(64 << 20);
/// Allowed sizes of a slot.
const SLOT_BOUNDS: RangeInclusive<u64> = (5 << 10)..=(4 << 20) + (4 << 10);
/// Allowed numbers of slots.
const SLOTS_BOUNDS: RangeInclusive<u64> = 2..=1024;
/// Allowed times of silence.
const SILENCE_BOUNDS: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(24 * 3600);
/// What a slot holds beside its fragment, where the file gives `mtu` and no `slot_bytes`.
const SLOT_OVERHEAD_BYTES: usize = 4 << 10;

/// Takes the keys out of a `[[network]]` table. Those of another protocol are mistakes.
pub(super) fn read_tuning(
    fields: &mut Fields<'_>,
    protocol: Protocol,
    mtu: Option<u32>,
    report: &mut Report,
) -> Tuning {
    let mut tuning = Tuning::default();
    refuse_foreign_keys(fields, protocol, report);
    let count = |number: u64| usize::try_from(number).ok();
    let word = |number: u64| u32::try_from(number).ok();
    let tcp = &mut tuning.tcp;
    if let Some(bytes) = fields.size("socket_buffer", &BUFFER_BOUNDS, report) {
        tcp.bulk_buffer_bytes = count(bytes).unwrap_or(tcp.bulk_buffer_bytes);
    }
    if let Some(bytes) = fields.size("unsent", &BUFFER_BOUNDS, report) {
        tcp.bulk_unsent_bytes = word(bytes).unwrap_or(tcp.bulk_unsent_bytes);
    }
    if let Some(bytes) = fields.size("urgent_unsent", &BUFFER_BOUNDS, report) {
        tcp.urgent_unsent_bytes = word(bytes).unwrap_or(tcp.urgent_unsent_bytes);
    }
    if let Some(silence) = fields.duration("keepalive", &SILENCE_BOUNDS, report) {
        tcp.keepalive = silence;
    }
    if let Some(silence) = fields.duration("user_timeout", &SILENCE_BOUNDS, report) {
        tcp.user_timeout = silence;
    }
    let shm = &mut tuning.shm;
    if let Some(mtu) = mtu.and_then(|mtu| usize::try_from(mtu).ok()) {
        shm.bulk_slot_bytes = mtu.next_multiple_of(SLOT_OVERHEAD_BYTES) + SLOT_OVERHEAD_BYTES;
    }
    if let Some(bytes) = fields.size("slot_bytes", &SLOT_BOUNDS, report) {
        shm.bulk_slot_bytes = count(bytes).unwrap_or(shm.bulk_slot_bytes);
    }
    if let Some(slots) = fields.integer("slots", &SLOTS_BOUNDS, report) {
        shm.bulk_slots = count(slots).unwrap_or(shm.bulk_slots);
    }
    if let Some(slots) = fields.integer("urgent_slots", &SLOTS_BOUNDS, report) {
        shm.urgent_slots = count(slots).unwrap_or(shm.urgent_slots);
    }
    tuning
}

fn refuse_foreign_keys(fields: &mut Fields<'_>, protocol: Protocol, report: &mut Report) {
    let foreign: &[&str] = match protocol {
        Protocol::Tcp => &SHM_KEYS,
        Protocol::Shm => &TCP_KEYS,
        _ => &[],
    };
    for key in foreign {
        if let Some(value) = fields.take(key) {
            let span: Range<usize> = value.span();
            let message = format!("a network with protocol {protocol} has no `{key}`");
            report.mistake(&span, message, "leave it out");
        }
    }
}
