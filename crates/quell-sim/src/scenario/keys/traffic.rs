//! The keys of each kind of flow.

use quell_link::Error;
use quell_link::field::{self, Field};
use quell_link::units::{self, format_size};
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, MS, SEC, US};

use super::MAX_DURATION;
use crate::cc::Cc;
use crate::scenario::key::{Section, Visitor, key};
use crate::scenario::traffic::{
    Adaptation, Call, Cbr, Codec, FlowKind, Game, OnOff, Page, Ping, Poisson, Size, Tcp, Video,
    VideoCall, Web,
};

/// Maximum size of a packet and of TCP's MSS, bytes: with TCP's headers and any overhead the length
/// fits into 16 bits.
const MAX_BYTES: u32 = 64_000;
/// Minimum size of a packet, bytes: headers alone.
const MIN_BYTES: u32 = 28;
/// Smallest and largest rate that units can express.
const MIN_RATE: Rate = Rate::from_bps(1);
const MAX_RATE: Rate = Rate::from_bps(1 << 53);

/// A kind of flow.
pub(in crate::scenario) struct Kind {
    pub name: &'static str,
    /// Description.
    pub about: &'static str,
    /// Makes the kind with its defaults.
    pub make: fn() -> FlowKind,
}

/// All kinds, in the order of [`super::FLOW`]'s `kind`.
pub(in crate::scenario) static KINDS: [Kind; 16] = [
    Kind {
        name: "tcp",
        about: "TCP transfers",
        make: || FlowKind::Tcp(Tcp::default()),
    },
    Kind {
        name: "cbr",
        about: "datagrams at a constant rate",
        make: || FlowKind::Cbr(Cbr::default()),
    },
    Kind {
        name: "poisson",
        about: "datagrams that arrive as a Poisson process",
        make: || FlowKind::Poisson(Poisson::default()),
    },
    Kind {
        name: "onoff",
        about: "datagrams with exponential gaps whose mean alternates",
        make: || FlowKind::OnOff(OnOff::default()),
    },
    Kind {
        name: "web",
        about: "short TCP transfers that arrive as a Poisson process, with the keys of `tcp` but `bytes`",
        make: || FlowKind::Web(Web::default()),
    },
    Kind {
        name: "call",
        about: "a voice call, both ways",
        make: || FlowKind::Call(Call::default()),
    },
    Kind {
        name: "voip",
        about: "another name of `call`",
        make: || FlowKind::Call(Call::default()),
    },
    Kind {
        name: "video_call",
        about: "a video call, both ways, at rates that Google Congestion Control sets",
        make: || FlowKind::VideoCall(VideoCall::default()),
    },
    Kind {
        name: "game",
        about: "a game: states of its world to the player, commands back",
        make: || FlowKind::Game(Game::default()),
    },
    Kind {
        name: "page",
        about: "web pages, one after another, with the keys of `tcp` but `bytes`",
        make: || FlowKind::Page(Page::default()),
    },
    Kind {
        name: "video",
        about: "adaptive streaming, with the keys of `tcp` but `bytes`",
        make: || FlowKind::Video(Video::default()),
    },
    Kind {
        name: "probe",
        about: "connections that fetch a byte, for the responsiveness of the network, with the keys of `tcp` but `bytes`",
        make: || FlowKind::Probe(Tcp::default()),
    },
    Kind {
        name: "download",
        about: "a transfer to the user, with the keys of `tcp`",
        make: || FlowKind::Download(Tcp::default()),
    },
    Kind {
        name: "upload",
        about: "a transfer from the user, with the keys of `tcp`; its direction is up",
        make: || FlowKind::Upload(Tcp::default()),
    },
    Kind {
        name: "backup",
        about: "an upload in the background, with the keys of `tcp`; `cc` is `ledbat++` where it is not given",
        make: || {
            FlowKind::Backup(Tcp {
                cc: Cc::LedbatPlus,
                ..Tcp::default()
            })
        },
    },
    Kind {
        name: "ping",
        about: "echo requests of the router, each of `count` to a reflector of its own; needs `[link.up]`; controllers of a shaper's rate see the answers, records do not",
        make: || FlowKind::Ping(Ping::default()),
    },
];

