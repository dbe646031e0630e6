use proptest::prelude::*;

use madgate_gtm::FlowKey;
use madgate_gtm::wire::{Kind, OPENING_BYTES, URGENT_FRAME_BYTES, WireError};

use super::apart::{Found, scan_apart};
use super::*;

const FLOW: FlowKey = FlowKey {
    channel: 1,
    source: 2,
    destination: 3,
};

const URGENT: Rules = Rules {
    lane: Lane::Urgent,
    largest_frame: URGENT_FRAME_BYTES,
};
const BULK: Rules = Rules {
    lane: Lane::Bulk,
    largest_frame: 1 << 20,
};

/// A data frame with a payload of `length` bytes.
fn data(flow: FlowKey, position: u64, length: usize) -> Vec<u8> {
    let mut header = Header::new(Kind::Data, flow, 7);
    header.position = position;
    header.length = u32::try_from(length).unwrap();
    let mut frame = header.to_bytes().to_vec();
    frame.resize(HEADER_BYTES + length, 0xda);
    frame
}

fn opening(flow: FlowKey, length: usize) -> Vec<u8> {
    let opening = Opening {
        source_incarnation: 9,
        destination_incarnation: 0,
        fragment_bytes: 65536,
    };
    let mut header = Header::new(Kind::Data, flow, 7);
    header.flags = Flags::OPEN;
    header.length = u32::try_from(OPENING_BYTES + length).unwrap();
    let mut payload = opening.to_bytes().to_vec();
    payload.resize(OPENING_BYTES + length, 0xda);
    let mut running = checksum::Running::start(&header);
    running.update(&payload);
    header.checksum = running.finish();
    [header.to_bytes().to_vec(), payload].concat()
}

/// What is found in `bytes`, which are nothing but whole frames, when they arrive in these parts.
fn scan_in_parts(bytes: &[u8], rules: Rules, cuts: &[usize]) -> Vec<Found> {
    let ends = cuts.iter().copied().chain([bytes.len()]);
    let apart = scan_apart(bytes, rules, ends);
    assert_eq!((apart.fault, apart.scanned.used), (None, bytes.len()));
    apart.found
}

fn mixture() -> Vec<u8> {
    let other = FlowKey {
        destination: 4,
        ..FLOW
    };
    [
        opening(FLOW, 20),
        data(FLOW, 0, 8),
        data(FLOW, 136, 8),
        Header::new(Kind::Probe, other, 3)
            .to_control_frame()
            .to_vec(),
        data(FLOW, 272, 0),
        data(other, 0, 100),
        data(FLOW, 400, 3),
        data(FLOW, 1000, 3),
    ]
    .concat()
}

#[test]
fn frames_of_one_flow_that_go_on_are_one_run() {
    let bytes = mixture();
    let mut items = Vec::new();
    let scanned = scan(&bytes, URGENT, &mut items).unwrap();
    assert_eq!(
        (scanned.used, scanned.partial, scanned.corrupt),
        (bytes.len(), None, 0)
    );
    let frames: Vec<u32> = items
        .iter()
        .filter_map(|item| match item {
            Item::Run { run, .. } => Some(run.frames),
            _ => None,
        })
        .collect();
    assert_eq!(
        frames,
        [2, 1, 1, 1, 1],
        "a control frame, another flow and a gap end a run"
    );
}

#[test]
fn a_batch_may_be_cut_anywhere() {
    let bytes = mixture();
    let whole = scan_in_parts(&bytes, URGENT, &[]);
    for cut in 0..=bytes.len() {
        assert_eq!(scan_in_parts(&bytes, URGENT, &[cut]), whole, "cut at {cut}");
    }
    let every: Vec<usize> = (0..bytes.len()).collect();
    assert_eq!(scan_in_parts(&bytes, URGENT, &every), whole);
}

#[test]
fn runs_end_at_a_turn() {
    let mut bytes = Vec::new();
    let mut position = 0;
    for _ in 0..40 {
        bytes.extend(data(FLOW, position, 3904));
        position += 3904 + CHARGE_PER_FRAME;
    }
    let mut items = Vec::new();
    scan(&bytes, URGENT, &mut items).unwrap();
    assert_eq!(items.len(), 3);
    let large = data(FLOW, 0, 100_000);
    items.clear();
    assert_eq!(scan(&large, BULK, &mut items).unwrap().used, large.len());
}

fn scan_one(frame: &[u8], rules: Rules) -> Result<Scanned, Fault> {
    scan(frame, rules, &mut Vec::new())
}

