#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| madgate_vchannel::fuzzing::cluster_file(bytes));
