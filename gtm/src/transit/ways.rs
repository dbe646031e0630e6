//! What waits between two groups of links, in a gateway between two networks.

/// What waits on the way from the links of one group to those of another. Times only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Way {
    /// Bytes of frames that are queued now.
    pub queued_bytes: u64,
    /// Flows that have used up what they were promised now.
    pub parked_flows: u32,
    /// As in [`Counters`](super::Counters).
    pub parked_ahead_ns: u64,
    /// As in [`Counters`](super::Counters).
    pub parked_memory_ns: u64,
}

/// Every way between groups; none where links have no group.
#[derive(Debug, Default)]
pub(super) struct Ways {
    groups: usize,
    /// By the group that frames come from, then by the one that they leave by.
    by_pair: Vec<Way>,
}

/// The way of a flow among them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WayOf(Option<usize>);

impl Ways {
    pub(super) fn between(groups: usize) -> Self {
        Self {
            groups,
            by_pair: vec![Way::default(); groups * groups],
        }
    }

    /// The way from a link of one group to a link of another.
    pub(super) fn of(&self, from: Option<usize>, to: Option<usize>) -> WayOf {
        let is_one = |group: &usize| *group < self.groups;
        let pair = from.filter(is_one).zip(to.filter(is_one));
        WayOf(pair.map(|(from, to)| from * self.groups + to))
    }

    pub(super) fn at(&self, from: usize, to: usize) -> Way {
        let place = self.of(Some(from), Some(to)).0;
        place.map_or_else(Way::default, |place| self.by_pair[place])
    }

    pub(super) fn at_mut(&mut self, way: WayOf) -> Option<&mut Way> {
        way.0.map(|place| &mut self.by_pair[place])
    }

    pub(super) fn queue(&mut self, way: WayOf, bytes: usize) {
        if let Some(way) = self.at_mut(way) {
            way.queued_bytes += bytes as u64;
        }
    }

    pub(super) fn unqueue(&mut self, way: WayOf, bytes: usize) {
        if let Some(way) = self.at_mut(way) {
            way.queued_bytes -= bytes as u64;
        }
    }
}
