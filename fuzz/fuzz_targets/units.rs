//! libFuzzer on [`quell_fuzz::units`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quell_fuzz::units(data));
