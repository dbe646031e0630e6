//! The other end of a bench.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

use madgate_vchannel::{Channel, Cluster, Delivery, NodeId, Progress, Unpacking};

use crate::failure::Failure;
use crate::motion::{Beside, Motion};
use crate::service::order::{Answer, Order, Report};
use crate::service::pattern::{Check, Messages};
use crate::service::talk::{self, Incoming, send_payload, send_payload_tracked};
use crate::service::under_way::Way;

/// How much longer than messages are tried for the other end may say nothing. Who only listens to a
/// node does not learn that it has gone.
const SILENCE_MARGIN: Duration = Duration::from_secs(10);
/// How much longer than that nothing at all may move.
const STILLNESS_MARGIN: Duration = Duration::from_secs(5);
/// How soon somebody is greeted again who has answered once and then no more.
const GREETED_WITHIN: Duration = Duration::from_secs(2);
/// Looks whether anything moves, in the time for which nothing may.
const LOOKS: u32 = 16;
/// How soon an order is repeated that is not answered.
const REPEAT_AFTER: Duration = Duration::from_millis(250);

/// A node that is measured with, over a channel. One thread at a time listens on a channel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Partner<'a> {
    pub(super) channel: &'a Channel,
    pub(super) node: NodeId,
    /// What others send between both ends, if they do: what moves beyond that is the bench's.
    beside: Option<Beside>,
}

/// What comes from the other end while it sends messages.
enum Next<'a> {
    Payload(Unpacking<'a>, usize),
    Report(Report),
}

impl<'a> Partner<'a> {
    /// One with which nothing but benches goes on.
    pub(super) const fn new(channel: &'a Channel, node: NodeId) -> Self {
        Self {
            channel,
            node,
            beside: None,
        }
    }

    /// One that others talk with too, as much as that.
    pub(crate) const fn among_others(channel: &'a Channel, node: NodeId, beside: Beside) -> Self {
        Self {
            channel,
            node,
            beside: Some(beside),
        }
    }

