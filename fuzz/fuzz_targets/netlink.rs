//! libFuzzer on [`quell_fuzz::netlink`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| quell_fuzz::netlink(data));
