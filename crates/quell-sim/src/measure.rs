//! Measurements outside the queues: per flow, per application, and as time series.

use quell_link::hist::Hist;
use quell_link::record::Series;
use quell_qdisc::num;
use quell_qdisc::time::{Duration, Instant, NEVER, US};

use crate::app::App;
use crate::delay::{self, Delays, Sampler};
use crate::packet::{Pkt, micros};
use crate::scenario::{Direction, Flow, FlowKind, Scenario};
use crate::slot::{Connection, Datagrams};

/// Maximum number of flows in a scenario with which each TCP flow has its own quantiles of RTT and
/// delay. Also the maximum `count` of a `[[flow]]` whose delays are measured.
const DETAILED: u32 = 100;

/// Results of one flow or of one source of short transfers.
#[derive(Clone, Debug)]
pub struct Report {
    /// The flow's `kind` in the scenario file.
    pub kind: &'static str,
    /// The flow's `name` in the scenario file; empty if it has none.
    pub name: String,
    /// Congestion control; empty if the flow is not TCP.
    pub cc: String,
    /// Base round-trip time.
    pub rtt: Duration,
    /// Whether the direction of the data is down, that of the bottleneck.
    pub down: bool,
    /// Start of the flow, and time at which its application stops or its only transfer completed.
    pub span: (Instant, Instant),
    /// Whether transfers have a size, and so end by themselves.
    pub finite: bool,
    /// Completion times, ns; None unless `finite`.
    pub fct: Option<Box<Hist>>,
    /// Number of short transfers that were not started because no slot was free.
    pub refused: u64,
    /// Delays of the packets; None if not measured.
    pub delays: Option<Box<Delays>>,
    /// The host behind the bottleneck, if the scenario names it.
    pub host: Option<String>,
    /// Totals of closed connections.
    pub closed: Totals,
    /// Totals at the end of the warm-up.
    pub warm: Totals,
    /// Totals at the start of the current bin.
    pub bin: Totals,
}

/// Cumulative totals of flows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Application bytes that arrived, each counted once.
    pub bytes: u64,
    /// Of these, the bytes with nothing missing before them, which an application can read.
    pub in_order: u64,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Datagrams or segments sent, retransmissions included.
    pub sent: u64,
    /// Of these, those that were dropped or lost.
    pub lost: u64,
}

impl Totals {
    /// Totals of a connection; `lost` is the number of its segments that were dropped or lost.
    pub fn of(c: &Connection, lost: u64) -> Self {
        let (next, segments, end) = (c.receiver.next, c.receiver.segments(), c.receiver.end());
        let mss = u64::from(c.sender.s.mss);
        // Bytes by which the segment before `end` is shorter than the MSS. Only a transfer's last
        // segment can be.
        let shortfall = |end: u64| match end {
            0 => 0,
            end => mss - u64::from(c.sender.payload(end - 1)),
        };
        Self {
            bytes: segments.1 * mss - shortfall(end),
            in_order: segments.0 * mss - shortfall(next),
            retransmits: c.sender.retransmits,
            sent: c.sender.sent(),
            lost,
        }
    }

    /// Adds another flow's totals.
    pub fn add(&mut self, more: &Self) {
        self.bytes += more.bytes;
        self.in_order += more.in_order;
        self.retransmits += more.retransmits;
        self.sent += more.sent;
        self.lost += more.lost;
    }

    /// The growth of the totals since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            bytes: self.bytes - earlier.bytes,
            in_order: self.in_order - earlier.in_order,
            retransmits: self.retransmits - earlier.retransmits,
            sent: self.sent - earlier.sent,
            lost: self.lost - earlier.lost,
        }
    }
}

