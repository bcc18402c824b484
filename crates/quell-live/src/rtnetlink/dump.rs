//! Lists the kernel's disciplines, classes and filters with one socket and one buffer, without
//! allocations per sample.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use quell_qdisc::num;

use super::message::{self, Filter, Message, Queue};
use crate::system::notice::Notices;
use crate::system::sys;

const GET_QDISC: u16 = 38;
const GET_CLASS: u16 = 42;
const GET_FILTER: u16 = 46;
/// NLM_F_REQUEST | NLM_F_DUMP (linux/netlink.h).
const FLAGS: u16 = 1 | 0x300;
/// Size of struct nlmsghdr and struct tcmsg, bytes.
const REQUEST: usize = 36;
/// The kernel fills at most 32 KiB at once (`netlink_dump`).
const BUFFER: usize = 64 << 10;
/// Timeout for the kernel's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts to read a list completely, and the time between them.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// Requests lists from the kernel.
#[derive(Debug)]
pub struct Dump {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
    /// Notifications of deletions. A list comes in several messages, and the kernel remembers only
    /// the number of entries that it has sent. If one of these is deleted before the next message,
    /// the kernel skips another entry without a report (`tc_dump_qdisc` in sch_api.c).
    removals: Notices,
}

impl Dump {
    /// Opens the socket; needs no privileges.
    ///
    /// # Errors
    /// If the system refuses the socket.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            fd: sys::rtnetlink()?,
            sequence: 0,
            buffer: vec![0; BUFFER],
            removals: Notices::of_removals()?,
        })
    }

    /// All disciplines of a device (0: of all devices). Kernels before 7.2 list those of other
    /// devices, too.
    ///
    /// # Errors
    /// If the kernel refuses or does not answer; [`is_partial`] if entries may be missing.
    pub fn disciplines(&mut self, device: u32, each: impl FnMut(Queue<'_>)) -> io::Result<()> {
        self.list(GET_QDISC, device, 0, queues(each))
    }

    /// All classes of a device.
    ///
    /// # Errors
    /// As [`Self::disciplines`].
    pub fn classes(&mut self, device: u32, each: impl FnMut(Queue<'_>)) -> io::Result<()> {
        self.list(GET_CLASS, device, 0, queues(each))
    }

    /// All filters of a device with this parent.
    ///
    /// # Errors
    /// As [`Self::disciplines`].
    pub fn filters(
        &mut self,
        device: u32,
        parent: u32,
        mut each: impl FnMut(Filter<'_>),
    ) -> io::Result<()> {
        let each = |message: Message<'_>| {
            if let Message::Filter(filter) = message {
                each(filter);
            }
        };
        self.list(GET_FILTER, device, parent, each)
    }

    fn list(
        &mut self,
        kind: u16,
        device: u32,
        parent: u32,
        each: impl FnMut(Message<'_>),
    ) -> io::Result<()> {
        // The rest of an abandoned list has another sequence number.
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = [0; REQUEST];
        request[..4].copy_from_slice(&num::count(REQUEST).to_ne_bytes());
        request[4..6].copy_from_slice(&kind.to_ne_bytes());
        request[6..8].copy_from_slice(&FLAGS.to_ne_bytes());
        request[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        request[20..24].copy_from_slice(&device.to_ne_bytes());
        request[28..32].copy_from_slice(&parent.to_ne_bytes());
        self.removals.drain();
        sys::send_bytes(self.fd.as_fd(), &request)?;
        if let Err(error) = self.receive(each) {
            self.renew();
            return Err(error);
        }
        self.check()
    }

    fn receive(&mut self, mut each: impl FnMut(Message<'_>)) -> io::Result<()> {
        loop {
            let length = self.read()?;
            let mut end = None;
            message::messages(&self.buffer[..length], self.sequence, |message| {
                match message {
                    Message::Done(error) | Message::Error(error) => end = Some(error),
                    other => each(other),
                }
                end.is_none()
            });
            match end {
                None => {}
                Some(0..) => return Ok(()),
                Some(error) => return Err(io::Error::from_raw_os_error(error.saturating_neg())),
            }
        }
    }

    /// Checks that nothing was deleted while the list was read.
    fn check(&self) -> io::Result<()> {
        match self.removals.drain_matching(message::is_removal) {
            true => Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "interfaces or queues were deleted while they were listed",
            )),
            false => Ok(()),
        }
    }

    fn read(&mut self) -> io::Result<usize> {
        loop {
            match sys::receive_bytes(self.fd.as_fd(), &mut self.buffer) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if !sys::readable(self.fd.as_fd(), ANSWER_TIMEOUT) {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Abandons the rest of a list by opening a new socket, since the kernel makes only one list at
    /// a time per socket.
    fn renew(&mut self) {
        if let Ok(fd) = sys::rtnetlink() {
            self.fd = fd;
        }
    }
}

/// Whether entries of a list may be missing, because others were deleted meanwhile or the kernel
/// had no memory for the answer.
pub fn is_partial(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted || error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Repeats reading lists until they are complete, at most 20 times.
///
/// # Errors
/// As `read`; [`is_partial`] if they are incomplete at the last attempt.
pub fn whole<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..TRIES {
        match read() {
            Err(error) if is_partial(&error) => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
    read()
}

fn queues(mut each: impl FnMut(Queue<'_>)) -> impl FnMut(Message<'_>) {
    move |message| {
        if let Message::Queue(queue) = message {
            each(queue);
        }
    }
}
