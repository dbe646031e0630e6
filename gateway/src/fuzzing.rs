//! What the fuzz targets do, so that plain tests can replay their corpora: each is a function
//! from any bytes to nothing, which panics where it finds something wrong.

use madgate_gtm::Header;
use madgate_gtm::transit::Lane;
use madgate_gtm::wire::checksum::Running;
use madgate_gtm::wire::{HEADER_BYTES, URGENT_FRAME_BYTES};

use crate::scan::Rules;
use crate::scan::apart::scan_apart;

/// Longer batches only make the same mistakes again.
const BATCH_BYTES_MAX: usize = 16 << 10;

/// The largest frame of a bulk lane.
const BULK_FRAME_BYTES: usize = 1 << 20;

/// What a member sends: the same frames are found in it, and the same is wrong with it, whether
/// it arrives at once, in two parts, or byte by byte.
///
/// A byte says which lane it comes by, and whether its checksums are made right; two say where it
/// is cut.
pub fn scan(bytes: &[u8]) {
    let [kind, low, high, batch @ ..] = bytes else {
        return;
    };
    let mut batch = batch[..batch.len().min(BATCH_BYTES_MAX)].to_vec();
    if kind & 4 == 0 {
        seal(&mut batch);
    }
    let (lane, largest_frame) = match kind & 1 {
        0 => (Lane::Urgent, URGENT_FRAME_BYTES),
        _ => (Lane::Bulk, BULK_FRAME_BYTES),
    };
    let rules = Rules {
        lane,
        largest_frame,
    };
    let all = batch.len();
    let cut = usize::from(u16::from_le_bytes([*low, *high])) % (all + 1);
    let at_once = scan_apart(&batch, rules, [all]);
    let in_two = scan_apart(&batch, rules, [cut, all]);
    let by_byte = scan_apart(&batch, rules, 1..=all);
    assert_eq!(in_two.found, at_once.found, "cut at {cut}");
    assert_eq!(by_byte.found, at_once.found, "byte by byte");
    assert_eq!(in_two.fault, at_once.fault, "cut at {cut}");
    assert_eq!(by_byte.fault, at_once.fault, "byte by byte");
    // Of what is in front of a fault, a scan says no more.
    if at_once.fault.is_none() {
        assert_eq!(in_two.scanned, at_once.scanned, "cut at {cut}");
        assert_eq!(by_byte.scanned, at_once.scanned, "byte by byte");
    }
}

/// Makes the checksums of the frames right, so that other changes to them are not found by these
/// alone.
fn seal(mut batch: &mut [u8]) {
    while let Some(head) = batch.first_chunk()
        && let Ok(header) = Header::parse(head)
        && let Some((frame, rest)) = batch.split_at_mut_checked(header.frame_bytes())
    {
        let (head, payload) = frame.split_at_mut(HEADER_BYTES);
        let mut sum = Running::start(&header);
        sum.update(payload);
        let checksum = sum.finish();
        head.copy_from_slice(&Header { checksum, ..header }.to_bytes());
        batch = rest;
    }
}

#[cfg(test)]
mod tests {
    use madgate_gtm::fuzzing::replay;

    #[test]
    fn corpora_and_what_is_near_them_hold() {
        replay(env!("CARGO_MANIFEST_DIR"), "scan", super::scan);
    }
}
