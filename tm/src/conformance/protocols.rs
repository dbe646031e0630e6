//! The suite for each protocol of this crate.

use super::{LINKS, Rig};
use crate::{Endpoint, Tuning};

fn tcp_on(host: &str) -> Option<Rig> {
    if let Err(error) = std::net::TcpListener::bind((host, 0)) {
        super::say(&format!("this host has no {host}: {error}"));
        return None;
    }
    let endpoint = Endpoint::Tcp {
        host: host.to_owned(),
        port: 0,
    };
    Some(Rig {
        endpoint,
        tuning: Tuning::default(),
        links: LINKS,
        keep: Box::new(()),
    })
}

mod tcp_v4 {
    fn rig() -> Option<super::Rig> {
        super::tcp_on("127.0.0.1")
    }

    crate::conformance_suite!(rig);
}

mod tcp_v6 {
    fn rig() -> Option<super::Rig> {
        super::tcp_on("::1")
    }

    crate::conformance_suite!(rig);
}

mod shm {
    use super::{Endpoint, LINKS, Rig, Tuning};
    use crate::{ShmTuning, Stores};

    pub(super) fn rig_with(stores: Stores) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::Shm {
            directory: folder.path().to_owned(),
            name: "peer".into(),
        };
        let tuning = Tuning {
            shm: ShmTuning {
                stores,
                ..ShmTuning::default()
            },
            ..Tuning::default()
        };
        Rig {
            endpoint,
            tuning,
            links: LINKS,
            keep: Box::new(folder),
        }
    }

    mod adaptive {
        // An `Option` like the other rigs.
        #[allow(clippy::unnecessary_wraps)]
        fn rig() -> Option<super::Rig> {
            Some(super::rig_with(super::Stores::Adaptive))
        }

        crate::conformance_suite!(rig);
    }

    /// Through the caches.
    mod cached {
        #[allow(clippy::unnecessary_wraps)]
        fn rig() -> Option<super::Rig> {
            Some(super::rig_with(super::Stores::Cached))
        }

        crate::conformance_suite!(rig);
    }

    /// Through the caches, line by line.
    mod plain {
        #[allow(clippy::unnecessary_wraps)]
        fn rig() -> Option<super::Rig> {
            Some(super::rig_with(super::Stores::Plain))
        }

        crate::conformance_suite!(rig);
    }

    /// Past the caches, whoever is where.
    mod streaming {
        #[allow(clippy::unnecessary_wraps)]
        fn rig() -> Option<super::Rig> {
            Some(super::rig_with(super::Stores::Streaming))
        }

        crate::conformance_suite!(rig);
    }
}

mod hsl {
    use super::{Endpoint, LINKS, Rig, Tuning};
    use crate::hsl::Mode;
    use crate::{HslTuning, Stores};

    fn rig_in(mode: Mode) -> Rig {
        rig_with(mode, Stores::Adaptive)
    }

    pub(super) fn rig_with(mode: Mode, stores: Stores) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::Hsl {
            directory: folder.path().to_owned(),
            name: "peer".into(),
        };
        let tuning = Tuning {
            hsl: HslTuning {
                mode,
                stores,
                ..HslTuning::default()
            },
            ..Tuning::default()
        };
        Rig {
            endpoint,
            tuning,
            links: LINKS,
            keep: Box::new(folder),
        }
    }

    mod adaptive {
        // An `Option` like the other rigs.
        #[allow(clippy::unnecessary_wraps)]
        fn rig() -> Option<super::Rig> {
            Some(super::rig_in(super::Mode::Adaptive))
        }

        crate::conformance_suite!(rig);
    }

    mod interrupt {
        #[allow(clippy::unnecessary_wraps)]
        fn rig() -> Option<super::Rig> {
            Some(super::rig_in(super::Mode::Interrupt))
        }

        crate::conformance_suite!(rig);
    }

    mod polling {
        #[allow(clippy::unnecessary_wraps)]
        fn rig() -> Option<super::Rig> {
            Some(super::rig_in(super::Mode::Polling))
        }

        crate::conformance_suite!(rig);
    }

    /// Past the caches, whoever is where.
    mod streaming {
        #[allow(clippy::unnecessary_wraps)]
        fn rig() -> Option<super::Rig> {
            Some(super::rig_with(
                super::Mode::Polling,
                super::Stores::Streaming,
            ))
        }

        crate::conformance_suite!(rig);
    }

    /// The card of libfabric's, with the providers that need no hardware; between nodes that meet
    /// in a directory, and between those that meet over TCP.
    mod libfabric {
        use super::{Endpoint, HslTuning, Mode, Rig, Tuning};
        use crate::hsl::Card;

        fn rig_with(provider: &str, mode: Mode, by_tcp: bool) -> Option<Rig> {
            let folder = tempfile::tempdir().unwrap();
            let endpoint = if by_tcp {
                Endpoint::HslHost {
                    host: "127.0.0.1".into(),
                    port: 0,
                }
            } else {
                Endpoint::Hsl {
                    directory: folder.path().to_owned(),
                    name: "peer".into(),
                }
            };
            let tuning = Tuning {
                hsl: HslTuning {
                    mode,
                    card: Card::Libfabric {
                        provider: Some(provider.to_owned()),
                        domain: None,
                    },
                    ..HslTuning::default()
                },
                ..Tuning::default()
            };
            // Most endpoints take 16 MiB, and a link has two at each end.
            let links = if provider == "sockets" { 100 } else { 8 };
            crate::conformance::has_card(&tuning.hsl.card).then(|| Rig {
                endpoint,
                tuning,
                links,
                keep: Box::new(folder),
            })
        }

        macro_rules! provider {
            ($name:ident, $provider:literal, $mode:ident, $by_tcp:literal) => {
                mod $name {
                    fn rig() -> Option<super::Rig> {
                        super::rig_with($provider, super::Mode::$mode, $by_tcp)
                    }

                    crate::conformance_suite!(rig);
                }
            };
        }

        provider!(tcp, "tcp;ofi_rxm", Adaptive, false);
        provider!(tcp_polling, "tcp;ofi_rxm", Polling, false);
        provider!(tcp_between_hosts, "tcp;ofi_rxm", Adaptive, true);
        provider!(shm, "shm", Adaptive, false);
        provider!(shm_polling, "shm", Polling, false);
        provider!(sockets, "sockets", Adaptive, false);
    }
}

