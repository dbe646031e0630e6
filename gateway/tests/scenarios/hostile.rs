//! Members that misbehave, and strangers in crowds: a link that breaks the rules is closed,
//! a flow that nobody knows is refused, what is corrupt is dropped, and everything else goes
//! on unharmed.

use std::net::TcpStream;

use madgate_gtm::Header;
use madgate_gtm::wire::{
    DESCRIPTOR_BYTES, Descriptor, Flags, Kind, MAX_PAYLOAD_BYTES, ReceiveMode, Refusal, SendMode,
};
use madgate_tm::{Endpoint, LaneClass};
use madgate_vchannel::conductor::{LinkKind, STRANGER_SLOTS};

use crate::stage::member::{Member, MemberLink, OpenFlow, sealed};
use crate::stage::{Counts, Plan, Process, alone, await_messages, loopback};
use crate::support::{descriptors, have};

/// Whom the misbehaving member talks to, and by which kind of link.
#[derive(Debug, Clone, Copy)]
struct Target {
    kind: LinkKind,
    network: &'static str,
    peer: &'static str,
    /// The member's name.
    member: &'static str,
    /// The node whose flow it has.
    source: &'static str,
}

/// A gateway's engine.
const ENGINE: Target = Target {
    kind: LinkKind::Forward,
    network: "left",
    peer: "gw",
    member: "h0",
    source: "h0",
};

/// A session, by a regular link.
const SESSION: Target = Target {
    kind: LinkKind::Regular,
    network: "right",
    peer: "b0",
    member: "h1",
    source: "h1",
};

/// A session, by a link that a gateway delivers on.
const DELIVERY: Target = Target {
    kind: LinkKind::Deliver,
    network: "right",
    peer: "b0",
    member: "hg",
    source: "f0",
};

/// Bytes between the beginnings of flows: later ones never meet what earlier ones left.
const FLOW_STRIDE: u64 = 1 << 30;

/// The block that most frames are of.
const BLOCK_BYTES: u64 = 100_000;

/// Well-behaved nodes, and the one that is not.
struct Scene {
    target: Target,
    gateway: Process,
    a0: Process,
    b0: Process,
    member: Member,
    flows: u64,
    misbehaved: u64,
}

impl Scene {
    fn new(target: Target) -> Self {
        let plan = Plan::new("")
            .networks(&["left", "right", "far"])
            .node("a0", &[("left", loopback())])
            .node("gw", &[("left", loopback()), ("right", loopback())])
            .node("b0", &[("right", loopback())])
            .node("h0", &[("left", loopback())])
            .node("h1", &[("right", loopback())])
            .node("hg", &[("far", loopback()), ("right", loopback())])
            .node("f0", &[("far", loopback())])
            .channel("hostile")
            .channel("main");
        let gateway = plan.start("gw");
        let (mut a0, mut b0) = (plan.start("a0"), plan.start("b0"));
        b0.ask("open hostile");
        b0.tell("collect main");
        a0.tell("stream normal main b0 10000");
        Self {
            target,
            gateway,
            a0,
            b0,
            member: Member::new(&plan.cluster(), target.member),
            flows: 0,
            misbehaved: 0,
        }
    }

    fn dial(&self) -> MemberLink {
        let Target {
            kind,
            network,
            peer,
            ..
        } = self.target;
        self.member.dial(kind, network, peer)
    }

    /// A link with a flow of the member's own to b0.
    fn begin(&mut self) -> (MemberLink, OpenFlow) {
        let mut link = self.dial();
        let key = self.member.flow(self.target.source, "b0");
        self.flows += 1;
        let position = self.flows * FLOW_STRIDE;
        let flow = self.member.open(&mut link, key, position);
        (link, flow)
    }

    /// What the member sends on a flow closes its link.
    fn closes(&mut self, what: &str, class: LaneClass, act: impl Fn(&OpenFlow) -> Vec<u8>) {
        let (mut link, flow) = self.begin();
        link.send(class, &act(&flow));
        while link.hear().is_some() {}
        self.misbehaved += 1;
        self.member.close(link);
        self.goes_on(what);
    }

