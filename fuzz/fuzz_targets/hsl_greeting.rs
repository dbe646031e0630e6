#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| madgate_tm::hsl::fuzzing::fabric_greeting(bytes));