/// Visits the sections of a kind's table, which are defined only here.
pub(in crate::scenario) fn walk(kind: &mut FlowKind, to: &mut impl Visitor) -> Result<(), Error> {
    match kind {
        FlowKind::Tcp(tcp)
        | FlowKind::Download(tcp)
        | FlowKind::Upload(tcp)
        | FlowKind::Backup(tcp) => {
            to.visit(&TCP, tcp)?;
            to.visit(&TRANSFER, tcp)
        }
        FlowKind::Cbr(cbr) => to.visit(&CBR, cbr),
        FlowKind::Poisson(poisson) => to.visit(&POISSON, poisson),
        FlowKind::OnOff(onoff) => to.visit(&ONOFF, onoff),
        FlowKind::Ping(ping) => to.visit(&PING, ping),
        FlowKind::Call(call) => to.visit(&CALL, call),
        FlowKind::Game(game) => to.visit(&GAME, game),
        FlowKind::VideoCall(call) => to.visit(&VIDEO_CALL, call),
        FlowKind::Probe(tcp) => to.visit(&TCP, tcp),
        FlowKind::Page(page) => {
            to.visit(&PAGE, page)?;
            to.visit(&TCP, &mut page.tcp)
        }
        FlowKind::Video(video) => {
            to.visit(&VIDEO, video)?;
            to.visit(&TCP, &mut video.tcp)
        }
        FlowKind::Web(web) => {
            to.visit(&WEB, web)?;
            to.visit(&TCP, &mut web.tcp)
        }
    }
}

