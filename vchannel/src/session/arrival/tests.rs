//! What no honest source sends, as a session meets it: refused, and nothing of it stays.

use std::time::Duration;

use madgate_gtm::LOST_AFTER;
use madgate_gtm::wire::{Descriptor, HEADER_BYTES, OPENING_BYTES, ReceiveMode, SendMode};
use tempfile::TempDir;

use super::*;
use crate::conductor::{LinkKind, LinkRequest};
use crate::session::Session;
use crate::session::inbox::{Broken, Taken};
use crate::session::links::Link;
use crate::session::tests::pair;

const BLOCK_BYTES: u64 = 40;

/// A session, and a link by which a node sends what it likes.
pub(in crate::session) struct Scene {
    _files: TempDir,
    _source: Session,
    pub(in crate::session) session: Session,
    pub(in crate::session) link: u32,
    pub(in crate::session) key: FlowKey,
}

impl Scene {
    pub(in crate::session) fn new() -> Self {
        let (files, source, session) = pair("shm", ["a", "b"]);
        let request = LinkRequest {
            kind: LinkKind::Regular,
            network: session
                .cluster()
                .networks_of(session.node())
                .next()
                .unwrap(),
            peer: source.node(),
        };
        let link = Link::new(request, false);
        let link = session.inner().lock().add_link(link);
        let key = FlowKey {
            channel: 0,
            source: source.node().rank(),
            destination: session.node().rank(),
        };
        Self {
            _files: files,
            _source: source,
            session,
            link,
            key,
        }
    }

    fn opening(&self) -> Opening {
        Opening {
            source_incarnation: 5,
            destination_incarnation: 0,
            fragment_bytes: 65_536,
        }
    }

    /// Opens the flow, with credit.
    pub(in crate::session) fn open(&self, core: &mut Core, label: u32) {
        let opening = self.opening();
        let header = Header {
            flags: Flags::OPEN,
            length: u32::try_from(OPENING_BYTES).unwrap(),
            ..Header::new(Kind::Data, self.key, label)
        };
        let opened = self.take(core, &header, &opening.to_bytes(), true);
        assert!(matches!(opened, Ok(None)));
        let index = core.in_by_key[&self.key];
        let flow = &mut core.in_flows[index as usize].flow;
        assert!(flow.poll_credit(&mut core.budget, Time(0)).is_some());
    }

    fn take(
        &self,
        core: &mut Core,
        header: &Header,
        payload: &[u8],
        intact: bool,
    ) -> Result<Option<u32>, FrameFault> {
        core.handle_data(self.link, header, payload, None, intact, Time(0))
    }

    /// The header of a frame of message 0.
    pub(in crate::session) fn header(&self, label: u32, position: u64, payload: &[u8]) -> Header {
        Header {
            position,
            length: u32::try_from(payload.len()).unwrap(),
            ..Header::new(Kind::Data, self.key, label)
        }
    }

    pub(in crate::session) fn flow<'c>(&self, core: &'c mut Core) -> &'c mut InFlow {
        let index = core.in_by_key[&self.key];
        &mut core.in_flows[index as usize]
    }
}

/// A block of `length` bytes, of which `bytes` are there.
pub(in crate::session) fn described(length: u64, bytes: usize) -> Vec<u8> {
    let descriptor = Descriptor::new(length, SendMode::Cheaper, ReceiveMode::Cheaper);
    [&descriptor.unwrap().to_bytes()[..], &vec![2; bytes]].concat()
}

#[test]
fn what_is_refused_leaves_nothing_behind() {
    let cut = described(BLOCK_BYTES, 8);
    let bundle = [&[16][..], &described(8, 8), &[16], &cut].concat();
    let described_end = Flags::DESCRIBED.with(Flags::END);
    for (flags, offset, payload) in [
        (described_end.with(Flags::BUNDLE), 2, &bundle),
        (described_end, 0, &cut),
        (described_end, 0, &vec![0xff; 100]),
    ] {
        let scene = Scene::new();
        let mut core = scene.session.inner().lock();
        scene.open(&mut core, 1);
        let refused = Header {
            flags,
            offset,
            ..scene.header(1, 0, payload)
        };
        assert!(scene.take(&mut core, &refused, payload, true).is_err());
        // The rest of a block that never began here, behind another opening.
        scene.open(&mut core, 2);
        let rest = Header {
            flags: Flags::END,
            offset: 8,
            ..scene.header(2, 0, &[3; 32])
        };
        assert!(scene.take(&mut core, &rest, &[3; 32], true).is_err());
        let flow = scene.flow(&mut core);
        let mut block = [0; 40];
        let taken = flow
            .inbox
            .take(BLOCK_BYTES, ReceiveMode::Cheaper, 0, &mut block);
        assert_eq!((taken, flow.has_message()), (Taken::Nothing, false));
    }
}

