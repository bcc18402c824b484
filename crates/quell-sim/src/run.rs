//! One run: a scenario, a queue and a seed in, a result record out.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quell_link::error::Error;
use quell_link::hist::Hist;
use quell_link::record::{self, DropsByCause, Run, Summary};
use quell_qdisc::control::Controller;
use quell_qdisc::{Gauges, Knobs, MS, Nanos, SEC};

use crate::capture::Capture;
use crate::measure::{AckStats, Report};
use crate::port::Port;
use crate::probe::Counters;
use crate::scenario::Scenario;
use crate::wifi::Link;
use crate::world::{Status, World};

/// What a run is asked for beside its record.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Bin width of the time series; None: no series.
    pub series_bin: Option<Nanos>,
    /// Where to write a capture of the bottleneck.
    pub pcap: Option<PathBuf>,
}

/// Points of the sojourn's cumulative distribution.
const CDF_POINTS: usize = 200;
/// Simulated time between two looks at the stop flag.
const SLICE: Nanos = 20 * MS;

/// Runs a scenario with this queue and seed. `stop` ends it early with an error that says so.
pub fn run(
    scenario: &Scenario,
    queue: &str,
    seed: u64,
    options: &RunOptions,
    stop: &AtomicBool,
) -> Result<Run, Error> {
    run_controlled(scenario, queue, seed, options, stop, None)
}

/// A controller that is not part of the queue: its period, and what it decides.
pub type Outside<'a> = (Nanos, &'a mut dyn FnMut(&Gauges) -> Result<Knobs, Error>);

/// As `run`, with a controller outside at the bottleneck.
pub fn run_controlled(
    scenario: &Scenario,
    queue: &str,
    seed: u64,
    options: &RunOptions,
    stop: &AtomicBool,
    mut outside: Option<Outside>,
) -> Result<Run, Error> {
    let mut world = World::new(Arc::new(scenario.clone()), queue, seed, options.series_bin)?;
    if let Some((period, _)) = &outside {
        world.set_external(0, *period);
    }
    let mut capture = match &options.pcap {
        Some(path) => Some(Capture::create(path, &mut world)?),
        None => None,
    };
    let clock = cpu_time::ThreadTime::now();
    let mut until = 0;
    while until < scenario.duration {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::new("interrupted"));
        }
        // A capture has to look after every event; nothing else does.
        let step = match capture {
            Some(_) => world.next_event().saturating_add(1),
            None => until + SLICE,
        };
        until = step.min(scenario.duration);
        while let Status::Decide { queue, gauges } = world.run_until(until) {
            if let Some((_, decide)) = &mut outside {
                let knobs = decide(&gauges)?;
                world.set_knobs(queue, &knobs);
            }
        }
        if let Some(capture) = &mut capture {
            capture.write(until - 1, &mut world)?;
        }
    }
    if let Some(capture) = capture {
        capture.finish()?;
    }
    Ok(world.record(clock.elapsed().as_secs_f64()))
}

