//! Lanes that take as much as a script says, and remember what they took.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;

use madgate_tm::{Interest, LaneError, LaneSender, LentSlot, Piece, Pipe, Shape};

/// A dynamic lane. Each send takes as many bytes as the next entry of `grants` says; 0 is
/// *not now*.
#[derive(Debug)]
pub(super) struct DynamicLane {
    gather_limit: usize,
    grants: Vec<usize>,
    next: usize,
    /// Takes all that it is offered, whatever the script says.
    pub(super) is_generous: bool,
    /// Whether it takes pipes.
    pub(super) takes_pipes: bool,
    pub(super) calls: u64,
    pub(super) taken: Vec<u8>,
}

impl DynamicLane {
    pub(super) fn new(gather_limit: usize, grants: Vec<usize>) -> Self {
        Self {
            gather_limit,
            is_generous: grants.is_empty(),
            grants,
            next: 0,
            takes_pipes: true,
            calls: 0,
            taken: Vec::new(),
        }
    }

    /// How many of the bytes on offer the next call takes.
    fn grant(&mut self, offered: usize) -> usize {
        self.calls += 1;
        if self.is_generous {
            return offered;
        }
        let grant = self.grants[self.next % self.grants.len()];
        self.next += 1;
        offered.min(grant)
    }
}

impl LaneSender for DynamicLane {
    fn shape(&self) -> Shape {
        Shape::Dynamic {
            gather_limit: self.gather_limit,
        }
    }

    fn try_send(&mut self, pieces: &[Piece<'_>]) -> Result<usize, LaneError> {
        let offered: usize = pieces.iter().map(Piece::len).sum();
        assert!(pieces.len() <= self.gather_limit, "{} pieces", pieces.len());
        assert!(offered > 0, "a call for nothing");
        let grant = self.grant(offered);
        let end = self.taken.len() + grant;
        for piece in pieces {
            let start = self.taken.len();
            let piece = piece.truncated(end - start);
            self.taken.resize(start + piece.len(), 0);
            piece.copy_to(&mut self.taken[start..]);
        }
        Ok(grant)
    }

    fn takes_pipes(&self) -> bool {
        self.takes_pipes
    }

    fn try_send_pipe(&mut self, pipe: &mut Pipe, _: bool) -> Result<usize, LaneError> {
        assert!(self.takes_pipes && !pipe.is_empty(), "a call for nothing");
        let grant = self.grant(pipe.len());
        let start = self.taken.len();
        self.taken.resize(start + grant, 0);
        Ok(pipe.read(&mut self.taken[start..])?)
    }

    fn try_lend(&mut self) -> Result<Option<LentSlot>, LaneError> {
        Err(LaneError::WrongShape("lent slots"))
    }

    fn commit(&mut self, _: LentSlot, _: usize) -> Result<(), LaneError> {
        Err(LaneError::WrongShape("lent slots"))
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        Ok(true)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        unreachable!("nobody sleeps in these tests")
    }

    fn acknowledge_wake(&mut self) {}
}

/// A static lane. Each entry of `lends` says whether the next call lends a slot.
#[derive(Debug)]
pub(super) struct StaticLane {
    slot_bytes: usize,
    lends: Vec<bool>,
    next: usize,
    /// Where its slots are that are lent.
    lent: HashSet<usize>,
    /// Lends always, whatever the script says.
    pub(super) is_generous: bool,
    /// Sends units from where they are.
    pub(super) gathers: bool,
    /// How many units it was given whole.
    pub(super) whole: usize,
    pub(super) commits: Vec<Vec<u8>>,
}

impl StaticLane {
    pub(super) fn new(slot_bytes: usize, lends: Vec<bool>) -> Self {
        Self {
            slot_bytes,
            is_generous: lends.is_empty(),
            lends,
            next: 0,
            lent: HashSet::new(),
            gathers: false,
            whole: 0,
            commits: Vec::new(),
        }
    }

    /// As when somebody fills a slot before it is queued.
    pub(super) fn lend(&mut self) -> LentSlot {
        let mut slot = LentSlot::detached(self.slot_bytes);
        // What an earlier use left.
        slot.room(..).put(Piece::new(&vec![0xEE; self.slot_bytes]));
        self.lent.insert(slot.address());
        slot
    }

    /// What the script says.
    fn has_slot(&mut self) -> bool {
        if self.is_generous {
            return true;
        }
        self.next += 1;
        self.lends[(self.next - 1) % self.lends.len()]
    }

    pub(super) fn taken_bytes(&self) -> usize {
        self.commits.iter().map(Vec::len).sum()
    }
}

impl LaneSender for StaticLane {
    fn shape(&self) -> Shape {
        Shape::Static {
            slot_bytes: self.slot_bytes,
            slots: 8,
        }
    }

    fn try_send(&mut self, _: &[Piece<'_>]) -> Result<usize, LaneError> {
        Err(LaneError::WrongShape("a stream"))
    }

    fn try_lend(&mut self) -> Result<Option<LentSlot>, LaneError> {
        Ok(self.has_slot().then(|| self.lend()))
    }

    fn gathers(&self) -> bool {
        self.gathers
    }

    fn try_send_gathered(&mut self, pieces: &[Piece<'_>]) -> Result<bool, LaneError> {
        if !self.has_slot() {
            return Ok(false);
        }
        let mut unit = vec![0; pieces.iter().map(Piece::len).sum()];
        assert!(unit.len() <= self.slot_bytes, "more than a slot");
        let mut filled = 0;
        for piece in pieces {
            filled += piece.copy_to(&mut unit[filled..]);
        }
        self.commits.push(unit);
        self.whole += 1;
        Ok(true)
    }

    fn commit(&mut self, slot: LentSlot, length: usize) -> Result<(), LaneError> {
        if !self.lent.remove(&slot.address()) {
            return Err(LaneError::Misuse("committed a slot of another lane"));
        }
        let mut unit = vec![0; length];
        slot.piece(..length).copy_to(&mut unit);
        self.commits.push(unit);
        Ok(())
    }

    fn arm(&mut self) -> Result<bool, LaneError> {
        Ok(true)
    }

    fn descriptor(&self) -> (BorrowedFd<'_>, Interest) {
        unreachable!("nobody sleeps in these tests")
    }

    fn acknowledge_wake(&mut self) {}
}
