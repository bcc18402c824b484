//! libFuzzer on [`quell_fuzz::trace`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quell_fuzz::trace(data));