impl World {
    /// The result record of what was measured so far.
    pub fn record(&mut self, cpu_s: f64) -> Run {
        let now = self.now;
        for port in &mut self.net.ports {
            port.settle(now);
        }
        let span = (now - self.measures.warm_at()).max(1);
        let limit_packets = self.net.ports[0].mean_limit(now);
        let flows = self.flow_records(now);
        let port = &self.net.ports[0];
        let (mut c, mut marks, mut sojourns) = (Counters::default(), 0, Hist::new());
        for i in self.bottleneck() {
            let (port, warm) = (&self.net.ports[i], self.measures.warm.get(i));
            let warm = warm.copied().unwrap_or_default();
            c = sum(&c, &since(&port.probe.counters, &warm.0));
            marks += port.marks() - warm.1;
            sojourns.merge(&port.probe.sojourns);
        }
        let offered = port.offered_bytes(now) - port.offered_bytes(self.measures.warm_at());
        let drops = c.drops.total();
        let ms = 1.0 / MS as f64;
        let byte_ms = 8e3 / port.mean_bps as f64;
        let total = port.probe.counters.departures;
        let rtt = self.measures.rtt();
        let reports = self.measures.reports.iter();
        let down: u64 = reports
            .zip(self.measured())
            .filter(|(r, _)| r.down)
            .map(|(_, (bytes, _))| bytes)
            .sum();
        Run {
            scenario: self.scenario.name.clone(),
            queue: self.queue.clone(),
            seed: self.seed,
            measured_s: span as f64 / SEC as f64,
            goodput_mbps: mbps(down as f64, span),
            throughput_mbps: mbps(c.departed_bytes as f64, span),
            capacity_mbps: mbps(offered, span),
            utilisation: if offered > 0.0 {
                c.departed_bytes as f64 / offered
            } else {
                0.0
            },
            sojourn_ms: sojourns.summary(ms),
            sojourn_cdf: sojourns.cdf(CDF_POINTS, ms),
            backlog_packets: port.probe.packets(),
            backlog_ms: port.probe.bytes(byte_ms),
            limit_packets,
            packets: c.departures,
            drops,
            marks,
            loss_rate: ratio(drops, c.arrivals),
            mark_rate: ratio(marks, c.departures),
            drops_by_cause: c.drops,
            jain: self.jain(&flows),
            rtt_ms: (rtt.count() > 0).then(|| rtt.summary(ms)),
            fct_ms: self.fct(),
            flows,
            guard: guard_record(&port.controller),
            hops: self.hop_records(span),
            wifi: self.wifi_record(span),
            series: self.measures.series.as_deref().cloned(),
            events: self.events(),
            cpu_s,
            packets_per_cpu_s: if cpu_s > 0.0 {
                total as f64 / cpu_s
            } else {
                0.0
            },
            trace_hash: format!("{:016x}", self.trace_hash()),
        }
    }

    /// The queues that packets, drops and sojourns are counted at: the first, in a cell all of the same node.
    fn bottleneck(&self) -> Vec<usize> {
        let Some(cell) = &self.net.cell else {
            return vec![0];
        };
        let node = cell.links[0].from;
        let all = cell.links.iter().enumerate();
        all.filter(|(_, l)| l.from == node)
            .map(|(i, _)| i)
            .collect()
    }

    fn wifi_record(&mut self, span: Nanos) -> Option<record::Wifi> {
        let now = self.now;
        let cell = self.net.cell.as_ref()?;
        let wifi = self.scenario.wifi.as_ref()?;
        let name = |node: u16| &wifi.nodes[usize::from(node)];
        let ports = self.net.ports.iter_mut().zip(&cell.links);
        let one = |((port, link), warm): ((&mut Port, &Link), &(Counters, u64))| {
            let c = since(&port.probe.counters, &warm.0);
            let air = &link.counts;
            let own = name(link.from).queue.clone();
            record::WifiQueue {
                from: name(link.from).name.clone(),
                to: name(link.to).name.clone(),
                ac: link.category.word().into(),
                queue: own.unwrap_or_else(|| self.queue.clone()),
                throughput_mbps: mbps(air.bytes as f64, span),
                sojourn_ms: port.probe.sojourns.summary(1.0 / MS as f64),
                delay_ms: (air.packets > 0).then(|| air.delay as f64 / (air.packets * MS) as f64),
                backlog_packets: port.probe.packets().mean,
                limit_packets: port.mean_limit(now),
                drops: c.drops.total(),
                marks: port.marks() - warm.1,
                airtime: air.airtime as f64 / span as f64,
                aggregate: ratio(air.frames, air.exchanges),
                retries: ratio(air.retries, air.frames),
                failures: ratio(air.failures, air.exchanges),
                given_up: air.given_up,
            }
        };
        let zero = vec![Default::default(); cell.links.len()];
        let warm = if self.measures.warm.is_empty() {
            &zero
        } else {
            &self.measures.warm
        };
        Some(record::Wifi {
            busy: cell.busy(now) as f64 / span as f64,
            collisions: cell.totals.collisions,
            queues: ports.zip(warm).map(one).collect(),
        })
    }

    fn flow_records(&self, now: Nanos) -> Vec<record::Flow> {
        let ms = 1.0 / MS as f64;
        let measured = self.measured();
        let one =
            |(r, acks, (bytes, retransmits)): (&Report, &AckStats, (u64, u64))| record::Flow {
                kind: r.kind.into(),
                cc: r.cc.into(),
                base_rtt_ms: r.rtt_ns as f64 * ms,
                goodput_mbps: match active(r, self.measures.warm_at(), now) {
                    0 => 0.0,
                    time => mbps(bytes as f64, time),
                },
                retransmits,
                cwnd_packets: acks.cwnd(),
                rtt_ms: acks
                    .rtt
                    .as_ref()
                    .filter(|h| h.count() > 0)
                    .map(|h| h.summary(ms)),
                fct_ms: r
                    .fct
                    .as_ref()
                    .filter(|h| h.count() > 0)
                    .map(|h| h.summary(ms)),
                completed: r.fct.as_ref().map_or(0, |h| h.count()),
                refused: r.refused,
            };
        self.measures
            .reports
            .iter()
            .zip(&self.measures.acks)
            .zip(measured)
            .map(|((r, acks), totals)| one((r, acks, totals)))
            .collect()
    }

