//! Standard output and standard error, for a process that must not hang with whoever reads them: behind a full pipe, or a terminal after
//! Ctrl-S.

use std::io::{self, ErrorKind, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::sys;

/// What a pipe that can be written to takes without waiting (`PIPE_BUF` in pipe(7)).
const PIECE: usize = 4096;
/// How long a reader of messages may make no room. From then on nothing waits until there is room again.
const PATIENCE: Duration = Duration::from_millis(500);
/// Interval of the checks while data wait for their reader.
const LOOK: Duration = Duration::from_secs(1);

/// Whether the last message found no room.
static STUCK: AtomicBool = AtomicBool::new(false);

/// How long to wait for room.
#[derive(Clone, Copy)]
pub enum Wait<'a> {
    /// Not at all.
    No,
    /// As messages do.
    Shortly,
    /// Until this can be read: a signal.
    Until(BorrowedFd<'a>),
}

/// A stream that gives up with [`ErrorKind::TimedOut`] if its reader makes no room. What is written ends with a whole line then, unless a
/// line is longer than 4096 bytes.
pub struct Patient<'a> {
    fd: BorrowedFd<'a>,
    wait: Wait<'a>,
}

impl<'a> Patient<'a> {
    /// Of this descriptor.
    pub fn new(fd: BorrowedFd<'a>, wait: Wait<'a>) -> Self {
        Self { fd, wait }
    }

    fn has_room(&self, time: Duration) -> bool {
        sys::any_ready(&[(self.fd, true)], time)
    }

    fn finds_room(&self) -> bool {
        match self.wait {
            Wait::No => self.has_room(Duration::ZERO),
            Wait::Shortly => {
                let stuck = STUCK.load(Ordering::Relaxed);
                let room = self.has_room(if stuck { Duration::ZERO } else { PATIENCE });
                STUCK.store(!room, Ordering::Relaxed);
                room
            }
            Wait::Until(end) => loop {
                sys::any_ready(&[(self.fd, true), (end, false)], LOOK);
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

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.finds_room() {
            return Err(ErrorKind::TimedOut.into());
        }
        let piece = &bytes[..bytes.len().min(PIECE)];
        let line = piece.iter().rposition(|byte| *byte == b'\n');
        let end = line.filter(|_| piece.len() < bytes.len());
        sys::write(self.fd, &piece[..end.map_or(piece.len(), |end| end + 1)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_reader_that_reads_nothing_gets_whole_lines_and_keeps_nobody_waiting() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let (signal, sender) = io::pipe().expect("a pipe");
        drop(sender);
        let line = [&[b'x'; 999][..], b"\n"].concat();
        let text = line.repeat(10);
        for wait in [Wait::No, Wait::Shortly, Wait::Until(signal.as_fd())] {
            let mut out = Patient::new(writer.as_fd(), wait);
            let mut full = || (0..1000).find_map(|_| out.write_all(&text).err());
            assert_eq!(full().map(|e| e.kind()), Some(ErrorKind::TimedOut));
        }
        drop(writer);
        let mut taken = Vec::new();
        io::Read::read_to_end(&mut reader, &mut taken).expect("a pipe");
        assert!(!taken.is_empty() && taken.chunks(1000).all(|chunk| chunk == line));
    }
}
