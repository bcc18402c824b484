//! Sends changes of disciplines, classes and filters to the kernel: several at once, each with its
//! own answer.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use quell_link::Error;
use quell_qdisc::num;

use crate::rtnetlink::message::{KIND, Key, NEW_CLASS, NEW_QDISC, OPTIONS, answers};
use crate::system::{host, sys};

/// Longest options of a discipline, bytes: the kernel's message about one is shorter than a page of
/// memory.
pub const MAX_OPTIONS: usize = 4096;

// linux/netlink.h.
const REQUEST: u16 = 1;
const ACK: u16 = 4;
pub const NESTED: u16 = 0x8000;
/// NLM_F_CREATE | NLM_F_REPLACE: make, or replace what is there.
pub const REPLACE: u16 = 0x400 | 0x100;
/// Size of struct nlmsghdr and struct tcmsg, bytes.
const HEADER: usize = 36;
/// Timeout for the kernel's answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The state of a discipline or class when it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QdiscState {
    /// Identity: device, handle and parent.
    pub key: Key,
    /// Kind of the discipline, or of the class's discipline.
    pub kind: String,
    /// Options in the kernel's format.
    pub options: Vec<u8>,
    /// Whether it has a size table (`stab`), which every change without one removes (`qdisc_change`
    /// in sch_api.c).
    pub stab: bool,
}

/// Why the kernel refuses a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error's errno, positive.
    pub errno: i32,
    /// The kernel's explanation; empty if there is none.
    said: String,
}

impl Refusal {
    /// Whether the device, discipline or class no longer exists.
    pub fn is_gone(&self) -> bool {
        matches!(self.errno, libc::ENODEV | libc::ENOENT)
    }

    /// The error message; `what` is the name of the queue.
    pub fn explain(&self, what: &str) -> Error {
        let reason = host::reason(&io::Error::from_raw_os_error(self.errno));
        let said = match self.said.as_str() {
            "" => String::new(),
            said => format!(" ({said})"),
        };
        let error =
            Error::new(format!("the kernel refuses to change it: {reason}{said}")).key(what);
        match self.errno {
            libc::EPERM => error.remedy(
                "CAP_NET_ADMIN in the device's network namespace is missing: write sudo before it",
            ),
            _ => error,
        }
    }
}

/// Sends changes to rtnetlink in batches.
#[derive(Debug)]
pub struct RtnlWriter {
    fd: OwnedFd,
    port: u32,
    sequence: u32,
    /// Messages that have not been sent, and their number.
    batch: Vec<u8>,
    count: u32,
    buffer: Vec<u8>,
}

impl RtnlWriter {
    /// Opens the socket.
    ///
    /// # Errors
    /// If the system refuses the socket.
    pub fn new() -> io::Result<Self> {
        let fd = sys::rtnetlink()?;
        let port = sys::netlink_port(fd.as_fd())?;
        Ok(Self {
            fd,
            port,
            sequence: 0,
            batch: Vec::new(),
            count: 0,
            buffer: vec![0; 16 << 10],
        })
    }

    /// Netlink port, which notifications of these changes carry.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Adds a change to the batch.
    pub fn add(&mut self, found: &QdiscState, options: &[u8]) {
        self.request(&change(found, options));
    }

    /// Adds a request to the batch.
    pub fn request(&mut self, request: &Request<'_>) {
        self.sequence = self.sequence.wrapping_add(1);
        self.count += 1;
        message(&mut self.batch, request, ACK, self.sequence);
    }

