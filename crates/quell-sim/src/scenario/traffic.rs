//! What flows send.

use quell_qdisc::{MS, Nanos, SEC};

use crate::cc::outside;

/// What a flow sends.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FlowKind {
    /// A TCP transfer.
    Tcp(Tcp),
    /// Packets at a constant rate.
    Cbr(Cbr),
    /// Packets that arrive as a Poisson process.
    Poisson(Poisson),
    /// The same, the mean gap alternating.
    OnOff(OnOff),
    /// Short TCP transfers that arrive as a Poisson process.
    Web(Web),
    /// A voice call, both ways.
    Call(Call),
    /// A game.
    Game(Game),
    /// A video call, both ways.
    VideoCall(VideoCall),
    /// Web pages, one after another.
    Page(Page),
    /// Adaptive streaming.
    Video(Video),
    /// Probes of responsiveness.
    Probe(Tcp),
    /// A transfer to the user.
    Download(Tcp),
    /// A transfer from the user.
    Upload(Tcp),
    /// The same in the background.
    Backup(Tcp),
    /// Probes of reflectors.
    Ping(Ping),
}

impl FlowKind {
    /// The `kind` in a file.
    pub fn name(&self) -> &'static str {
        match self {
            FlowKind::Tcp(_) => "tcp",
            FlowKind::Cbr(_) => "cbr",
            FlowKind::Poisson(_) => "poisson",
            FlowKind::OnOff(_) => "onoff",
            FlowKind::Web(_) => "web",
            FlowKind::Call(_) => "call",
            FlowKind::Game(_) => "game",
            FlowKind::VideoCall(_) => "video_call",
            FlowKind::Page(_) => "page",
            FlowKind::Video(_) => "video",
            FlowKind::Probe(_) => "probe",
            FlowKind::Download(_) => "download",
            FlowKind::Upload(_) => "upload",
            FlowKind::Backup(_) => "backup",
            FlowKind::Ping(_) => "ping",
        }
    }

    /// Does it go from the user to the network, whatever the file says?
    pub(super) fn goes_up(&self) -> bool {
        matches!(self, FlowKind::Upload(_) | FlowKind::Backup(_))
    }

    /// Does it send datagrams both ways?
    pub fn is_dialogue(&self) -> bool {
        matches!(
            self,
            FlowKind::Call(_) | FlowKind::Game(_) | FlowKind::VideoCall(_) | FlowKind::Ping(_)
        )
    }

    /// How it sends, if by TCP.
    pub fn tcp(&self) -> Option<&Tcp> {
        match self {
            FlowKind::Tcp(tcp)
            | FlowKind::Download(tcp)
            | FlowKind::Upload(tcp)
            | FlowKind::Backup(tcp)
            | FlowKind::Probe(tcp) => Some(tcp),
            FlowKind::Web(web) => Some(&web.tcp),
            FlowKind::Page(page) => Some(&page.tcp),
            FlowKind::Video(video) => Some(&video.tcp),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub fn tcp_mut(&mut self) -> Option<&mut Tcp> {
        match self {
            FlowKind::Tcp(tcp)
            | FlowKind::Download(tcp)
            | FlowKind::Upload(tcp)
            | FlowKind::Backup(tcp)
            | FlowKind::Probe(tcp) => Some(tcp),
            FlowKind::Web(web) => Some(&mut web.tcp),
            FlowKind::Page(page) => Some(&mut page.tcp),
            FlowKind::Video(video) => Some(&mut video.tcp),
            _ => None,
        }
    }
}

impl Default for FlowKind {
    fn default() -> Self {
        FlowKind::Tcp(Tcp::default())
    }
}

/// Packets at a constant rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Cbr {
    /// bit/s of IP packets.
    pub rate: u64,
    /// Bytes of IP.
    pub size: u32,
    /// ECN field: ECT(0).
    pub ecn: bool,
}

impl Default for Cbr {
    fn default() -> Self {
        Self {
            rate: 1_000_000,
            size: 1500,
            ecn: false,
        }
    }
}

/// Echo requests, by which controllers of a shaper's rate decide.
#[derive(Clone, Debug, PartialEq)]
pub struct Ping {
    /// Time between requests to a reflector.
    pub interval: Nanos,
    /// Bytes of IP.
    pub size: u32,
    /// Mean of the exponential time that a reflector takes to answer.
    pub jitter: Nanos,
    /// Probability with which it does not.
    pub loss: f64,
    /// Answers say when the request arrived, by a clock that agrees.
    pub timestamps: bool,
}