static TCP: Section<Tcp> = Section {
    keys: &[
        key::<Tcp>(
            "cc",
            Field::Choice {
                what: "congestion control",
                words: Cc::NAMES,
                set: |t, word| {
                    t.cc = Cc::named(word);
                    t.ect1 = matches!(t.cc, Cc::Prague { .. });
                    t.ecn = t.ect1 || t.cc == Cc::Dctcp;
                },
                get: |t| t.cc.name(),
            },
            "congestion control; `reno` is `newreno`",
        )
        .replaces(&["rfc9438", "rtt_scaling", "beta"]),
        key::<Tcp>(
            "rfc9438",
            Field::Switch {
                off: "",
                set: |t, on| {
                    if let Cc::Cubic { rfc9438 } = &mut t.cc {
                        *rfc9438 = on;
                    }
                },
                get: |t| matches!(t.cc, Cc::Cubic { rfc9438: true }),
            },
            "CUBIC per RFC 9438 where Linux differs",
        )
        .only("cc", "cubic"),
        key::<Tcp>(
            "rtt_scaling",
            Field::Choice {
                what: "rtt_scaling",
                words: "additive|rate",
                set: |t, word| {
                    if let Cc::Prague { rate_scaling } = &mut t.cc {
                        *rate_scaling = word == "rate";
                    }
                },
                get: |t| match t.cc {
                    Cc::Prague { rate_scaling: true } => "rate",
                    _ => "additive",
                },
            },
            "Prague behaves as if its round trip were 15 ms longer (`additive`), or 25 ms at least (`rate`)",
        )
        .only("cc", "prague"),
        key::<Tcp>(
            "beta",
            Field::Other {
                syntax: "X",
                set: |t, text| match (units::parse_number(text)?, &mut t.cc) {
                    (x, Cc::BicNs3 { beta }) if x > 0.0 && x < 1.0 => {
                        *beta = x;
                        Ok(())
                    }
                    _ => Err(Error::new(format!("\"{text}\" is out of range"))
                        .remedy("write 0.8 or another share between 0 and 1")),
                },
                get: |t| match t.cc {
                    Cc::BicNs3 { beta } => beta.to_string(),
                    _ => String::new(),
                },
            },
            "BIC's multiplicative decrease",
        )
        .or("0.8")
        .only("cc", "bic_ns3"),
        key::<Tcp>(
            "ecn",
            Field::Flag(|t| &mut t.ecn, ""),
            "ECN is negotiated",
        )
        .or("false; true for `dctcp` and `prague`"),
        key::<Tcp>(
            "ect",
            Field::Other {
                syntax: "0|1",
                set: |t, text| {
                    t.ect1 = field::count(text, 0, 1)? == 1;
                    Ok(())
                },
                get: |t| u8::from(t.ect1).to_string(),
            },
            "packets are sent with ECT(0) or ECT(1)",
        )
        .or("0; 1 for `prague`"),
        key(
            "mss",
            Field::Count(|t| &mut t.mss, 88, MAX_BYTES),
            "payload bytes per segment",
        ),
        key(
            "iw",
            Field::Count(|t| &mut t.iw, 1, 10_000),
            "initial window, packets",
        ),
        key(
            "min_rto",
            Field::Time(|t| &mut t.min_rto, MS, Duration::from_secs(120)),
            "minimum retransmission timeout",
        ),
        key(
            "rto",
            Field::Choice {
                what: "rto",
                words: "linux|ns3",
                set: |t, word| t.rto_ns3 = word == "ns3",
                get: |t| match t.rto_ns3 {
                    true => "ns3",
                    false => "linux",
                },
            },
            "retransmission timeout: Linux's srtt + max(4 rttvar, min_rto), or ns-3's max(srtt + 4 rttvar, min_rto)",
        ),
        key(
            "delack",
            Field::Count(|t| &mut t.delack, 1, 255),
            "segments per ACK",
        ),
        key(
            "delack_timeout",
            Field::Time(|t| &mut t.delack_timeout, Duration::ZERO, Duration::from_secs(10)),
            "longest time that an ACK waits for another segment",
        ),
        key(
            "sack",
            Field::Flag(|t| &mut t.sack, ""),
            "SACK with RACK-TLP; false: NewReno (RFC 6582)",
        ),
        key(
            "limited_transmit",
            Field::Flag(|t| &mut t.limited_transmit, ""),
            "RFC 3042",
        ),
        key(
            "pacing",
            Field::Flag(|t| &mut t.pacing, ""),
            "pacing, as Linux paces with `fq`; BBR, BBRv3 and Prague always pace",
        ),
        key(
            "buffer",
            Field::Bytes(|t| &mut t.buffer, 88, 1 << 32),
            "receive window; at least one segment",
        ),
        key(
            "rate",
            Field::Other {
                syntax: "RATE|unlimited",
                set: |t, text| {
                    t.rate = match text {
                        "unlimited" => Rate::MAX,
                        text => field::rate(text, MIN_RATE, MAX_RATE)?,
                    };
                    Ok(())
                },
                get: |t| match t.rate {
                    Rate::MAX => "unlimited".to_owned(),
                    rate => rate.to_string(),
                },
            },
            "rate at which the application sends",
        ),
    ],
    default: Tcp::default,
    needs: None,
    finish: |t, table| {
        let min_bytes = u64::from(t.mss);
        match table.text("buffer") {
            Some(text) if t.buffer < min_bytes => field::size(text, min_bytes, 1 << 32)
                .map(drop)
                .map_err(|e| table.error("buffer", e)),
            _ => Ok(()),
        }
    },
};

static TRANSFER: Section<Tcp> = Section {
    keys: &[key::<Tcp>(
        "bytes",
        Field::MaybeBytes(|t| &mut t.bytes, 1, 1 << 50),
        "bytes to send",
    )
    .or("without end")],
    default: Tcp::default,
    needs: None,
    finish: |_, _| Ok(()),
};

