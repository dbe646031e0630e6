//! What a peer can do to a port.

use super::super::matching::Span;
use super::*;
use crate::hsl::put::Name;

fn is_violation(result: &Result<(), LaneError>, what: &str) -> bool {
    matches!(result, Err(LaneError::Peer { what: said, .. }) if said.contains(what))
}

#[test]
fn impossible_messages_are_violations() {
    let id = |kind, number| identifier(kind, number);
    let slots = PortTuning::default().slots;
    for (message, word, what) in [
        (MessageId(0), 0, "no message"),
        (
            id(Kind::Short, u32::try_from(slots).unwrap()),
            0,
            "no such slot",
        ),
        (id(Kind::Request, REQUESTS_MAX), 20_000, "no such request"),
        (id(Kind::Request, 0), 0, "so many bytes"),
        (id(Kind::Request, 0), u64::MAX, "so many bytes"),
        (id(Kind::Response, 0), 1, "which there is not"),
        (id(Kind::Response, u32::MAX >> 4), 1, "which there is not"),
        (id(Kind::Data, 0), 1, "not asked"),
        (id(Kind::Data, REQUESTS_MAX), 1, "no such request"),
    ] {
        let mut ports = pair(&tuned(Mode::Polling));
        ports[0].tell(message, word).unwrap();
        let refused = ports[1].progress();
        assert!(is_violation(&refused, what), "{message:?}: {refused:?}");
        assert!(ports[1].progress().is_err(), "nothing counts after it");
    }
}

#[test]
fn a_request_that_comes_twice_is_a_violation() {
    let mut ports = pair(&tuned(Mode::Polling));
    for _ in 0..2 {
        ports[0]
            .tell(identifier(Kind::Request, 3), 5 << 20)
            .unwrap();
    }
    let refused = ports[1].progress();
    assert!(is_violation(&refused, "asked already"), "{refused:?}");
}

#[test]
fn data_that_was_not_answered_for_is_a_violation() {
    let mut ports = pair(&tuned(Mode::Polling));
    ports[0].tell(identifier(Kind::Request, 3), 20_000).unwrap();
    ports[1].progress().unwrap();
    ports[0].tell(identifier(Kind::Data, 3), 20_001).unwrap();
    let refused = ports[1].progress();
    assert!(
        is_violation(&refused, "not what it was answered"),
        "{refused:?}"
    );
}

/// What an entry carries is written by who reads the list, so it goes nowhere where another thread
/// may look: neither to the arena, nor to a slot that is lent, nor, where a handler reads the list,
/// to any.
#[test]
fn data_that_is_carried_where_others_may_look_is_a_violation_and_not_written() {
    for mode in modes() {
        let geometry = pair(&tuned(mode))[1].own_geometry;
        let slots = geometry.control_row();
        for (remote, wrong) in [
            (geometry.arena().0, Some("no entry may carry")),
            (geometry.staging_row().at, Some("no entry may carry")),
            (geometry.buffer_row().end() - 7, Some("no entry may carry")),
            (geometry.buffer_row().end() - 8, None),
            (geometry.answer_row().at, None),
            (slots.slot_at(0), Some("has not been returned")),
            (slots.slot_at(1), None),
        ] {
            let wrong = match mode {
                Mode::Interrupt => Some("no entry may carry"),
                Mode::Polling | Mode::Adaptive => wrong,
            };
            let mut ports = pair(&tuned(mode));
            let canary = ports[1].arena().allocate(100).unwrap();
            assert!(ports[0].send_short(&[5; 8]).unwrap());
            let Arrived::Short(held) = arrival(&mut ports) else {
                panic!("not a short message");
            };

            ports[0].put.sending().carry_anywhere();
            let message = identifier(Kind::Short, 1);
            let fill = |bytes: &SharedBytes, at| bytes.write(at, &[7; 8]);
            ports[0].tell_with(message, (remote, 8), fill, 0).unwrap();
            let result = loop {
                if let result @ Err(_) = ports[1].progress() {
                    break result;
                }
                if ports[1].next_arrived().is_some() {
                    break Ok(());
                }
            };
            match wrong {
                Some(what) => assert!(is_violation(&result, what), "{mode:?}: {result:?}"),
                None => assert!(result.is_ok(), "{mode:?}: {result:?}"),
            }
            let mut seen = [0; 8];
            ports[1].bytes.read(remote, &mut seen);
            assert_eq!(seen == [7; 8], wrong.is_none(), "{mode:?}: {remote:#x}");
            assert_eq!(bytes_of(&held), [5; 8]);
            drop(canary);
        }
    }
}