impl Default for Ping {
    fn default() -> Self {
        Self {
            interval: 300 * MS,
            size: 84,
            jitter: MS,
            loss: 0.01,
            timestamps: true,
        }
    }
}

/// Packets that arrive as a Poisson process.
#[derive(Clone, Debug, PartialEq)]
pub struct Poisson {
    /// Mean bit/s of IP packets.
    pub rate: u64,
    /// Bytes of IP.
    pub size: Size,
    /// ECN field: ECT(0).
    pub ecn: bool,
}

impl Default for Poisson {
    fn default() -> Self {
        Self {
            rate: 1_000_000,
            size: Size {
                bytes: 1500,
                exponential: false,
            },
            ecn: false,
        }
    }
}

/// Poisson arrivals whose mean gap alternates.
#[derive(Clone, Debug, PartialEq)]
pub struct OnOff {
    /// How long each on phase lasts.
    pub on: Nanos,
    /// How long each off phase lasts.
    pub off: Nanos,
    /// Mean gap while on.
    pub gap_on: Nanos,
    /// Mean gap while off.
    pub gap_off: Nanos,
    /// Bytes of IP.
    pub size: u32,
    /// ECN field: ECT(0).
    pub ecn: bool,
}

impl Default for OnOff {
    fn default() -> Self {
        Self {
            on: 5 * SEC,
            off: 5 * SEC,
            gap_on: MS,
            gap_off: 30 * MS,
            size: 1500,
            ecn: false,
        }
    }
}

/// Short TCP transfers that arrive as a Poisson process.
#[derive(Clone, Debug, PartialEq)]
pub struct Web {
    /// How they are sent.
    pub tcp: Tcp,
    /// Bytes of each.
    pub size: Size,
    /// Per second.
    pub arrivals: f64,
}

impl Default for Web {
    fn default() -> Self {
        Self {
            tcp: Tcp::default(),
            size: Size {
                bytes: 65_536,
                exponential: true,
            },
            arrivals: 5.0,
        }
    }
}

/// A voice call: packets of 20 ms of speech both ways.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// How speech is coded.
    pub codec: Codec,
}

/// How speech is coded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// 64 kbit/s, with concealment of losses.
    #[default]
    G711,
    /// 8 kbit/s.
    G729,
    /// 32 kbit/s.
    Opus,
}

impl Codec {
    /// Bytes of IP of a packet: 40 of IP, UDP and RTP, and 20 ms of speech.
    pub fn packet(self) -> u32 {
        40 + match self {
            Codec::G711 => 160,
            Codec::G729 => 20,
            Codec::Opus => 80,
        }
    }

    /// Its name in a file.
    pub(super) fn word(self) -> &'static str {
        match self {
            Codec::G711 => "g711",
            Codec::G729 => "g729",
            Codec::Opus => "opus",
        }
    }
}

/// A game: states of the world one way, the player's commands the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Game {
    /// States per second.
    pub states: u32,
    /// Commands per second.
    pub commands: u32,
}

impl Default for Game {
    fn default() -> Self {
        Self {
            states: 60,
            commands: 30,
        }
    }
}

/// A video call: each end sends as fast as Google Congestion Control lets it.
#[derive(Clone, Debug, PartialEq)]
pub struct VideoCall {
    /// bit/s with which each end begins.
    pub start_rate: u64,
    /// bit/s that neither end exceeds.
    pub max_rate: u64,
}

/// libwebrtc's: `kDefaultStartBitrateBps`, and the most for pictures of 1280 x 720
/// (`GetMaxDefaultVideoBitrateKbps`).
impl Default for VideoCall {
    fn default() -> Self {
        Self {
            start_rate: 300_000,
            max_rate: 2_500_000,
        }
    }
}

/// Web pages, with time to read each.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// How they are sent.
    pub tcp: Tcp,
    /// HTTP/2 on one connection; false: HTTP/1.1 on six.
    pub http2: bool,
    /// Mean time to read one.
    pub think: Nanos,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            tcp: Tcp::default(),
            http2: true,
            think: 5 * SEC,
        }
    }
}

/// Adaptive streaming.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Video {
    /// How it is sent.
    pub tcp: Tcp,
    /// What chooses the quality.
    pub adaptation: Adaptation,
}

