//! What CAKE can be told, with the names and defaults of `tc-cake(8)`.

use crate::parts::framing::Framing;
use crate::{Nanos, US};

/// `rtt` is kept in 32 bits of microseconds.
pub const LONGEST: Nanos = u32::MAX as Nanos * US;

/// What limits the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bandwidth {
    /// Nothing: tins share by deficit round robin.
    Unlimited,
    /// CAKE's own shaper, bit/s, at least 512.
    Shaped(u64),
    /// The link behind, of this many bit/s: it tunes target, interval, quantum, memory and tins,
    /// and nothing is held back. 0: not known, as [`Bandwidth::Unlimited`].
    Link(u64),
}

impl Bandwidth {
    /// Bytes per second; 0 without a limit.
    pub(super) fn bytes_per_s(self) -> u64 {
        match self {
            Bandwidth::Unlimited => 0,
            Bandwidth::Shaped(bps) | Bandwidth::Link(bps) => bps / 8,
        }
    }
}

/// How packets are sorted by priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tins {
    /// One tin for all.
    BestEffort,
    /// Eight by the first three bits of the DSCP.
    Precedence,
    /// Bulk, best effort, voice (default).
    #[default]
    Diffserv3,
    /// Bulk, best effort, video, voice.
    Diffserv4,
    /// Eight.
    Diffserv8,
}

/// Among whom the bandwidth of a tin is shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// It is not: one queue.
    Flowblind,
    /// Source addresses.
    SourceHost,
    /// Destination addresses.
    DestinationHost,
    /// Pairs of addresses.
    Hosts,
    /// Flows.
    Flows,
    /// Source addresses, then flows.
    DualSource,
    /// Destination addresses, then flows.
    DualDestination,
    /// Both kinds of addresses, then flows (default).
    #[default]
    Triple,
}

impl Isolation {
    /// Quanta are divided by the flows of the source.
    pub(super) fn weighs_source(self) -> bool {
        matches!(self, Isolation::DualSource | Isolation::Triple)
    }

    /// Quanta are divided by the flows of the destination.
    pub(super) fn weighs_destination(self) -> bool {
        matches!(self, Isolation::DualDestination | Isolation::Triple)
    }
}

/// Which ACKs are dropped that later ones make superfluous.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckFilter {
    /// None (default).
    #[default]
    Off,
    /// All but one.
    Filter,
    /// All.
    Aggressive,
}

/// Parameters of [`super::Cake`].
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// What limits the rate (default: the link).
    pub bandwidth: Bandwidth,
    /// The shaper's rate follows what arrives: 15/16 of its estimated peak.
    pub autorate_ingress: bool,
    /// Round trip time of the paths behind: COBALT's interval, 1 us to 4294 s (default 100 ms).
    pub rtt: Nanos,
    /// COBALT's target (default a twentieth of `rtt`: 5 ms).
    pub target: Option<Nanos>,
    /// How packets are sorted by priority.
    pub tins: Tins,
    /// Bits of the firewall's mark that name a tin, 1 being the first in `tc`'s order (default
    /// none).
    pub fwmark: u32,
    /// Among whom bandwidth is shared.
    pub isolation: Isolation,
    /// Addresses are those before address translation.
    pub nat: bool,
    /// The DSCP of what leaves is cleared.
    pub wash: bool,
    /// The shaper counts what is dropped, too: it stands behind the bottleneck.
    pub ingress: bool,
    /// Which ACKs are dropped.
    pub ack_filter: AckFilter,
    /// Packets that the network stack joined are taken apart again (default on). Who owns the
    /// packets does that.
    pub split_gso: bool,
    /// How many bytes of the link a packet takes (default: its length as it is).
    pub framing: Framing,
    /// `framing` is of the IP packet; else of its length as it is (default).
    pub of_ip: bool,
    /// The word `raw` was said: words after it leave `of_ip` alone.
    pub raw: bool,
    /// Link-layer bytes that [`crate::Packet::len`] holds (default 14, Ethernet's).
    pub header: u32,
    /// Bytes of memory, at most 2^32 - 1; 0 for what suits `bandwidth` and `rtt` (default 0).
    pub memory_limit: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            bandwidth: Bandwidth::Link(0),
            autorate_ingress: false,
            rtt: 100_000 * US,
            target: None,
            tins: Tins::default(),
            fwmark: 0,
            isolation: Isolation::default(),
            nat: false,
            wash: false,
            ingress: false,
            ack_filter: AckFilter::default(),
            split_gso: true,
            framing: Framing::default(),
            of_ip: false,
            raw: false,
            header: 14,
            memory_limit: 0,
        }
    }
}

impl Params {
    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), &'static str> {
        if matches!(self.bandwidth, Bandwidth::Shaped(bps) if bps < 512) {
            return Err("bandwidth must be at least 512 bit/s");
        }
        if !(US..=LONGEST).contains(&self.rtt) {
            return Err("rtt must be between 1us and 4294s");
        }
        if self.target.is_some_and(|t| t > LONGEST) {
            return Err("target must be at most 4294s");
        }
        if self.memory_limit > u32::MAX.into() {
            return Err("memlimit must be at most 4294967295 bytes");
        }
        if self.framing.mpu > 256 {
            return Err("mpu must be at most 256 bytes");
        }
        Ok(())
    }

    /// The bandwidth in force where the estimate of arrivals sets it: CAKE's own shaper.
    pub(super) fn shapes(&self) -> bool {
        self.autorate_ingress || !matches!(self.bandwidth, Bandwidth::Link(_))
    }
}