/// A side fills no further slot while there is as much in those that are not back as is to be filled ahead, and
/// no less than eight slots hold; however it fills them, and of small frames as many as there are slots.
#[test]
fn no_more_is_filled_ahead_than_is_to_be() {
    use super::meeting::Pair;
    use crate::hsl::Mode;
    use crate::{LaneClass, LaneSender, Piece, ShmTuning, Stores};

    type Fill = fn(&mut dyn LaneSender, &[u8]) -> bool;
    let lend: Fill = |sender, unit| {
        let Some(mut slot) = sender.try_lend().unwrap() else {
            return false;
        };
        slot.room(..unit.len()).put(Piece::new(unit));
        sender.commit(slot, unit.len()).unwrap();
        true
    };
    let copy: Fill = |sender, unit| sender.try_send_copy(unit).unwrap();
    let gather: Fill = |sender, unit| {
        let (one, other) = unit.split_at(unit.len() / 3);
        let pieces = [one, other].map(Piece::new);
        sender.try_send_gathered(&pieces).unwrap()
    };

    let ShmTuning {
        bulk_slot_bytes: slot_bytes,
        bulk_slots: all,
        ..
    } = ShmTuning::default();
    let unit = vec![7; slot_bytes];
    for (bytes, large) in [
        (0, 8),
        (9 * slot_bytes - 1, 9),
        (9 * slot_bytes, 9),
        (usize::MAX, all),
    ] {
        for fill in [lend, copy, gather] {
            for rig in [
                shm::rig_with(Stores::Adaptive),
                hsl::rig_with(Mode::Adaptive, Stores::Adaptive),
            ] {
                let mut pair = Pair::limited(&rig, LaneClass::Bulk, bytes);
                let (sender, receiver) = (&mut pair.dialer.sender, &mut pair.acceptor.receiver);
                let mut fill_all = |unit: &[u8]| {
                    let fills = std::iter::repeat_with(|| fill(sender.as_mut(), unit));
                    let count = fills.take_while(|is_filled| *is_filled).count();
                    // Who waits is told when one is back.
                    assert!(sender.arm().unwrap());
                    count
                };
                assert_eq!(fill_all(&unit), large, "{bytes}");
                for back in [1, 5] {
                    for _ in 0..back {
                        drop(receiver.try_receive_slot().unwrap().unwrap());
                    }
                    assert_eq!(fill_all(&unit), back, "{bytes}");
                }
                while receiver.try_receive_slot().unwrap().is_some() {}
                assert_eq!(fill_all(&unit[..1000]), all, "{bytes}");
                // The other way there is no limit.
                let back = &mut pair.acceptor.sender;
                assert!((0..all).all(|_| fill(back.as_mut(), &unit)), "{bytes}");
            }
        }
    }
}

/// Slots that the other side has read come back before more than a quarter of them are touched; the others
/// are for when these are in use.
#[test]
fn a_quarter_of_the_slots_is_used_while_they_come_back() {
    use std::collections::HashSet;

    use super::meeting::Pair;
    use crate::hsl::Mode;
    use crate::{LaneClass, ShmTuning, Stores};

    let ShmTuning { bulk_slots, .. } = ShmTuning::default();
    for rig in [
        shm::rig_with(Stores::Adaptive),
        hsl::rig_with(Mode::Polling, Stores::Adaptive),
    ] {
        let mut pair = Pair::new(&rig, LaneClass::Bulk);
        let (sender, receiver) = (&mut pair.dialer.sender, &mut pair.acceptor.receiver);
        let mut touched = HashSet::new();
        for _ in 0..3 * bulk_slots {
            let slot = sender.try_lend().unwrap().unwrap();
            touched.insert(slot.address());
            sender.commit(slot, 40 << 10).unwrap();
            let received = receiver.try_receive_slot().unwrap().unwrap();
            assert_eq!(received.len(), 40 << 10);
        }
        assert_eq!(touched.len(), bulk_slots / 4);
        let mut count = 0;
        while let Some(slot) = sender.try_lend().unwrap() {
            touched.insert(slot.address());
            sender.commit(slot, 40 << 10).unwrap();
            count += 1;
        }
        assert_eq!(touched.len(), bulk_slots);
        // Some are on their way back, to be told of with others.
        assert!(count > bulk_slots * 3 / 4, "{count}");
    }
}

/// What no case can see: all ways bring the same bytes. (Other processors have one way.)
#[cfg(target_arch = "x86_64")]
#[test]
fn lanes_store_as_they_are_told() {
    use super::meeting::Pair;
    use crate::hsl::Mode;
    use crate::{LaneClass, Stores};

    for stores in Stores::ALL {
        for rig in [shm::rig_with(stores), hsl::rig_with(Mode::Polling, stores)] {
            let pair = Pair::new(&rig, LaneClass::Bulk);
            for lane in [&pair.dialer, &pair.acceptor] {
                let said = format!("{:?}", lane.sender);
                let wanted = format!("UnitWriter {{ stores: {stores:?}");
                assert!(said.contains(&wanted), "{stores:?}: {said}");
            }
        }
    }
}