    /// Sends the batch; returns the outcome of each change, in order.
    ///
    /// # Errors
    /// If the messages cannot be sent, or the kernel does not answer.
    pub fn send(&mut self) -> io::Result<Vec<Result<(), Refusal>>> {
        let count = std::mem::take(&mut self.count);
        if count == 0 {
            return Ok(Vec::new());
        }
        let first = self.sequence.wrapping_sub(count).wrapping_add(1);
        let sent = sys::send_bytes(self.fd.as_fd(), &self.batch);
        self.batch.clear();
        sent?;
        let mut outcomes = vec![None; count as usize];
        while outcomes.iter().any(Option::is_none) {
            let length = match sys::receive_bytes(self.fd.as_fd(), &mut self.buffer) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if !sys::readable(self.fd.as_fd(), ANSWER_TIMEOUT) {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    continue;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                received => received?,
            };
            for (sequence, error, said) in answers(&self.buffer[..length]) {
                let at = sequence.wrapping_sub(first) as usize;
                if let Some(outcome) = outcomes.get_mut(at) {
                    *outcome = Some(match error {
                        0 => Ok(()),
                        error => Err(Refusal {
                            errno: error.saturating_neg(),
                            said: said.to_owned(),
                        }),
                    });
                }
            }
        }
        Ok(outcomes.into_iter().flatten().collect())
    }
}

/// Number of changes applied. A change of a queue that no longer exists is not counted and not an
/// error.
///
/// # Errors
/// The first refusal, with the name of its queue.
pub fn applied<'a>(
    outcomes: Vec<Result<(), Refusal>>,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<usize, Error> {
    let mut count = 0;
    for (outcome, name) in outcomes.into_iter().zip(names) {
        match outcome {
            Ok(()) => count += 1,
            Err(refusal) if refusal.is_gone() => {}
            Err(refusal) => return Err(refusal.explain(name)),
        }
    }
    Ok(count)
}

impl AsFd for RtnlWriter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A message about a discipline, a class or a filter.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Type of message (RTM_*).
    pub what: u16,
    /// Further flags (NLM_F_*).
    pub flags: u16,
    /// Device, handle, parent and the last field of struct tcmsg.
    pub place: [u32; 4],
    /// Kind of the discipline or filter.
    pub kind: &'a str,
    /// Type of the attribute with the options, and the options.
    pub options: Option<(u16, &'a [u8])>,
}

/// A request that changes a discipline or class. Without NLM_F_CREATE it never makes one.
pub fn change<'a>(found: &'a QdiscState, options: &'a [u8]) -> Request<'a> {
    let Key {
        device,
        class,
        handle,
        parent,
    } = found.key;
    // The options of FIFOs are a structure, those of all others are attributes.
    let nested = match found.kind.as_str() {
        "pfifo" | "bfifo" => 0,
        _ => NESTED,
    };
    Request {
        what: if class { NEW_CLASS } else { NEW_QDISC },
        flags: 0,
        place: [device, handle, parent, 0],
        kind: &found.kind,
        options: Some((OPTIONS | nested, options)),
    }
}

/// Messages that the kernel does not acknowledge.
pub fn unanswered<'a>(requests: impl IntoIterator<Item = Request<'a>>) -> Vec<u8> {
    let mut out = Vec::new();
    for request in requests {
        message(&mut out, &request, 0, 0);
    }
    out
}

fn message(out: &mut Vec<u8>, request: &Request<'_>, flags: u16, sequence: u32) {
    let begin = out.len();
    out.extend([0; 4]);
    out.extend(request.what.to_ne_bytes());
    out.extend((REQUEST | request.flags | flags).to_ne_bytes());
    out.extend(sequence.to_ne_bytes());
    out.extend([0; 8]);
    for word in request.place {
        out.extend(word.to_ne_bytes());
    }
    debug_assert_eq!(out.len() - begin, HEADER);
    let name: Vec<u8> = request.kind.bytes().chain([0]).collect();
    put(out, KIND, &name);
    if let Some((kind, options)) = request.options {
        put(out, kind, options);
    }
    let length = num::count(out.len() - begin);
    out[begin..begin + 4].copy_from_slice(&length.to_ne_bytes());
}

/// Appends an attribute.
pub fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend((4 + num::index_u16(value.len())).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}