static CBR: Section<Cbr> = Section {
    keys: &[
        key(
            "rate",
            Field::Rate(|c| &mut c.rate, MIN_RATE, MAX_RATE),
            "rate of the IP packets",
        ),
        key(
            "size",
            Field::Bytes32(|c| &mut c.size, MIN_BYTES, MAX_BYTES),
            "IP bytes per packet",
        ),
        key("ecn", Field::Flag(|c| &mut c.ecn, ""), SENT_AS_ECT0),
    ],
    default: Cbr::default,
    needs: None,
    finish: |_, _| Ok(()),
};

static PING: Section<Ping> = Section {
    keys: &[
        key(
            "interval",
            Field::Time(|p| &mut p.interval, MS, Duration::from_secs(3600)),
            "time between requests to a reflector",
        ),
        key(
            "size",
            Field::Bytes32(|p| &mut p.size, MIN_BYTES, MAX_BYTES),
            "IP bytes per packet",
        ),
        key(
            "jitter",
            Field::Time(|p| &mut p.jitter, Duration::ZERO, SEC),
            "mean of the exponential time that a reflector takes to answer",
        ),
        key(
            "loss",
            Field::Probability(|p| &mut p.loss),
            "probability that it does not answer",
        ),
        key(
            "timestamps",
            Field::Flag(|p| &mut p.timestamps, ""),
            "answers say when the request arrived, so that the delay of each direction is known",
        ),
    ],
    default: Ping::default,
    needs: None,
    finish: |_, _| Ok(()),
};

const SENT_AS_ECT0: &str = "packets are sent with ECT(0)";

static POISSON: Section<Poisson> = Section {
    keys: &[
        key(
            "rate",
            Field::Rate(|p| &mut p.rate, MIN_RATE, MAX_RATE),
            "mean rate of the IP packets",
        ),
        key(
            "size",
            Field::Other {
                syntax: "BYTES|exp:BYTES",
                set: |p, text| {
                    p.size = size(text, MIN_BYTES.into(), MAX_BYTES.into())?;
                    Ok(())
                },
                get: |p| size_text(p.size),
            },
            "IP bytes per packet; `exp:`: the mean of an exponential distribution",
        ),
        key("ecn", Field::Flag(|p| &mut p.ecn, ""), SENT_AS_ECT0),
    ],
    default: Poisson::default,
    needs: None,
    finish: |_, _| Ok(()),
};

static ONOFF: Section<OnOff> = Section {
    keys: &[
        key(
            "on",
            Field::Time(|o| &mut o.on, US, MAX_DURATION),
            "length of every `on` phase; the first phase is one",
        ),
        key(
            "off",
            Field::Time(|o| &mut o.off, US, MAX_DURATION),
            "length of every `off` phase",
        ),
        key(
            "gap_on",
            Field::Time(
                |o| &mut o.gap_on,
                Duration::from_nanos(1),
                Duration::from_nanos(MAX_DURATION.as_nanos() / 64),
            ),
            "mean of the exponential gaps between packets in an `on` phase",
        ),
        key(
            "gap_off",
            Field::Time(
                |o| &mut o.gap_off,
                Duration::from_nanos(1),
                Duration::from_nanos(MAX_DURATION.as_nanos() / 64),
            ),
            "the same in an `off` phase",
        ),
        key(
            "size",
            Field::Bytes32(|o| &mut o.size, MIN_BYTES, MAX_BYTES),
            "IP bytes per packet",
        ),
        key("ecn", Field::Flag(|o| &mut o.ecn, ""), SENT_AS_ECT0),
    ],
    default: OnOff::default,
    needs: None,
    finish: |_, _| Ok(()),
};

static WEB: Section<Web> = Section {
    keys: &[
        key(
            "size",
            Field::Other {
                syntax: "BYTES|exp:BYTES",
                set: |w, text| {
                    w.size = size(text, 1, 1 << 40)?;
                    Ok(())
                },
                get: |w| size_text(w.size),
            },
            "bytes of a transfer; `exp:`: the mean of an exponential distribution",
        ),
        key(
            "arrivals",
            Field::Other {
                syntax: "X",
                set: |w, text| match units::parse_number(text)? {
                    x if x > 0.0 && x <= 1e6 => {
                        w.arrivals = x;
                        Ok(())
                    }
                    _ => Err(Error::new(format!("\"{text}\" is out of range"))
                        .remedy("write transfers per second, above 0 and at most 1000000")),
                },
                get: |w| w.arrivals.to_string(),
            },
            "transfers that begin per second, as a Poisson process",
        ),
    ],
    default: Web::default,
    needs: None,
    finish: |_, _| Ok(()),
};

