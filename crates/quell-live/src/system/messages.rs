//! Messages for the user, and the check of the privileges that a command needs.

use std::io::Write as _;
use std::os::fd::AsFd;

use quell_link::Error;

use super::bounded_writer::{BoundedWriter, Wait};
use super::{frame, host, sys};

/// Checks that this thread has the capability that a command needs: [`host::NET_ADMIN`] or
/// [`host::NET_RAW`].
///
/// # Errors
/// If the capability is missing.
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

/// Prints a line for the user. Errors of standard error, such as a full disk or a reader that has
/// stopped, are ignored.
pub fn tell(line: &str) {
    print(&format!("quell: {line}\n"));
}

/// Prints text on standard error, in the place of the redrawn frame, if there is one. Errors are
/// ignored.
pub fn print(text: &str) {
    let _ = frame::clear();
    let err = std::io::stderr().lock();
    let _ = BoundedWriter::new(err.as_fd(), Wait::Shortly).write_all(text.as_bytes());
}
