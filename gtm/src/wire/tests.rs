//! The format, frozen byte for byte (`docs/wire-format.md` shows the same bytes), and what is
//! no frame at all.

use proptest::prelude::*;

use super::checksum::{self, is_absent, is_frame_intact, is_intact};
use super::{
    CHARGE_PER_FRAME, CHARGE_PER_MESSAGE, Descriptor, Flags, FlowKey, HEADER_BYTES, Header, Kind,
    MAX_PAYLOAD_BYTES, MAX_POSITION, OPENING_BYTES, Opening, ReceiveMode, Refusal,
    SMALL_PAYLOAD_BYTES, SendMode, WireError, encoded, is_older_label,
};

const FLOW: FlowKey = FlowKey {
    channel: 0x0102,
    source: 0x0304_0506,
    destination: 0x0708_090a,
};
const LABEL: u32 = 0x0b0c_0d0e;

/// A data frame as its source makes it.
fn data_frame(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut frame = header.to_bytes().to_vec();
    frame.extend_from_slice(payload);
    encoded::seal(&mut frame);
    frame
}

fn data_header(flags: Flags, length: usize) -> Header {
    Header {
        flags,
        length: u32::try_from(length).unwrap(),
        position: 0x0f10_1112_1314_1516,
        message: 0x1718_191a,
        block: 0x1b1c_1d1e,
        ..Header::new(Kind::Data, FLOW, LABEL)
    }
}

fn record(bytes: &[u8]) -> Vec<u8> {
    let length = u64::try_from(bytes.len()).unwrap();
    let descriptor = Descriptor::new(length, SendMode::Later, ReceiveMode::Express).unwrap();
    [&descriptor.to_bytes()[..], bytes].concat()
}