#[test]
fn what_a_lane_does_not_carry_is_a_fault() {
    let too_long = data(FLOW, 0, 5000);
    assert!(matches!(
        scan_one(&too_long, URGENT),
        Err(Fault::TooLong {
            bytes: 5048,
            most: URGENT_FRAME_BYTES
        })
    ));
    assert!(scan_one(&too_long, BULK).is_ok());
    assert!(
        matches!(
            scan_one(&too_long[..48], URGENT),
            Err(Fault::TooLong { .. })
        ),
        "before the payload is there"
    );
    let credit = Header::credit(FLOW, 7, 0, 10, 1).to_control_frame();
    assert!(scan_one(&credit, URGENT).is_ok());
    assert!(matches!(
        scan_one(&credit, BULK),
        Err(Fault::WrongLane(Kind::Credit))
    ));
    let probe = Header::new(Kind::Probe, FLOW, 7).to_control_frame();
    assert!(matches!(
        scan_one(&probe, BULK),
        Err(Fault::WrongLane(Kind::Probe))
    ));
    let mut unchecked = opening(FLOW, 8);
    unchecked[1] |= Flags::HEADER_ONLY.bits();
    assert!(matches!(
        scan_one(&unchecked, URGENT),
        Err(Fault::WithoutChecksum)
    ));
    assert!(matches!(
        scan_one(&[0xff; HEADER_BYTES], URGENT),
        Err(Fault::Wire(WireError::UnknownKind(0xff)))
    ));
}

#[test]
fn a_header_with_a_checksum_of_its_own_is_looked_at() {
    let mut frame = data(FLOW, 0, 5000);
    frame[1] |= Flags::HEADER_ONLY.bits();
    assert!(
        matches!(scan_one(&frame, BULK), Err(Fault::DamagedHeader)),
        "none at all"
    );
    let header = Header::parse(frame.first_chunk().unwrap()).unwrap();
    let sum = checksum::Running::start(&header).finish();
    frame[16..20].copy_from_slice(&sum.to_le_bytes());
    assert!(scan_one(&frame, BULK).is_ok());
    frame[HEADER_BYTES] ^= 1;
    assert!(scan_one(&frame, BULK).is_ok(), "the destination's business");
    frame[24] ^= 1;
    assert!(matches!(
        scan_one(&frame[..HEADER_BYTES], BULK),
        Err(Fault::DamagedHeader)
    ));
}

#[test]
fn corrupt_control_frames_and_openings_are_dropped() {
    let mut probe = Header::new(Kind::Probe, FLOW, 7)
        .to_control_frame()
        .to_vec();
    probe[16] ^= 1;
    let mut open = opening(FLOW, 4);
    *open.last_mut().unwrap() ^= 1;
    let bytes = [probe, open, data(FLOW, 0, 8)].concat();
    let mut items = Vec::new();
    let scanned = scan(&bytes, URGENT, &mut items).unwrap();
    assert_eq!((scanned.used, scanned.corrupt), (bytes.len(), 2));
    assert!(matches!(items[..], [Item::Run { .. }]));
}

#[test]
fn credit_is_never_taken_for_more_bytes_than_it_allows() {
    assert_eq!(bytes_of_credit(0, 65536), 0);
    assert_eq!(bytes_of_credit(100, 65536), 0);
    assert_eq!(bytes_of_credit(65536 + 128, 65536), 65536 - 128);
}

proptest! {
    #[test]
    fn any_frames_cut_anywhere_arrive_as_they_were_sent(
        lengths in prop::collection::vec((0..300_usize, 0..3_u32, any::<bool>()), 1..40),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
    ) {
        let mut bytes = Vec::new();
        let mut sent = Vec::new();
        let mut positions = [0_u64; 3];
        for (length, source, leaves_gap) in lengths {
            let flow = FlowKey { source, ..FLOW };
            let position = &mut positions[usize::try_from(source).unwrap()];
            *position += u64::from(leaves_gap);
            let frame = data(flow, *position, length);
            sent.push(Found::Data {
                header: Header::parse(frame.first_chunk().unwrap()).unwrap(),
                at: bytes.len()..bytes.len() + frame.len(),
            });
            *position += length as u64 + CHARGE_PER_FRAME;
            bytes.extend(frame);
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        prop_assert_eq!(scan_in_parts(&bytes, URGENT, &cuts), sent);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
        let _ = scan(&bytes, URGENT, &mut Vec::new());
    }
}
