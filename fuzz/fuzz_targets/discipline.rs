//! libFuzzer on [`quell_fuzz::discipline`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quell_fuzz::discipline(data));
