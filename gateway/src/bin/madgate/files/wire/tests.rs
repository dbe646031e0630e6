//! Messages there and back, and messages that are none.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::files::path::Beneath;
use crate::service::envelope::HEAD_BYTES;

#[test]
fn every_request_survives_the_way() {
    let path = Bytes::from_static(b"a/b\xff");
    let requests = [
        Request::Begin {
            many: true,
            path: path.clone(),
        },
        Request::Folder {
            entry: 1,
            mode: 0o755,
            path: path.clone(),
        },
        Request::Leave { entry: 1 },
        Request::File {
            entry: 2,
            mode: 0o640,
            size: 1 << 40,
            path,
        },
        Request::Chunk {
            entry: 2,
            bytes: Bytes::from_static(b"bytes"),
        },
        Request::Finish {
            entry: 2,
            size: 5,
            digest: [7; DIGEST_BYTES],
        },
        Request::Abandon { entry: 3 },
        Request::End,
        Request::Ask,
    ];
    for request in requests {
        let (head, body) = request.encode(99);
        assert!(Request::is_kind(head.kind));
        assert_eq!(head.tag, 99);
        assert_eq!(head.body_bytes, body.len());
        assert_eq!(request.body_bytes(), body.len());
        assert_eq!(Request::decode(&head, body), Ok(request));
    }
}

#[test]
fn every_reply_survives_the_way() {
    let replies = [
        Reply::Opened,
        Reply::Refused {
            reason: "no".into(),
        },
        Reply::Taken { charge: 12 },
        Reply::Done { entry: 4 },
        Reply::Failed {
            entry: 5,
            reason: "disk is full".into(),
        },
        Reply::Closed,
        Reply::Alive,
    ];
    for reply in replies {
        let (head, body) = reply.encode(1);
        assert!(!Request::is_kind(head.kind));
        assert_eq!(Reply::decode(&head, &body), Ok(reply));
    }
}

#[test]
fn what_is_cut_or_has_more_is_malformed() {
    let (head, body) = Request::Finish {
        entry: 2,
        size: 5,
        digest: [7; 32],
    }
    .encode(0);
    for length in 0..body.len() {
        let cut = body.slice(..length);
        assert_eq!(
            Request::decode(&head, cut),
            Err(WireError::Malformed(head.kind))
        );
    }
    let (head, _) = Request::End.encode(0);
    let more = Bytes::from_static(b"x");
    assert_eq!(
        Request::decode(&head, more),
        Err(WireError::Malformed(head.kind))
    );
    let unknown = Head { kind: 0xee, ..head };
    assert_eq!(
        Request::decode(&unknown, Bytes::new()),
        Err(WireError::UnknownKind(0xee))
    );
}

#[test]
fn reasons_are_cut_and_kept_printable() {
    let reason = "é\u{1b}[2J".repeat(MAX_REASON_BYTES);
    let (head, body) = Reply::Refused { reason }.encode(0);
    assert!(body.len() <= MAX_REASON_BYTES);
    let Ok(Reply::Refused { reason }) = Reply::decode(&head, &body) else {
        panic!("not a refusal");
    };
    assert!(!reason.contains('\u{1b}'));
}
proptest! {
    #[test]
    fn no_bytes_of_a_peer_are_too_strange(
        head in any::<[u8; HEAD_BYTES]>(),
        kind in 0x0f_u8..0x29,
        body in vec(any::<u8>(), 0..100),
    ) {
        let _ = Head::parse(&head);
        let head = Head { kind, body_bytes: body.len(), tag: 0, number: u64::from(head[0]) };
        if let Ok(request) = Request::decode(&head, body.clone().into()) {
            // What was read is what is written, but for a number that means nothing.
            let (written, rest) = request.encode(0);
            prop_assert_eq!(&rest, &Bytes::from(body.clone()));
            prop_assert_eq!(Request::decode(&written, rest), Ok(request));
        }
        let _ = Reply::decode(&head, &body);
    }

    #[test]
    fn a_path_that_passes_has_plain_names_only(path in vec(any::<u8>(), 0..40)) {
        if let Ok(path) = Beneath::parse(&path) {
            for name in path.names() {
                let name = name.as_encoded_bytes();
                prop_assert!(!name.is_empty() && name != b"." && name != b"..");
                prop_assert!(!name.contains(&b'/') && !name.contains(&0));
            }
        }
    }

    #[test]
    fn dots_and_slashes_never_lead_out(path in "[./a]{0,12}") {
        if let Ok(path) = Beneath::parse(path.as_bytes()) {
            prop_assert!(path.names().all(|name| name != ".." && name != "."));
        }
    }
}
