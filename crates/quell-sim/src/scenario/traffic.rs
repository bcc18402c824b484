//! Kinds of flows and their options.

use crate::cc::Cc;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, MS, SEC};

/// Kind of a flow, with its options.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FlowKind {
    /// A TCP transfer.
    Tcp(Tcp),
    /// Packets at a constant rate.
    Cbr(Cbr),
    /// Packets that arrive as a Poisson process.
    Poisson(Poisson),
    /// Poisson arrivals whose mean gap alternates.
    OnOff(OnOff),
    /// Short TCP transfers that arrive as a Poisson process.
    Web(Web),
    /// A voice call in both directions.
    Call(Call),
    /// A game.
    Game(Game),
    /// A video call in both directions.
    VideoCall(VideoCall),
    /// Loads of a web page, one after another.
    Page(Page),
    /// Adaptive streaming.
    Video(Video),
    /// Responsiveness probes.
    Probe(Tcp),
    /// A transfer to the user.
    Download(Tcp),
    /// A transfer from the user.
    Upload(Tcp),
    /// A transfer from the user in the background.
    Backup(Tcp),
    /// Echo requests to reflectors.
    Ping(Ping),
}

impl FlowKind {
    /// The value of `kind` in a file.
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

    /// Whether its data always go up, from the user to the network.
    pub(super) fn goes_up(&self) -> bool {
        matches!(self, FlowKind::Upload(_) | FlowKind::Backup(_))
    }

    /// Whether both ends send datagrams.
    pub fn is_dialogue(&self) -> bool {
        matches!(
            self,
            FlowKind::Call(_) | FlowKind::Game(_) | FlowKind::VideoCall(_) | FlowKind::Ping(_)
        )
    }

    /// The TCP options, if it uses TCP.
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

    /// The TCP options, mutable.
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
    /// Rate of IP packets.
    pub rate: Rate,
    /// Size of an IP packet, bytes.
    pub size: u32,
    /// Whether packets have ECT(0).
    pub ecn: bool,
}

impl Default for Cbr {
    fn default() -> Self {
        Self {
            rate: Rate::from_mbit(1),
            size: 1500,
            ecn: false,
        }
    }
}

/// Echo requests; controllers of a shaper's rate use the answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Ping {
    /// Time between requests to a reflector.
    pub interval: Duration,
    /// Size of an IP packet, bytes.
    pub size: u32,
    /// Mean of the exponentially distributed time before a reflector answers.
    pub jitter: Duration,
    /// Probability that a reflector does not answer.
    pub loss: f64,
    /// Whether answers contain the request's time of arrival, by a clock that is synchronised with
    /// the router's.
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
    /// Mean rate of IP packets.
    pub rate: Rate,
    /// Size of an IP packet, bytes.
    pub size: Size,
    /// Whether packets have ECT(0).
    pub ecn: bool,
}

impl Default for Poisson {
    fn default() -> Self {
        Self {
            rate: Rate::from_mbit(1),
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
    /// Duration of an on phase.
    pub on: Duration,
    /// Duration of an off phase.
    pub off: Duration,
    /// Mean time between packets in an on phase.
    pub gap_on: Duration,
    /// Mean time between packets in an off phase.
    pub gap_off: Duration,
    /// Size of an IP packet, bytes.
    pub size: u32,
    /// Whether packets have ECT(0).
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
    /// TCP options of the transfers.
    pub tcp: Tcp,
    /// Size of a transfer, bytes.
    pub size: Size,
    /// Mean arrivals per second.
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

/// A voice call: packets with 20 ms of speech in both directions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// Speech codec.
    pub codec: Codec,
}

/// Speech codecs.
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
    /// Size of an IP packet, bytes: 40 of IP, UDP and RTP headers, and 20 ms of speech.
    pub fn packet(self) -> u32 {
        40 + match self {
            Codec::G711 => 160,
            Codec::G729 => 20,
            Codec::Opus => 80,
        }
    }

    /// Name in a file.
    pub(super) fn word(self) -> &'static str {
        match self {
            Codec::G711 => "g711",
            Codec::G729 => "g729",
            Codec::Opus => "opus",
        }
    }
}

/// A game: states of the world in one direction, the player's commands in the other.
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

/// A video call: each end sends at the rate that Google Congestion Control allows.
#[derive(Clone, Debug, PartialEq)]
pub struct VideoCall {
    /// Initial rate of each end.
    pub start_rate: Rate,
    /// Maximum rate of each end.
    pub max_rate: Rate,
}

/// The defaults of libwebrtc: `kDefaultStartBitrateBps`, and the maximum for pictures of 1280 x 720
/// (`GetMaxDefaultVideoBitrateKbps`).
impl Default for VideoCall {
    fn default() -> Self {
        Self {
            start_rate: Rate::from_kbit(300),
            max_rate: Rate::from_kbit(2500),
        }
    }
}

/// Loads of a web page, with time to read between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// TCP options of its connections.
    pub tcp: Tcp,
    /// HTTP/2 on one connection; false: HTTP/1.1 on six.
    pub http2: bool,
    /// Mean time to read a page.
    pub think: Duration,
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
    /// TCP options of its connection.
    pub tcp: Tcp,
    /// Algorithm that chooses the quality.
    pub adaptation: Adaptation,
}

/// Input of the choice of a segment's quality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Adaptation {
    /// The level of the buffer.
    #[default]
    Buffer,
    /// The throughput of the last segments.
    Rate,
}

/// A size, constant or exponentially distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Size, bytes (the mean if `exponential`).
    pub bytes: u64,
    /// Whether it is exponentially distributed.
    pub exponential: bool,
}

/// Options of a TCP sender and its receiver; the defaults are Linux's.
#[derive(Clone, Debug, PartialEq)]
pub struct Tcp {
    /// Congestion control.
    pub cc: Cc,
    /// Bytes to send; `None`: no end.
    pub bytes: Option<u64>,
    /// Whether ECN is negotiated.
    pub ecn: bool,
    /// Use ECT(1) instead of ECT(0) (default for prague).
    pub ect1: bool,
    /// Maximum payload of a segment, bytes (1448).
    pub mss: u32,
    /// Initial window, packets (10).
    pub iw: u32,
    /// Minimum RTO (200 ms).
    pub min_rto: Duration,
    /// RTO = max(srtt + 4·rttvar, min_rto) as in ns-3, instead of Linux's srtt + max(4·rttvar,
    /// min_rto).
    pub rto_ns3: bool,
    /// Segments per ACK (2).
    pub delack: u32,
    /// Maximum delay of an ACK (40 ms).
    pub delack_timeout: Duration,
    /// SACK with RACK-TLP; false: NewReno (RFC 6582).
    pub sack: bool,
    /// Use limited transmit (RFC 3042).
    pub limited_transmit: bool,
    /// Pace, as Linux does with the queue `fq` on its device or with `SO_MAX_PACING_RATE`; BBR and
    /// Prague always pace.
    pub pacing: bool,
    /// Maximum receive window, bytes (6 MiB).
    pub buffer: u64,
    /// Rate at which the application offers data; [`Rate::MAX`]: unlimited.
    pub rate: Rate,
}

/// Linux's defaults; the transfer does not end.
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
            rate: Rate::MAX,
        }
    }
}