    /// As [`closes`](Self::closes), for what gateways pass on without looking at it: on a link
    /// that a gateway delivers on, it is the flow's source that is refused, and the link stays.
    fn is_noticed(&mut self, what: &str, class: LaneClass, act: impl Fn(&OpenFlow) -> Vec<u8>) {
        if self.target.kind != LinkKind::Deliver {
            return self.closes(what, class, act);
        }
        let (mut link, flow) = self.begin();
        link.send(class, &act(&flow));
        self.is_refused(link, Refusal::Corrupt);
        self.goes_on(what);
    }

    /// The answer to what was sent is a refusal, and the link stays.
    fn is_refused(&mut self, mut link: MemberLink, why: Refusal) {
        loop {
            let answer = link.hear().expect("an answer");
            if answer.kind == Kind::Refusal {
                assert_eq!(answer.reason(), Some(why));
                break;
            }
        }
        assert!(link.is_up());
        self.member.close(link);
    }

    /// The others have not noticed.
    fn goes_on(&mut self, what: &str) {
        let before = Counts::of(&mut self.b0).messages("main/a0");
        await_messages(&mut self.b0, "main/a0", before + 20);
        println!("{:?}: {what}", self.target.kind);
    }

    fn end(mut self) {
        self.a0.tell("halt normal");
        let sent = self.a0.hear("ended normal").parse().expect("no error");
        assert_eq!(self.a0.ask("close"), "");
        await_messages(&mut self.b0, "main/a0", sent);
        if self.target.peer == "gw" {
            let counted: u64 = self.gateway.ask("counters misbehaved").parse().unwrap();
            assert_eq!(counted, self.misbehaved);
        }
    }
}

/// The first `bytes` of a block, described.
fn first_part(flow: &OpenFlow, bytes: usize) -> Vec<u8> {
    let descriptor = Descriptor::new(BLOCK_BYTES, SendMode::Safer, ReceiveMode::Cheaper);
    let mut payload = descriptor.unwrap().to_bytes().to_vec();
    payload.resize(DESCRIPTOR_BYTES + bytes, 1);
    let mut header = flow.next();
    header.flags = Flags::DESCRIBED;
    sealed(header, &payload)
}

/// Another part of it, after `first`.
fn part(flow: &OpenFlow, first: &[u8], offset: u64, bytes: usize) -> Vec<u8> {
    let mut header = flow.next();
    let charge = Header::parse(first.first_chunk().unwrap())
        .unwrap()
        .charge();
    header.position += charge;
    header.offset = offset;
    sealed(header, &vec![1; bytes])
}

/// A frame that says that it is a bundle of so many messages, each behind its length.
fn bundle(flow: &OpenFlow, count: u64, messages: &[Vec<u8>]) -> Vec<u8> {
    sealed(bundle_header(flow, count), &messages.concat())
}

fn bundle_header(flow: &OpenFlow, count: u64) -> Header {
    let mut header = flow.next();
    header.flags = Flags::BUNDLE.with(Flags::DESCRIBED).with(Flags::END);
    header.offset = count;
    header
}

/// A message of a bundle: a block of `length` bytes, of which `bytes` are there, behind `said`.
fn bundled(said: u8, length: u64, bytes: usize) -> Vec<u8> {
    let descriptor = Descriptor::new(length, SendMode::Safer, ReceiveMode::Cheaper);
    let records = [&descriptor.unwrap().to_bytes()[..], &vec![1; bytes]].concat();
    [&[said][..], &records].concat()
}

/// As it should be.
fn good() -> Vec<u8> {
    bundled(16, 8, 8)
}

/// One byte more than a message of a bundle may have, and all of it there.
fn too_long() -> Vec<u8> {
    let records = bundled(0, 1249, 1249).split_off(1);
    assert_eq!(records.len(), 9 << 7 | 0x69);
    [&[0xe9, 9], &records[..]].concat()
}

