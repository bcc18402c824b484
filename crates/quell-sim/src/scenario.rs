//! What to simulate. The one definition of a scenario: TOML in, checked, with defaults filled in.

use std::sync::Arc;

pub use quell_link::trace::Trace;
use quell_qdisc::Nanos;

/// A checked scenario with every default filled in.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name (default: the file's stem).
    pub name: String,
    /// Simulated time.
    pub duration: Nanos,
    /// Left out of every statistic.
    pub warmup: Nanos,
    /// Runs per queue.
    pub seeds: u32,
    /// From which run k's own seed is derived.
    pub seed: u64,
    /// The bottleneck.
    pub link: Link,
    /// The other direction; `None`: ACKs meet no queue.
    pub up: Option<Link>,
    /// Further queues behind the bottleneck, in order; their `delay` adds to the path.
    pub hops: Vec<Link>,
    /// Traffic.
    pub flows: Vec<Flow>,
}

/// How packets leave a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shaper {
    /// A packet leaves the queue, takes bytes*8/rate, then the delay.
    Line,
    /// Token bucket of `burst` bytes as Linux's HTB: a packet leaves when tokens >= 0 and arrives after the delay alone.
    Htb {
        /// Bytes (default 1600).
        burst: u32,
    },
}

/// What a link offers.
#[derive(Clone, Debug)]
pub enum Rate {
    /// bit/s.
    Constant(u64),
    /// (from, bit/s), ascending, the first at 0.
    Schedule(Arc<[(Nanos, u64)]>),
    /// Mahimahi's format: the times (ascending, ms resolution) at which 1504 bytes may leave, repeated every `period`.
    Trace(Arc<Trace>),
}

/// One queue and the link behind it.
#[derive(Clone, Debug)]
pub struct Link {
    /// What it offers.
    pub rate: Rate,
    /// One way.
    pub delay: Nanos,
    /// How packets leave.
    pub shaper: Shaper,
    /// Link-layer bytes per packet that count at the rate.
    pub overhead: u32,
    /// Packets of plain FIFO below the discipline.
    pub nic: u32,
    /// Random loss behind the queue, 0..1.
    pub loss: f64,
    /// Queue words, checked.
    pub queue: String,
}

/// Which way a flow's data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Through the bottleneck `[link]`.
    Down,
    /// Through `[link.up]`.
    Up,
}

/// A table of like flows.
#[derive(Clone, Debug)]
pub struct Flow {
    /// What it sends.
    pub kind: FlowKind,
    /// How many of them.
    pub count: u32,
    /// Base round trip without queuing.
    pub rtt: Nanos,
    /// When the first starts.
    pub start: Nanos,
    /// When it stops; `None`: never.
    pub stop: Option<Nanos>,
    /// Each starts uniformly within this much of `start`.
    pub stagger: Nanos,
    /// Which way the data goes.
    pub direction: Direction,
    /// The first queue of the path that it passes (0 is `[link]`) and the last.
    pub hops: (u32, u32),
}

/// What a flow sends.
#[derive(Clone, Debug)]
pub enum FlowKind {
    /// A TCP transfer.
    Tcp(Tcp),
    /// Packets of `size` bytes of IP at a constant rate, bit/s of IP.
    Cbr {
        /// bit/s of IP packets.
        rate: u64,
        /// Bytes of IP.
        size: u32,
        /// ECN field.
        ecn: bool,
    },
    /// Poisson arrivals.
    Poisson {
        /// Mean bit/s of IP packets.
        rate: u64,
        /// Bytes of IP (the mean if `exponential`).
        size: u32,
        /// Exponentially distributed sizes.
        exponential: bool,
        /// ECN field.
        ecn: bool,
    },
    /// Poisson arrivals whose mean gap alternates.
    OnOff {
        /// How long each on phase lasts.
        on: Nanos,
        /// How long each off phase lasts.
        off: Nanos,
        /// Mean gap while on.
        gap_on: Nanos,
        /// Mean gap while off.
        gap_off: Nanos,
        /// Bytes of IP.
        size: u32,
        /// ECN field.
        ecn: bool,
    },
    /// Short TCP transfers, arriving as a Poisson process.
    Web {
        /// How they are sent.
        tcp: Tcp,
        /// Bytes of each (the mean if `exponential`).
        size: u64,
        /// Exponentially distributed sizes.
        exponential: bool,
        /// Per second.
        arrivals: f64,
    },
}

/// The options of a TCP sender and its receiver; defaults are Linux's.
#[derive(Clone, Debug, PartialEq)]
pub struct Tcp {
    /// Congestion control by name, aliases resolved.
    pub cc: Cc,
    /// Bytes to send; `None`: without end.
    pub bytes: Option<u64>,
    /// ECN negotiated.
    pub ecn: bool,
    /// ECT(1) instead of ECT(0) (default for prague).
    pub ect1: bool,
    /// Payload bytes per segment (1448).
    pub mss: u32,
    /// Initial window, packets (10).
    pub iw: u32,
    /// 200 ms.
    pub min_rto: Nanos,
    /// RTO = max(srtt + 4·rttvar, min_rto) as ns-3, instead of Linux's srtt + max(4·rttvar, min_rto).
    pub rto_ns3: bool,
    /// Segments per ACK (2).
    pub delack: u32,
    /// 40 ms.
    pub delack_timeout: Nanos,
    /// SACK with RACK-TLP; false: NewReno (RFC 6582).
    pub sack: bool,
    /// RFC 3042.
    pub limited_transmit: bool,
    /// Receive window, bytes ("6MB").
    pub buffer: u64,
    /// What the application offers, bit/s; `u64::MAX`: unlimited.
    pub rate: u64,
}

/// Congestion controls with their options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cc {
    /// `newreno` or `reno`.
    NewReno,
    /// `cubic`; with `rfc9438` where Linux differs from the RFC.
    Cubic {
        /// Follow RFC 9438 instead of Linux.
        rfc9438: bool,
    },
    /// `bic` with its β (0.8 as published in LFQ).
    Bic {
        /// Multiplicative decrease.
        beta: f64,
    },
    /// `bbr` (v1).
    Bbr,
    /// `dctcp`.
    Dctcp,
    /// `prague`.
    Prague,
}