impl Report {
    /// Direction of the data, as in records.
    pub fn direction(&self) -> &'static str {
        if self.down { "down" } else { "up" }
    }

    /// An empty report.
    pub fn new(flow: &Flow, span: (Instant, Instant)) -> Self {
        let tcp = flow.kind.tcp();
        let web = matches!(flow.kind, FlowKind::Web(_));
        let finite = web || tcp.is_some_and(|t| t.bytes.is_some());
        Self {
            kind: flow.kind.name(),
            name: flow.name.clone(),
            cc: tcp.map_or("", |t| t.cc.name()).to_owned(),
            rtt: flow.rtt,
            down: flow.direction == Direction::Down,
            span,
            finite,
            fct: finite.then(Box::default),
            refused: 0,
            delays: (flow.count <= DETAILED).then(Box::default),
            host: flow.host.clone(),
            closed: Totals::default(),
            warm: Totals::default(),
            bin: Totals::default(),
        }
    }
}

/// Sums over the ACKs that one report's senders handled. They are separate from the report so that
/// the sums of many flows are close together in memory.
#[derive(Clone, Debug, Default)]
pub struct AckStats {
    count: u64,
    cwnd_sum: u64,
    /// Smoothed RTT, ns, one value per ACK; None: recorded in `Measures::rtt`.
    pub rtt: Option<Box<Hist>>,
}

impl AckStats {
    /// Mean congestion window over ACKs, packets.
    pub fn cwnd(&self) -> f64 {
        self.cwnd_sum as f64 / self.count.max(1) as f64
    }
}

/// All measurements outside the queues.
#[derive(Clone, Debug)]
pub struct Measures {
    /// Reports: two for an application over datagrams, none for a ping, one for any other flow.
    pub reports: Vec<Report>,
    /// By report: sums over ACKs.
    pub acks: Vec<AckStats>,
    /// Applications, by number.
    pub apps: Vec<App>,
    /// Smoothed RTT, ns, of all flows whose `AckStats` has no histogram.
    pub rtt: Hist,
    /// End of the current bin; `NEVER` without series.
    pub bin_at: Instant,
    /// Time series so far.
    pub series: Option<Box<Series>>,
    /// End of the warm-up; 0 before it.
    warm_at: Instant,
    /// Width of the series' bins.
    pub bin: Duration,
    /// Whether the warm-up is over.
    measuring: bool,
    /// Whether each TCP flow has its own quantiles of RTT and delay, as in scenarios of up to
    /// [`DETAILED`] flows.
    detailed: bool,
    /// Segments from one measured pair of a TCP flow to the next: see [`delay::spacing`].
    pub spacing: u16,
}

impl Measures {
    /// No measurements yet; `bin` is the width of the series' bins.
    pub fn new(scenario: &Scenario, bin: Option<Duration>) -> Self {
        let flows: u64 = scenario.flows.iter().map(|f| u64::from(f.count)).sum();
        let time = scenario.duration.saturating_sub(scenario.warmup);
        let rate = scenario.link.rate.mean_rate(scenario.duration);
        let segments = rate.bytes_in(time) / (1514 * flows.max(1));
        Self {
            reports: Vec::new(),
            acks: Vec::new(),
            apps: Vec::new(),
            rtt: Hist::new(),
            bin_at: bin.map_or(NEVER, |bin| Instant::ZERO + bin),
            series: bin.map(|b| {
                Box::new(Series {
                    bin_s: b.as_secs_f64(),
                    ..Series::default()
                })
            }),
            warm_at: Instant::ZERO,
            bin: bin.unwrap_or(Duration::MAX),
            measuring: false,
            detailed: flows <= u64::from(DETAILED),
            spacing: delay::spacing(segments),
        }
    }

    /// Ends the warm-up: from now on everything is recorded.
    pub fn end_warmup(&mut self, now: Instant) {
        self.warm_at = now;
        self.measuring = true;
    }

    /// End of the warm-up; 0 before it.
    pub fn warm_at(&self) -> Instant {
        self.warm_at
    }

    /// Whether each TCP flow has its own quantiles of RTT and delay, as in scenarios of up to
    /// [`DETAILED`] flows.
    pub fn is_detailed(&self) -> bool {
        self.detailed
    }

    /// Whether the warm-up is over.
    pub fn is_measuring(&self) -> bool {
        self.measuring
    }

