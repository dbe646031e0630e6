//! The way of a small message that nothing waits before: from its packer straight to the lane.
//!
//! Everything else takes turns ([`flush`](super::flush)).

use std::sync::Arc;

use bytes::Bytes;
use madgate_bmm::{Borrowed, Buffer, OutboxError};
use parking_lot::MutexGuard;

use super::Inner;
use super::core::Core;
use super::links::{LaneOutput, Link, LinkOutput};

/// The small blocks of a message that has no others, and ends with them.
#[derive(Debug)]
pub(crate) struct Alone<'m> {
    pub(crate) flow: u32,
    pub(crate) message: u32,
    /// Number of the first block.
    pub(crate) first: u32,
    /// The blocks, encoded; their memory goes back to the flow when they are sent.
    pub(crate) records: &'m mut Vec<u8>,
}

impl Inner {
    /// Sends a message now, if nothing waits for the link and the lane is free. Gives `core`
    /// back, with nothing changed, when the message has to take its turn.
    pub(crate) fn try_send_alone<'c>(
        &'c self,
        mut core: MutexGuard<'c, Core>,
        message: Alone<'_>,
    ) -> Result<(), MutexGuard<'c, Core>> {
        let link = core.out_flows[message.flow as usize].link;
        let Some(output) = core.clear_output(link) else {
            return Err(core);
        };
        if output.only_stores() {
            return self.try_send_locked(core, message);
        }
        let output = Arc::clone(output);
        let Some(mut lanes) = output.try_lock_clear() else {
            return Err(core);
        };
        let lane = &mut lanes.urgent;
        let slot = &mut core.out_flows[message.flow as usize];
        let Some(length) = slot.flow.try_transmit_alone(
            message.message,
            message.first,
            message.records,
            &mut lane.frame,
            || self.now(),
            |_| (),
        ) else {
            drop(lanes);
            return Err(core);
        };
        message.records.clear();
        slot.scratch = std::mem::take(message.records);
        drop(core);
        let sent = lane
            .outbox
            .send_small(&mut *lane.sender, &lane.frame[..length], ());
        match lane.queue_rest(sent, length) {
            Ok(true) => {}
            Ok(false) => {
                lane.is_blocked = true;
                self.lock().note_blocked(link, &output);
                self.wake_sleeping_driver();
            }
            Err(error) => {
                lanes.urgent.is_blocked = true;
                lanes.bulk.is_blocked = true;
                self.lock().note_broken(link, &output, error.into());
                self.wake_sleeping_driver();
            }
        }
        drop(lanes);
        self.flush_if_missed(link, &output);
        Ok(())
    }

    /// The same where sending takes no longer than to unlock everything and lock it again: the message
    /// leaves under the core's lock, before anything else is done about it. Nobody tries the lanes
    /// without that lock, so nobody can have missed them.
    fn try_send_locked<'c>(
        &'c self,
        mut core: MutexGuard<'c, Core>,
        message: Alone<'_>,
    ) -> Result<(), MutexGuard<'c, Core>> {
        let Core {
            links,
            out_flows,
            blocked,
            broken,
            ..
        } = &mut *core;
        let slot = &mut out_flows[message.flow as usize];
        let index = slot.link;
        let Some(Link {
            output: Some(output),
            is_stalled,
            ..
        }) = &mut links[index as usize]
        else {
            return Err(core);
        };
        let Some(mut lanes) = output.try_lock_clear() else {
            return Err(core);
        };
        let lane = &mut lanes.urgent;
        let mut sent = Ok(Borrowed::NotNow(()));
        let (outbox, sender) = (&mut lane.outbox, &mut *lane.sender);
        let Some(length) = slot.flow.try_transmit_alone(
            message.message,
            message.first,
            message.records,
            &mut lane.frame,
            || self.now(),
            |frame| sent = outbox.send_small(sender, frame, ()),
        ) else {
            drop(lanes);
            return Err(core);
        };
        message.records.clear();
        slot.scratch = std::mem::take(message.records);
        match lane.queue_rest(sent, length) {
            Ok(true) => return Ok(()),
            Ok(false) => {
                lane.is_blocked = true;
                *is_stalled = true;
                if !blocked.contains(&index) {
                    blocked.push(index);
                }
            }
            Err(error) => {
                lanes.urgent.is_blocked = true;
                lanes.bulk.is_blocked = true;
                if !broken.iter().any(|(broken, _)| *broken == index) {
                    broken.push((index, error.into()));
                }
            }
        }
        drop(lanes);
        drop(core);
        self.wake_sleeping_driver();
        Ok(())
    }
}

impl Core {
    /// The sending side of a link that is up and that nothing waits for, if messages may leave alone.
    fn clear_output(&self, index: u32) -> Option<&Arc<LinkOutput>> {
        let link = self.links.get(index as usize)?.as_ref()?;
        let is_clear = self.settings().alone
            && !link.is_dirty
            && !link.is_gathering
            && link.waiting.is_empty()
            && link.control.is_empty()
            && link.credits.is_empty()
            // Who sets the first deadline tells the driver.
            && self.sweep_at.is_some();
        link.output.as_ref().filter(|_| is_clear)
    }
}

