//! Files and terminals: opening, reading, writing, renaming, deleting.

use std::ffi::{CStr, c_int, c_ulong};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::interfaces::ioctl;
use super::{check, owned};

/// Opens a file, with O_CLOEXEC.
pub fn open(path: &CStr, flags: c_int) -> io::Result<OwnedFd> {
    // SAFETY: `path` ends in a NUL.
    owned(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) })
}

/// Opens a file in a folder, with O_CLOEXEC. `mode` is that of a newly created file.
pub fn open_at(
    folder: BorrowedFd<'_>,
    name: &CStr,
    flags: c_int,
    mode: u32,
) -> io::Result<OwnedFd> {
    let (fd, flags) = (folder.as_raw_fd(), flags | libc::O_CLOEXEC);
    // SAFETY: `name` ends in a NUL.
    owned(unsafe { libc::openat(fd, name.as_ptr(), flags, mode) })
}

/// Runs `make` with this umask, which applies to all threads meanwhile.
pub fn with_umask<T>(mask: u32, make: impl FnOnce() -> T) -> T {
    // SAFETY: no pointers, no errors.
    let before = unsafe { libc::umask(mask as libc::mode_t) };
    let made = make();
    // SAFETY: as above.
    unsafe { libc::umask(before) };
    made
}

/// Renames a file within a folder.
pub fn rename_at(folder: BorrowedFd<'_>, from: &CStr, to: &CStr) -> io::Result<()> {
    let fd = folder.as_raw_fd();
    // SAFETY: both names end in a NUL.
    check(unsafe { libc::renameat(fd, from.as_ptr(), fd, to.as_ptr()) }).map(drop)
}

/// Deletes a file in a folder.
pub fn unlink_at(folder: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: `name` ends in a NUL.
    check(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

/// Columns and rows of a terminal; `None` for other files.
pub fn terminal_size(fd: BorrowedFd<'_>) -> Option<(usize, usize)> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ is defined with a winsize.
    unsafe { ioctl(fd, libc::TIOCGWINSZ as c_ulong, &mut size) }.ok()?;
    Some((size.ws_col.into(), size.ws_row.into()))
}

/// Writes as much as a descriptor accepts at once.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the bytes are valid for their length.
    let n = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Reads from a descriptor; 0 at the end.
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is valid for its length.
    let n = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Deletes a file by a single system call, as a forked process needs; errors are ignored.
pub fn unlink(path: &CStr) {
    // SAFETY: `path` ends in a NUL.
    unsafe { libc::unlinkat(libc::AT_FDCWD, path.as_ptr(), 0) };
}

/// Writes all of `text` to the file at `path`; false if that failed.
pub fn write_file(path: &CStr, text: &[u8]) -> bool {
    let Ok(file) = open(path, libc::O_WRONLY) else {
        return false;
    };
    // SAFETY: the buffer is valid for its length.
    let n = unsafe { libc::write(file.as_raw_fd(), text.as_ptr().cast(), text.len()) };
    n == text.len().cast_signed()
}

/// Reads the beginning of the file at `path` into `buffer`; returns how many bytes, 0 if it cannot
/// be read.
pub fn read_file(path: &CStr, buffer: &mut [u8]) -> usize {
    let Ok(file) = open(path, libc::O_RDONLY) else {
        return 0;
    };
    let mut filled = 0;
    while filled < buffer.len() {
        let rest = &mut buffer[filled..];
        // SAFETY: the buffer is valid for its length.
        let n = unsafe { libc::read(file.as_raw_fd(), rest.as_mut_ptr().cast(), rest.len()) };
        match n {
            ..=0 => break,
            n => filled += n.cast_unsigned(),
        }
    }
    filled
}
