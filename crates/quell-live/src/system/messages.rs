//! Lines for the user, and the rights that a command needs.

use std::io::Write as _;
use std::os::fd::AsFd;

use quell_link::Error;

use super::bounded_writer::{BoundedWriter, Wait};
use super::{frame, host, sys};

/// Whether this thread has a right that a command needs.
///
/// # Errors
/// If it has not.
pub fn need(command: &str, bit: u32) -> Result<(), Error> {
    if sys::capable(&[bit]) {
        return Ok(());
    }
    let name = match bit {
        host::NET_ADMIN => "CAP_NET_ADMIN",
        _ => "CAP_NET_RAW",
    };
    Err(Error::new(format!("quell {command} needs root ({name})")).remedy("write sudo before it"))
}

/// A line for the user; a full disk behind standard error, or a reader of it that has stopped, is
/// no reason to stop.
pub fn tell(line: &str) {
    print(&format!("quell: {line}\n"));
}

pub fn print(text: &str) {
    let _ = frame::clear();
    let err = std::io::stderr().lock();
    let _ = BoundedWriter::new(err.as_fd(), Wait::Shortly).write_all(text.as_bytes());
}