static CALL: Section<Call> = Section {
    keys: &[key(
        "codec",
        Field::Choice {
            what: "codec",
            words: "g711|g729|opus",
            set: |c, word| {
                c.codec = match word {
                    "g729" => Codec::G729,
                    "opus" => Codec::Opus,
                    _ => Codec::G711,
                };
            },
            get: |c| c.codec.word(),
        },
        "how speech is coded: 64, 8 or 32 kbit/s",
    )],
    default: Call::default,
    needs: None,
    finish: |_, _| Ok(()),
};

static GAME: Section<Game> = Section {
    keys: &[
        key(
            "states",
            Field::Count(|g| &mut g.states, 1, 1000),
            "states of the world per second",
        ),
        key(
            "commands",
            Field::Count(|g| &mut g.commands, 1, 1000),
            "commands per second, the other way",
        ),
    ],
    default: Game::default,
    needs: None,
    finish: |_, _| Ok(()),
};

static VIDEO_CALL: Section<VideoCall> = Section {
    keys: &[
        key(
            "start_rate",
            Field::Rate(|c| &mut c.start_rate, Rate::from_kbit(30), MAX_RATE),
            "rate at which each end begins",
        ),
        key(
            "max_rate",
            Field::Rate(
                |c| &mut c.max_rate,
                Rate::from_kbit(30),
                Rate::from_mbit(1000),
            ),
            "rate that neither end exceeds",
        ),
    ],
    default: VideoCall::default,
    needs: None,
    finish: |_, _| Ok(()),
};

static PAGE: Section<Page> = Section {
    keys: &[
        key(
            "http",
            Field::Choice {
                what: "http",
                words: "h2|http/1.1",
                set: |p, word| p.http2 = word == "h2",
                get: |p| if p.http2 { "h2" } else { "http/1.1" },
            },
            "HTTP/2 on one connection, or HTTP/1.1 on six",
        ),
        key(
            "think",
            Field::Time(
                |p| &mut p.think,
                MS,
                Duration::from_nanos(MAX_DURATION.as_nanos() / 64),
            ),
            "mean of the exponential pauses between a page and the next",
        ),
    ],
    default: Page::default,
    needs: None,
    finish: |_, _| Ok(()),
};

static VIDEO: Section<Video> = Section {
    keys: &[key(
        "adaptation",
        Field::Choice {
            what: "adaptation",
            words: "buffer|rate",
            set: |v, word| {
                v.adaptation = match word {
                    "rate" => Adaptation::Rate,
                    _ => Adaptation::Buffer,
                };
            },
            get: |v| match v.adaptation {
                Adaptation::Buffer => "buffer",
                Adaptation::Rate => "rate",
            },
        },
        "what chooses the quality: the level of the buffer or the throughput of the last segments",
    )],
    default: Video::default,
    needs: None,
    finish: |_, _| Ok(()),
};

/// Parses `1000` or `exp:1000`.
fn size(text: &str, low: u64, high: u64) -> Result<Size, Error> {
    let (number, exponential) = match text.strip_prefix("exp:") {
        Some(mean) => (mean, true),
        None => (text, false),
    };
    match field::size(number, low, high) {
        Ok(bytes) => Ok(Size { bytes, exponential }),
        Err(e) => Err(Error {
            remedy: e.remedy.map(|r| format!("{r}, or exp: and a mean")),
            ..e
        }),
    }
}

fn size_text(size: Size) -> String {
    let sort = if size.exponential { "exp:" } else { "" };
    format!("{sort}{}", format_size(size.bytes))
}
