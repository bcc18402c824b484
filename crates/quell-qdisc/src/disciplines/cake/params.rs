//! Options of CAKE, with the names and defaults of `tc-cake(8)`.

use crate::parts::framing::Framing;
use crate::rate::Rate;
use crate::time::{Duration, US};

/// Upper bound of `rtt` and `target`: 32 bits of microseconds.
pub const LONGEST: Duration = Duration::from_micros(u32::MAX as u64);

/// What limits the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bandwidth {
    /// No limit: the tins share the link by deficit round robin.
    Unlimited,
    /// CAKE's own shaper, at least 512 bit/s.
    Shaped(Rate),
    /// The link after the queue. Its rate sets target, interval, quantum, memory limit and the
    /// tins' thresholds, and CAKE delays no packet. A rate of 0 is unknown, and has the effect of
    /// [`Bandwidth::Unlimited`].
    Link(Rate),
}

impl Bandwidth {
    /// Bytes per second; 0 without a limit.
    pub(super) fn bytes_per_s(self) -> u64 {
        match self {
            Bandwidth::Unlimited => 0,
            Bandwidth::Shaped(rate) | Bandwidth::Link(rate) => rate.bytes_per_sec(),
        }
    }
}

/// How packets are classified into tins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tins {
    /// One tin for all.
    BestEffort,
    /// Eight tins by the first three bits of the DSCP.
    Precedence,
    /// Bulk, best effort, voice (default).
    #[default]
    Diffserv3,
    /// Bulk, best effort, video, voice.
    Diffserv4,
    /// Eight tins by the whole DSCP.
    Diffserv8,
}

/// The units that share the bandwidth of a tin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// No isolation: one queue.
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

/// How many of the ACKs that a later one supersedes are dropped.
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
    /// The shaper's rate follows the arrivals: 15/16 of their estimated peak rate (default off).
    pub autorate_ingress: bool,
    /// Round-trip time of the paths: COBALT's interval, 1 us to 4294 s (default 100 ms).
    pub rtt: Duration,
    /// COBALT's target (default a twentieth of `rtt`: 5 ms).
    pub target: Option<Duration>,
    /// How packets are classified into tins (default [`Tins::Diffserv3`]).
    pub tins: Tins,
    /// Mask of the bits of the firewall's mark that name a tin: 1 is the first in `tc`'s order
    /// (default 0: none).
    pub fwmark: u32,
    /// The units that share the bandwidth of a tin (default [`Isolation::Triple`]).
    pub isolation: Isolation,
    /// Addresses are those before address translation (default off).
    pub nat: bool,
    /// Clear the DSCP of departing packets (default off).
    pub wash: bool,
    /// The shaper also counts dropped packets, because they have already crossed the bottleneck
    /// (default off).
    pub ingress: bool,
    /// Which superseded ACKs are dropped (default none).
    pub ack_filter: AckFilter,
    /// Split packets that the network stack joined (default on). The owner of the packets does
    /// this.
    pub split_gso: bool,
    /// Bytes that a packet takes on the link (default: its unchanged length).
    pub framing: Framing,
    /// `framing` applies to the IP packet instead of the packet's unchanged length (default off).
    pub of_ip: bool,
    /// The keyword `raw` was given: later keywords do not change `of_ip`.
    pub raw: bool,
    /// Link-layer bytes that [`crate::Packet::len`] includes (default 14, Ethernet's).
    pub header: u32,
    /// Bytes of memory, at most 2^32 - 1; 0 derives it from `bandwidth` and `rtt` (default 0).
    pub memory_limit: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            bandwidth: Bandwidth::Link(Rate::ZERO),
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
        if matches!(self.bandwidth, Bandwidth::Shaped(rate) if rate < Rate::from_bps(512)) {
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

    /// Whether a rate limit, if there is one, is that of CAKE's own shaper (given or estimated).
    pub(super) fn shapes(&self) -> bool {
        self.autorate_ingress || !matches!(self.bandwidth, Bandwidth::Link(_))
    }
}
