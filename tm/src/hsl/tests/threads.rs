//! A lane between threads, over memory that is plainly this process's own.

use std::os::unix::net::UnixStream;

use super::super::HslTuning;
use super::super::attack::{OURS, PEER, SLOT_BYTES, side};
use super::super::terms::{HslTerms, receiver, sender};
use crate::local::bell::Bell;
use crate::local::tests::threads::units_travel;

#[test]
fn units_travel_between_threads() {
    let (near, far) = (side(), side());
    let (bell, far_bell) = UnixStream::pair().unwrap();
    let sender = sender(
        &near,
        &far,
        [OURS, PEER],
        Bell::new(bell.into()),
        &HslTerms::of(&HslTuning::default()),
    )
    .unwrap();
    let receiver = receiver(&far, &near, [PEER, OURS], Bell::new(far_bell.into()));
    units_travel(sender, receiver, SLOT_BYTES as usize);
}