/// Bundles of which the header says that they cannot be.
fn bundles_that_cannot_be(scene: &mut Scene) {
    let urgent = LaneClass::Urgent;
    for (what, count) in [
        ("a bundle of nothing", 0),
        ("a bundle of one", 1),
        ("a bundle of more than its bytes can be", 4),
        ("a bundle of very many", u64::MAX),
    ] {
        scene.closes(what, urgent, |flow| bundle(flow, count, &[good(), good()]));
    }
    scene.closes("a bundle that costs too much", urgent, |flow| {
        bundle(flow, 49, &vec![good(); 49])
    });
    scene.closes("a bundle in the middle of its message", urgent, |flow| {
        let mut header = bundle_header(flow, 2);
        header.block = 1;
        sealed(header, &[good(), good()].concat())
    });
    scene.closes("a bundle that does not end", urgent, |flow| {
        let mut header = bundle_header(flow, 2);
        header.flags = Flags::BUNDLE.with(Flags::DESCRIBED);
        sealed(header, &[good(), good()].concat())
    });
    scene.closes("a bundle that is large", LaneClass::Bulk, |flow| {
        bundle(flow, 2, &[vec![1; 4000]])
    });
}

/// Bundles of which only who takes them apart sees that they cannot be.
fn bundles_that_come_apart(scene: &mut Scene) {
    let urgent = LaneClass::Urgent;
    for (what, messages) in [
        (
            "a message that is longer than its bundle",
            [good(), bundled(17, 8, 8)],
        ),
        (
            "a message of a bundle without a block",
            [good(), vec![0; 9]],
        ),
        ("a long message of a bundle", [good(), too_long()]),
        (
            "a message of a bundle as long as nothing is",
            [good(), vec![0x90, 0x80, 1]],
        ),
        (
            "a message of a bundle whose length is said in vain",
            [good(), [&[0x90, 0], &good()[1..]].concat()],
        ),
        (
            "a message of a bundle whose length is cut",
            [good(), [&good()[..], &[0x90]].concat()],
        ),
        (
            "a long message of a bundle that is not there",
            [good(), [&[0x80, 0x1e], &good()[1..]].concat()],
        ),
        (
            "a message of a bundle that is cut",
            [good(), bundled(16, 40, 8)],
        ),
    ] {
        scene.is_noticed(what, urgent, |flow| bundle(flow, 2, &messages));
    }
    scene.is_noticed("a bundle of fewer than it says", urgent, |flow| {
        bundle(flow, 3, &[good(), bundled(25, 17, 17)])
    });
    scene.is_noticed("a bundle in the middle of a message", urgent, |flow| {
        let first = first_part(flow, 1000);
        let mut header = bundle_header(flow, 2);
        header.position += 1000 + 8 + 128;
        [first, sealed(header, &[good(), good()].concat())].concat()
    });
    scene.is_noticed("a bundle that is partly there", urgent, |flow| {
        let first = bundle(flow, 2, &[good(), good()]);
        let mut header = bundle_header(flow, 2);
        // From its second message on, and one more.
        header.position += 17 + 64;
        header.message += 1;
        [first, sealed(header, &[good(), good()].concat())].concat()
    });
}