/// What chooses the quality of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Adaptation {
    /// The level of the buffer.
    #[default]
    Buffer,
    /// The throughput of the last segments.
    Rate,
}

/// How large things are: all alike, or exponentially distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Bytes (the mean if `exponential`).
    pub bytes: u64,
    /// Exponentially distributed.
    pub exponential: bool,
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
    /// RTO = max(srtt + 4·rttvar, min_rto) as ns-3, instead of Linux's srtt + max(4·rttvar,
    /// min_rto).
    pub rto_ns3: bool,
    /// Segments per ACK (2).
    pub delack: u32,
    /// 40 ms.
    pub delack_timeout: Nanos,
    /// SACK with RACK-TLP; false: NewReno (RFC 6582).
    pub sack: bool,
    /// RFC 3042.
    pub limited_transmit: bool,
    /// Pace as Linux with `fq` below or `SO_MAX_PACING_RATE` set; BBR and Prague do so anyway.
    pub pacing: bool,
    /// Receive window, bytes ("6MB").
    pub buffer: u64,
    /// What the application offers, bit/s; `u64::MAX`: unlimited.
    pub rate: u64,
}

/// Linux's, without end.
impl Default for Tcp {
    fn default() -> Self {
        Self {
            cc: Cc::Cubic { rfc9438: false },
            bytes: None,
            ecn: false,
            ect1: false,
            mss: 1448,
            iw: 10,
            min_rto: 200 * MS,
            rto_ns3: false,
            delack: 2,
            delack_timeout: 40 * MS,
            sack: true,
            limited_transmit: true,
            pacing: false,
            buffer: 6 << 20,
            rate: u64::MAX,
        }
    }
}

/// Congestion controls with their options.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
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
    /// `bbr3`.
    Bbr3,
    /// `dctcp`.
    Dctcp,
    /// `prague`, which behaves as if its round trip were 15 ms longer.
    Prague {
        /// As if it were 25 ms at least, instead (`rtt_scaling = "rate"`).
        rate_scaling: bool,
    },
    /// `vegas`.
    Vegas,
    /// `westwood` (Westwood+).
    Westwood,
    /// `illinois`.
    Illinois,
    /// `ledbat`.
    Ledbat,
    /// `ledbat++`.
    LedbatPlus,
    /// One that another crate brings; no file can name it.
    Outside(outside::Factory),
}

impl Cc {
    /// The words for [`Cc::named`].
    pub(super) const NAMES: &str =
        "newreno|reno|cubic|bic|bbr|bbr3|dctcp|prague|vegas|westwood|illinois|ledbat|ledbat++";

    /// A congestion control that another crate brings: `name` is what records call it, `make` is
    /// called for each connection.
    pub fn outside<C: outside::Congestion + 'static>(
        name: &str,
        make: impl Fn() -> C + Send + Sync + 'static,
    ) -> Self {
        Self::Outside(outside::Factory::new(name, make))
    }

    /// Its name, as in a file.
    pub fn name(&self) -> &str {
        match self {
            Cc::NewReno => "newreno",
            Cc::Cubic { .. } => "cubic",
            Cc::Bic { .. } => "bic",
            Cc::Bbr => "bbr",
            Cc::Bbr3 => "bbr3",
            Cc::Dctcp => "dctcp",
            Cc::Prague { .. } => "prague",
            Cc::Vegas => "vegas",
            Cc::Westwood => "westwood",
            Cc::Illinois => "illinois",
            Cc::Ledbat => "ledbat",
            Cc::LedbatPlus => "ledbat++",
            Cc::Outside(factory) => factory.name(),
        }
    }

    /// The one of this name, or of the alias `reno`, with its defaults.
    pub(super) fn named(name: &str) -> Self {
        match name {
            "cubic" => Cc::Cubic { rfc9438: false },
            "bic" => Cc::Bic { beta: 0.8 },
            "bbr" => Cc::Bbr,
            "bbr3" => Cc::Bbr3,
            "dctcp" => Cc::Dctcp,
            "prague" => Cc::Prague {
                rate_scaling: false,
            },
            "vegas" => Cc::Vegas,
            "westwood" => Cc::Westwood,
            "illinois" => Cc::Illinois,
            "ledbat" => Cc::Ledbat,
            "ledbat++" => Cc::LedbatPlus,
            _ => Cc::NewReno,
        }
    }
}