#[test]
fn credit_that_was_never_used_is_a_violation() {
    let mut ports = pair(&tuned(Mode::Polling));
    ports[0].incoming.take_credit();
    // All of them are free already.
    let short = ports[0].incoming.short(0, 0).unwrap();
    ports[0].incoming.copy_out(short, &mut []);
    ports[0].tell(identifier(Kind::Credit, 0), 0).unwrap();
    let refused = ports[1].progress();
    assert!(is_violation(&refused, "free already"), "{refused:?}");
}

/// Whatever an answer says, the card writes registered memory only, and says what was wrong.
#[test]
fn answers_with_wrong_segments_are_refused_before_anything_is_written() {
    use crate::hsl::host::FOREIGN;
    use crate::hsl::put::Name;
    use matching::Span;

    let memory = |ports: &[Port; 2]| ports[1].own_geometry.memory_bytes() as u64;
    type Lie = fn(u64) -> Span;
    let lies: [(&str, Lie); 6] = [
        ("its lists", |_| Span {
            at: 4096,
            length: 20_000,
            name: Name::default(),
        }),
        ("before its end", |end| Span {
            at: end - 100,
            length: 20_000,
            name: Name::default(),
        }),
        ("behind it", |end| Span {
            at: end,
            length: 20_000,
            name: Name::default(),
        }),
        ("overflow", |_| Span {
            at: FOREIGN - 1,
            length: u32::MAX,
            name: Name::default(),
        }),
        ("another process", |_| Span {
            at: FOREIGN | 4096,
            length: 20_000,
            name: Name::default(),
        }),
        ("nothing", |end| Span {
            at: end - 4096,
            length: 0,
            name: Name::default(),
        }),
    ];
    for (name, lie) in lies {
        let mut ports = pair(&tuned(Mode::Polling));
        ports[0].send(vec![Block::Other(vec![7; 20_000])]).unwrap();
        let end = memory(&ports);
        let arena = ports[1].arena().clone();
        let canary = arena
            .allocate(u32::try_from(arena.capacity()).unwrap())
            .unwrap();
        let to = (
            ports[1].peer_geometry.answer_row().at,
            layout::SEGMENT_BYTES,
        );
        let segment = lie(end).encode();
        let fill = |bytes: &SharedBytes, at| bytes.write(at, &segment);
        ports[1]
            .tell_with(identifier(Kind::Response, 0), to, fill, 1)
            .unwrap();
        let refused = ports[0].progress();
        assert!(
            matches!(refused, Err(LaneError::Peer { .. })),
            "{name}: {refused:?}"
        );
        let mut seen = vec![0; canary.len()];
        canary.read(0, &mut seen);
        assert!(seen == vec![0; seen.len()], "{name}: written");
    }
    for count in [0, 33, u64::MAX] {
        let mut ports = pair(&tuned(Mode::Polling));
        ports[0].send(vec![Block::Other(vec![7; 20_000])]).unwrap();
        ports[1].tell(identifier(Kind::Response, 0), count).unwrap();
        let refused = ports[0].progress();
        assert!(is_violation(&refused, "segments"), "{count}: {refused:?}");
    }
}

/// Each answer makes this side put a byte, and none of them is wrong.
#[test]
fn a_peer_that_answers_byte_by_byte_does_not_keep_a_caller() {
    let mut ports = pair(&tuned(Mode::Polling));
    ports[0].send(vec![Block::Other(vec![7; 20_000])]).unwrap();
    let segment = Span {
        at: ports[1].own_geometry.arena().0 as u64,
        length: 1,
        name: Name::default(),
    };
    let to = (
        ports[1].peer_geometry.answer_row().at,
        layout::SEGMENT_BYTES,
    );
    for _ in 0..ENTRIES_PER_CALL + 10 {
        let fill = |bytes: &SharedBytes, at| bytes.write(at, &segment.encode());
        let message = identifier(Kind::Response, 0);
        ports[1].tell_with(message, to, fill, 1).unwrap();
    }
    let mut put = 0;
    for expected in [ENTRIES_PER_CALL, ENTRIES_PER_CALL + 10] {
        ports[0].progress().unwrap();
        while let Ok(Some(received)) = ports[1].put.received_notify() {
            put += u32::from(matches!(kind_of(received.message), Some((Kind::Data, 0))));
        }
        assert_eq!(put, expected);
    }
}
