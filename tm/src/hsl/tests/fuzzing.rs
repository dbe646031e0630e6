//! Replays the corpora of the fuzz targets.

use madgate_gtm::fuzzing::replay;

use super::super::fuzzing;

#[test]
fn corpora_and_what_is_near_them_hold() {
    let folder = env!("CARGO_MANIFEST_DIR");
    replay(folder, "hsl_fabric", fuzzing::fabric_lane);
    replay(folder, "hsl_greeting", fuzzing::fabric_greeting);
    replay(folder, "hsl_lane", fuzzing::lane);
    replay(folder, "hsl_port", fuzzing::port);
}
