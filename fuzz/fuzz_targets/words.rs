//! libFuzzer on [`quell_fuzz::words`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quell_fuzz::words(data));
