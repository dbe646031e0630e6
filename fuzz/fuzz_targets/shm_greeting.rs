#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| madgate_tm::shm::fuzzing::greeting(bytes));
