//! Replays every corpus.

use super::{TARGETS, replay};

#[test]
fn corpora_and_what_is_near_them_hold() {
    for (name, target) in TARGETS {
        replay(env!("CARGO_MANIFEST_DIR"), name, target);
    }
}