/// Every kind of frame, with the bytes that it is on the wire.
fn golden() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let small = record(b"madgate!");
    let opening = Opening {
        source_incarnation: 0x2122_2324_2526_2728,
        destination_incarnation: 0x292a_2b2c_2d2e_2f30,
        fragment_bytes: 0x0001_0000,
    };
    let opened = [&opening.to_bytes()[..], &small].concat();
    let bundle = [&[16][..], &small, &[11], &record(b"two")].concat();
    let end = Flags::DESCRIBED.with(Flags::END);
    let raw = Header {
        offset: 0x1f20_2122_2324,
        ..data_header(Flags::WANT, 4)
    };
    vec![
        (
            "a message of one block",
            data_frame(&data_header(end, small.len()), &small),
            "0106 0201 06050403 0a090807 10000000 9e382de5 0e0d0c0b 161514131211100f \
             1a191817 1e1d1c1b 0000000000000000 \
             0800000000000500 6d61646761746521",
        ),
        (
            "the same in an opening",
            data_frame(
                &data_header(end.with(Flags::OPEN).with(Flags::WANT), opened.len()),
                &opened,
            ),
            "010f 0201 06050403 0a090807 28000000 2598e1f5 0e0d0c0b 161514131211100f \
             1a191817 1e1d1c1b 0000000000000000 \
             2827262524232221 302f2e2d2c2b2a29 00000100 00000000 \
             0800000000000500 6d61646761746521",
        ),
        (
            "a bare opening",
            data_frame(
                &Header {
                    flags: Flags::OPEN.with(Flags::WANT),
                    length: 24,
                    position: 0x0f10,
                    ..Header::new(Kind::Data, FLOW, LABEL)
                },
                &opening.to_bytes(),
            ),
            "0109 0201 06050403 0a090807 18000000 1188bda0 0e0d0c0b 100f000000000000 \
             00000000 00000000 0000000000000000 \
             2827262524232221 302f2e2d2c2b2a29 00000100 00000000",
        ),
        (
            "part of a block",
            data_frame(&raw, b"part"),
            "0108 0201 06050403 0a090807 04000000 0a9f163f 0e0d0c0b 161514131211100f \
             1a191817 1e1d1c1b 242322 21201f0000 \
             70617274",
        ),
        (
            "the same where only the header is covered",
            data_frame(
                &Header {
                    flags: Flags::HEADER_ONLY,
                    ..raw
                },
                b"part",
            ),
            "0120 0201 06050403 0a090807 04000000 e8e3053c 0e0d0c0b 161514131211100f \
             1a191817 1e1d1c1b 242322 21201f0000 \
             70617274",
        ),
        (
            "the same without a checksum",
            [
                &Header {
                    flags: Flags::HEADER_ONLY,
                    length: 4,
                    ..raw
                }
                .to_bytes()[..],
                b"part",
            ]
            .concat(),
            "0120 0201 06050403 0a090807 04000000 00000000 0e0d0c0b 161514131211100f \
             1a191817 1e1d1c1b 242322 21201f0000 \
             70617274",
        ),
        (
            "two messages in a bundle",
            data_frame(
                &Header {
                    block: 0,
                    offset: 2,
                    ..data_header(end.with(Flags::BUNDLE), bundle.len())
                },
                &bundle,
            ),
            "0146 0201 06050403 0a090807 1d000000 a9189150 0e0d0c0b 161514131211100f \
             1a191817 00000000 0200000000000000 \
             10 0800000000000500 6d61646761746521 0b 0300000000000500 74776f",
        ),
        (
            "a message that is given up",
            data_frame(&data_header(Flags::ABORT, 0), &[]),
            "0110 0201 06050403 0a090807 00000000 ecc72de0 0e0d0c0b 161514131211100f \
             1a191817 1e1d1c1b 0000000000000000",
        ),
        (
            "credit",
            Header::credit(FLOW, LABEL, 0x1000, 0x21000, 0x292a_2b2c_2d2e_2f30)
                .to_control_frame()
                .to_vec(),
            "0200 0201 06050403 0a090807 00000000 036446e1 0e0d0c0b 0010000000000000 \
             302f2e2d 2c2b2a29 0010020000000000",
        ),
        (
            "a refusal",
            Header::refusal(
                FLOW,
                LABEL,
                Refusal::OtherIncarnation,
                0x292a_2b2c_2d2e_2f30,
            )
            .to_control_frame()
            .to_vec(),
            "0300 0201 06050403 0a090807 00000000 ecbea86b 0e0d0c0b 0000000000000000 \
             00000000 04000000 302f2e2d2c2b2a29",
        ),
        (
            "a probe",
            Header {
                position: 0x0f10,
                ..Header::new(Kind::Probe, FLOW, LABEL)
            }
            .to_control_frame()
            .to_vec(),
            "0400 0201 06050403 0a090807 00000000 0d573f0a 0e0d0c0b 100f000000000000 \
             00000000 00000000 0000000000000000",
        ),
        (
            "a close",
            Header {
                position: 0x0f10,
                ..Header::new(Kind::Close, FLOW, LABEL)
            }
            .to_control_frame()
            .to_vec(),
            "0500 0201 06050403 0a090807 00000000 094a1616 0e0d0c0b 100f000000000000 \
             00000000 00000000 0000000000000000",
        ),
        (
            "a lost link",
            Header::new(Kind::Lost, FLOW, LABEL)
                .to_control_frame()
                .to_vec(),
            "0600 0201 06050403 0a090807 00000000 f4d5ba5b 0e0d0c0b 0000000000000000 \
             00000000 00000000 0000000000000000",
        ),
        (
            "what is held",
            Header::new(Kind::Held, FLOW, LABEL)
                .to_control_frame()
                .to_vec(),
            "0900 0201 06050403 0a090807 00000000 c86e2dee 0e0d0c0b 0000000000000000 \
             00000000 00000000 0000000000000000",
        ),
        (
            "a ping",
            Header::echo(Kind::Ping, 0x3132_3334_3536_3738)
                .to_control_frame()
                .to_vec(),
            "0700 0000 00000000 00000000 00000000 f0f0ea67 00000000 3837363534333231 \
             00000000 00000000 0000000000000000",
        ),
        (
            "a pong",
            Header::echo(Kind::Pong, 0x3132_3334_3536_3738)
                .to_control_frame()
                .to_vec(),
            "0800 0000 00000000 00000000 00000000 cc4b7dd2 00000000 3837363534333231 \
             00000000 00000000 0000000000000000",
        ),
    ]
}