/// What no honest member sends to anybody.
fn misbehave(target: Target) {
    let _alone = alone();
    let mut scene = Scene::new(target);
    let urgent = LaneClass::Urgent;
    scene.closes("an unknown kind", urgent, |flow| {
        let mut frame = sealed(flow.next(), &[1; 8]);
        frame[0] = 99;
        frame
    });
    scene.closes("a reserved flag", urgent, |flow| {
        let mut frame = sealed(flow.next(), &[1; 8]);
        frame[1] = 0x80;
        frame
    });
    scene.closes("garbage", urgent, |_| vec![0xff; 4096]);
    scene.closes("a length beyond all bounds", LaneClass::Bulk, |flow| {
        let mut header = flow.next();
        header.length = u32::try_from(MAX_PAYLOAD_BYTES).unwrap() + 1;
        [&header.to_bytes()[..], &[1; 64]].concat()
    });
    scene.closes("a length beyond all fragments", LaneClass::Bulk, |flow| {
        let mut header = flow.next();
        header.length = 8 << 20;
        [&header.to_bytes()[..], &[1; 64]].concat()
    });
    scene.closes("a length beyond small frames", urgent, |flow| {
        let mut header = flow.next();
        header.length = 5000;
        header.to_bytes().to_vec()
    });
    scene.closes("a large frame among small ones", urgent, |flow| {
        let mut header = flow.next();
        header.length = 1 << 20;
        header.to_bytes().to_vec()
    });
    scene.closes("an offset beyond all blocks", urgent, |flow| {
        let mut header = flow.next();
        header.offset = u64::MAX;
        sealed(header, &[1; 8])
    });
    scene.is_noticed("more than was granted", LaneClass::Bulk, |flow| {
        let mut header = flow.next();
        header.position = flow.granted;
        sealed(header, &[1; 60_000])
    });
    scene.closes("a frame of another's flow", urgent, |flow| {
        let mut header = flow.next();
        // The opening is what says whose flow it is.
        header.flags = Flags::OPEN;
        header.flow.source = 0;
        let opening = madgate_gtm::wire::Opening {
            source_incarnation: 5,
            destination_incarnation: 0,
            fragment_bytes: 1000,
        };
        sealed(header, &opening.to_bytes())
    });
    bundles_that_cannot_be(&mut scene);
    is_refused(&mut scene);
    is_dropped(&mut scene);
    scene.end();
}

/// Frames of a flow that was never opened are refused, and the link stays.
fn is_refused(scene: &mut Scene) {
    let (mut link, flow) = scene.begin();
    let mut header = flow.next();
    header.flow.channel = 1;
    link.send(LaneClass::Urgent, &sealed(header, &[1; 8]));
    let answer = link.hear().expect("a refusal");
    assert_eq!(answer.kind, Kind::Refusal);
    assert_eq!(answer.reason(), Some(Refusal::Unknown));
    assert_eq!(answer.flow, header.flow);
    assert!(link.is_up());
    scene.member.close(link);
    scene.goes_on("an unknown flow");
}

/// Control frames whose checksum is wrong are dropped, and the link stays.
fn is_dropped(scene: &mut Scene) {
    let (mut link, flow) = scene.begin();
    let mut close = Header::new(Kind::Close, flow.key, flow.label).to_control_frame();
    close[17] ^= 1;
    link.send(LaneClass::Urgent, &close);
    assert!(link.is_up());
    // The flow was not closed by it.
    let probe = Header::new(Kind::Probe, flow.key, flow.label).to_control_frame();
    link.send(LaneClass::Urgent, &probe);
    assert_eq!(link.hear().expect("credit").kind, Kind::Credit);
    scene.member.close(link);
    scene.goes_on("a wrong checksum");
}

#[test]
fn a_member_that_misbehaves_towards_a_gateway() {
    misbehave(ENGINE);
}

#[test]
fn a_member_that_misbehaves_towards_a_session() {
    misbehave(SESSION);
    inside_messages(SESSION);
}

#[test]
fn a_gateway_that_misbehaves_towards_a_session() {
    misbehave(DELIVERY);
    inside_messages(DELIVERY);
}

/// What only the end of a flow can see: gateways pass on what is inside messages.
fn inside_messages(target: Target) {
    let _alone = alone();
    let mut scene = Scene::new(target);
    let urgent = LaneClass::Urgent;
    let two = |flow: &OpenFlow, offset, bytes| {
        let first = first_part(flow, 1000);
        let second = part(flow, &first, offset, bytes);
        [first, second].concat()
    };
    scene.is_noticed("a gap in a block", urgent, |flow| two(flow, 2000, 8));
    scene.is_noticed("a part that was sent before", urgent, |flow| {
        two(flow, 500, 8)
    });
    scene.is_noticed("an offset behind the block", urgent, |flow| {
        two(flow, BLOCK_BYTES, 8)
    });
    scene.is_noticed("an overlapping frame", urgent, |flow| {
        let first = first_part(flow, 1000);
        let mut header = flow.next();
        header.position += 64;
        header.offset = 1000;
        [first, sealed(header, &[1; 3000])].concat()
    });
    scene.is_noticed("a part of a block that never began", urgent, |flow| {
        let mut header = flow.next();
        header.offset = 8;
        sealed(header, &[1; 8])
    });
    scene.is_noticed("a message in the middle of another", urgent, |flow| {
        let first = first_part(flow, 1000);
        let mut other = flow.next();
        other.position += 1000 + 8 + 128;
        other.message = 1;
        other.flags = Flags::END;
        [first, sealed(other, &[])].concat()
    });
    scene.is_noticed("a descriptor that cannot be", urgent, |flow| {
        let mut header = flow.next();
        header.flags = Flags::DESCRIBED;
        sealed(header, &[0xff; 16])
    });
    scene.is_noticed("frames ahead that overlap", urgent, |flow| {
        let ahead = |by| {
            let mut header = flow.next();
            header.position += by;
            sealed(header, &[1; 3000])
        };
        [ahead(5000), ahead(5001)].concat()
    });
    bundles_that_come_apart(&mut scene);
    corrupt_is_refused(&mut scene);
    scene.end();
}

