//! One run: takes a scenario, a queue and a seed, returns a result record.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quell_link::aim::{Aim, Measured};
use quell_link::error::Error;
use quell_link::qoo::{self, Qoo};
use quell_link::record::{self, Application, Run, Summary, mbps, ratio};
use quell_link::words::Queue;
use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant, MS};

use crate::app::App;
use crate::capture::Capture;
use crate::cpu::CpuClock;
use crate::measure::{AckStats, Report, Totals};
use crate::port::Port;
use crate::scenario::{self, Scenario};
use crate::slot::Slot;
use crate::wifi::AirLink;
use crate::world::{Status, World};

/// Output of a run besides its record.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Bin width of the time series; None: no series.
    pub series_bin: Option<Duration>,
    /// File for a capture of the bottleneck; None: no capture.
    pub pcap: Option<PathBuf>,
}

/// Length of the first slice of simulated time in which a run advances, and upper bound of all
/// slices. The stop flag is checked after each slice. Lookahead needs slices of at least two round
/// trips.
const SLICE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(4));
/// CPU time, s: after a slice that took less, the next one is twice as long; after one that took
/// more than four times this, half as long.
const SLICE_CPU_S: f64 = 0.02;
/// Full-size packets that the fastest link may carry in a slice, so that traffic that begins in the
/// middle of a long slice does not delay the next check: 0.2 s at 2 million packets per CPU-second.
const SLICE_PACKETS: u64 = 400_000;

/// Runs a scenario with this queue and seed. `stop` ends it early with an error that says so.
///
/// # Errors
/// If the queue words are wrong or do not fit the scenario, the run was stopped, a queue from
/// outside fails or the capture cannot be written.
pub fn run(
    scenario: &Scenario,
    queue: &str,
    seed: u64,
    options: &RunOptions,
    stop: &AtomicBool,
) -> Result<Run, Error> {
    let (scenario, queue) = (Arc::new(scenario.clone()), Queue::parse(queue)?);
    let world = World::builder(scenario)
        .queue(&queue)
        .seed(seed)
        .series(options.series_bin)
        .build()?;
    Session::new(world, options)?.complete(stop)
}

/// A run of a world to its end in slices, with an optional capture.
pub struct Session {
    /// The world.
    pub world: World,
    capture: Option<Capture>,
    /// End of the current slice, length of the next, and its upper bound.
    until: Instant,
    slice: Duration,
    longest: Duration,
    /// `World::answers` when the world last stopped.
    answers: Option<u64>,
    cpu_s: f64,
}

impl Session {
    /// A session at the world's start.
    ///
    /// # Errors
    /// If the capture cannot be begun.
    pub fn new(mut world: World, options: &RunOptions) -> Result<Self, Error> {
        let capture = match &options.pcap {
            Some(path) => Some(Capture::create(path, &mut world)?),
            None => None,
        };
        Ok(Self {
            longest: longest_slice(&world.scenario),
            world,
            capture,
            until: Instant::ZERO,
            slice: SLICE.0,
            answers: None,
            cpu_s: 0.0,
        })
    }

    /// Runs to the end without an outside controller and returns the record. `stop` ends it early
    /// with an error that says so.
    ///
    /// # Errors
    /// If it was stopped, a queue from outside fails or the capture cannot be written.
    pub fn complete(mut self, stop: &AtomicBool) -> Result<Run, Error> {
        let mut poll = || match stop.load(Ordering::Relaxed) {
            true => Err(Error::new("interrupted")),
            false => Ok(()),
        };
        while let Status::Decide { .. } = self.run_to_decision(&mut poll)? {}
        self.finish()
    }