/// CRC-32C bit by bit, as anybody can write it down.
fn slow_crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 * (crc & 1))
        })
    })
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: String = hex.chars().filter(|c| !c.is_whitespace()).collect();
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

#[test]
fn every_frame_is_the_bytes_that_it_always_was() {
    for (name, frame, hex) in golden() {
        assert_eq!(frame, bytes_of(hex), "{name}: {frame:02x?}");
    }
}

#[test]
fn the_documentation_shows_the_same_bytes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/wire-format.md");
    let shown: String = std::fs::read_to_string(path)
        .unwrap()
        .split_whitespace()
        .collect();
    for (name, frame, _) in golden() {
        let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(shown.contains(&hex), "{name}: {hex}");
    }
}

#[test]
fn golden_frames_are_read_as_what_they_are() {
    for (name, frame, _) in golden() {
        let header = Header::parse(frame.first_chunk().unwrap()).unwrap();
        assert_eq!(header.to_bytes(), frame[..HEADER_BYTES], "{name}");
        assert_eq!(header.frame_bytes(), frame.len(), "{name}");
        let lacks = Header::check(frame.first_chunk().unwrap()).unwrap();
        assert_eq!(lacks.lacks_checksum(), is_absent(&header), "{name}");
        if is_absent(&header) {
            // For those who do not expect that, it is damaged.
            assert!(!is_intact(&header, &frame[HEADER_BYTES..]), "{name}");
            assert!(!is_frame_intact(&frame), "{name}");
            continue;
        }
        assert!(is_intact(&header, &frame[HEADER_BYTES..]), "{name}");
        assert!(is_frame_intact(&frame), "{name}");
        assert_eq!(
            header.is_intact_control(),
            header.length == 0 || header.flags.has(Flags::HEADER_ONLY)
        );
        let mut covered = frame.clone();
        covered[16..20].fill(0);
        if header.flags.has(Flags::HEADER_ONLY) {
            covered.truncate(HEADER_BYTES);
        }
        assert_eq!(header.checksum, slow_crc32c(&covered), "{name}");
    }
}

