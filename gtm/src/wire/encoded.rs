//! Fields of a frame that lies encoded in memory, where only some of them matter: frames
//! that this node made itself, so nothing here is checked.

use super::raw::{CHECKSUM_AT, OFFSET_AT};
use super::{CHARGE_PER_FRAME, CHARGE_PER_MESSAGE, Flags, HEADER_BYTES};

/// Bytes of the payload.
pub(crate) fn payload_bytes(frame: &[u8]) -> usize {
    // A payload is shorter than 16 MiB.
    usize::try_from(word(frame, 12)).unwrap_or(usize::MAX)
}

/// Bytes of the whole frame.
pub(crate) fn frame_bytes(frame: &[u8]) -> usize {
    HEADER_BYTES + payload_bytes(frame)
}

/// Bytes of the frame that `frames` start with, for lanes that cut at frames; no more than there
/// are. Its header is one that this node made or has checked.
#[must_use]
pub fn first_frame_bytes(frames: &[u8]) -> usize {
    if frames.len() < HEADER_BYTES {
        return frames.len();
    }
    frame_bytes(frames).min(frames.len())
}

/// Whether any flag of `flags` is set.
pub(crate) fn has_any(frame: &[u8], flags: Flags) -> bool {
    frame[1] & flags.bits() != 0
}

/// The number of the frame's message.
pub(crate) fn message(frame: &[u8]) -> u32 {
    word(frame, 32)
}

/// The number after the last message that ends with the frame, which ends one.
pub(crate) fn after_message(frame: &[u8]) -> u32 {
    message(frame).wrapping_add(bundled(frame).max(1))
}

/// How many messages are bundled in the frame; none if it is no bundle.
pub(crate) fn bundled(frame: &[u8]) -> u32 {
    if has_any(frame, Flags::BUNDLE) {
        word(frame, OFFSET_AT)
    } else {
        0
    }
}

/// What the frame costs in credit, without an opening.
pub(crate) fn charge(frame: &[u8]) -> u64 {
    let further = u64::from(bundled(frame).saturating_sub(1));
    payload_bytes(frame) as u64 + CHARGE_PER_FRAME + further * CHARGE_PER_MESSAGE
}

/// A frame whose payload has become a bundle of so many messages, or a longer one.
pub(crate) fn mark_bundle(frame: &mut [u8], messages: u32) {
    frame[1] |= Flags::BUNDLE.bits();
    frame[OFFSET_AT..OFFSET_AT + 4].copy_from_slice(&messages.to_le_bytes());
    // Small frames are far shorter than their length can say.
    let length = u32::try_from(frame.len() - HEADER_BYTES).unwrap_or(u32::MAX);
    frame[12..16].copy_from_slice(&length.to_le_bytes());
}

/// The checksum.
pub(crate) fn checksum(frame: &[u8]) -> u32 {
    word(frame, CHECKSUM_AT)
}

/// The checksum field counts as zero where the checksum is taken. The word that it stands in is
/// written as a whole, as it is read next.
pub(crate) fn clear_checksum(frame: &mut [u8]) {
    let word = &mut frame[CHECKSUM_AT..CHECKSUM_AT + 8];
    let label = u64::from(u32::from_le_bytes([word[4], word[5], word[6], word[7]]));
    word.copy_from_slice(&(label << 32).to_le_bytes());
}

/// Gives a frame its place in the flow; it is ready to be sealed.
pub(crate) fn place(frame: &mut [u8], label: u32, position: u64, want: bool) {
    frame[1] |= Flags::WANT.when(want).bits();
    frame[20..24].copy_from_slice(&label.to_le_bytes());
    frame[24..32].copy_from_slice(&position.to_le_bytes());
}

/// Makes a placed frame an opening, `payload_bytes` being the length of its new payload. Its checksum
/// covers all of it, as each hop acts on what it says.
pub(crate) fn mark_opening(frame: &mut [u8], payload_bytes: usize) {
    frame[1] = frame[1] & !Flags::HEADER_ONLY.bits() | Flags::OPEN.bits();
    let length = u32::try_from(payload_bytes).unwrap_or(u32::MAX);
    frame[12..16].copy_from_slice(&length.to_le_bytes());
}

/// Puts the checksum in a frame whose checksum field is zero.
pub(crate) fn seal(frame: &mut [u8]) {
    let covered = if has_any(frame, Flags::HEADER_ONLY) {
        HEADER_BYTES
    } else {
        frame.len()
    };
    let sum = super::checksum::of(&frame[..covered]);
    frame[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Takes back what placing and sealing wrote besides label and position, which the next
/// placing overwrites.
pub(crate) fn unseal(frame: &mut [u8]) {
    frame[1] &= !Flags::WANT.bits();
    clear_checksum(frame);
}

fn word(frame: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&frame[at..at + 4]);
    u32::from_le_bytes(bytes)
}
