//! How the links of a network are tuned: the optional keys of `[[network]]`.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use madgate_tm::hsl::{Card, Mode};
use madgate_tm::{HslTuning, Protocol, Stores, Tuning};

use super::fields::Fields;
use super::mistake::Report;

/// Keys that only networks with protocol tcp have.
const TCP_KEYS: [&str; 7] = [
    "socket_buffer",
    "unsent",
    "urgent_unsent",
    "low_water",
    "congestion",
    "keepalive",
    "user_timeout",
];
/// Keys that networks of one host have.
const LOCAL_KEYS: [&str; 5] = ["slot_bytes", "slots", "urgent_slots", "stores", "directory"];
/// Keys that only networks with protocol hsl have.
const HSL_KEYS: [&str; 6] = ["trust", "device", "provider", "domain", "mode", "threshold"];

/// Keys that some networks have and others do not.
pub(super) fn all_keys() -> Vec<&'static str> {
    [&TCP_KEYS[..], &LOCAL_KEYS, &HSL_KEYS].concat()
}

/// Allowed kernel buffers. One that holds less than a segment of the loopback interface, twice, makes a
/// sender wait for a timer with each.
const SOCKET_BUFFER_BOUNDS: RangeInclusive<u64> = (16 << 10)..=(64 << 20);
/// Allowed bytes that the kernel may hold unsent.
const BUFFER_BOUNDS: RangeInclusive<u64> = (4 << 10)..=(64 << 20);
/// Allowed sizes of a slot.
const SLOT_BOUNDS: RangeInclusive<u64> = (5 << 10)..=(4 << 20) + (4 << 10);
/// Allowed sizes of a control message.
const THRESHOLD_BOUNDS: RangeInclusive<u64> = 64..=(4 << 20);
/// Allowed numbers of slots.
const SLOTS_BOUNDS: RangeInclusive<u64> = 2..=1024;
/// Allowed times of silence.
const SILENCE_BOUNDS: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(24 * 3600);
/// Allowed times before a silent connection is probed: what systems take.
const KEEPALIVE_BOUNDS: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(9 * 3600);
/// What a slot holds beside its fragment, where the file gives `mtu` and no `slot_bytes`.
const SLOT_OVERHEAD_BYTES: usize = 4 << 10;

/// What a slot holds whose memory is locked, used or not, as libfabric's is: 64 KiB of fragment.
const LOCKED_SLOT_BYTES: usize = (64 << 10) + 128;

/// How a network is tuned of which the file says no more than its `mtu`, and which card it has.
pub(super) fn default_tuning(mtu: Option<u32>, card: Card) -> Tuning {
    let mut tuning = Tuning::default();
    let Tuning { shm, hsl, .. } = &mut tuning;
    if let Card::Libfabric { .. } = card {
        hsl.bulk_slot_bytes = LOCKED_SLOT_BYTES;
    }
    hsl.card = card;
    if let Some(mtu) = mtu.and_then(|mtu| usize::try_from(mtu).ok()) {
        let slot_bytes = mtu.next_multiple_of(SLOT_OVERHEAD_BYTES) + SLOT_OVERHEAD_BYTES;
        shm.bulk_slot_bytes = slot_bytes;
        hsl.bulk_slot_bytes = slot_bytes;
    }
    tuning
}

