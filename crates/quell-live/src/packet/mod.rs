//! Bytes of packets: headers, segments, large packets of the kernel, probes, places in memory. No
//! system calls.

pub mod echo;
pub mod header;
pub mod large;
pub mod pool;
pub mod segment;
mod tcp;
