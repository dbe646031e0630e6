//! What no honest source sends, as a session meets it: refused, and nothing of it stays.

use madgate_gtm::wire::{CHARGE_PER_FRAME, Descriptor, OPENING_BYTES, ReceiveMode, SendMode};
use tempfile::TempDir;

use super::super::goal::{Goal, Waiting};
use super::super::input::{Origin, handle_frames};
use super::*;
use crate::claiming::{HasChores, NextMessage};
use crate::conductor::{LinkKind, LinkRequest};
use crate::session::Session;
use crate::session::early::Early;
use crate::session::inbox::Taken;
use crate::session::links::Link;
use crate::session::tests::pair;
use crate::session::{Sought, WholeMessage};
use crate::unpacking::Unpacking;

const BLOCK_BYTES: u64 = 40;

/// A session, and a link by which a node sends what it likes.
struct Scene {
    _files: TempDir,
    _source: Session,
    session: Session,
    link: u32,
    key: FlowKey,
}

impl Scene {
    fn new() -> Self {
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
    fn open(&self, core: &mut Core, label: u32) {
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
    fn header(&self, label: u32, position: u64, payload: &[u8]) -> Header {
        Header {
            position,
            length: u32::try_from(payload.len()).unwrap(),
            ..Header::new(Kind::Data, self.key, label)
        }
    }

    fn flow<'c>(&self, core: &'c mut Core) -> &'c mut InFlow {
        let index = core.in_by_key[&self.key];
        &mut core.in_flows[index as usize]
    }
}