#[test]
fn the_checksum_is_crc32c() {
    assert_eq!(checksum::of(b"123456789"), 0xe306_9283);
    assert_eq!(slow_crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn golden_descriptors() {
    let of = |length, send, receive| Descriptor::new(length, send, receive).unwrap().to_bytes();
    assert_eq!(
        of(0, SendMode::Cheaper, ReceiveMode::Cheaper),
        [0, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(
        of(0x0605_0403_0201, SendMode::Cheaper, ReceiveMode::Express),
        [1, 2, 3, 4, 5, 6, 1, 0]
    );
    assert_eq!(
        of(0x0605_0403_0201, SendMode::Safer, ReceiveMode::Cheaper),
        [1, 2, 3, 4, 5, 6, 2, 0]
    );
    assert_eq!(
        of((1 << 48) - 1, SendMode::Later, ReceiveMode::Express),
        [255, 255, 255, 255, 255, 255, 5, 0]
    );
    assert_eq!(
        Descriptor::new(1 << 48, SendMode::Safer, ReceiveMode::Express),
        None
    );
    for reserved in [
        [0, 0, 0, 0, 0, 0, 6, 0],
        [0, 0, 0, 0, 0, 0, 8, 0],
        [0, 0, 0, 0, 0, 0, 0, 1],
    ] {
        assert_eq!(Descriptor::parse(reserved), Err(WireError::Descriptor));
    }
}

#[test]
fn an_opening_that_says_nothing_is_none() {
    let opening = Opening {
        source_incarnation: 7,
        destination_incarnation: 0,
        fragment_bytes: 1,
    };
    let bytes = opening.to_bytes();
    assert_eq!(Opening::parse(&bytes), Ok(opening));
    assert_eq!(Opening::parse(&[&bytes[..], b"more"].concat()), Ok(opening));
    assert_eq!(Opening::parse(&bytes[..23]), Err(WireError::Opening));
    for (at, byte) in [(0, 0), (16, 0), (20, 1), (23, 1)] {
        let mut wrong = bytes;
        wrong[at] = byte;
        assert_eq!(Opening::parse(&wrong), Err(WireError::Opening), "byte {at}");
    }
}

#[test]
fn bundles_that_cannot_be_are_refused() {
    let flags = Flags::BUNDLE.with(Flags::DESCRIBED).with(Flags::END);
    let bundle = |length, messages| Header {
        block: 0,
        offset: messages,
        ..data_header(flags, length)
    };
    assert!(parse(&bundle(18, 2)).is_ok());
    assert!(parse(&bundle(SMALL_PAYLOAD_BYTES - 64, 2)).is_ok());
    let open = flags.with(Flags::OPEN);
    let opened = |length| Header {
        flags: open,
        ..bundle(length, 2)
    };
    assert!(parse(&opened(SMALL_PAYLOAD_BYTES - 64 + OPENING_BYTES)).is_ok());
    let longest = SMALL_PAYLOAD_BYTES + 1;
    let too_long = Err(WireError::TooLong(u32::try_from(longest).unwrap()));
    assert_eq!(parse(&bundle(longest, 40)), too_long);

    assert!(parse(&bundle(17 * 48, 48)).is_ok());
    let contradictions = [
        bundle(17 * 49, 49),
        bundle(18, 0),
        bundle(18, 1),
        bundle(18, 3),
        opened(18 + OPENING_BYTES - 1),
        Header {
            block: 1,
            ..bundle(18, 2)
        },
        Header {
            flags: Flags::BUNDLE.with(Flags::DESCRIBED),
            ..bundle(18, 2)
        },
        Header {
            flags: Flags::BUNDLE.with(Flags::END),
            ..bundle(18, 2)
        },
        Header {
            flags: Flags::BUNDLE.with(Flags::ABORT),
            ..bundle(0, 2)
        },
    ];
    for wrong in contradictions {
        assert!(
            matches!(parse(&wrong), Err(WireError::Contradiction(_))),
            "{wrong:?}"
        );
    }
}

fn parse(header: &Header) -> Result<Header, WireError> {
    Header::parse(&header.to_bytes())
}

#[test]
fn data_that_cannot_be_is_refused() {
    let plain = data_header(Flags::NONE, 1);
    assert_eq!(parse(&plain), Ok(plain));
    let open = Flags::OPEN.with(Flags::WANT);
    let too_long = |length| Err(WireError::TooLong(u32::try_from(length).unwrap()));
    let too_short = |length, least| Err(WireError::TooShort { length, least });

    assert!(parse(&data_header(Flags::NONE, MAX_PAYLOAD_BYTES)).is_ok());
    let longest = MAX_PAYLOAD_BYTES + 1;
    assert_eq!(parse(&data_header(Flags::NONE, longest)), too_long(longest));
    let longest = SMALL_PAYLOAD_BYTES + OPENING_BYTES;
    assert!(parse(&data_header(open, longest)).is_ok());
    assert_eq!(
        parse(&data_header(open, longest + 1)),
        too_long(longest + 1)
    );

    assert_eq!(parse(&data_header(open, 23)), too_short(23, 24));
    assert_eq!(parse(&data_header(Flags::DESCRIBED, 7)), too_short(7, 8));
    let both = open.with(Flags::DESCRIBED);
    assert_eq!(parse(&data_header(both, 31)), too_short(31, 32));

    let contradictions = [
        Header { label: 0, ..plain },
        Header {
            position: MAX_POSITION + 1,
            ..plain
        },
        Header {
            offset: 1 << 48,
            ..plain
        },
        Header {
            offset: 1,
            ..data_header(Flags::DESCRIBED, 8)
        },
        data_header(Flags::ABORT, 1),
        data_header(Flags::ABORT.with(Flags::END), 0),
        data_header(Flags::ABORT.with(Flags::OPEN), 25),
    ];
    for wrong in contradictions {
        assert!(
            matches!(parse(&wrong), Err(WireError::Contradiction(_))),
            "{wrong:?}"
        );
    }
}

#[test]
fn control_that_cannot_be_is_refused() {
    let credit = Header::credit(FLOW, LABEL, 1, 2, 3);
    let probe = Header::new(Kind::Probe, FLOW, LABEL);
    let lost = Header::new(Kind::Lost, FLOW, LABEL);
    let held = Header::new(Kind::Held, FLOW, LABEL);
    let ping = Header::echo(Kind::Ping, 1);
    let refusal = Header::refusal(FLOW, LABEL, Refusal::NoRoom, 0);
    for right in [credit, probe, lost, held, ping, refusal] {
        assert_eq!(parse(&right), Ok(right));
        let with_payload = Header { length: 1, ..right };
        assert_eq!(parse(&with_payload), Err(WireError::TooLong(1)));
        let with_flags = Header {
            flags: Flags::END,
            ..right
        };
        assert_eq!(parse(&with_flags), Err(WireError::ReservedFlags(4)));
        if right.kind != Kind::Ping {
            assert!(parse(&Header { label: 0, ..right }).is_err());
        }
    }
    for reason in [0, 10, u32::MAX] {
        let unknown = Header {
            block: reason,
            ..refusal
        };
        assert_eq!(parse(&unknown), Err(WireError::UnknownReason(reason)));
    }
    let contradictions = [
        Header::credit(FLOW, LABEL, 2, 1, 3),
        Header::credit(FLOW, LABEL, 1, 2, 0),
        Header::credit(FLOW, LABEL, 1, 2 * MAX_POSITION + 1, 3),
        Header { offset: 1, ..probe },
        Header { block: 1, ..probe },
        Header {
            position: MAX_POSITION + 1,
            ..probe
        },
        Header {
            position: 1,
            ..lost
        },
        Header { label: 1, ..ping },
        Header { flow: FLOW, ..ping },
        Header {
            message: 1,
            ..refusal
        },
    ];
    for wrong in contradictions {
        assert!(
            matches!(parse(&wrong), Err(WireError::Contradiction(_))),
            "{wrong:?}"
        );
    }
}

#[test]
fn unknown_kinds_and_flags_are_refused() {
    let bytes = data_header(Flags::NONE, 1).to_bytes();
    for kind in [0, 10, 255] {
        let mut wrong = bytes;
        wrong[0] = kind;
        assert_eq!(Header::parse(&wrong), Err(WireError::UnknownKind(kind)));
    }
    for flags in [0x80, 0xff] {
        let mut wrong = bytes;
        wrong[1] = flags;
        assert_eq!(Header::parse(&wrong), Err(WireError::ReservedFlags(flags)));
    }
}

#[test]
fn charges() {
    assert_eq!(data_header(Flags::END, 0).charge(), CHARGE_PER_FRAME);
    assert_eq!(
        data_header(Flags::NONE, 100).charge(),
        100 + CHARGE_PER_FRAME
    );
    assert_eq!(data_header(Flags::OPEN, 24).charge(), 0);
    let ends = Flags::OPEN.with(Flags::END);
    assert_eq!(data_header(ends, 24).charge(), CHARGE_PER_FRAME);
    let described = Flags::OPEN.with(Flags::DESCRIBED);
    assert_eq!(data_header(described, 40).charge(), 16 + CHARGE_PER_FRAME);
    let bundle = Header {
        offset: 3,
        ..data_header(Flags::BUNDLE, 50)
    };
    let charge = 50 + CHARGE_PER_FRAME + 2 * CHARGE_PER_MESSAGE;
    assert_eq!(bundle.charge(), charge);
    assert_eq!(encoded::charge(&bundle.to_bytes()), charge);
}

#[test]
fn a_checksum_is_only_absent_where_a_frame_that_opens_nothing_says_so() {
    for (flags, checksum, absent) in [
        (Flags::HEADER_ONLY, 0, true),
        (Flags::HEADER_ONLY.with(Flags::DESCRIBED), 0, true),
        (Flags::HEADER_ONLY, 1, false),
        (Flags::DESCRIBED, 0, false),
        (Flags::HEADER_ONLY.with(Flags::OPEN), 0, false),
    ] {
        let header = Header {
            checksum,
            ..data_header(flags, 100)
        };
        assert_eq!(is_absent(&header), absent, "{header:?}");
        let bytes = header.to_bytes();
        assert_eq!(Header::check(&bytes).unwrap().lacks_checksum(), absent);
    }
}

#[test]
fn every_change_of_a_covered_byte_is_seen() {
    let payload = record(b"madgate!");
    let whole = data_frame(&data_header(Flags::DESCRIBED, payload.len()), &payload);
    let header_only = Flags::DESCRIBED.with(Flags::HEADER_ONLY);
    let partly = data_frame(&data_header(header_only, payload.len()), &payload);
    let payload = record(&[7; 300]);
    let long = data_frame(&data_header(Flags::DESCRIBED, payload.len()), &payload);
    let long_partly = data_frame(&data_header(header_only, payload.len()), &payload);
    for (frame, covered) in [
        (&whole, whole.len()),
        (&partly, HEADER_BYTES),
        (&long, long.len()),
        (&long_partly, HEADER_BYTES),
    ] {
        for at in 0..frame.len() {
            let mut changed = frame.clone();
            changed[at] ^= 0x10;
            let Ok(header) = Header::parse(changed.first_chunk().unwrap()) else {
                continue;
            };
            // A length that is wrong takes another payload; it is not this test's.
            if !(12..16).contains(&at) {
                let intact = is_intact(&header, &changed[HEADER_BYTES..]);
                assert_eq!(is_frame_intact(&changed[..header.frame_bytes()]), intact);
                assert_eq!(intact, at >= covered, "byte {at}");
            }
        }
    }
}

#[test]
fn labels_grow_and_wrap() {
    assert!(is_older_label(1, 2) && !is_older_label(2, 1) && !is_older_label(2, 2));
    assert!(is_older_label(u32::MAX, 1) && !is_older_label(1, u32::MAX));
}

fn any_header() -> impl Strategy<Value = [u8; HEADER_BYTES]> {
    // Fields that are likely to be possible, so that parsing often gets far.
    let small = prop_oneof![Just(0u64), 0..64u64, any::<u64>()];
    (
        (0..10u8, prop_oneof![Just(0u8), 0..64u8, any::<u8>()]),
        proptest::collection::vec(small, 10),
    )
        .prop_map(|((kind, flags), fields)| {
            let mut bytes = [0; HEADER_BYTES];
            (bytes[0], bytes[1]) = (kind, flags);
            let places = [
                (2, 2),
                (4, 4),
                (8, 4),
                (12, 4),
                (16, 4),
                (20, 4),
                (24, 8),
                (32, 4),
                (36, 4),
                (40, 8),
            ];
            for ((at, length), field) in places.into_iter().zip(fields) {
                bytes[at..at + length].copy_from_slice(&field.to_le_bytes()[..length]);
            }
            bytes
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn what_is_read_is_what_was_written(bytes in any_header()) {
        if let Ok(header) = Header::parse(&bytes) {
            prop_assert_eq!(header.to_bytes(), bytes);
            prop_assert!(header.end_position() >= header.position);
            prop_assert!(header.frame_bytes() >= HEADER_BYTES);
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in any::<[u8; HEADER_BYTES]>()) {
        if let Ok(header) = Header::parse(&bytes) {
            prop_assert_eq!(header.to_bytes(), bytes);
        }
    }

    #[test]
    fn descriptors_are_read_as_written(bytes in any::<[u8; 8]>(), length in 0..1u64 << 48) {
        if let Ok(descriptor) = Descriptor::parse(bytes) {
            prop_assert_eq!(descriptor.to_bytes(), bytes);
        }
        let made = Descriptor::new(length, SendMode::Safer, ReceiveMode::Express).unwrap();
        prop_assert_eq!(Descriptor::parse(made.to_bytes()), Ok(made));
    }

    #[test]
    fn openings_are_read_as_written(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(opening) = Opening::parse(&bytes) {
            prop_assert_eq!(&opening.to_bytes()[..], &bytes[..OPENING_BYTES]);
        }
    }

    #[test]
    fn pieces_make_the_checksum_of_the_whole(
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        cut in 0..200usize,
    ) {
        let header = data_header(Flags::NONE, payload.len());
        let (one, other) = payload.split_at(cut.min(payload.len()));
        let mut running = checksum::Running::start(&header);
        running.update(one);
        running.update(other);
        let whole = [&header.to_bytes()[..], &payload].concat();
        prop_assert_eq!(running.finish(), checksum::of(&whole));
    }
}
