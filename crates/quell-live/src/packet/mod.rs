//! Bytes of packets: headers, segmentation, the kernel's large packets (GSO), probes, packet
//! memory. No system calls.

pub mod echo;
pub mod header;
pub mod large;
pub mod pool;
pub mod segment;
mod tcp;
