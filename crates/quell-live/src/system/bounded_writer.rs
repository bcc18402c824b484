//! Standard output and standard error, for a process that must not hang when nothing reads them: at
//! a full pipe, or a terminal after Ctrl-S.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::sys;

/// Standard output and standard error if they are terminals: opened again without blocking, so that
/// a write accepts as much as there is room for. The original descriptor is not changed, since
/// other processes use the terminal, too.
static TERMINALS: OnceLock<[Option<OwnedFd>; 2]> = OnceLock::new();

/// Bytes that a writable pipe accepts without blocking (`PIPE_BUF` in pipe(7)).
const PIECE: usize = 4096;
/// Time that a message waits for room. After a timeout further messages do not wait, until there is
/// room again.
const ROOM_TIMEOUT: Duration = Duration::from_millis(500);
/// Interval of the checks while data wait for a reader.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time before a terminal is tried again.
const PAUSE: Duration = Duration::from_millis(10);

/// Whether the last message found no room.
static STUCK: AtomicBool = AtomicBool::new(false);

/// Opens terminals again. Must be called before privileges are dropped, since terminals may belong
/// to another user.
pub fn prepare() {
    TERMINALS.get_or_init(|| {
        [1, 2].map(|number| {
            let path = CString::new(format!("/proc/self/fd/{number}")).ok()?;
            // SAFETY: standard streams are open as long as the process runs.
            let fd = unsafe { BorrowedFd::borrow_raw(number) };
            sys::terminal_size(fd)?;
            sys::open(&path, libc::O_WRONLY | libc::O_NONBLOCK | libc::O_NOCTTY).ok()
        })
    });
}

/// How long a write waits for room in the stream.
#[derive(Clone, Copy)]
pub enum Wait<'a> {
    /// Not at all.
    No,
    /// For up to 500 ms, as messages do.
    Shortly,
    /// Until there is room or this descriptor is readable, which shows that a signal has arrived.
    Until(BorrowedFd<'a>),
}

/// A stream whose writes fail with [`ErrorKind::TimedOut`] if its reader makes no room. The output
/// then ends with a whole line, unless a line is longer than 4096 bytes.
pub struct BoundedWriter<'a> {
    fd: BorrowedFd<'a>,
    wait: Wait<'a>,
}

impl<'a> BoundedWriter<'a> {
    /// A stream that writes to this descriptor.
    pub fn new(fd: BorrowedFd<'a>, wait: Wait<'a>) -> Self {
        let terminals = TERMINALS.get().map(|both| both.iter().zip([1, 2]));
        let mut same = terminals
            .into_iter()
            .flatten()
            .filter(|(_, number)| *number == fd.as_raw_fd());
        let again = same.find_map(|(again, _)| again.as_ref());
        Self {
            fd: again.map_or(fd, OwnedFd::as_fd),
            wait,
        }
    }

    fn has_room(&self, time: Duration) -> bool {
        sys::any_ready(&[(self.fd, true)], time)
    }

    /// Waits for room, as long as `wait` says; returns whether there is room.
    fn finds_room(&self) -> bool {
        match self.wait {
            Wait::No => self.has_room(Duration::ZERO),
            Wait::Shortly => {
                let stuck = STUCK.load(Ordering::Relaxed);
                let room = self.has_room(if stuck { Duration::ZERO } else { ROOM_TIMEOUT });
                STUCK.store(!room, Ordering::Relaxed);
                room
            }
            Wait::Until(end) => loop {
                sys::any_ready(&[(self.fd, true), (end, false)], CHECK_INTERVAL);
                if self.has_room(Duration::ZERO) {
                    return true;
                }
                if sys::readable(end, Duration::ZERO) {
                    return false;
                }
            },
        }
    }
}

impl Write for BoundedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(PIECE)];
        let line = piece.iter().rposition(|byte| *byte == b'\n');
        let end = line.filter(|_| piece.len() < bytes.len());
        let piece = &piece[..end.map_or(piece.len(), |end| end + 1)];
        while self.finds_room() {
            match sys::write(self.fd, piece) {
                // The terminal had room, but too little for this write.
                Err(e) if e.kind() == ErrorKind::WouldBlock => match self.wait {
                    Wait::Until(end) if !sys::readable(end, PAUSE) => {}
                    _ => break,
                },
                written => return written,
            }
        }
        Err(ErrorKind::TimedOut.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_stopped_gets_whole_lines_and_blocks_no_writer() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let (signal, sender) = io::pipe().expect("a pipe");
        drop(sender);
        let line = [&[b'x'; 999][..], b"\n"].concat();
        let text = line.repeat(10);
        for wait in [Wait::No, Wait::Shortly, Wait::Until(signal.as_fd())] {
            let mut out = BoundedWriter::new(writer.as_fd(), wait);
            let mut full = || (0..1000).find_map(|_| out.write_all(&text).err());
            assert_eq!(full().map(|e| e.kind()), Some(ErrorKind::TimedOut));
        }
        drop(writer);
        let mut taken = Vec::new();
        io::Read::read_to_end(&mut reader, &mut taken).expect("a pipe");
        assert!(!taken.is_empty() && taken.chunks(1000).all(|chunk| chunk == line));
    }
}
