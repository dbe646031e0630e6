//! What is in a batch of bytes that arrived on a link, without I/O.
//!
//! [`scan`] walks over the headers of a batch, in place, and says what the bytes are: runs of
//! data frames that belong together, openings, control frames, and at the end perhaps the
//! beginning of a frame that is not whole yet. Everything that can be wrong with a frame by
//! itself is found here; whether it was promised a place is for
//! [`Transit`](madgate_gtm::Transit) to say.

use std::ops::Range;

use madgate_gtm::Header;
use madgate_gtm::transit::{Lane, Run};
use madgate_gtm::wire::{CHARGE_PER_FRAME, Flags, HEADER_BYTES, HeaderRef, Opening, checksum};

use crate::fault::Fault;

/// Bytes of frames of one flow that go on as one at most: one turn between flows.
pub(crate) const RUN_BYTES: usize = 64 << 10;

/// What a lane may carry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) lane: Lane,
    /// The largest frame, header included.
    pub(crate) largest_frame: usize,
}

/// Something whole in a batch.
#[derive(Debug)]
pub(crate) enum Item {
    /// Small data frames of one flow, next to each other, or one large one.
    Run { run: Run, at: Range<usize> },
    /// A frame that opens a flow.
    Opening {
        header: Header,
        opening: Opening,
        at: Range<usize>,
    },
    /// A control frame, intact.
    Control(Header),
}

/// What a scan has found besides the items.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// Bytes of whole frames.
    pub(crate) used: usize,
    /// The header of the frame behind them, if it is there and the rest is not.
    pub(crate) partial: Option<Header>,
    /// Where the last data frame starts, whole or not, and its header.
    pub(crate) last: Option<(usize, Header)>,
    /// Frames that were dropped because their checksum is wrong.
    pub(crate) corrupt: u32,
}

/// Appends what `bytes` hold to `items`.
pub(crate) fn scan(bytes: &[u8], rules: Rules, items: &mut Vec<Item>) -> Result<Scanned, Fault> {
    let mut scanned = Scanned::default();
    let first = items.len();
    while let Some(head) = bytes[scanned.used..].first_chunk::<HEADER_BYTES>() {
        let header = Header::check(head)?;
        rules.check(header)?;
        let start = scanned.used;
        let end = start + header.frame_bytes();
        if header.is_data() && rules.lane == Lane::Bulk {
            scanned.last = Some((start, header.read()));
        }
        if end > bytes.len() {
            scanned.partial = Some(header.read());
            break;
        }
        scanned.used = end;
        if !header.is_data() {
            let header = header.read();
            if header.is_intact_control() {
                items.push(Item::Control(header));
            } else {
                scanned.corrupt += 1;
            }
        } else if header.flags().has(Flags::OPEN) {
            let (header, payload) = (header.read(), &bytes[start + HEADER_BYTES..end]);
            if checksum::is_intact(&header, payload) {
                let opening = Opening::parse(payload)?;
                items.push(Item::Opening {
                    header,
                    opening,
                    at: start..end,
                });
            } else {
                // The source repeats an opening that is not answered.
                scanned.corrupt += 1;
            }
        } else if items.len() == first || !extend(items, header, start) {
            items.push(Item::Run {
                run: run_of(&header.read(), rules.lane),
                at: start..end,
            });
        }
    }
    Ok(scanned)
}

/// One data frame by itself.
pub(crate) fn run_of(header: &Header, lane: Lane) -> Run {
    Run {
        flow: header.flow,
        label: header.label,
        start: header.position,
        end: header.end_position(),
        bytes: header.frame_bytes(),
        largest: header.frame_bytes(),
        frames: 1,
        lane,
    }
}

/// Adds a data frame that starts at `start` to the last run, if it continues it.
fn extend(items: &mut [Item], header: HeaderRef<'_>, start: usize) -> bool {
    let Some(Item::Run { run, at }) = items.last_mut() else {
        return false;
    };
    let bytes = header.frame_bytes();
    let continues = run.lane == Lane::Urgent
        && at.end == start
        && run.end == header.position()
        && run.label == header.label()
        && run.flow == header.flow()
        && run.bytes + bytes <= RUN_BYTES;
    if continues {
        run.end = header.end_position();
        run.bytes += bytes;
        run.frames += 1;
        at.end += bytes;
        run.largest = run.largest.max(bytes);
    }
    continues
}

impl Rules {
    /// Whether a frame with this header may come on the lane at all.
    #[inline]
    pub(crate) fn check(&self, header: HeaderRef<'_>) -> Result<(), Fault> {
        // First: what is damaged may look like anything.
        if header.flags().has(Flags::HEADER_ONLY) {
            check_lone_header(header)?;
        }
        if header.frame_bytes() > self.largest_frame {
            return Err(Fault::TooLong {
                bytes: header.frame_bytes(),
                most: self.largest_frame,
            });
        }
        if self.lane == Lane::Bulk && !header.is_data() {
            return Err(Fault::WrongLane(header.kind()));
        }
        Ok(())
    }
}

/// A data frame whose checksum covers its header alone, so that who only has that can look at it. An
/// opening, which each hop acts on, has one over everything.
fn check_lone_header(header: HeaderRef<'_>) -> Result<(), Fault> {
    if header.flags().has(Flags::OPEN) {
        return Err(Fault::WithoutChecksum);
    }
    if !header.is_intact_alone() {
        return Err(Fault::DamagedHeader);
    }
    Ok(())
}

/// What a flow's source may still send, as bytes on the wire at least: frames cost more in
/// credit than their headers are long.
pub(crate) fn bytes_of_credit(promised: u64, fragment_bytes: usize) -> usize {
    let fragment = u64::try_from(fragment_bytes).unwrap_or(u64::MAX).max(1);
    let frames = promised / (fragment + CHARGE_PER_FRAME) + 1;
    usize::try_from(promised.saturating_sub(frames * CHARGE_PER_FRAME)).unwrap_or(usize::MAX)
}

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod apart;
#[cfg(test)]
mod tests;
