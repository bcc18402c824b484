//! The memory that a discipline in the kernel shares with user space: knobs and gauges (crates/quell-qdisc/bpf/page.h).
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use quell_link::Error;
use serde_json::{Map as Object, Value};

use super::super::bpf::{self, Map};
use super::super::host;

/// Bytes of a queue's part: 64 of knobs, 192 of gauges.
pub const BYTES: usize = 256;
/// `QUELL_VERSION`.
const VERSION: u32 = 1;

// Where a knob is.
const RATE: usize = 0;
const LIMIT: usize = 16;
const FLAGS: usize = 20;
/// `QUELL_MARK_NEXT`.
const MARK_NEXT: u32 = 2;
/// Where the gauges begin, which begin with the version.
const GAUGES: usize = 64;
/// Gauges of 64 bits, by name.
const LONG: [(&str, usize); 14] = [
    ("enqueued", 24),
    ("dequeued", 32),
    ("dequeued_bytes", 40),
    ("overflows", 48),
    ("drops", 56),
    ("marks", 64),
    ("sojourn_ns", 72),
    ("sojourn_p95_ns", 80),
    ("rate_bytes", 88),
    ("round_trip_ns", 96),
    ("target_ns", 104),
    ("wait_ns", 112),
    ("hold_ns", 120),
    ("decisions", 152),
];
/// Those of 32 bits.
const SHORT: [(&str, usize); 5] = [
    ("backlog_packets", 16),
    ("backlog_bytes", 20),
    ("flows", 140),
    ("trusted", 144),
    ("probability", 148),
];

/// What is set; what is not given stays, and is the discipline's own choice at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Knobs {
    /// Shapes to so many bytes per second.
    pub rate: Option<u64>,
    /// Packets at most.
    pub limit: Option<u32>,
}

impl Knobs {
    /// The part of a queue that is not there yet.
    pub fn bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[RATE..RATE + 8].copy_from_slice(&self.rate.unwrap_or(0).to_ne_bytes());
        bytes[LIMIT..LIMIT + 4].copy_from_slice(&self.limit.unwrap_or(0).to_ne_bytes());
        bytes
    }
}

/// The memory of all queues of a device.
pub struct Page(Map);

impl Page {
    /// Opens it by the number that the kernel knows it by.
    ///
    /// # Errors
    /// If it is gone, or a right is missing.
    pub fn open(id: u32) -> Result<Self, Error> {
        let opened = bpf::existing(id).and_then(|fd| Map::new(BYTES, Some((&fd, 0))));
        opened.map(Self).map_err(|e| match e.raw_os_error() {
            Some(libc::EPERM) => Error::new("its gauges and knobs need root (CAP_SYS_ADMIN)")
                .remedy("write sudo before it"),
            Some(libc::ENOENT) => {
                Error::new("it is gone: somebody else has taken it away").remedy("quell detach")
            }
            _ => Error::new(format!("BPF: {}", host::reason(&e))),
        })
    }

    /// The parts of the first queues.
    pub fn slots(&self, count: u32) -> impl Iterator<Item = Slot<'_>> {
        // A page of memory at least is mapped, and no device has more queues than it holds.
        (0..count as usize).map(|slot| Slot {
            page: self,
            at: slot * BYTES,
        })
    }
}

/// The part of one queue.
pub struct Slot<'a> {
    page: &'a Page,
    at: usize,
}

impl Slot<'_> {
    fn long(&self, at: usize) -> &AtomicU64 {
        // SAFETY: within the part, aligned as C has it; it is shared, and only used as atomics.
        unsafe { AtomicU64::from_ptr(self.page.0.at.add(self.at + at).cast()) }
    }

    fn short(&self, at: usize) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.page.0.at.add(self.at + at).cast()) }
    }

    /// Sets what is given.
    pub fn set(&self, knobs: &Knobs) {
        if let Some(rate) = knobs.rate {
            self.long(RATE).store(rate, Ordering::Relaxed);
        }
        if let Some(limit) = knobs.limit {
            self.short(LIMIT).store(limit, Ordering::Relaxed);
        }
    }

    /// Has the law mark packets; the program at clsact must be there.
    pub fn mark(&self) {
        self.short(FLAGS).fetch_or(MARK_NEXT, Ordering::Relaxed);
    }

    /// The gauges, by name. A discipline leaves those at 0 that it has not.
    pub fn json(&self) -> Value {
        let mut line = Object::new();
        let version = self.short(GAUGES).load(Ordering::Relaxed);
        line.insert("present".into(), (version == VERSION).into());
        for (name, at) in SHORT {
            let value = self.short(GAUGES + at).load(Ordering::Relaxed);
            line.insert(name.into(), value.into());
        }
        for (name, at) in LONG {
            let value = self.long(GAUGES + at).load(Ordering::Relaxed);
            line.insert(name.into(), value.into());
        }
        line.into()
    }
}