impl LaneOutput {
    /// The lane's frame, of so many bytes, was offered to it. Returns whether it took all of that; else
    /// what it did not take is queued.
    #[inline]
    fn queue_rest(
        &mut self,
        sent: Result<Borrowed<()>, OutboxError>,
        length: usize,
    ) -> Result<bool, OutboxError> {
        match sent? {
            Borrowed::Left(()) => Ok(true),
            Borrowed::Queued => Ok(false),
            Borrowed::NotNow(()) => {
                let frame = Bytes::copy_from_slice(&self.frame[..length]);
                self.push(Buffer::shared(frame));
                Ok(false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use madgate_gtm::wire::{Descriptor, Flags, HEADER_BYTES, ReceiveMode, SendMode};

    use super::super::tests::{free_addresses, pair};
    use super::*;
    use crate::session::Session;

    /// What a test gives up after.
    const LONG: Duration = Duration::from_secs(30);

    /// Sends a message of one byte on the only flow. Returns whether it left alone.
    fn send_one(from: &Session, byte: u8) -> bool {
        let inner = from.inner();
        let mut core = inner.lock();
        let slot = &mut core.out_flows[0];
        let message = slot.begin_message();
        let descriptor = Descriptor::new(1, SendMode::Safer, ReceiveMode::Express).unwrap();
        let mut records = [&descriptor.to_bytes()[..], &[byte]].concat();
        let alone = Alone {
            flow: 0,
            message,
            first: 0,
            records: &mut records,
        };
        let Err(mut core) = inner.try_send_alone(core, alone) else {
            return true;
        };
        let flags = Flags::END.with(Flags::DESCRIBED);
        let flow = &mut core.out_flows[0].flow;
        flow.push_frame(flags, message, 0, &records);
        core.wake_flow(0);
        drop(core);
        inner.flush_dirty();
        false
    }

    fn receive_one(at: &Session, expected: u8) {
        let channel = at.channel("main").unwrap();
        let mut block = [0];
        let mut unpacking = channel.begin_unpacking().unwrap();
        unpacking.unpack_express(&mut block).unwrap();
        unpacking.end_unpacking().unwrap();
        assert_eq!(block, [expected]);
    }

    /// Both ways: that of lanes which only store, and that of those which call the system.
    #[test]
    fn messages_that_nothing_waits_before_leave_alone_unless_that_is_switched_off() {
        leave_alone("shm", ["a", "b"]);
        let [a, b] = free_addresses();
        leave_alone("tcp", [&a, &b]);
    }

    fn leave_alone(protocol: &str, addresses: [&str; 2]) {
        let (_files, a, b) = pair(protocol, addresses);
        let channel = a.channel("main").unwrap();
        let mut packing = channel.begin_packing(b.node()).unwrap();
        packing.pack_safer(&[0], ReceiveMode::Express).unwrap();
        packing.end_packing_delivered().unwrap();
        receive_one(&b, 0);
        a.inner().lock().settings.alone = false;
        for byte in 1..100 {
            assert!(!send_one(&a, byte));
            receive_one(&b, byte);
        }
        a.inner().lock().settings.alone = true;
        // Now and then the progress thread has the lanes.
        let start = Instant::now();
        loop {
            let has_left_alone = send_one(&a, 100);
            receive_one(&b, 100);
            if has_left_alone {
                break;
            }
            assert!(start.elapsed() < LONG, "none leaves alone");
        }
    }

    #[test]
    fn what_a_lane_that_only_stores_does_not_take_is_sent_later() {
        for protocol in ["shm", "hsl"] {
            let (_files, a, b) = pair(protocol, ["a", "b"]);
            let channel = a.channel("main").unwrap();
            let mut packing = channel.begin_packing(b.node()).unwrap();
            packing.pack_safer(&[0], ReceiveMode::Express).unwrap();
            packing.end_packing_delivered().unwrap();
            receive_one(&b, 0);
            // Nobody takes anything in there.
            let busy = b.inner().lock();
            // Whether the lane is blocked, the link is known to be, and how much is queued.
            let index = a.inner().lock().out_flows[0].link as usize;
            let output = {
                let core = a.inner().lock();
                core.links[index].as_ref().unwrap().output.clone().unwrap()
            };
            let state = || {
                // In the order in which others have both.
                let lanes = output.lock();
                let is_stalled = a.inner().lock().links[index].as_ref().unwrap().is_stalled;
                let queued = lanes.urgent.outbox.queued_bytes();
                (lanes.urgent.is_blocked, is_stalled, queued)
            };
            let mut sent = Vec::new();
            let (is_stalled, queued) = loop {
                let byte = u8::try_from(sent.len() % 251).unwrap();
                send_one(&a, byte);
                sent.push(byte);
                if let (true, is_stalled, queued) = state() {
                    break (is_stalled, queued);
                }
                assert!(sent.len() < 10_000, "{protocol}: it is never full");
            };
            assert!(is_stalled, "{protocol}: nobody would wait for it");
            assert!(
                queued > HEADER_BYTES,
                "{protocol}: {queued} bytes are queued"
            );
            drop(busy);
            for byte in sent {
                receive_one(&b, byte);
            }
        }
    }
}
