//! rtnetlink: lists the kernel's queues and changes them.

pub mod clsact;
pub mod digits;
pub mod dump;
pub mod message;
pub mod options;
pub mod request;
pub mod tree;
pub mod xstats;
