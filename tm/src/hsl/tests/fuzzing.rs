//! Replays the corpora of the fuzz targets.

use madgate_gtm::fuzzing::replay;

use super::super::fuzzing;

#[test]
fn corpora_and_what_is_near_them_hold() {
    replay(env!("CARGO_MANIFEST_DIR"), "hsl_lane", fuzzing::lane);
    replay(env!("CARGO_MANIFEST_DIR"), "hsl_port", fuzzing::port);
}
