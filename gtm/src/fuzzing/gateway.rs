//! A gateway, to which its neighbours send anything.

use std::time::Duration;

use super::Input;
use crate::budget::Budget;
use crate::time::Time;
use crate::transit::{Departure, Lane, LinkId, Run, Transit};
use crate::wire::{Flags, HEADER_BYTES, Header, Kind, OPENING_BYTES, Opening, Refusal};

/// Memory of the gateway: three flows are guaranteed.
const BUDGET_BYTES: u64 = 48 << 10;

/// Two neighbours that send any frames, and links that come and go.
pub fn transit(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut now = Time(0);
    let mut transit: Transit<()> = Transit::new(Budget::new(BUDGET_BYTES));
    let mut links = [transit.add_link(), transit.add_link()];
    let mut departures = Vec::new();
    while let Some(command) = input.byte() {
        let side = usize::from(command >> 7);
        match command % 8 {
            0..=3 => {
                if let Some(header) = input.header() {
                    let opening = input.take(if header.flags.has(Flags::OPEN) {
                        OPENING_BYTES
                    } else {
                        0
                    });
                    let ends = (links[side], links[1 - side]);
                    if !handle(&mut transit, ends, &header, opening, now) {
                        lose(&mut transit, &mut links[side]);
                    }
                }
            }
            4 | 5 => {
                let lane = if command % 8 == 4 {
                    Lane::Urgent
                } else {
                    Lane::Bulk
                };
                let limit = 64 * usize::from(command);
                transit.poll_transmit(links[side], lane, limit, now, |(), departure| {
                    departures.push(departure);
                });
            }
            6 => depart(&mut transit, &mut departures, now),
            _ if command & 8 == 0 => lose(&mut transit, &mut links[side]),
            _ => {
                now = now + Duration::from_secs(u64::from(command));
                transit.handle_timeout(now);
            }
        }
        for link in links {
            let mut control = Vec::new();
            transit.poll_control(link, &mut control, usize::MAX);
            for frame in control.chunks(HEADER_BYTES) {
                let frame = frame.first_chunk().expect("whole frames");
                let header = Header::parse(frame).expect("a frame of our own");
                assert!(header.is_intact_control());
            }
        }
        let promised = transit.budget().promised();
        assert!(promised <= BUDGET_BYTES);
        assert!(transit.queued_bytes() <= promised);
    }
    for link in links {
        let _ = transit.remove_link(link);
    }
    assert_eq!(
        (transit.budget().promised(), transit.queued_bytes()),
        (0, 0)
    );
}

/// Returns whether the link may stay.
fn handle(
    transit: &mut Transit<()>,
    (from, to): (LinkId, LinkId),
    header: &Header,
    opening: &[u8],
    now: Time,
) -> bool {
    if header.kind != Kind::Data {
        let _ = transit.handle_control(from, header, now);
        return true;
    }
    if header.flags.has(Flags::OPEN) {
        let Ok(opening) = Opening::parse(opening) else {
            return false;
        };
        let to = if header.flow.destination % 8 == 7 {
            Err(Refusal::NoRoute)
        } else {
            Ok(to)
        };
        let _ = transit.handle_opening(from, header, &opening, to, (), now);
        return true;
    }
    let run = Run {
        flow: header.flow,
        label: header.label,
        start: header.position,
        end: header.end_position(),
        bytes: header.frame_bytes(),
        largest: header.frame_bytes(),
        frames: 1,
        lane: if header.is_small() {
            Lane::Urgent
        } else {
            Lane::Bulk
        },
    };
    transit.handle_run(from, &run, (), now).is_ok()
}

fn lose(transit: &mut Transit<()>, link: &mut LinkId) {
    let _ = transit.remove_link(*link);
    *link = transit.add_link();
}

fn depart(transit: &mut Transit<()>, departures: &mut Vec<Departure>, now: Time) {
    for departure in departures.drain(..) {
        let _ = transit.handle_departure(&departure, now);
    }
}