/// A wrong checksum over a payload: its source is asked to send again.
fn corrupt_is_refused(scene: &mut Scene) {
    let (mut link, flow) = scene.begin();
    let mut frame = first_part(&flow, 1000);
    frame[100] ^= 1;
    link.send(LaneClass::Urgent, &frame);
    scene.is_refused(link, Refusal::Corrupt);
    scene.goes_on("a wrong checksum of a payload");
}

/// Connections that say nothing.
const CROWD: usize = 10_000;

/// Descriptors that a node may need for members meanwhile: far fewer than a crowd would.
const FOR_MEMBERS: usize = 64;

/// Nodes that had so much `before` hold no more strangers than they have slots for.
fn holds_few(nodes: [&Process; 2], before: [(usize, usize); 2]) -> [(usize, usize); 2] {
    let within = nodes.map(Process::holdings);
    for ((before, _), (within, _)) in before.into_iter().zip(within) {
        let most = before + STRANGER_SLOTS + FOR_MEMBERS;
        assert!(within <= most, "{within} descriptors, {before} before");
    }
    within
}

#[test]
fn ten_thousand_that_say_nothing() {
    let _alone = alone();
    if !have(descriptors(CROWD as u64 + 200)) {
        return;
    }
    let plan = Plan::pair("").node("a1", &[("left", loopback())]);
    let gateway = plan.start("gw");
    let (mut a0, mut b0) = (plan.start("a0"), plan.start("b0"));
    b0.tell("collect main");
    a0.tell("stream normal main b0 10000");
    await_messages(&mut b0, "main/a0", 1);
    let cluster = plan.cluster();
    let address = |node: &str, network: &str| {
        let node = cluster.node(node).unwrap();
        let network = cluster.network_named(network).unwrap();
        match cluster.address(node, network).unwrap() {
            Endpoint::Tcp { host, port } => (host, port),
            other => panic!("{other:?}"),
        }
    };
    let before = [&gateway, &b0].map(Process::holdings);
    // At the gateway and at a session.
    let places = [address("gw", "left"), address("b0", "right")];
    let mut crowd = Vec::with_capacity(CROWD);
    for number in 0..CROWD {
        let (host, port) = &places[number % 2];
        crowd.push(TcpStream::connect((host.as_str(), *port)).unwrap());
        if number % 1000 == 0 {
            // Members go on, and new ones come in.
            let arrived = Counts::of(&mut b0).messages("main/a0");
            await_messages(&mut b0, "main/a0", arrived + 20);
            holds_few([&gateway, &b0], before);
        }
    }
    let mut a1 = plan.start("a1");
    a1.tell("stream late main b0 1000 10");
    await_messages(&mut b0, "main/a1", 10);
    let within = holds_few([&gateway, &b0], before);
    println!(
        "{before:?} before, {within:?} with a crowd; {} KiB",
        gateway.memory().peak >> 10
    );
    drop(crowd);
    a0.tell("halt normal");
    let sent = a0.hear("ended normal").parse().expect("no error");
    await_messages(&mut b0, "main/a0", sent);
}
