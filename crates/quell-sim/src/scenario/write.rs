//! A scenario as the file that reads back to it.

use std::fmt::Write;

use quell_link::units::{format_rate, format_size, format_time};

use super::flows::kind_name;
use super::{Cc, Direction, Flow, FlowKind, Link, Rate, Scenario, Shaper, Tcp};

pub(super) fn toml(s: &Scenario) -> String {
    let mut out = Out(String::new());
    out.text("name", &s.name);
    out.text("duration", &format_time(s.duration));
    out.text("warmup", &format_time(s.warmup));
    out.plain("seeds", s.seeds);
    out.plain("seed", s.seed);
    match &s.wifi {
        Some(wifi) => super::wifi::write(&mut out.0, wifi, &s.link.queue),
        None => out.link("[link]", &s.link),
    }
    if let Some(up) = &s.up {
        out.link("[link.up]", up);
    }
    for hop in &s.hops {
        out.link("[[hop]]", hop);
    }
    for flow in &s.flows {
        out.flow(flow, s.hops.len() as u32);
        if let (Some(wifi), Some(ends)) = (&s.wifi, &flow.ends) {
            out.line(&super::wifi::write_ends(wifi, ends));
        }
    }
    out.0
}

struct Out(String);

impl Out {
    fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }

    fn plain(&mut self, key: &str, value: impl std::fmt::Display) {
        self.line(&format!("{key} = {value}"));
    }

    fn text(&mut self, key: &str, value: &str) {
        let value = quoted(value);
        self.plain(key, value);
    }

    fn link(&mut self, head: &str, link: &Link) {
        self.line(&format!("\n{head}"));
        match &link.rate {
            Rate::Constant(bps) => self.text("rate", &format_rate(*bps)),
            Rate::Trace(trace) => self.text("trace", &trace.name),
            Rate::Schedule(steps) => {
                let steps = steps.iter();
                let steps = steps.map(|(at, bps)| {
                    format!("[\"{}\", \"{}\"]", format_time(*at), format_rate(*bps))
                });
                let steps = steps.collect::<Vec<_>>().join(", ");
                self.plain("schedule", format!("[{steps}]"));
            }
        }
        self.text("delay", &format_time(link.delay));
        match link.shaper {
            Shaper::Line => self.text("shaper", "line"),
            Shaper::Htb { burst } => {
                self.text("shaper", "htb");
                self.plain("burst", burst);
            }
        }
        self.plain("overhead", link.overhead);
        self.plain("nic", link.nic);
        self.plain("loss", format!("{:?}", link.loss));
        self.text("queue", &link.queue);
    }

    fn flow(&mut self, flow: &Flow, last_hop: u32) {
        self.line("\n[[flow]]");
        self.text("kind", kind_name(&flow.kind));
        let size = |size: &u64, exponential: &bool| {
            format!(
                "{}{}",
                if *exponential { "exp:" } else { "" },
                format_size(*size)
            )
        };
        match &flow.kind {
            FlowKind::Tcp(tcp) => self.tcp(tcp),
            FlowKind::Cbr { rate, size, ecn } => {
                self.text("rate", &format_rate(*rate));
                self.plain("size", size);
                self.plain("ecn", ecn);
            }
            FlowKind::Poisson {
                rate,
                size: bytes,
                exponential,
                ecn,
            } => {
                self.text("rate", &format_rate(*rate));
                self.text("size", &size(&u64::from(*bytes), exponential));
                self.plain("ecn", ecn);
            }
            FlowKind::OnOff {
                on,
                off,
                gap_on,
                gap_off,
                size,
                ecn,
            } => {
                for (key, time) in [
                    ("on", on),
                    ("off", off),
                    ("gap_on", gap_on),
                    ("gap_off", gap_off),
                ] {
                    self.text(key, &format_time(*time));
                }
                self.plain("size", size);
                self.plain("ecn", ecn);
            }
            FlowKind::Web {
                tcp,
                size: bytes,
                exponential,
                arrivals,
            } => {
                self.text("size", &size(bytes, exponential));
                self.plain("arrivals", format!("{arrivals:?}"));
                self.tcp(tcp);
            }
        }
        self.plain("count", flow.count);
        self.text("rtt", &format_time(flow.rtt));
        self.text("start", &format_time(flow.start));
        if let Some(stop) = flow.stop {
            self.text("stop", &format_time(stop));
        }
        self.text("stagger", &format_time(flow.stagger));
        if flow.direction == Direction::Up {
            self.text("direction", "up");
        } else if flow.hops != (0, last_hop) {
            self.plain("hops", format!("[{}, {}]", flow.hops.0, flow.hops.1));
        }
    }

    fn tcp(&mut self, tcp: &Tcp) {
        let cc = match tcp.cc {
            Cc::NewReno => "newreno",
            Cc::Cubic { .. } => "cubic",
            Cc::Bic { .. } => "bic",
            Cc::Bbr => "bbr",
            Cc::Dctcp => "dctcp",
            Cc::Prague { .. } => "prague",
        };
        self.text("cc", cc);
        match tcp.cc {
            Cc::Cubic { rfc9438: true } => self.plain("rfc9438", true),
            Cc::Prague { rate_scaling: true } => self.text("rtt_scaling", "rate"),
            Cc::Bic { beta } => self.plain("beta", format!("{beta:?}")),
            _ => {}
        }
        if let Some(bytes) = tcp.bytes {
            self.plain("bytes", bytes);
        }
        self.plain("ecn", tcp.ecn);
        self.plain("ect", u8::from(tcp.ect1));
        self.plain("mss", tcp.mss);
        self.plain("iw", tcp.iw);
        self.text("min_rto", &format_time(tcp.min_rto));
        self.text("rto", if tcp.rto_ns3 { "ns3" } else { "linux" });
        self.plain("delack", tcp.delack);
        self.text("delack_timeout", &format_time(tcp.delack_timeout));
        self.plain("sack", tcp.sack);
        self.plain("limited_transmit", tcp.limited_transmit);
        if tcp.pacing {
            self.plain("pacing", true);
        }
        self.text("buffer", &format_size(tcp.buffer));
        match tcp.rate {
            u64::MAX => self.text("rate", "unlimited"),
            rate => self.text("rate", &format_rate(rate)),
        }
    }
}

/// A TOML basic string.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
