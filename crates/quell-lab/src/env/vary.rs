//! Variations between episodes: ranges from which each episode draws values of its scenario.

use std::sync::Arc;

use quell_link::Error;
use quell_link::units;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::Duration;
use quell_qdisc::{Rng, num};

use quell_sim::scenario::{Capacity, FlowKind, Overrides, Scenario, Tcp};

/// Ranges from which each episode draws values. A value without a range is that of the scenario.
#[derive(Clone, Debug, Default)]
pub struct Randomization {
    /// Rate of the bottleneck, bit/s, log-uniform. It replaces a schedule or a trace.
    pub rate: Option<(u64, u64)>,
    /// Base round trip of all flows, log-uniform. Delays of links are shortened to fit into it.
    pub rtt: Option<(Duration, Duration)>,
    /// Range of `count` of each table of TCP flows.
    pub flows: Option<(u64, u64)>,
    /// Congestion controls, one of which is drawn for each table of TCP flows or short transfers.
    pub cc: Vec<Tcp>,
}

impl Randomization {
    /// Sets a key (`rate`, `rtt`, `flows`, `cc`) to a range or, for `cc`, a list.
    ///
    /// # Errors
    /// If there is no such key, or a value is wrong.
    pub fn set(&mut self, key: &str, values: &[String]) -> Result<(), Error> {
        match key {
            "rate" => {
                self.rate = Some(range(values, |text| {
                    units::parse_rate(text).map(Rate::bps)
                })?)
            }
            "rtt" => {
                let (low, high) = range(values, |text| {
                    units::parse_time(text).map(Duration::as_nanos)
                })?;
                self.rtt = Some((Duration::from_nanos(low), Duration::from_nanos(high)));
            }
            "flows" => self.flows = Some(range(values, units::parse_count)?),
            "cc" => self.cc = values.iter().map(|v| tcp(v)).collect::<Result<_, _>>()?,
            _ => {
                return Err(Error::unknown("range", key, ["rate", "rtt", "flows", "cc"]));
            }
        }
        Ok(())
    }

    /// Draws the scenario of an episode.
    pub(super) fn draw(&self, scenario: &Arc<Scenario>, rng: &mut Rng) -> Arc<Scenario> {
        if self.rate.is_none() && self.rtt.is_none() && self.flows.is_none() && self.cc.is_empty() {
            return scenario.clone();
        }
        let mut s = Scenario::clone(scenario);
        if let Some(range) = self.rate {
            s.link.rate = Capacity::Constant(Rate::from_bps(by_factors(range, rng.f64())));
        }
        if let Some(range) = self.rtt {
            let (low, high) = (range.0.as_nanos(), range.1.as_nanos());
            let rtt = by_factors((low, high), rng.f64());
            set_rtt(&mut s, Duration::from_nanos(rtt));
        }
        for flow in &mut s.flows {
            if let (FlowKind::Tcp(_), Some((low, high))) = (&flow.kind, self.flows) {
                flow.count = num::low_u32(low + rng.below(high - low + 1));
            }
            if let (Some(tcp), n @ 1..) = (flow.kind.tcp_mut(), self.cc.len()) {
                let drawn = &self.cc[num::index(rng.below(n as u64))];
                (tcp.cc, tcp.ecn, tcp.ect1) = (drawn.cc.clone(), drawn.ecn, drawn.ect1);
            }
        }
        Arc::new(s)
    }

    /// The scenarios at both ends of the ranges, to check that their worlds can be built.
    pub(super) fn extremes(&self, scenario: &Scenario) -> Result<[Scenario; 2], Error> {
        let mut ends = [scenario.clone(), scenario.clone()];
        for (k, s) in ends.iter_mut().enumerate() {
            let end = |range: (u64, u64)| if k == 0 { range.0 } else { range.1 };
            if let Some(rate) = self.rate {
                s.link.rate = Capacity::Constant(Rate::from_bps(end(rate)));
            }
            if let Some(rtt) = self.rtt {
                set_rtt(s, if k == 0 { rtt.0 } else { rtt.1 });
            }
            for flow in &mut s.flows {
                if let (FlowKind::Tcp(_), Some(flows)) = (&flow.kind, self.flows) {
                    flow.count = u32::try_from(end(flows))
                        .map_err(|_| Error::new("too many").key("flows"))?;
                }
            }
        }
        Ok(ends)
    }
}

fn set_rtt(s: &mut Scenario, rtt: Duration) {
    let hops = s.hops.len() as u64 + 1;
    for link in [&mut s.link]
        .into_iter()
        .chain(&mut s.up)
        .chain(&mut s.hops)
    {
        link.delay = link.delay.min(rtt / (2 * hops));
    }
    for flow in &mut s.flows {
        flow.rtt = rtt;
    }
}

/// The log-uniform value for a uniform `at` in 0..1.
fn by_factors((low, high): (u64, u64), at: f64) -> u64 {
    let (a, b) = (low as f64, high as f64);
    num::whole_u64(libm::round(a * libm::pow(b / a, at))).clamp(low, high)
}

fn range(
    values: &[String],
    parse: impl Fn(&str) -> Result<u64, Error>,
) -> Result<(u64, u64), Error> {
    let [low, high] = values else {
        return Err(Error::new("not two values").remedy("write the least and the greatest"));
    };
    match (parse(low)?, parse(high)?) {
        (0, _) => Err(Error::new("the least must be above 0")),
        (a, b) if a > b => Err(Error::new(format!("{low} is more than {high}"))),
        range => Ok(range),
    }
}

/// A congestion control with the ECN setting that scenario files give it by default.
fn tcp(word: &str) -> Result<Tcp, Error> {
    let alone = Overrides {
        rate: Some("1mbit".into()),
        flows: vec![word.into()],
        ..Overrides::default()
    };
    match Scenario::parse("", "", &alone)?.flows.pop().map(|f| f.kind) {
        Some(FlowKind::Tcp(tcp)) => Ok(tcp),
        _ => Err(Error::new(format!("`{word}` is not a congestion control"))),
    }
}
