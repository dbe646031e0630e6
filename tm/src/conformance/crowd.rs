//! Many links of one process, waited on at once.

use std::collections::HashSet;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::meeting::Pair;
use super::traffic::{pattern_from, receive_some, send_all};
use super::{Rig, SILENCE};
use crate::{LaneClass, Poller, listen};

/// One poller waits on the receiving and the sending halves of many lanes, and reports
/// those on which something happens. (Lanes that never want to be slept on pass it over.)
pub fn many_links(rig: &Rig) {
    let links = rig.links;
    // Both ends of all links are in this process.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );

    let mut listener = listen(&rig.endpoint, &rig.tuning).expect("listening");
    let (mut dialers, mut acceptors) = (Vec::new(), Vec::new());
    for _ in 0..links {
        let pair = Pair::through(listener.as_mut(), &rig.tuning, LaneClass::Urgent);
        dialers.push(pair.dialer);
        acceptors.push(pair.acceptor);
    }
    let mut poller = Poller::new().expect("a poller");
    for (index, lane) in acceptors.iter_mut().enumerate() {
        let (descriptor, interest) = lane.receiver.descriptor();
        poller
            .add(descriptor, index as u64, interest)
            .expect("adding");
        // The other half of the same lane can be in the same poller.
        let (descriptor, _) = lane.sender.descriptor();
        let token = (links + index) as u64;
        poller
            .add(descriptor, token, crate::Interest::None)
            .expect("adding");
        if !lane.receiver.arm().expect("arming") {
            // Nothing has been sent: this lane is one that is looked at, and never slept on.
            let nothing = receive_some(lane.receiver.as_mut(), &mut Vec::new());
            assert_eq!(nothing.expect("receiving"), 0);
            return;
        }
    }

    for round in 0..3 {
        std::thread::scope(|scope| {
            let dialers = &mut dialers;
            scope.spawn(move || {
                // In an order that has nothing to do with that of the links.
                for step in 0..links {
                    let index = step * 77 % links;
                    send_all(
                        dialers[index].sender.as_mut(),
                        &pattern_from(index + round, 64),
                    );
                }
            });
            let mut received = vec![Vec::new(); links];
            let mut in_vain = 0;
            let mut missing: HashSet<usize> = (0..links).collect();
            while !missing.is_empty() {
                let ready = poller.wait(Some(SILENCE)).expect("waiting").to_vec();
                assert!(
                    !ready.is_empty(),
                    "nothing happened on {} links",
                    missing.len()
                );
                for event in ready {
                    let index = usize::try_from(event.token).expect("an index");
                    // What a card does for itself may show once more on each link.
                    in_vain += usize::from(!missing.contains(&index));
                    assert!(event.readable && in_vain <= links, "woken for nothing");
                    let receiver = acceptors[index].receiver.as_mut();
                    receiver.acknowledge_wake();
                    loop {
                        while receive_some(receiver, &mut received[index]).expect("receiving") > 0 {
                        }
                        if receiver.arm().expect("arming") {
                            break;
                        }
                    }
                    if received[index].len() == 64 {
                        assert_eq!(received[index], pattern_from(index + round, 64));
                        missing.remove(&index);
                    }
                }
            }
        });
    }
}