    /// Records a sender's smoothed RTT and congestion window (packets) after an ACK.
    #[inline]
    pub fn note_ack(&mut self, report: u16, srtt: Duration, cwnd: u32) {
        if !self.measuring {
            return;
        }
        let a = &mut self.acks[usize::from(report)];
        a.count += 1;
        a.cwnd_sum += u64::from(cwnd);
        match &mut a.rtt {
            Some(own) => own.record(srtt.as_nanos()),
            None => self.rtt.record(srtt.as_nanos()),
        }
    }

    /// Smoothed RTT of all flows, ns, one value per ACK.
    pub fn rtt(&self) -> Hist {
        let mut all = self.rtt.clone();
        for own in self.acks.iter().filter_map(|a| a.rtt.as_ref()) {
            all.merge(own);
        }
        all
    }

    /// Smoothed RTT of bulk transfers, and of all flows without a histogram of their own, ns, one
    /// value per ACK.
    pub fn rtt_of_transfers(&self) -> Hist {
        let mut all = self.rtt.clone();
        let flows = self.reports.iter().zip(&self.acks);
        let bulk =
            flows.filter(|(r, _)| matches!(r.kind, "tcp" | "download" | "upload" | "backup"));
        bulk.filter_map(|(_, a)| a.rtt.as_ref())
            .for_each(|own| all.merge(own));
        all
    }

    /// Records the completion of a finite transfer.
    pub fn completed(&mut self, now: Instant, c: &Connection) {
        let r = &mut self.reports[usize::from(c.report)];
        if r.kind != "web" {
            r.span.1 = now;
        }
        if self.measuring
            && let Some(h) = &mut r.fct
        {
            h.record((now - c.began).as_nanos());
        }
    }

    /// Counts a short transfer that found no free slot.
    pub fn refuse(&mut self, report: u16) {
        if self.measuring {
            self.reports[usize::from(report)].refused += 1;
        }
    }

    /// Adds the totals of a closed connection.
    pub fn closed(&mut self, c: &Connection, lost: u64) {
        let r = &mut self.reports[usize::from(c.report)];
        r.closed.add(&Totals::of(c, lost));
    }

    /// A sampler for a new connection of this report, and the countdown to its first segment.
    pub fn sampler(&self, report: u16) -> (Box<Sampler>, u16) {
        let delays = &self.reports[usize::from(report)].delays;
        Sampler::new(delays.as_ref().map(|_| self.spacing))
    }

    /// Records the delay of a segment that the sampler selected; `sent`: its departure, if it was
    /// sent only once.
    #[cold]
    pub fn sample(&mut self, now: Instant, c: &mut Connection, sent: Option<Instant>) {
        let delay = sent.map(|sent| now - sent + u64::from(c.path.outside_us) * US);
        let delays = match self.measuring {
            true => self.reports[usize::from(c.report)].delays.as_deref_mut(),
            false => None,
        };
        c.receiver.until_sample = c.sampler.sampled(delay, delays);
    }

    /// Tells the application of this source, if it has one, that the next datagram is sent.
    pub fn on_send(&mut self, d: &Datagrams) {
        if let Some((app, way)) = d.app {
            self.apps[usize::from(app)].sent(way, num::low_u32(d.sent));
        }
    }

    /// Records a datagram that has arrived. If it belongs to a video call, returns the slot of the
    /// source at the end that received it, and the time at which to call that source.
    #[inline(never)]
    pub fn got_datagram(
        &mut self,
        now: Instant,
        d: &mut Datagrams,
        p: &Pkt,
    ) -> Option<(u16, Instant)> {
        d.received += u64::from(p.payload);
        let waited = u64::from(micros(now).wrapping_sub(p.tsval)) * US;
        let delay = waited + u64::from(d.path.outside_us) * US;
        if self.measuring
            && let Some(delays) = &mut self.reports[usize::from(d.report)].delays
        {
            delays.record(delay);
        }
        let (app, way) = d.app?;
        let app = &mut self.apps[usize::from(app)];
        app.arrived(way, p.seq, delay, self.measuring);
        app.ends().map(|ends| ends.delivered(now, way, p.seq))
    }
}
