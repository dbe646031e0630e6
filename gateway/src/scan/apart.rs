//! What scans find, frame by frame, however the bytes were cut: for tests and the fuzz target.

use madgate_gtm::wire::{Kind, OPENING_BYTES, first_frame_bytes};

use super::*;

/// A frame, and where it lies in all the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Data { header: Header, at: Range<usize> },
    Opening { header: Header, at: Range<usize> },
    Control(Header),
}

/// What was found in bytes that were scanned as they arrived.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Apart {
    pub(crate) found: Vec<Found>,
    /// What all the scans say together.
    pub(crate) scanned: Scanned,
    /// What is wrong with the bytes behind that.
    pub(crate) fault: Option<String>,
}

/// Scans `bytes`, which arrive in parts that end at `ends`, and takes apart what is found.
///
/// # Panics
/// Where that is not what the bytes are.
pub(crate) fn scan_apart(
    bytes: &[u8],
    rules: Rules,
    ends: impl IntoIterator<Item = usize>,
) -> Apart {
    let mut apart = Apart::default();
    for end in ends {
        let start = apart.scanned.used;
        let here = &bytes[start..end];
        let mut items = Vec::new();
        let scanned = scan(here, rules, &mut items);
        let before = apart.found.len();
        for item in &items {
            apart.take(item, rules, here, start);
        }
        match scanned {
            Ok(scanned) => {
                let found = apart.found.len() - before;
                check(&scanned, here, found);
                apart.add(&scanned);
            }
            Err(fault) => {
                apart.fault = Some(format!("{fault:?}"));
                break;
            }
        }
    }
    apart
}

impl Apart {
    /// Adds the frames of an item that was found in `here`, which begins at `start`.
    fn take(&mut self, item: &Item, rules: Rules, here: &[u8], start: usize) {
        match item {
            Item::Control(header) => {
                assert!(header.kind != Kind::Data && header.is_intact_control());
                self.found.push(Found::Control(*header));
            }
            Item::Opening {
                header,
                opening,
                at,
            } => {
                let (head, payload) = here[at.clone()].split_at(HEADER_BYTES);
                assert!(header.flags.has(Flags::OPEN) && checksum::is_intact(header, payload));
                assert_eq!(header.to_bytes(), head);
                assert_eq!(opening.to_bytes(), payload[..OPENING_BYTES]);
                let at = self.place(header, start + at.start);
                let header = *header;
                self.found.push(Found::Opening { header, at });
            }
            Item::Run { run, at } => {
                assert!(run.frames == 1 || run.lane == Lane::Urgent && run.bytes <= RUN_BYTES);
                let mut rest = &here[at.clone()];
                let mut joined: Option<Run> = None;
                while let Some(head) = rest.first_chunk() {
                    let header = Header::parse(head).expect("it was scanned");
                    assert!(header.kind == Kind::Data && !header.flags.has(Flags::OPEN));
                    let one = run_of(&header, rules.lane);
                    joined = Some(joined.map_or(one, |before| join(before, one)));
                    let at = self.place(&header, start + at.end - rest.len());
                    self.found.push(Found::Data { header, at });
                    rest = rest.get(header.frame_bytes()..).expect("whole frames");
                }
                assert_eq!((joined, at.len()), (Some(*run), run.bytes + rest.len()));
                assert_eq!(rest, [], "a run ends with a frame");
            }
        }
    }

    /// Where a frame lies that starts at `start`: behind all that were found before.
    fn place(&self, header: &Header, start: usize) -> Range<usize> {
        let before = self.found.iter().rev().find_map(|found| match found {
            Found::Data { at, .. } | Found::Opening { at, .. } => Some(at.end),
            Found::Control(_) => None,
        });
        assert!(before <= Some(start), "frames overlap");
        start..start + header.frame_bytes()
    }

    fn add(&mut self, scanned: &Scanned) {
        let all = &mut self.scanned;
        let in_all = |(at, header)| (all.used + at, header);
        all.last = scanned.last.map(in_all).or(all.last);
        all.used += scanned.used;
        all.partial = scanned.partial;
        all.corrupt += scanned.corrupt;
    }
}

/// Two runs as one, if the second continues the first.
fn join(first: Run, second: Run) -> Run {
    assert_eq!((first.flow, first.label), (second.flow, second.label));
    assert_eq!(first.end, second.start);
    Run {
        end: second.end,
        bytes: first.bytes + second.bytes,
        largest: first.largest.max(second.largest),
        frames: first.frames + second.frames,
        ..first
    }
}

/// Every whole frame of `here` was found or is corrupt, and what is behind them is the beginning
/// of one.
fn check(scanned: &Scanned, here: &[u8], found: usize) {
    let (mut whole, rest) = here.split_at(scanned.used);
    let mut frames = 0;
    while !whole.is_empty() {
        whole = &whole[first_frame_bytes(whole)..];
        frames += 1;
    }
    assert_eq!(Ok(frames - found), scanned.corrupt.try_into());
    match scanned.partial {
        Some(header) => {
            assert_eq!(header.to_bytes(), rest[..HEADER_BYTES]);
            assert!(rest.len() < header.frame_bytes());
        }
        None => assert!(rest.len() < HEADER_BYTES),
    }
}