    pub(super) fn name(&self) -> &'a str {
        self.channel.session().cluster().node_name(self.node)
    }

    /// Gives an order, and waits until it is obeyed.
    ///
    /// The first answer may be lost: the other end may not know yet that the process that
    /// was this node before is gone. So the order is repeated until an answer comes.
    pub(super) fn order(&self, order: Order) -> Result<u64, Failure> {
        let obeyed = self.order_within(order, self.silence_limit())?;
        obeyed.ok_or_else(|| self.silence())
    }

    /// The same with a limit of its own; `None` if nothing is heard until then.
    pub(super) fn order_within(
        &self,
        order: Order,
        limit: Duration,
    ) -> Result<Option<u64>, Failure> {
        let tag = RandomState::new().build_hasher().finish();
        let mut deadline = Instant::now() + limit;
        let mut motion = self.motion();
        let mut last: Option<Delivery> = None;
        while Instant::now() < deadline {
            // One that is on its way still, as slowly as that may be, is not overdue.
            if let Some(order) = &last
                && !order.is_delivered()?
            {
                if motion.has_moved(self.progress()) {
                    deadline = Instant::now() + limit;
                }
            } else {
                let order = order.encode(tag);
                last = Some(talk::send_tracked(self.channel, self.node, order)?);
            }
            match self.answer(tag, REPEAT_AFTER)? {
                Some(Answer::Ready) => return Ok(Some(tag)),
                Some(Answer::Busy) => {
                    return Err(Failure::new(format!(
                        "{} answers as many benches as it can already",
                        self.name()
                    )));
                }
                Some(Answer::Unable) => {
                    return Err(Failure::new(format!("{} is no gateway", self.name())));
                }
                Some(Answer::Report(_) | Answer::Seen(_)) | None => {}
            }
        }
        Ok(None)
    }

    /// Talks to the other end for the first time, so that it is this one that is named if it is
    /// not there.
    ///
    /// One that answers may be about to go back to other values, as nodes do that have just been tuned,
    /// and who comes after it knows of no bench: it is greeted again.
    pub(super) fn greet(&self) -> Result<(), Failure> {
        let mut was_left = false;
        let mut deadline = None;
        loop {
            let tag = match self.order(Order::Echo) {
                // What was said to the one before is lost, which is told once.
                Err(_) if std::mem::take(&mut was_left) => continue,
                tag => tag?,
            };
            let why = match self.stop_within(tag, GREETED_WITHIN) {
                Ok(Some(Answer::Report(report))) => {
                    return all_arrived(0, report.arrived, report.wrong);
                }
                Ok(Some(_)) => return Err(self.nonsense()),
                Ok(None) => self.silence(),
                // What was said to it was lost with it.
                Err(why) => why,
            };
            was_left = true;
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + self.silence_limit());
            if Instant::now() >= deadline {
                return Err(why);
            }
        }
    }

    /// Ends what was ordered, where the other end sends nothing; returns what it says then.
    pub(super) fn stop(&self, tag: u64) -> Result<Answer, Failure> {
        let answer = self.stop_within(tag, self.silence_limit())?;
        answer.ok_or_else(|| self.silence())
    }

    /// The same with a limit of its own, which begins when everything before it has arrived, as slowly
    /// as that may go; `None` if nothing is heard until then.
    pub(super) fn stop_within(&self, tag: u64, limit: Duration) -> Result<Option<Answer>, Failure> {
        let stop = self.send_stop(tag)?;
        self.answer_to_stop(tag, &stop, limit)
    }

    /// What is said when this has arrived, which ends what was ordered.
    fn answer_to_stop(
        &self,
        tag: u64,
        stop: &Delivery,
        limit: Duration,
    ) -> Result<Option<Answer>, Failure> {
        if !self.arrives(stop)? {
            return Ok(None);
        }
        loop {
            match self.answer(tag, limit)? {
                // The answer to an order that was repeated for nothing.
                Some(Answer::Ready | Answer::Busy | Answer::Unable) => {}
                answer => return Ok(answer),
            }
        }
    }

    /// The same where it counts, and nothing may be missing or damaged of `sent` messages.
    pub(super) fn stop_counting(&self, tag: u64, sent: u64) -> Result<(), Failure> {
        let stop = self.send_stop(tag)?;
        self.counted(tag, &stop, sent)
    }

    /// The same where [that](Self::send_stop) is under way already.
    pub(super) fn counted(&self, tag: u64, stop: &Delivery, sent: u64) -> Result<(), Failure> {
        match self.answer_to_stop(tag, stop, self.silence_limit())? {
            Some(Answer::Report(report)) => all_arrived(sent, report.arrived, report.wrong),
            Some(_) => Err(self.nonsense()),
            None => Err(self.silence()),
        }
    }

    /// Ends what was ordered; what is said then is for whoever waits for it.
    pub(super) fn send_stop(&self, tag: u64) -> Result<Delivery, Failure> {
        let stop = Order::Stop.encode(tag);
        Ok(talk::send_tracked(self.channel, self.node, stop)?)
    }

    pub(super) fn payload(&self, messages: &Messages, sequence: u64) -> Result<(), Failure> {
        Ok(send_payload(self.channel, self.node, messages, sequence)?)
    }

    /// As [`payload`](Self::payload), for one whose delivery is waited for.
    pub(super) fn payload_tracked(
        &self,
        messages: &Messages,
        sequence: u64,
    ) -> Result<Delivery, Failure> {
        Ok(send_payload_tracked(
            self.channel,
            self.node,
            messages,
            sequence,
        )?)
    }

    /// Unpacks the next payload of the other end into `buffer`, which is as long.
    pub(super) fn payload_back(&self, buffer: &mut [u8]) -> Result<(), Failure> {
        while let Some(mut unpacking) = self.next_unless_still()? {
            if let Incoming::Payload(_) = talk::read(&mut unpacking)? {
                return unpack(unpacking, buffer);
            }
        }
        Err(self.silence())
    }

    /// Receives messages of the other end until it reports, and checks them. `seen` is told of
    /// each. Returns how many there were, and the report.
    pub(super) fn take_stream(
        &self,
        tag: u64,
        message_bytes: usize,
        mut seen: impl FnMut(),
    ) -> Result<(u64, Report), Failure> {
        let check = Check::new();
        let mut buffer = vec![0; message_bytes];
        let (mut arrived, mut wrong) = (0, 0);
        let report = loop {
            match self.next_of_stream(tag)? {
                Next::Payload(unpacking, size) => {
                    let sequence = arrived;
                    arrived += 1;
                    if size == message_bytes {
                        unpack(unpacking, &mut buffer)?;
                        wrong += u64::from(!check.matches(sequence, &buffer));
                    } else {
                        wrong += 1;
                    }
                    seen();
                }
                Next::Report(report) => break report,
            }
        };
        all_arrived(report.sent, arrived, wrong)?;
        Ok((arrived, report))
    }

    fn next_of_stream(&self, tag: u64) -> Result<Next<'a>, Failure> {
        while let Some(mut unpacking) = self.next_unless_still()? {
            match talk::read(&mut unpacking)? {
                Incoming::Payload(size) => return Ok(Next::Payload(unpacking, size)),
                Incoming::Service(head) if head.tag == tag => {
                    let body = talk::body(unpacking, &head)?;
                    if let Some(Answer::Report(report)) = Answer::decode(&head, &body) {
                        return Ok(Next::Report(report));
                    }
                }
                Incoming::Service(_) => {}
            }
        }
        Err(self.silence())
    }

    /// The next answer to the bench `tag`, if one comes within `patience`.
    fn answer(&self, tag: u64, patience: Duration) -> Result<Option<Answer>, Failure> {
        let deadline = Instant::now() + patience;
        while let Some(mut unpacking) = self.next(deadline)? {
            if let Incoming::Service(head) = talk::read(&mut unpacking)?
                && head.tag == tag
            {
                let body = talk::body(unpacking, &head)?;
                if let Some(answer) = Answer::decode(&head, &body) {
                    return Ok(Some(answer));
                }
            }
        }
        Ok(None)
    }

    /// The next message of the other end, for as long as anything moves: what it answers may still be on
    /// its way there. `None` when nothing has for too long.
    fn next_unless_still(&self) -> Result<Option<Unpacking<'a>>, Failure> {
        let look = self.silence_limit() / LOOKS;
        let next = self.next(Instant::now() + look)?;
        if next.is_some() {
            return Ok(next);
        }
        self.unless_still(|| self.next(Instant::now() + look))
    }

    /// Waits until a message has arrived there, for as long as anything moves; whether it has.
    pub(super) fn arrives(&self, message: &Delivery) -> Result<bool, Failure> {
        let look = self.silence_limit() / LOOKS;
        if message.wait_within(look)? {
            return Ok(true);
        }
        let arrived = self.unless_still(|| Ok(message.wait_within(look)?.then_some(())));
        Ok(arrived?.is_some())
    }

    /// Looks again and again, until something is found or nothing has moved for too long.
    fn unless_still<T>(
        &self,
        mut look: impl FnMut() -> Result<Option<T>, Failure>,
    ) -> Result<Option<T>, Failure> {
        let (mut motion, mut since) = (self.motion(), Instant::now());
        while since.elapsed() < self.silence_limit() {
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            if motion.has_moved(self.progress()) {
                since = Instant::now();
            }
        }
        Ok(None)
    }

    /// What moves from now on.
    fn motion(&self) -> Motion {
        let now = self.progress();
        match self.beside {
            Some(beside) => Motion::among_others(now, beside),
            None => Motion::from(now),
        }
    }

    /// How far everything has come between both ends.
    fn progress(&self) -> Progress {
        self.channel.progress(self.node)
    }

    /// The next message of the other end, if one comes in time.
    fn next(&self, deadline: Instant) -> Result<Option<Unpacking<'a>>, Failure> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.channel.begin_unpacking_within(left)? {
                // Others may talk to this node too; they are not listened to.
                Some(unpacking) if unpacking.source() != self.node => {}
                unpacking => return Ok(unpacking),
            }
        }
    }

    /// How long the other end may say nothing.
    fn silence_limit(&self) -> Duration {
        self.channel.session().cluster().link_timeout() + SILENCE_MARGIN
    }

    pub(super) fn silence(&self) -> Failure {
        Failure::new(format!(
            "{} has said nothing for {:.0?}: its process was restarted or is stopped, or is no \
             `madgate serve` or `madgate gateway`; or a gateway on the way has gone; look at their \
             logs",
            self.name(),
            self.silence_limit()
        ))
    }

    pub(super) fn nonsense(&self) -> Failure {
        Failure::new(format!(
            "{} has answered something else than it was asked; is it of this version?",
            self.name()
        ))
    }
}

