//! libFuzzer on [`quell_fuzz::header`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quell_fuzz::header(data));