    /// Runs to the next decision of an outside controller, or to the end. `poll` is called between
    /// slices and can end the run.
    ///
    /// # Errors
    /// The error of `poll`; or if a packet still waits for the decision requested last, a queue
    /// from outside fails or the capture cannot be written.
    pub fn run_to_decision(
        &mut self,
        poll: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<Status, Error> {
        self.check_answered()?;
        let clock = CpuClock::start();
        let status = self.run_on(&clock, poll);
        self.answers = Some(self.world.answers);
        self.cpu_s += clock.elapsed_s();
        status
    }

    /// Checks that the packet for which the world last stopped has received its decision.
    fn check_answered(&self) -> Result<(), Error> {
        let open = self
            .world
            .net
            .ports
            .iter()
            .position(|port| port.question().is_some());
        match open.filter(|_| self.answers == Some(self.world.answers)) {
            None => Ok(()),
            Some(queue) => {
                let what = format!("a packet waits for a decision about queue {queue}");
                Err(Error::new(what).remedy("set its knobs before you continue"))
            }
        }
    }

    fn run_on(
        &mut self,
        clock: &CpuClock,
        poll: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<Status, Error> {
        let end = Instant::ZERO + self.world.scenario.duration;
        let mut before_s = 0.0;
        loop {
            let status = self.world.run_until(self.until);
            self.world.check()?;
            if status != Status::Done {
                return Ok(status);
            }
            if let Some(capture) = &mut self.capture
                && self.until > Instant::ZERO
            {
                capture.write(self.until - Duration::from_nanos(1), &mut self.world)?;
            }
            if self.until == end {
                return Ok(Status::Done);
            }
            poll()?;
            // A capture must be written after every event.
            let next = match self.capture {
                Some(_) => self
                    .world
                    .next_event()
                    .saturating_add(Duration::from_nanos(1)),
                None => {
                    let now_s = clock.elapsed_s();
                    let next = self.until + self.slice;
                    let next_slice = slice_after(self.slice, now_s - before_s);
                    self.slice = next_slice.min(self.longest);
                    before_s = now_s;
                    next
                }
            };
            self.until = next.min(end);
        }
    }

    /// The record of a finished run.
    ///
    /// # Errors
    /// If the capture cannot be written.
    pub fn finish(mut self) -> Result<Run, Error> {
        if let Some(capture) = self.capture.take() {
            capture.finish()?;
        }
        Ok(self.world.record(self.cpu_s))
    }
}

/// Length of the next slice, given that of the last and the CPU time that it took, s. Results do
/// not depend on it.
fn slice_after(slice: Duration, took_s: f64) -> Duration {
    if took_s < SLICE_CPU_S {
        (2 * slice).min(SLICE.1)
    } else if took_s > 4.0 * SLICE_CPU_S {
        (slice / 2).max(MS)
    } else {
        slice
    }
}

/// Upper bound of a slice: [`SLICE_PACKETS`] on the fastest link.
fn longest_slice(scenario: &Scenario) -> Duration {
    let links = std::iter::once(&scenario.link)
        .chain(&scenario.hops)
        .chain(&scenario.up);
    let fastest = |link: &scenario::Link| match &link.rate {
        scenario::Capacity::Schedule(steps) => steps.iter().map(|step| step.1).max(),
        capacity => Some(capacity.mean_rate(scenario.duration)),
    };
    let rate = links.filter_map(fastest).max().unwrap_or_default();
    let time = rate.transmission_time(SLICE_PACKETS * 1514);
    time.clamp(SLICE.0, SLICE.1)
}

/// Queues of one direction under load, for the grade, AIM and QoO: the first queue, its modem and
/// the hops behind.
struct Way {
    sojourns_ms: Vec<Summary>,
    /// Share of packets that neither the first queue nor its modem lost.
    kept: f64,
}

impl Way {
    fn down(queue: &Run, modem: Option<&record::Modem>, hops: &[record::Hop]) -> Self {
        let mut way = Self::of(queue.sojourn_ms, queue.loss_rate, modem);
        way.sojourns_ms
            .extend(hops.iter().map(|hop| hop.sojourn_ms));
        way
    }

    /// The up direction; without `[link.up]`, no packet waits or is lost in it.
    fn up(up: Option<&record::Up>) -> Self {
        let of = |up: &record::Up| Self::of(up.sojourn_ms, up.loss_rate, up.modem.as_ref());
        up.map_or_else(|| Self::of(Summary::default(), 0.0, None), of)
    }

    fn of(sojourn_ms: Summary, loss_rate: f64, modem: Option<&record::Modem>) -> Self {
        Self {
            sojourns_ms: std::iter::once(sojourn_ms)
                .chain(modem.map(|modem| modem.sojourn_ms))
                .collect(),
            kept: (1.0 - loss_rate) * (1.0 - modem.map_or(0.0, |modem| modem.loss_rate)),
        }
    }

    fn sum(&self, of: fn(&Summary) -> f64) -> f64 {
        self.sojourns_ms.iter().map(of).sum()
    }
}

impl World {
    /// The result record of the measurements so far, which took `cpu_s` seconds of CPU time.
    pub fn record(&mut self, cpu_s: f64) -> Run {
        let now = self.now;
        let span = (now - self.measures.warm_at()).max(Duration::from_nanos(1));
        let flows = self.flow_records(now);
        let rtt = self.measures.rtt();
        let (mut down, mut upwards) = (Totals::default(), Totals::default());
        for (report, totals) in self.measures.reports.iter().zip(self.measured()) {
            match report.down {
                true => down.add(&totals),
                false => upwards.add(&totals),
            }
        }
        let (jain, fct_ms) = (self.jain(&flows), self.fct());
        let applications = self.application_records(&flows);
        let (hops, wifi) = (self.hop_records(now), self.wifi_record(now, span));
        let (total, up) = (
            self.packets(),
            self.up_record(now, mbps(upwards.bytes as f64, span)),
        );
        let queue = self.queue_record(now);
        let modem = self.modem_record(now, 0);
        let (down_path, up_path) = (
            Way::down(&queue, modem.as_ref(), &hops),
            Way::up(up.as_ref()),
        );
        let (down_ms, up_ms) = (down_path.sum(|s| s.mean), up_path.sum(|s| s.mean));
        let grade_ms = (queue.packets > 0).then(|| up_ms.max(down_ms));
        let each = grade_ms.and(up.as_ref());
        let (grade_down_ms, grade_up_ms) = (each.map(|_| down_ms), each.map(|_| up_ms));
        let letter = |ms: Option<f64>| ms.map(|ms| record::grade(ms).to_owned());
        let qoo = grade_ms.and(self.qoo(&down_path, &up_path, queue.capacity_mbps));
        let aim = grade_ms.and(self.aim(&down_path, &up_path, mbps(down.bytes as f64, span)));
        Run {
            scenario: self.scenario.name.clone(),
            queue: self.queue.clone(),
            controller: self.controlled_by.clone(),
            seed: self.seed,
            goodput_mbps: mbps(down.bytes as f64, span),
            delivered_in_order_mbps: Some(mbps(down.in_order as f64, span)),
            jain,
            rtt_ms: (rtt.count() > 0).then(|| rtt.summary(1.0 / MS.as_nanos() as f64)),
            fct_ms,
            hosts: self.host_records(span),
            flows,
            applications,
            hops,
            modem,
            up,
            aim,
            qoo,
            grade: letter(grade_ms),
            grade_ms,
            grade_down: letter(grade_down_ms),
            grade_down_ms,
            grade_up: letter(grade_up_ms),
            grade_up_ms,
            wifi,
            series: self.measures.series.as_deref().cloned(),
            events: self.events(),
            cpu_s,
            packets_per_cpu_s: if cpu_s > 0.0 {
                total as f64 / cpu_s
            } else {
                0.0
            },
            trace_hash: format!("{:016x}", self.trace_hash()),
            ..queue
        }
    }

    /// AIM scores, as from a speed test; idle latency is assumed not to vary (jitter 0). None for a
    /// cell, whose channel has delays of its own.
    fn aim(&self, down: &Way, up: &Way, mbps: f64) -> Option<Aim> {
        let base = self.measures.reports.iter().map(|r| r.rtt).min()?;
        self.scenario.wifi.is_none().then(|| {
            Aim::of(&Measured {
                latency_ms: base.as_millis_f64(),
                increase_ms: up.sum(|s| s.p50).max(down.sum(|s| s.p50)),
                jitter_ms: 0.0,
                loss: 1.0 - down.kept,
                download_mbps: mbps,
            })
        })
    }

    /// Quality of Outcome under load. None for a cell, whose channel has delays of its own.
    fn qoo(&self, down: &Way, up: &Way, mbps: f64) -> Option<Qoo> {
        let base = self
            .measures
            .reports
            .iter()
            .map(|r| r.rtt)
            .min()?
            .as_millis_f64();
        let both = |of: fn(&Summary) -> f64| base + down.sum(of) + up.sum(of);
        self.scenario.wifi.is_none().then(|| {
            Qoo::of(&qoo::Measured {
                latency_ms: Summary {
                    mean: both(|s| s.mean),
                    p50: both(|s| s.p50),
                    p95: both(|s| s.p95),
                    p99: both(|s| s.p99),
                    max: both(|s| s.max),
                },
                loss: 1.0 - down.kept * up.kept,
                mbps,
            })
        })
    }

    /// Record of the bottleneck; in a cell, packets, drops and sojourns of all queues of its node
    /// are counted.
    fn queue_record(&mut self, now: Instant) -> Run {
        let links = self.net.cell.as_ref().map(|cell| &cell.links);
        let node = links.map(|links| links[0].from);
        let Some((first, others)) = self.net.ports.split_first_mut() else {
            return Run::default();
        };
        let same_node = others.iter_mut().enumerate().filter_map(|(i, port)| {
            let from = links?.get(i + 1)?.from;
            (Some(from) == node).then_some(&mut **port)
        });
        first.record(now, same_node)
    }

    fn wifi_record(&mut self, now: Instant, span: Duration) -> Option<record::Wifi> {
        let cell = self.net.cell.as_ref()?;
        let wifi = self.scenario.wifi.as_ref()?;
        let name = |node: u16| &wifi.nodes[usize::from(node)];
        let ports = self.net.ports.iter_mut().zip(&cell.links);
        let one = |(port, link): (&mut Port, &AirLink)| {
            let air = &link.counts;
            let own = name(link.from).queue.clone();
            let run = port.record(now, std::iter::empty());
            record::WifiQueue {
                from: name(link.from).name.clone(),
                to: name(link.to).name.clone(),
                ac: link.category.word().into(),
                queue: own.unwrap_or_else(|| self.queue.clone()),
                throughput_mbps: mbps(air.bytes as f64, span),
                sojourn_ms: run.sojourn_ms,
                delay_ms: (air.packets > 0)
                    .then(|| air.delay as f64 / (air.packets * MS).as_nanos() as f64),
                backlog_packets: run.backlog_packets.mean,
                limit_packets: run.limit_packets,
                drops: run.drops,
                marks: run.marks,
                airtime: air.airtime.as_nanos() as f64 / span.as_nanos() as f64,
                aggregate: ratio(air.frames, air.exchanges),
                retries: ratio(air.retries, air.frames),
                failures: ratio(air.failures, air.exchanges),
                given_up: air.given_up,
            }
        };
        Some(record::Wifi {
            busy: cell.busy(now).as_nanos() as f64 / span.as_nanos() as f64,
            collisions: cell.totals.collisions,
            queues: ports.map(one).collect(),
        })
    }

    fn flow_records(&self, now: Instant) -> Vec<record::Flow> {
        let ms = 1.0 / MS.as_nanos() as f64;
        let measured = self.measured();
        let one = |(r, acks, t): (&Report, &AckStats, Totals)| {
            let time = active(r, self.measures.warm_at(), now);
            let mbps = |bytes: u64| match time {
                Duration::ZERO => 0.0,
                time => mbps(bytes as f64, time),
            };
            record::Flow {
                kind: r.kind.into(),
                name: r.name.clone(),
                cc: r.cc.clone(),
                direction: r.direction().into(),
                base_rtt_ms: r.rtt.as_nanos() as f64 * ms,
                goodput_mbps: mbps(t.bytes),
                delivered_in_order_mbps: mbps(t.in_order),
                retransmits: t.retransmits,
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
                delay_ms: r.delays.as_ref().and_then(|d| d.summary()),
                jitter_ms: r.delays.as_ref().and_then(|d| d.jitter_ms()),
                loss_rate: (t.sent > 0).then(|| ratio(t.lost, t.sent).min(1.0)),
                host: r.host.clone().unwrap_or_default(),
            }
        };
        self.measures
            .reports
            .iter()
            .zip(&self.measures.acks)
            .zip(measured)
            .map(|((r, acks), totals)| one((r, acks, totals)))
            .collect()
    }

    fn application_records(&self, flows: &[record::Flow]) -> Vec<Application> {
        let (measured, reports) = (self.measured(), &self.measures.reports);
        let result = |app: &App| match app.client().map(|slot| &self.slots[usize::from(slot)]) {
            Some(Slot::Client(client)) => {
                let loaded = || self.measures.rtt_of_transfers();
                client.model.result(self.now, loaded)
            }
            _ => {
                let of_way = app.reports.map(usize::from);
                let sent = of_way.map(|i| measured[i].sent);
                app.result(self.now, sent, of_way.map(|i| reports[i].direction()))
            }
        };
        let named = |r: &Report, result: Application| Application {
            kind: r.kind.to_owned(),
            name: r.name.clone(),
            host: r.host.clone().unwrap_or_default(),
            ..result
        };
        let apps = self.measures.apps.iter();
        let mut all: Vec<_> = apps
            .filter_map(|app| Some(named(&reports[usize::from(app.reports[0])], result(app)?)))
            .collect();
        let transfers = reports.iter().zip(flows);
        let transfers =
            transfers.filter(|(r, _)| matches!(r.kind, "download" | "upload" | "backup"));
        all.extend(transfers.map(|(r, flow)| {
            let result = Application {
                rate_mbps: Some(flow.goodput_mbps),
                ..Application::default()
            };
            named(r, result)
        }));
        all
    }

    /// Goodput and share of each host that the scenario names.
    fn host_records(&self, span: Duration) -> Vec<record::Host> {
        let measured = self.measured();
        let mut hosts: Vec<(record::Host, u64)> = Vec::new();
        let mut all = [0, 0];
        for (r, t) in self.measures.reports.iter().zip(measured) {
            let Some(name) = &r.host else { continue };
            let direction = r.direction();
            all[usize::from(r.down)] += t.bytes;
            let known = hosts
                .iter()
                .position(|(h, _)| h.host == *name && h.direction == direction);
            let at = known.unwrap_or_else(|| {
                let (host, direction) = (name.clone(), direction.into());
                let empty = record::Host {
                    host,
                    direction,
                    ..record::Host::default()
                };
                hosts.push((empty, 0));
                hosts.len() - 1
            });
            hosts[at].0.flows += 1;
            hosts[at].1 += t.bytes;
        }
        let shared = |(host, bytes): (record::Host, u64)| record::Host {
            goodput_mbps: mbps(bytes as f64, span),
            share: ratio(bytes, all[usize::from(host.direction == "down")]),
            ..host
        };
        hosts.into_iter().map(shared).collect()
    }

    fn jain(&self, flows: &[record::Flow]) -> Option<f64> {
        let throughout = |r: &Report| {
            r.kind == "tcp"
                && r.down
                && !r.finite
                && r.span.0 <= self.measures.warm_at().max(Instant::from_secs(1))
                && r.span.1 >= Instant::ZERO + self.scenario.duration
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
        (all.count() > 0).then(|| all.summary(1.0 / MS.as_nanos() as f64))
    }

    fn up_record(&mut self, now: Instant, goodput_mbps: f64) -> Option<record::Up> {
        let scenario = self.scenario.clone();
        let up = scenario.up.as_ref()?;
        let place = self.net.up_port();
        let port = self.net.ports.get_mut(place)?;
        let run = Run {
            goodput_mbps,
            ..port.record(now, std::iter::empty())
        };
        let modem = self.modem_record(now, 1);
        Some(record::Up {
            modem,
            ..record::Up::of(&up.queue, run)
        })
    }

    /// Record of the modem downstream (0) or upstream (1).
    fn modem_record(&mut self, now: Instant, way: usize) -> Option<record::Modem> {
        let place = usize::from(self.net.modems[way]?);
        let run = self.net.ports[place].record(now, std::iter::empty());
        Some(record::Modem {
            throughput_mbps: run.throughput_mbps,
            capacity_mbps: run.capacity_mbps,
            utilisation: run.utilisation,
            sojourn_ms: run.sojourn_ms,
            drops: run.drops,
            loss_rate: run.loss_rate,
        })
    }

    fn hop_records(&mut self, now: Instant) -> Vec<record::Hop> {
        let hops = self.scenario.hops.iter();
        let ports = self.net.ports.iter_mut().skip(1);
        let one = |(i, (hop, port)): (usize, (&scenario::Link, &mut Port))| {
            let run = port.record(now, std::iter::empty());
            record::Hop {
                hop: num::count(i) + 1,
                queue: hop.queue.clone(),
                throughput_mbps: run.throughput_mbps,
                sojourn_ms: run.sojourn_ms,
                drops: run.drops,
                marks: run.marks,
            }
        };
        hops.zip(ports).enumerate().map(one).collect()
    }
}

/// Time in the measured period during which a flow existed.
fn active(r: &Report, warm: Instant, now: Instant) -> Duration {
    r.span.1.min(now).saturating_since(r.span.0.max(warm))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quell_qdisc::time::SEC;

    #[test]
    fn slices_follow_the_cpu_time_they_take() {
        let (mut fast, mut slow) = (SLICE.0, SLICE.1);
        for _ in 0..20 {
            fast = slice_after(fast, 0.0);
            slow = slice_after(slow, 1.0);
        }
        assert_eq!((fast, slow), (SLICE.1, MS));
        assert_eq!(slice_after(SEC, 0.05), SEC);
    }

    #[test]
    fn traffic_that_begins_late_on_a_fast_link_does_not_delay_a_stop() {
        let text = "duration = \"9s\"\n[link]\nrate = \"100gbit\"\n\
            [[flow]]\ncount = 20\nrtt = \"1ms\"\nstart = \"8.99s\"\n";
        let s = Scenario::parse(text, "late", &Default::default()).expect("a scenario");
        let world = World::builder(s)
            .queue("pfifo limit 1000")
            .seed(1)
            .build()
            .expect("a world");
        let mut run = Session::new(world, &RunOptions::default()).expect("a run");
        // Slices without traffic take no CPU time. Without a bound by packets they would grow to 4
        // s, and the last one would contain all packets.
        let mut ends = 0;
        let mut poll = || {
            ends += 1;
            Ok(())
        };
        let status = run.run_to_decision(&mut poll).expect("the end");
        assert_eq!(status, Status::Done);
        assert!(run.world.packets() > 10_000, "{}", run.world.packets());
        assert!(
            ends > 180,
            "a slice of 48 ms has {SLICE_PACKETS} packets: {ends}"
        );
    }
}