/// Takes the keys out of a `[[network]]` table. Those of another protocol are mistakes.
pub(super) fn read_tuning(
    fields: &mut Fields<'_>,
    protocol: Protocol,
    mtu: Option<u32>,
    report: &mut Report,
) -> Tuning {
    refuse_foreign_keys(fields, protocol, report);
    let card = match protocol {
        Protocol::Hsl => read_card(fields, report),
        _ => Card::default(),
    };
    let mut tuning = default_tuning(mtu, card);
    let count = |number: u64| usize::try_from(number).ok();
    let word = |number: u64| u32::try_from(number).ok();
    let tcp = &mut tuning.tcp;
    if let Some(bytes) = fields.size("socket_buffer", &SOCKET_BUFFER_BOUNDS, report) {
        tcp.bulk_buffer_bytes = count(bytes).unwrap_or(tcp.bulk_buffer_bytes);
    }
    if let Some(bytes) = fields.size("unsent", &BUFFER_BOUNDS, report) {
        tcp.bulk_unsent_bytes = word(bytes).unwrap_or(tcp.bulk_unsent_bytes);
    }
    if let Some(bytes) = fields.size("urgent_unsent", &BUFFER_BOUNDS, report) {
        tcp.urgent_unsent_bytes = word(bytes).unwrap_or(tcp.urgent_unsent_bytes);
    }
    if let Some(low_water) = fields.flag("low_water", report) {
        tcp.low_water = low_water;
    }
    tcp.congestion = read_name(fields, "congestion", &OF_SYSTEM, report);
    if let Some(silence) = fields.duration("keepalive", &KEEPALIVE_BOUNDS, report) {
        tcp.keepalive = silence;
    }
    if let Some(silence) = fields.duration("user_timeout", &SILENCE_BOUNDS, report) {
        tcp.user_timeout = silence;
    }
    let Tuning { shm, hsl, .. } = &mut tuning;
    match protocol {
        Protocol::Shm => {
            let slots = [
                &mut shm.bulk_slot_bytes,
                &mut shm.bulk_slots,
                &mut shm.urgent_slots,
            ];
            read_slots(fields, slots, report);
            read_stores(fields, &mut shm.stores, report);
        }
        Protocol::Hsl => {
            let slots = [
                &mut hsl.bulk_slot_bytes,
                &mut hsl.bulk_slots,
                &mut hsl.urgent_slots,
            ];
            read_slots(fields, slots, report);
            read_hsl(fields, hsl, report);
        }
        _ => {}
    }
    tuning
}

/// Slots of networks of one host, which share memory in one way or the other.
fn read_slots(
    fields: &mut Fields<'_>,
    [slot_bytes, slots, urgent_slots]: [&mut usize; 3],
    report: &mut Report,
) {
    let count = |number: u64| usize::try_from(number).ok();
    if let Some(bytes) = fields.size("slot_bytes", &SLOT_BOUNDS, report) {
        *slot_bytes = count(bytes).unwrap_or(*slot_bytes);
    }
    if let Some(number) = fields.integer("slots", &SLOTS_BOUNDS, report) {
        *slots = count(number).unwrap_or(*slots);
    }
    if let Some(number) = fields.integer("urgent_slots", &SLOTS_BOUNDS, report) {
        *urgent_slots = count(number).unwrap_or(*urgent_slots);
    }
}

/// The card of a network of remote write.
fn read_card(fields: &mut Fields<'_>, report: &mut Report) -> Card {
    let libfabric = Card::Libfabric {
        provider: None,
        domain: None,
    };
    let cards = [Card::Host, libfabric].map(|card| (card.name(), card));
    let mut card = fields.word("device", &cards, report).unwrap_or_default();
    if let Card::Libfabric { provider, domain } = &mut card {
        *provider = read_name(fields, "provider", &OF_LIBFABRIC, report);
        *domain = read_name(fields, "domain", &OF_LIBFABRIC, report);
    }
    card
}

fn read_hsl(fields: &mut Fields<'_>, hsl: &mut HslTuning, report: &mut Report) {
    let modes = Mode::ALL.map(|mode| (mode.name(), mode));
    hsl.mode = fields.word("mode", &modes, report).unwrap_or(hsl.mode);
    if let Some(bytes) = fields.size("threshold", &THRESHOLD_BOUNDS, report) {
        hsl.threshold_bytes = usize::try_from(bytes).unwrap_or(hsl.threshold_bytes);
    }
    match &hsl.card {
        Card::Libfabric { .. } => refuse_what_is_of_the_host(fields, hsl.mode, report),
        _ => {
            read_stores(fields, &mut hsl.stores, report);
            read_host_card(fields, report);
        }
    }
}

