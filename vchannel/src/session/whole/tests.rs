//! Small messages that come whole: where they go, and which of them need a checksum.

use std::net::Ipv4Addr;

use bytes::{Bytes, BytesMut};
use madgate_gtm::Header;
use madgate_gtm::wire::{
    BUNDLED_BYTES, CHARGE_PER_FRAME, Coverage, DESCRIPTOR_BYTES, Descriptor, Flags, Kind,
    ReceiveMode, Refusal, SendMode, checksum,
};

use super::super::arrival::tests::{Scene, described};
use super::super::goal::Waiting;
use super::super::input::handle_frames;
use super::super::tests::pair;
use super::*;
use crate::claiming::{HasChores, NextMessage};
use crate::cluster::{ChannelId, Checksum, NodeId};
use crate::session::Sought;
use crate::session::early::Early;
use crate::unpacking::Unpacking;

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
    // A tiny one, and the longest.
    for length in [8, BUNDLED_BYTES - DESCRIPTOR_BYTES] {
        a_message_goes_straight(length);
    }
}

fn a_message_goes_straight(length: usize) {
    let scene = Scene::new();
    let mut core = scene.session.inner().lock();
    scene.open(&mut core, 7);
    let flow = core.in_by_key[&scene.key];
    let channel = scene.session.channel("main").unwrap();
    let payload = described(length as u64, length);
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
        let block = unpacking.unpack_owned(length, ReceiveMode::Cheaper);
        unpacking.end_unpacking().unwrap();
        Some(block.unwrap())
    };
    let there = Some(BytesMut::from(&vec![2; length][..]));
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
    assert_eq!(offer(&mut core, id, None), there);
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
    assert_eq!(offer(&mut core, id, Some(source)), there);
}

#[test]
fn what_could_have_been_changed_and_has_no_checksum_is_refused() {
    let payload = described(8, 8);
    for may_lack_checksums in [false, true] {
        let scene = Scene::new();
        let mut core = scene.session.inner().lock();
        scene.open(&mut core, 7);
        let mut header = scene.header(7, 0, &payload);
        header.flags = Flags::END.with(Flags::DESCRIBED).with(Flags::HEADER_ONLY);
        let frame = [&header.to_bytes()[..], &payload].concat();
        let origin = Origin {
            link: scene.link,
            may_lack_checksums,
        };
        let control = &mut core.links[scene.link as usize].as_mut().unwrap().control;
        control.clear();
        let mut look = |_: &mut Core| false;
        let mut goal = Goal::new(None, &mut look);
        handle_frames(&mut core, origin, &frame, Time(0), &mut goal).unwrap();
        let control = &core.links[scene.link as usize].as_ref().unwrap().control;
        let answer = control
            .first_chunk()
            .map(|bytes| Header::parse(bytes).unwrap());
        let refused = answer.map(|answer| (answer.kind, answer.reason()));
        let arrived = !scene.flow(&mut core).inbox.is_empty();
        let corrupt = Some((Kind::Refusal, Some(Refusal::Corrupt)));
        let expected = if may_lack_checksums {
            (None, true)
        } else {
            (corrupt, false)
        };
        assert_eq!((refused, arrived), expected);
    }
}

#[test]
fn checksums_cover_what_something_on_the_way_could_change() {
    let host = Ipv4Addr::from(0x7f00_0000 | (std::process::id() & 0x00ff_ffff));
    let tcp = [7312, 7313].map(|port| format!("{host}:{port}"));
    for (protocol, addresses, regular) in [
        ("shm", ["a", "b"], Coverage::Nothing),
        ("hsl", ["a", "b"], Coverage::Nothing),
        ("tcp", [&*tcp[0], &*tcp[1]], Coverage::Header),
    ] {
        let (_files, a, _b) = pair(protocol, addresses);
        let network = a.cluster().networks_of(a.node()).next().unwrap();
        let mut core = a.inner().lock();
        let of = |core: &Core, is_regular| core.coverage(Checksum::Payload, network, is_regular);
        assert_eq!(of(&core, true), regular, "{protocol}");
        assert_eq!(of(&core, false), Coverage::Whole, "{protocol}");
        let lean = |is_regular| core.coverage(Checksum::Header, network, is_regular);
        assert_eq!([true, false].map(lean), [regular, Coverage::Header]);
        core.settings.unsealed = false;
        assert_eq!(of(&core, true), Coverage::Header, "{protocol}");
    }
}
