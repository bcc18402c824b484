//! rtnetlink: lists the kernel's queues and changes them.

pub mod clsact;
pub mod digits;
pub mod dump;
pub mod message;
pub mod options;
pub mod request;
pub mod tree;
pub mod xstats;

use std::io;

use quell_link::Error;

use crate::system::host;

/// The error for a failed request or list.
pub fn failed(error: io::Error) -> Error {
    Error::new(format!("rtnetlink: {}", host::reason(&error)))
}
