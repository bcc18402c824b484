//! libFuzzer on [`quell_fuzz::model`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quell_fuzz::model(data));