    fn jain(&self, flows: &[record::Flow]) -> Option<f64> {
        let throughout = |r: &Report| {
            r.kind == "tcp"
                && r.down
                && !r.finite
                && r.span.0 <= self.measures.warm_at().max(SEC)
                && r.span.1 >= self.scenario.duration
        };
        let rates: Vec<f64> = flows
            .iter()
            .zip(&self.measures.reports)
            .filter(|(_, r)| throughout(r))
            .map(|(f, _)| f.goodput_mbps)
            .collect();
        let (sum, squares) = rates
            .iter()
            .fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
        (squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
    }

    fn fct(&self) -> Option<Summary> {
        let mut all = quell_link::hist::Hist::new();
        for r in &self.measures.reports {
            if let Some(h) = &r.fct {
                all.merge(h);
            }
        }
        (all.count() > 0).then(|| all.summary(1.0 / MS as f64))
    }

    fn hop_records(&self, span: Nanos) -> Vec<record::Hop> {
        let zero = Default::default();
        let one = |(i, hop): (usize, &crate::scenario::Link)| {
            let port = &self.net.ports[i + 1];
            let warm = self.measures.warm.get(i + 1).unwrap_or(&zero);
            let c = since(&port.probe.counters, &warm.0);
            record::Hop {
                hop: i as u32 + 1,
                queue: hop.queue.clone(),
                throughput_mbps: mbps(c.departed_bytes as f64, span),
                sojourn_ms: port.probe.sojourns.summary(1.0 / MS as f64),
                drops: c.drops.total(),
                marks: port.marks() - warm.1,
            }
        };
        self.scenario.hops.iter().enumerate().map(one).collect()
    }
}

/// What a guard did, where there is one.
fn guard_record(controller: &Controller) -> Option<record::Guard> {
    let Controller::Guard(guard) = controller else {
        return None;
    };
    let s = guard.stats();
    let mean = |sum: f64| sum / s.proposals.max(1) as f64;
    Some(record::Guard {
        decisions: s.decisions,
        learned: s.learned,
        clipped: s.clipped,
        not_a_number: s.not_a_number,
        late: s.late,
        stale: s.stale,
        out_of_range: s.out_of_range,
        fallbacks: s.fallbacks,
        handed_back: s.handed_back,
        proposed: mean(s.proposed_sum),
        set: mean(s.set_sum),
    })
}

/// How long a flow was there in the measured time.
fn active(r: &Report, warm: Nanos, now: Nanos) -> Nanos {
    r.span.1.min(now).saturating_sub(r.span.0.max(warm))
}

fn mbps(bytes: f64, span: Nanos) -> f64 {
    bytes * 8e3 / span as f64
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

fn sum(a: &Counters, b: &Counters) -> Counters {
    Counters {
        arrivals: a.arrivals + b.arrivals,
        departures: a.departures + b.departures,
        departed_bytes: a.departed_bytes + b.departed_bytes,
        drops: DropsByCause {
            overflow: a.drops.overflow + b.drops.overflow,
            early: a.drops.early + b.drops.early,
            forced: a.drops.forced + b.drops.forced,
            link: a.drops.link + b.drops.link,
        },
        sojourn_sum: a.sojourn_sum + b.sojourn_sum,
    }
}

fn since(c: &Counters, warm: &Counters) -> Counters {
    let (a, b) = (&c.drops, &warm.drops);
    Counters {
        arrivals: c.arrivals - warm.arrivals,
        departures: c.departures - warm.departures,
        departed_bytes: c.departed_bytes - warm.departed_bytes,
        drops: DropsByCause {
            overflow: a.overflow - b.overflow,
            early: a.early - b.early,
            forced: a.forced - b.forced,
            link: a.link - b.link,
        },
        sojourn_sum: c.sojourn_sum - warm.sojourn_sum,
    }
}
