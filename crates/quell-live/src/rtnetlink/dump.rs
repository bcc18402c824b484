//! Lists of disciplines and classes from the kernel: one socket, one buffer, no allocation per sample.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use super::message::{self, Filter, Message, Queue};
use crate::system::sys;

const GET_QDISC: u16 = 38;
const GET_CLASS: u16 = 42;
const GET_FILTER: u16 = 46;
/// NLM_F_REQUEST | NLM_F_DUMP (linux/netlink.h).
const FLAGS: u16 = 1 | 0x300;
/// struct nlmsghdr and struct tcmsg.
const REQUEST: usize = 36;
/// The kernel fills at most 32 KiB at once (`netlink_dump`).
const BUFFER: usize = 64 << 10;
/// The time that an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the kernel for lists.
#[derive(Debug)]
pub struct Dump {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Dump {
    /// Opens the socket; needs no privileges.
    ///
    /// # Errors
    /// If the system refuses one.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            fd: sys::rtnetlink()?,
            sequence: 0,
            buffer: vec![0; BUFFER],
        })
    }

    /// All disciplines of a device (0: of all devices). Kernels before 7.2 list those of other devices, too.
    ///
    /// # Errors
    /// If the kernel refuses, does not answer, or had no memory for the answer (ENOBUFS).
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

    /// All filters at a place of a device.
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
        // What is left of a list that was given up has another number.
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = [0; REQUEST];
        request[..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
        request[4..6].copy_from_slice(&kind.to_ne_bytes());
        request[6..8].copy_from_slice(&FLAGS.to_ne_bytes());
        request[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        request[20..24].copy_from_slice(&device.to_ne_bytes());
        request[28..32].copy_from_slice(&parent.to_ne_bytes());
        sys::send_bytes(self.fd.as_fd(), &request)?;
        let done = self.receive(each);
        if done.is_err() {
            self.renew();
        }
        done
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

    /// Gives up the rest of a list: a new socket, since the kernel makes one list at a time for each.
    fn renew(&mut self) {
        if let Ok(fd) = sys::rtnetlink() {
            self.fd = fd;
        }
    }
}

fn queues(mut each: impl FnMut(Queue<'_>)) -> impl FnMut(Message<'_>) {
    move |message| {
        if let Message::Queue(queue) = message {
            each(queue);
        }
    }
}