/// A block of `length` bytes, of which `bytes` are there.
fn described(length: u64, bytes: usize) -> Vec<u8> {
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

#[test]
fn a_whole_message_is_taken_in_one_step_only_where_all_is_as_usual() {
    let scene = Scene::new();
    let mut core = scene.session.inner().lock();
    scene.open(&mut core, 7);
    let index = core.in_by_key[&scene.key] as usize;
    let descriptor = Descriptor::new(3, SendMode::Safer, ReceiveMode::Cheaper).unwrap();
    let payload = [&descriptor.to_bytes()[..], b"abc"].concat();
    let whole = |flags: Flags, position: u64| {
        let mut header = scene.header(7, position, &payload);
        header.flags = flags.with(Flags::DESCRIBED);
        let mut sum = checksum::Running::start(&header);
        sum.update(&payload);
        header.checksum = sum.finish();
        [&header.to_bytes()[..], &payload].concat()
    };
    let take_from = |core: &mut Core, link: u32, may_lack_checksums: bool, frame: &[u8]| {
        let header = Header::check(frame.first_chunk().unwrap()).unwrap();
        let origin = Origin {
            link,
            may_lack_checksums,
        };
        let mut look = |_: &mut Core| false;
        let mut goal = Goal::new(None, &mut look);
        core.take_whole(origin, header, frame, Time(0), &mut goal)
    };
    let take = |core: &mut Core, link, frame: &[u8]| take_from(core, link, true, frame);
    let usual = whole(Flags::END, 0);
    let mut damaged = usual.clone();
    *damaged.last_mut().unwrap() ^= 1;
    for (link, frame, what) in [
        (scene.link + 1, &usual, "of another link"),
        (scene.link, &damaged, "damaged"),
        (scene.link, &whole(Flags::NONE, 0), "not the end"),
        (scene.link, &whole(Flags::END.with(Flags::WANT), 0), "asks"),
        (scene.link, &whole(Flags::END, 139), "ahead"),
    ] {
        assert!(!take(&mut core, link, frame), "{what}");
    }
    core.in_flows[index].is_discarding = true;
    assert!(!take(&mut core, scene.link, &usual), "another is discarded");
    core.in_flows[index].is_discarding = false;
    let mut unsealed = usual.clone();
    unsealed[1] |= Flags::HEADER_ONLY.bits();
    unsealed[16..20].fill(0);
    let taken = take_from(&mut core, scene.link, false, &unsealed);
    assert!(!taken, "it could have been changed, and has no checksum");
    let ahead = (scene.header(7, 139, &payload), Bytes::new());
    core.in_flows[index].held.insert(139, ahead);
    assert!(!take(&mut core, scene.link, &usual), "others are held");
    core.in_flows[index].held.clear();
    core.settings.whole = false;
    assert!(!take(&mut core, scene.link, &usual), "that is switched off");
    core.settings.whole = true;
    assert_eq!(core.in_flows[index].flow.delivered(), 0);
    assert!(core.in_flows[index].inbox.is_empty() && core.channels[0].flows.is_empty());

    assert!(take(&mut core, scene.link, &usual));
    assert_eq!(core.in_flows[index].flow.delivered(), 139);
    assert_eq!(core.channels[0].flows, [u32::try_from(index).unwrap()]);
    assert_eq!(core.timed.len(), 1, "it is acknowledged in time");
    assert!(!take(&mut core, scene.link, &usual), "a duplicate");
    unsealed[24] = 139;
    assert!(take(&mut core, scene.link, &unsealed), "it needs none");
    assert_eq!(core.in_flows[index].flow.delivered(), 2 * 139);
}

/// Whole messages in one batch, to who waits for one.
#[test]
fn the_first_of_a_batch_goes_to_who_waits_and_all_of_it_counts_for_what_is_sent() {
    let scene = Scene::new();
    let mut core = scene.session.inner().lock();
    scene.open(&mut core, 7);
    let channel = scene.session.channel("main").unwrap();
    let charge = 16 + CHARGE_PER_FRAME;
    let frame = |number: u8, flags: Flags| {
        let descriptor = Descriptor::new(8, SendMode::Safer, ReceiveMode::Cheaper).unwrap();
        let payload = [&descriptor.to_bytes()[..], &[number; 8]].concat();
        let mut header = scene.header(7, u64::from(number) * charge, &payload);
        header.message = number.into();
        header.flags = flags
            .with(Flags::END)
            .with(Flags::DESCRIBED)
            .with(Flags::HEADER_ONLY);
        [&header.to_bytes()[..], &payload].concat()
    };
    let origin = Origin {
        link: scene.link,
        may_lack_checksums: true,
    };
    let receive = |core: &mut Core, batch: &[u8]| {
        let mut unpacking = Unpacking::new(&channel);
        let mut waiting = Waiting::new(NextMessage {
            channel: core.cluster.find_channel("main").unwrap(),
            from: None,
            unpacking: &mut unpacking,
        });
        let mut goal = Goal::new(None, &mut waiting);
        core.callers = 1;
        // As if all was sent that was to be.
        core.dirty.clear();
        let link = core.links[scene.link as usize].as_mut().unwrap();
        link.is_dirty = false;
        link.credits.clear();
        scene.flow(core).has_credit = false;
        handle_frames(core, origin, batch, Time(0), &mut goal).unwrap();
        let was_taken = goal.is_reached;
        goal.look(core);
        assert!(was_taken && core.callers == 0, "it left once");
        let found = waiting.found.expect("it is found");
        let mut block = [0; 8];
        unpacking.unpack_cheaper(&mut block).unwrap();
        unpacking.end_unpacking().unwrap();
        (block, found)
    };
    let batch = [frame(0, Flags::NONE), frame(1, Flags::NONE)].concat();
    assert_eq!(receive(&mut core, &batch), ([0; 8], HasChores(false)));
    let index = core.in_by_key[&scene.key];
    assert_eq!(core.channels[0].flows, [index], "the other one waits");
    let mut early = Early::none();
    scene.flow(&mut core).inbox.take_early(&mut early);
    assert!(early.is_some());
    core.give_back(index);
    core.unclaim(index);
    core.channels[0].flows.clear();

    // What comes behind it asks for credit: who got the first sees that it is sent.
    let batch = [frame(2, Flags::NONE), frame(3, Flags::WANT)].concat();
    assert_eq!(receive(&mut core, &batch), ([2; 8], HasChores(true)));
    assert!(scene.flow(&mut core).has_credit);
}

#[test]
fn a_whole_message_goes_straight_to_who_waits_for_it_and_for_nothing_before_it() {
    let scene = Scene::new();
    let mut core = scene.session.inner().lock();
    scene.open(&mut core, 7);
    let flow = core.in_by_key[&scene.key];
    let channel = scene.session.channel("main").unwrap();
    let payload = described(8, 8);
    let charge = payload.len() as u64 + CHARGE_PER_FRAME;
    let mut header = scene.header(7, 0, &payload);
    header.flags = Flags::END.with(Flags::DESCRIBED).with(Flags::HEADER_ONLY);
    let header = header.to_bytes();
    let header = Header::check(&header).unwrap();
    assert!(scene.flow(&mut core).flow.try_accept_next(header, Time(0)));
    let message = WholeMessage {
        flow,
        records: &payload,
        charge,
    };
    let id = core.cluster.find_channel("main").unwrap();
    let offer = |core: &mut Core, channel_id: ChannelId, from: Option<NodeId>| {
        let mut unpacking = Unpacking::new(&channel);
        let mut next = NextMessage {
            channel: channel_id,
            from,
            unpacking: &mut unpacking,
        };
        next.offer(core, &message)?;
        let mut block = [0; 8];
        unpacking.unpack_cheaper(&mut block).unwrap();
        unpacking.end_unpacking().unwrap();
        Some(block)
    };
    assert_eq!(offer(&mut core, ChannelId(id.0 + 1), None), None);
    assert_eq!(offer(&mut core, id, Some(scene.session.node())), None);
    core.channels[id.index()].flows.push_back(flow);
    assert_eq!(offer(&mut core, id, None), None, "others have come before");
    core.channels[id.index()].flows.clear();
    scene.flow(&mut core).is_claimed = true;
    assert_eq!(offer(&mut core, id, None), None, "one is being unpacked");
    scene.flow(&mut core).is_claimed = false;
    scene.flow(&mut core).inbox.push_whole(&payload, charge);
    assert_eq!(offer(&mut core, id, None), None, "another is before it");
    let mut early = Early::none();
    scene.flow(&mut core).inbox.take_early(&mut early);
    scene.flow(&mut core).inbox.begin_message();

    let (promised, claimed) = (core.budget.promised(), core.messages_claimed);
    assert_eq!(offer(&mut core, id, None), Some([2; 8]));
    assert_eq!(core.messages_claimed, claimed + 1);
    assert_eq!(
        core.budget.promised(),
        promised - charge,
        "its credit is free again"
    );
    let flow = scene.flow(&mut core);
    assert!(!flow.is_claimed && flow.inbox.is_empty());
    // From one node it is the next whoever else has sent.
    assert!(
        flow.flow.try_accept_next(
            Header::check(
                &Header {
                    position: charge,
                    ..header.read()
                }
                .to_bytes()
            )
            .unwrap(),
            Time(0)
        )
    );
    core.channels[id.index()].flows.push_back(message.flow);
    let source = NodeId(scene.key.source);
    assert_eq!(offer(&mut core, id, Some(source)), Some([2; 8]));
}