/// How units are stored where the other side reads them.
fn read_stores(fields: &mut Fields<'_>, stores: &mut Stores, report: &mut Report) {
    let words = Stores::ALL.map(|stores| (stores.name(), stores));
    *stores = fields.word("stores", &words, report).unwrap_or(*stores);
}

/// Names that are for somebody else to know: only their form is checked.
struct ForeignNames {
    whose: &'static str,
    bytes_max: usize,
    /// Where to find out which there are.
    help: &'static str,
}

/// Of providers and interfaces (its `FI_NAME_MAX`).
const OF_LIBFABRIC: ForeignNames = ForeignNames {
    whose: "libfabric's",
    bytes_max: 63,
    help: "`fi_info` lists what there is",
};

/// Of congestion controls (its `TCP_CA_NAME_MAX`).
const OF_SYSTEM: ForeignNames = ForeignNames {
    whose: "the system's",
    bytes_max: 15,
    help: "`sysctl net.ipv4.tcp_allowed_congestion_control` lists what there is",
};

fn read_name(
    fields: &mut Fields<'_>,
    key: &str,
    names: &ForeignNames,
    report: &mut Report,
) -> Option<String> {
    let (name, span) = fields.string(key, report)?;
    if name.is_empty() || name.len() > names.bytes_max || name.contains(char::is_control) {
        let message = format!("`{key}` is no name of {}", names.whose);
        report.mistake(&span, message, names.help);
        return None;
    }
    Some(name)
}

/// A card of libfabric's writes what it was given a key of, and nothing else, and does so itself.
fn refuse_what_is_of_the_host(fields: &mut Fields<'_>, mode: Mode, report: &mut Report) {
    if let Some(value) = fields.take("stores") {
        report.mistake(
            &value.span(),
            "a network with device libfabric has no `stores`: its cards write by themselves",
            "leave it out",
        );
    }
    if let Some(value) = fields.take("trust") {
        report.mistake(
            &value.span(),
            "a network with device libfabric has no `trust`: its nodes write what they were given \
             the key of",
            "leave it out",
        );
    }
    if mode == Mode::Interrupt {
        report.mistake(
            &fields.span,
            "a card of libfabric's does not interrupt a node that is awake",
            "write `mode = \"adaptive\"`: it wakes a node that sleeps",
        );
    }
}

fn read_host_card(fields: &mut Fields<'_>, report: &mut Report) {
    let says_something = fields.has("trust");
    // Another word than that is a mistake of its own.
    if fields.word("trust", &[("memory", ())], report).is_none() && !says_something {
        report.mistake(
            &fields.span,
            "nodes of a network with protocol hsl write each other's memory, and this one does \
             not say that they may",
            "write `trust = \"memory\"`, and run all of its nodes as the same user",
        );
    }
    for key in ["provider", "domain"] {
        if let Some(value) = fields.take(key) {
            let message = format!("the emulated card has no `{key}`");
            let help = "leave it out, or write `device = \"libfabric\"`";
            report.mistake(&value.span(), message, help);
        }
    }
}

fn refuse_foreign_keys(fields: &mut Fields<'_>, protocol: Protocol, report: &mut Report) {
    let own = match protocol {
        Protocol::Tcp => TCP_KEYS.to_vec(),
        Protocol::Shm => LOCAL_KEYS.to_vec(),
        _ => [&LOCAL_KEYS[..], &HSL_KEYS].concat(),
    };
    for key in all_keys() {
        if own.contains(&key) {
            continue;
        }
        if let Some(value) = fields.take(key) {
            let span: Range<usize> = value.span();
            let message = format!("a network with protocol {protocol} has no `{key}`");
            report.mistake(&span, message, "leave it out");
        }
    }
}