#[test]
fn frames_that_wait_for_others_are_kept_once() {
    let scene = Scene::new();
    let mut core = scene.session.inner().lock();
    let payload = [7; 1000];
    let held = |core: &mut Core| {
        let held = &scene.flow(core).held;
        held.values().map(|(_, bytes)| bytes.len()).sum::<usize>()
    };
    let charge = scene.header(0, 0, &payload).charge();
    let mut label = 0;
    for position in [4001, 4999, 5001, 5001 + charge] {
        for intact in [false, true] {
            label += 1;
            scene.open(&mut core, label);
            let first = scene.header(label, 5000, &payload);
            let behind = scene.header(label, first.end_position(), &payload);
            for frame in [first, behind, first] {
                let taken = scene.take(&mut core, &frame, &payload, true);
                assert!(matches!(taken, Ok(None)));
            }
            assert_eq!(held(&mut core), 2000);
            // What is damaged may not have said where it belongs.
            let overlapping = scene.header(label, position, &payload);
            let taken = scene.take(&mut core, &overlapping, &payload, intact);
            assert_eq!(taken.is_err(), intact, "at {position}");
            assert_eq!(held(&mut core), 0);
        }
    }
}

#[test]
fn a_damaged_frame_breaks_no_message() {
    let scene = Scene::new();
    let mut core = scene.session.inner().lock();
    scene.open(&mut core, 1);
    let first = described(BLOCK_BYTES, 8);
    let begun = Header {
        flags: Flags::DESCRIBED,
        ..scene.header(1, 0, &first)
    };
    assert!(scene.take(&mut core, &begun, &first, true).is_ok());
    let delivered = scene.flow(&mut core).flow.delivered();
    // Their positions say that they overlap what has come, are beyond what was granted, and cover
    // what is still to come.
    let mut label = 1;
    for position in [delivered - 1, 1 << 40, delivered + 1] {
        let damaged = scene.header(label, position, &[3; 32]);
        let taken = scene.take(&mut core, &damaged, &[3; 32], false);
        assert!(matches!(taken, Ok(None)));
        assert!(scene.flow(&mut core).held.is_empty());
        label += 1;
        scene.open(&mut core, label);
    }
    let rest = Header {
        flags: Flags::END,
        offset: 8,
        ..scene.header(label, delivered, &[3; 32])
    };
    assert!(scene.take(&mut core, &rest, &[3; 32], true).is_ok());
    let mut block = [0; 40];
    let flow = scene.flow(&mut core);
    let mut filled = 0;
    while filled < block.len() {
        let rest = &mut block[filled..];
        match flow
            .inbox
            .take(BLOCK_BYTES, ReceiveMode::Cheaper, filled as u64, rest)
        {
            Taken::Some(count) | Taken::Block(count) => filled += count,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(block, [&[2; 8][..], &[3; 32]].concat()[..]);
}

/// The header of a control frame, as it arrives.
fn arrived(header: &Header) -> Header {
    Header::parse(header.to_control_frame().first_chunk().unwrap()).unwrap()
}

#[test]
fn only_who_was_asked_is_heard_and_the_conductor_is_told() {
    let scene = Scene::new();
    let inner = scene.session.inner();
    let mut core = inner.lock();
    let pong = arrived(&Header::echo(Kind::Pong, 7));
    core.handle_control(scene.link, &pong, Time(0)).unwrap();
    assert!(core.heard.is_empty(), "nobody has asked");
    let link = core.links[scene.link as usize].as_mut().unwrap();
    link.is_challenged = true;
    let peer = (link.request.peer, link.peer_incarnation);
    for _ in 0..2 {
        core.handle_control(scene.link, &pong, Time(0)).unwrap();
        assert_eq!(core.heard, [peer]);
    }
    assert!(core.has_chores());
    drop(core);
    inner.dial_wanted();
    assert!(inner.lock().heard.is_empty());
}

#[test]
fn a_source_that_dies_in_a_message_leaves_no_memory_taken() {
    let scene = Scene::new();
    let mut core = scene.session.inner().lock();
    let before = core.budget.promised();
    scene.open(&mut core, 1);
    let begun = described(1 << 20, 50_000);
    let header = Header {
        flags: Flags::DESCRIBED,
        ..scene.header(1, 0, &begun)
    };
    assert!(scene.take(&mut core, &header, &begun, true).is_ok());
    let lost = arrived(&Header::new(Kind::Lost, scene.key, 1));
    core.handle_control(scene.link, &lost, Time(0)).unwrap();
    assert!(core.budget.promised() > before, "it may still go on");
    let limit = core.cluster.link_timeout();
    core.handle_timeout(Time(0) + limit);
    assert_eq!(core.budget.promised(), before);
    // It comes back in the middle of the message, a moment too late.
    let payload = scene.opening().to_bytes();
    let back = Header {
        flags: Flags::OPEN,
        ..scene.header(2, header.end_position(), &payload)
    };
    let opened = scene.take(&mut core, &back, &payload, true);
    assert!(matches!(opened, Ok(None)));
    let link = core.links[scene.link as usize].as_ref().unwrap();
    let said = Header::parse(link.control.last_chunk().unwrap()).unwrap();
    assert_eq!(said.reason(), Some(Refusal::GivenUp));
    assert_eq!(core.budget.promised(), before);
}

/// How long a block says it is may be changed on its way, where no checksum covers that.
#[test]
fn a_message_that_turns_out_impossible_is_given_up_at_both_ends() {
    let scene = Scene::new();
    let mut core = scene.session.inner().lock();
    scene.open(&mut core, 1);
    let begun = described(1 << 20, 50_000);
    let first = Header {
        flags: Flags::DESCRIBED,
        ..scene.header(1, 0, &begun)
    };
    assert!(scene.take(&mut core, &first, &begun, true).is_ok());
    // Somebody else's frames come by this link as well.
    let kind = |core: &mut Core, kind| {
        core.links[scene.link as usize]
            .as_mut()
            .unwrap()
            .request
            .kind = kind;
    };
    kind(&mut core, LinkKind::Deliver);
    let end = [0; 5000];
    let last = Header {
        flags: Flags::END,
        offset: 50_000,
        ..scene.header(1, first.end_position(), &end)
    };
    assert!(scene.take(&mut core, &last, &end, true).is_ok());
    let said = |core: &Core| {
        let link = core.links[scene.link as usize].as_ref().unwrap();
        Header::parse(link.control.last_chunk().unwrap())
            .unwrap()
            .reason()
    };
    assert_eq!(said(&core), Some(Refusal::Corrupt));
    let control = &core.links[scene.link as usize].as_ref().unwrap().control;
    let before = control[..control.len() - HEADER_BYTES].last_chunk();
    let credit = Header::parse(before.unwrap()).unwrap();
    assert_eq!(credit.kind, Kind::Credit);
    assert_eq!(credit.position, first.end_position(), "it has arrived");
    // Its source would send that frame again, and again.
    kind(&mut core, LinkKind::Regular);
    let payload = scene.opening().to_bytes();
    let again = Header {
        flags: Flags::OPEN,
        ..scene.header(2, first.end_position(), &payload)
    };
    let opened = scene.take(&mut core, &again, &payload, true);
    assert!(matches!(opened, Ok(None)));
    assert_eq!(said(&core), Some(Refusal::GivenUp));
}

/// Half a message comes, and is unpacked.
fn take_half_a_message(scene: &Scene, core: &mut Core) {
    scene.open(core, 1);
    let begun = described(1 << 20, 50_000);
    let first = Header {
        flags: Flags::DESCRIBED,
        ..scene.header(1, 0, &begun)
    };
    assert!(scene.take(core, &first, &begun, true).is_ok());
    let mut into = vec![0; 1 << 20];
    let flow = scene.flow(core);
    flow.is_claimed = true;
    let inbox = &mut flow.inbox;
    inbox.begin_message();
    let taken = inbox.take(1 << 20, ReceiveMode::Cheaper, 0, &mut into);
    assert!(matches!(taken, Taken::Some(50_000)), "{taken:?}");
}

/// Why the rest of it will not come, if so.
fn broken(scene: &Scene, core: &mut Core) -> Option<Broken> {
    let inbox = &mut scene.flow(core).inbox;
    let mut into = [0; 100];
    match inbox.take(1 << 20, ReceiveMode::Cheaper, 50_000, &mut into) {
        Taken::Broken(broken) => Some(broken),
        _ => None,
    }
}

#[test]
fn a_source_that_falls_silent_within_a_message_is_not_waited_for_for_ever() {
    let scene = Scene::new();
    let mut core = scene.session.inner().lock();
    take_half_a_message(&scene, &mut core);
    core.handle_timeout(Time(0) + FORGET_AFTER + Duration::from_nanos(1));
    assert_eq!(core.lost_at, None, "its opening may wait somewhere");
    let forgotten = core.forget_at.expect("somebody looks");
    assert_eq!(forgotten, Time(0) + LOST_AFTER + Duration::from_nanos(1));
    core.handle_timeout(forgotten);
    assert_eq!(broken(&scene, &mut core), None, "it may come back");
    let at = core.lost_at.expect("somebody looks");
    assert_eq!(at, forgotten + core.cluster.link_timeout());
    core.handle_timeout(at);
    assert_eq!(broken(&scene, &mut core), Some(Broken::SourceLost));
}

#[test]
fn a_message_of_which_a_part_was_damaged_goes_on_or_is_given_up_in_the_end() {
    for goes_on in [true, false] {
        let scene = Scene::new();
        let mut core = scene.session.inner().lock();
        take_half_a_message(&scene, &mut core);
        let position = scene.flow(&mut core).flow.delivered();
        let rest = vec![2; 1000];
        let next = Header {
            offset: 50_000,
            ..scene.header(1, position, &rest)
        };
        assert!(scene.take(&mut core, &next, &rest, false).is_ok());
        let limit = core.cluster.link_timeout();
        // Its source was refused, and may have to wait until it can open the flow again.
        core.handle_timeout(Time(0) + FORGET_AFTER + limit);
        assert_eq!(broken(&scene, &mut core), None);
        if goes_on {
            let opening = scene.opening().to_bytes();
            let again = Header {
                flags: Flags::OPEN,
                ..scene.header(2, position, &opening)
            };
            assert!(matches!(
                scene.take(&mut core, &again, &opening, true),
                Ok(None)
            ));
            assert!(scene.flow(&mut core).flow.is_open());
            continue;
        }
        let at = core.forget_at.expect("somebody looks");
        core.handle_timeout(at);
        core.handle_timeout(at + limit);
        assert_eq!(broken(&scene, &mut core), Some(Broken::SourceLost));
    }
}

#[test]
fn a_flow_that_is_closed_within_a_message_is_lost() {
    let scene = Scene::new();
    let mut core = scene.session.inner().lock();
    take_half_a_message(&scene, &mut core);
    // And what was held for frames before it goes at once.
    let position = scene.flow(&mut core).flow.delivered() + 5_000;
    let ahead = scene.header(1, position, &[3; 100]);
    assert!(scene.take(&mut core, &ahead, &[3; 100], true).is_ok());
    assert!(!scene.flow(&mut core).held.is_empty());
    let close = Header::new(Kind::Close, scene.key, 1).to_control_frame();
    let close = Header::parse(&close).unwrap();
    core.handle_control(scene.link, &close, Time(0)).unwrap();
    assert!(scene.flow(&mut core).held.is_empty());
    core.handle_timeout(Time(0));
    assert_eq!(broken(&scene, &mut core), None);
    let at = Time(0) + core.cluster.link_timeout();
    core.handle_timeout(at);
    assert_eq!(broken(&scene, &mut core), Some(Broken::SourceLost));
}

#[test]
fn a_source_that_falls_silent_is_forgotten() {
    let scene = Scene::new();
    let mut core = scene.session.inner().lock();
    let before = core.budget.promised();
    scene.open(&mut core, 1);
    assert!(core.budget.promised() > before);
    let due = core.next_deadline().expect("somebody looks");
    assert!(due <= Time(0) + FORGET_AFTER);
    core.handle_timeout(Time(0) + FORGET_AFTER);
    assert!(core.budget.promised() > before);
    let due = core.next_deadline().expect("and again");
    core.handle_timeout(due);
    assert_eq!(core.budget.promised(), before);
}