impl Way for Partner<'_> {
    type Mark = Delivery;
    type Error = Failure;

    fn has_arrived(&self, mark: &Delivery) -> Result<bool, Failure> {
        Ok(mark.is_delivered()?)
    }

    fn arrives(&self, mark: &Delivery) -> Result<(), Failure> {
        if Partner::arrives(self, mark)? {
            Ok(())
        } else {
            Err(self.silence())
        }
    }
}

/// How long nothing may move at all, in whole seconds. Who waits for an answer gives up sooner, and says
/// for which.
pub(crate) fn stillness_limit(cluster: &Cluster) -> Duration {
    let silence = cluster.link_timeout() + SILENCE_MARGIN;
    // Who waits looks a few times longer than that.
    let limit = silence + silence / LOOKS * 2 + STILLNESS_MARGIN;
    Duration::from_secs(limit.as_secs() + u64::from(limit.subsec_nanos() > 0))
}

/// Nothing may be missing or damaged.
pub(super) fn all_arrived(sent: u64, arrived: u64, wrong: u64) -> Result<(), Failure> {
    if arrived == sent && wrong == 0 {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} sent, {arrived} arrived, {wrong} of them damaged",
        crate::units::counted(sent, "message")
    )))
}

/// Unpacks the one block of a message.
fn unpack<'a>(mut unpacking: Unpacking<'a>, into: &'a mut [u8]) -> Result<(), Failure> {
    unpacking.unpack_cheaper(into)?;
    Ok(unpacking.end_unpacking()?)
}
