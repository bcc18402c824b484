//! The result record: one object per run, as JSON, Parquet columns or a data frame. Its keys are a
//! public interface.

use std::ops::{Add, Sub};

use quell_qdisc::time::Duration;
use quell_qdisc::{PolicyGauges, TinGauges};
use serde::{Deserialize, Serialize};

use crate::aim::Aim;
use crate::qoo::Qoo;
pub use crate::summary::Summary;
use crate::words::class::Id;

/// Drops by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropsByCause {
    /// Drops at a full queue.
    pub overflow: u64,
    /// Drops by the discipline's law or the `drop` knob.
    pub early: u64,
    /// Drops of packets that the law would have marked, but could not.
    pub forced: u64,
    /// Random loss of the link behind the queue (`loss`); not counted in `drops`.
    pub link: u64,
}

impl DropsByCause {
    /// Drops at the queue, without the link's random loss.
    pub fn total(&self) -> u64 {
        self.overflow + self.early + self.forced
    }
}

impl Sub for DropsByCause {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            overflow: self.overflow - before.overflow,
            early: self.early - before.early,
            forced: self.forced - before.forced,
            link: self.link - before.link,
        }
    }
}

impl Add for DropsByCause {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            overflow: self.overflow + other.overflow,
            early: self.early + other.early,
            forced: self.forced + other.forced,
            link: self.link + other.link,
        }
    }
}

/// Rate of `bytes` in the time `span`, Mbit/s.
pub fn mbps(bytes: f64, span: Duration) -> f64 {
    bytes * 8e3 / span.as_nanos() as f64
}

/// `part` over `whole`; 0 if `whole` is 0.
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// One flow, or all short transfers of one `[[flow]]` table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// The `kind` in a file.
    pub kind: String,
    /// Its name, where the scenario has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Congestion control; empty without one.
    pub cc: String,
    /// `down`: in the bottleneck's direction, or `up`.
    #[serde(default)]
    pub direction: String,
    /// Base round trip, ms.
    pub base_rtt_ms: f64,
    /// Application bytes that reached the receiver, each counted once, when its first copy arrived,
    /// in order or not; Mbit/s over the part of the measured time in which the flow ran.
    pub goodput_mbps: f64,
    /// Application bytes that the receiver could read, Mbit/s: each counts once nothing before it
    /// is missing.
    #[serde(default)]
    pub delivered_in_order_mbps: f64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Mean congestion window, packets.
    pub cwnd_packets: f64,
    /// Smoothed RTT at the sender, ms.
    pub rtt_ms: Option<Summary>,
    /// Completion times of finite transfers, from the start (SYN included) to the acknowledgement
    /// of the last byte, ms.
    pub fct_ms: Option<Summary>,
    /// Finite transfers completed.
    pub completed: u64,
    /// Short transfers that did not begin because 65,535 flows were active.
    #[serde(default)]
    pub refused: u64,
    /// The host behind the bottleneck, where the scenario names it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// One-way delay of packets from sender to receiver, ms; of TCP, pairs of successive segments
    /// are sampled, without retransmissions. Null in a table of more than 100 flows, and for TCP in
    /// a scenario of more than 100.
    #[serde(default)]
    pub delay_ms: Option<Summary>,
    /// Mean absolute difference between the delays of successive packets (D in RFC 3550, section
    /// 6.4.1), ms.
    #[serde(default)]
    pub jitter_ms: Option<f64>,
    /// Packets dropped or lost anywhere over packets sent, retransmissions included; null without a
    /// packet.
    #[serde(default)]
    pub loss_rate: Option<f64>,
}

/// Quality that the user of an application experienced. Each kind of application sets its own
/// fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Application {
    /// The `kind` of its flow; empty within `ends`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The name of its flow, where the scenario has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The host behind the bottleneck, where the scenario names it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// In `ends`: direction of the data that this end receives, `down` or `up`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub direction: String,
    /// Results of both ends of a call; the call's own results are those of the worse end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<Application>,
    /// Mean opinion score of a call at the worse end, 1 to 4.5 (ITU-T G.107).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mos: Option<f64>,
    /// Mouth-to-ear delay of the packets that were played, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mouth_to_ear_ms: Option<Summary>,
    /// Share of the speech whose packets were lost or arrived after their play time, 0..1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_loss: Option<f64>,
    /// Time from a game's command to the arrival of the state that reflects it, without the
    /// server's own time, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<Summary>,
    /// Share of a game's states that arrived with a round trip of at most 50 ms, 0..1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_50ms: Option<f64>,
    /// Time from the request of a web page to its last object, or to the reader giving up, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_load_ms: Option<Summary>,
    /// Number of pages in `page_load_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<u64>,
    /// Pages that the reader gave up after 60 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_up: Option<u64>,
    /// Time from the request of a stream to its first picture, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_ms: Option<Summary>,
    /// Share of the time after the first picture in which playback stalled, 0..1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuffer_ratio: Option<f64>,
    /// Number of changes of a stream's quality.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switches: Option<u64>,
    /// Time from the capture of a video call's picture to its display, without coding, ms. All
    /// results of a video call are those of the worse end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame_delay_ms: Option<Summary>,
    /// Freezes per minute: intervals between pictures of at least three times the usual one and at
    /// least 150 ms above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freezes_per_minute: Option<f64>,
    /// Share of the seconds in which fewer than 24 pictures were shown, 0..1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below_24fps: Option<f64>,
    /// Mean rate of a stream's segments or of a video call's pictures, or goodput of a transfer,
    /// Mbit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_mbps: Option<f64>,
    /// Round trips per minute under load (draft-ietf-ippm-responsiveness-09).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpm: Option<f64>,
}

/// Time series, one per field. A value is a mean, rate or count over a bin, or the state at its
/// end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Width of a bin, seconds. Bin i covers [i, i + 1) times this width, from time 0 (warm-up
    /// included).
    pub bin_s: f64,
    /// Time-weighted mean backlog as time at the link's mean rate, ms.
    pub backlog_ms: Vec<f64>,
    /// Wire throughput, Mbit/s.
    pub throughput_mbps: Vec<f64>,
    /// Capacity of the link, Mbit/s.
    pub capacity_mbps: Vec<f64>,
    /// Mean sojourn of the packets that left in the bin, ms; null without any.
    pub sojourn_ms: Vec<Option<f64>>,
    /// Drops in the bin.
    pub drops: Vec<u64>,
    /// Marks in the bin.
    pub marks: Vec<u64>,
    /// The limit in force at the end of the bin, packets.
    pub limit_packets: Vec<f64>,
    /// The probability in force at the end of the bin.
    pub probability: Vec<f64>,
    /// Readings and settings of the policy inside the queue, if there is one (`hush`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicySeries>,
    /// Application goodput of each flow, Mbit/s (outer index: flow).
    pub goodput_mbps: Vec<Vec<f64>>,
    /// In-order delivery of each flow, Mbit/s (outer index: flow); empty if unknown.
    #[serde(default)]
    pub delivered_in_order_mbps: Vec<Vec<f64>>,
    /// Smoothed RTT of each TCP flow at the end of the bin, ms; null while it does not run (outer
    /// index: flow).
    #[serde(default)]
    pub rtt_ms: Vec<Vec<Option<f64>>>,
    /// Congestion window of each TCP flow at the end of the bin, packets; null while it does not
    /// run.
    #[serde(default)]
    pub cwnd_packets: Vec<Vec<Option<f64>>>,
}

/// Readings and settings of the policy inside a queue at the end of each bin; null before its first
/// decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicySeries {
    /// Time to drain above which the law acts, ms.
    pub target_ms: Vec<Option<f64>>,
    /// Time that it must stay above the target before the first action, ms.
    pub wait_ms: Vec<Option<f64>>,
    /// Time from the first action to the second, ms.
    pub hold_ms: Vec<Option<f64>>,
    /// Time to drain above which packets are dropped at once, ms; null without such a bound.
    pub cap_ms: Vec<Option<f64>>,
    /// Share of the time in which the link had nothing to send, 0..1.
    pub idle: Vec<Option<f64>>,
    /// Usual base round trip of the flows, ms.
    pub rtt_ms: Vec<Option<f64>>,
    /// Flows that sent packets recently.
    pub flows: Vec<Option<u32>>,
    /// Whether the policy decides; false: its guard's fallback.
    pub trusted: Vec<Option<bool>>,
}

impl PolicySeries {
    /// Sets the values at the end of the last of `bins` bins.
    pub fn push(&mut self, bins: usize, now: &PolicyGauges) {
        fn set<T: Clone>(column: &mut Vec<Option<T>>, bins: usize, value: Option<T>) {
            column.resize(bins.saturating_sub(1), None);
            column.push(value);
        }
        let ms = |time: Duration| (time != Duration::MAX).then_some(time.as_millis_f64());
        set(&mut self.target_ms, bins, ms(now.target));
        set(&mut self.wait_ms, bins, ms(now.wait));
        set(&mut self.hold_ms, bins, ms(now.hold));
        set(&mut self.cap_ms, bins, ms(now.cap));
        set(&mut self.idle, bins, Some(now.idle));
        set(&mut self.rtt_ms, bins, ms(now.round_trip));
        set(&mut self.flows, bins, Some(now.flows));
        set(&mut self.trusted, bins, Some(now.trusted));
    }
}

/// A tin of `cake`, as `tc -s qdisc` shows it. Delays, flows and the largest packet are those at
/// the end; the rest counts the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tin {
    /// Bulk, Best Effort, Video, Voice, `Tin` or `Band` with a number, or the number of a class, as
    /// 1:10.
    pub name: String,
    /// Rate up to which the tin has its priority, Mbit/s; 0 without a limit.
    pub threshold_mbps: f64,
    /// COBALT's target, ms.
    pub target_ms: f64,
    /// COBALT's interval, ms.
    pub interval_ms: f64,
    /// Throughput of the tin, Mbit/s.
    pub throughput_mbps: f64,
    /// The tin's share of all bytes sent, 0..1.
    pub share: f64,
    /// Moving average of the sojourn that rises fast and falls slowly, ms.
    pub peak_delay_ms: f64,
    /// Moving average of the sojourn, ms.
    pub average_delay_ms: f64,
    /// Moving average of the sojourn that falls fast and rises slowly, ms.
    pub base_delay_ms: f64,
    /// Packets sent.
    pub packets: u64,
    /// Packets dropped by COBALT or because the memory was full.
    pub drops: u64,
    /// Packets marked.
    pub marks: u64,
    /// ACKs dropped because later ones made them redundant.
    pub ack_drops: u64,
    /// Packets of flows that have another queue of their set than that of their hash.
    pub indirect_hits: u64,
    /// Times that a flow was given an unused queue.
    pub misses: u64,
    /// Times that a flow had to share a queue.
    pub collisions: u64,
    /// Sparse flows.
    pub sparse_flows: u32,
    /// Flows in the rotation.
    pub bulk_flows: u32,
    /// Flows from which BLUE drops packets.
    pub unresponsive_flows: u32,
    /// The largest packet, bytes.
    pub max_len: u32,
    /// Bytes of a flow per round.
    pub quantum: u32,
}

impl Tin {
    /// Record of a tin since the reading `earlier`, `span` before; `all` is the number of bytes
    /// that all tins sent in that time.
    pub fn since(tin: &TinGauges, earlier: &TinGauges, span: Duration, all: u64) -> Self {
        let ms = |time: Duration| time.as_millis_f64();
        let sent = tin.sent_bytes - earlier.sent_bytes;
        Self {
            name: match tin.class {
                0 => tin.name.to_owned(),
                id => Id(id).to_string(),
            },
            threshold_mbps: tin.threshold.bps_f64() / 1e6,
            target_ms: ms(tin.target),
            interval_ms: ms(tin.interval),
            throughput_mbps: mbps(sent as f64, span),
            share: ratio(sent, all),
            peak_delay_ms: ms(tin.peak_delay),
            average_delay_ms: ms(tin.average_delay),
            base_delay_ms: ms(tin.base_delay),
            packets: tin.sent_packets - earlier.sent_packets,
            drops: tin.drops - earlier.drops,
            marks: tin.marks - earlier.marks,
            ack_drops: tin.ack_drops - earlier.ack_drops,
            indirect_hits: tin.indirect_hits - earlier.indirect_hits,
            misses: tin.misses - earlier.misses,
            collisions: tin.collisions - earlier.collisions,
            sparse_flows: tin.sparse_flows,
            bulk_flows: tin.bulk_flows,
            unresponsive_flows: tin.unresponsive_flows,
            max_len: tin.max_len,
            quantum: tin.quantum,
        }
    }
}

/// Goodput of the flows of one host (only if the scenario names hosts; flows without a host are
/// left out).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub host: String,
    /// The direction of the data, `down` or `up`.
    pub direction: String,
    /// Number of flows and tables of short transfers.
    pub flows: u32,
    /// Application bytes that reached their receivers, Mbit/s.
    pub goodput_mbps: f64,
    /// The host's share of the goodput of all hosts in this direction, 0..1.
    pub share: f64,
}

/// A hop behind the first (only if the scenario has any).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hop {
    /// Position in the path, the first `[[hop]]` being 1.
    pub hop: u32,
    /// Queue words.
    pub queue: String,
    /// Wire throughput, Mbit/s.
    pub throughput_mbps: f64,
    /// Time that each delivered packet spent in this queue, ms.
    pub sojourn_ms: Summary,
    /// Drops at this queue.
    pub drops: u64,
    /// Marks at this queue.
    pub marks: u64,
}

/// The queue of the other direction (only if the scenario has `[link.up]`); its keys are those of
/// [`Run`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Up {
    /// Queue words.
    pub queue: String,
    /// Application bytes that reached their receivers, all flows in this direction, Mbit/s.
    #[serde(default)]
    pub goodput_mbps: f64,
    /// Wire throughput, Mbit/s.
    pub throughput_mbps: f64,
    /// Mean capacity of the link, Mbit/s.
    pub capacity_mbps: f64,
    /// Throughput over capacity, 0..1.
    pub utilisation: f64,
    /// Time that each delivered packet spent in the queue, ms.
    pub sojourn_ms: Summary,
    /// Cumulative distribution of the sojourn: (ms, share of packets at or below), at most 200
    /// points.
    #[serde(default)]
    pub sojourn_cdf: Vec<(f64, f64)>,
    /// Time-weighted backlog, packets.
    pub backlog_packets: Summary,
    /// Time-weighted backlog as time at the link's mean rate, ms.
    pub backlog_ms: Summary,
    /// Time-weighted mean of the limit, packets, if a controller moves it.
    #[serde(default)]
    pub limit_packets: Option<f64>,
    /// Packets delivered.
    pub packets: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Packets marked.
    pub marks: u64,
    /// Drops over arrivals.
    pub loss_rate: f64,
    /// Marks over departures.
    pub mark_rate: f64,
    /// Drops by cause.
    #[serde(default)]
    pub drops_by_cause: DropsByCause,
    /// Its tins, if it has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tins: Vec<Tin>,
    /// The modem behind the queue, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modem: Option<Modem>,
}

/// A modem or base station on the network's side of a queue (only if the scenario has one).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Modem {
    /// Wire throughput, Mbit/s.
    pub throughput_mbps: f64,
    /// Mean capacity of its line, Mbit/s.
    pub capacity_mbps: f64,
    /// Throughput over capacity, 0..1.
    pub utilisation: f64,
    /// Time that each delivered packet spent in its FIFO, ms.
    pub sojourn_ms: Summary,
    /// Drops at its FIFO.
    pub drops: u64,
    /// Drops over arrivals.
    #[serde(default)]
    pub loss_rate: f64,
}

impl Up {
    /// Makes it from the record of that queue alone.
    pub fn of(queue: &str, run: Run) -> Self {
        Self {
            queue: queue.to_owned(),
            goodput_mbps: run.goodput_mbps,
            throughput_mbps: run.throughput_mbps,
            capacity_mbps: run.capacity_mbps,
            utilisation: run.utilisation,
            sojourn_ms: run.sojourn_ms,
            sojourn_cdf: run.sojourn_cdf,
            backlog_packets: run.backlog_packets,
            backlog_ms: run.backlog_ms,
            limit_packets: run.limit_packets,
            packets: run.packets,
            drops: run.drops,
            marks: run.marks,
            loss_rate: run.loss_rate,
            mark_rate: run.mark_rate,
            drops_by_cause: run.drops_by_cause,
            tins: run.tins,
            modem: None,
        }
    }
}

/// The grade of bufferbloat tests for a mean increase of latency under load, ms: A+ below 5, A
/// below 30, B below 60, C below 200, D below 400, else F (thresholds of Waveform's test).
///
/// ```
/// assert_eq!(quell_link::record::grade(4.9), "A+");
/// assert_eq!(quell_link::record::grade(400.0), "F");
/// ```
pub fn grade(increase_ms: f64) -> &'static str {
    let bounds = [
        (5.0, "A+"),
        (30.0, "A"),
        (60.0, "B"),
        (200.0, "C"),
        (400.0, "D"),
    ];
    let found = bounds.iter().find(|(bound, _)| increase_ms < *bound);
    found.map_or("F", |(_, letter)| letter)
}

/// Counts of a guard over the whole run (only if a controller is guarded).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Guard {
    /// Decisions requested.
    pub decisions: u64,
    /// Decisions of the learned controller that were accepted.
    pub learned: u64,
    /// Decisions in which a knob was clamped to its range.
    pub clipped: u64,
    /// Decisions rejected because they were not a number.
    pub not_a_number: u64,
    /// Decisions rejected because they came too late.
    pub late: u64,
    /// Decisions rejected because they were made from old readings.
    pub stale: u64,
    /// Decisions rejected because they were made from impossible readings.
    pub out_of_range: u64,
    /// Decisions rejected because the delay was too long and did not fall, and no decision became
    /// tighter.
    #[serde(default)]
    pub stuck: u64,
    /// Times that the classic controller took over.
    pub fallbacks: u64,
    /// Times that the learned controller took over again.
    pub handed_back: u64,
    /// Mean of the knob as proposed by the learned controller, accepted or not.
    pub proposed: f64,
    /// Mean of the knob as it was set in the same periods.
    pub set: f64,
}

/// A Wi-Fi cell (only if the scenario has one).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wifi {
    /// Share of the time in which any node was on the air, 0..1.
    pub busy: f64,
    /// Data frames and RTS frames lost in collisions.
    pub collisions: u64,
    /// Every queue of every node, the first being the run's bottleneck.
    pub queues: Vec<WifiQueue>,
}

/// One queue of a cell, and the frames that carried its packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WifiQueue {
    /// The node that sends.
    pub from: String,
    /// The neighbour that receives.
    pub to: String,
    /// Access category: be, vi or vo.
    pub ac: String,
    /// Queue words.
    pub queue: String,
    /// Rate of IP packets that arrived at the neighbour, Mbit/s.
    pub throughput_mbps: f64,
    /// Time that each delivered packet spent in this queue, ms.
    pub sojourn_ms: Summary,
    /// Mean time from arrival at this queue to in-order arrival at the neighbour, ms; null without
    /// any packet.
    pub delay_ms: Option<f64>,
    /// Mean backlog, packets.
    pub backlog_packets: f64,
    /// Time-weighted mean of the limit, packets, if a controller moves it.
    pub limit_packets: Option<f64>,
    /// Drops at this queue.
    pub drops: u64,
    /// Marks at this queue.
    pub marks: u64,
    /// Share of the time taken by its frames and their acknowledgements, 0..1.
    pub airtime: f64,
    /// Frames (MPDUs) per exchange.
    pub aggregate: f64,
    /// Retransmitted frames over all frames sent.
    pub retries: f64,
    /// Exchanges without an acknowledgement over all exchanges.
    pub failures: f64,
    /// Frames dropped after the last retry.
    pub given_up: u64,
}

/// One run: one scenario, one queue, one seed. Measures exclude the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The scenario's name.
    pub scenario: String,
    /// The queue words as run; the name of a queue from another crate.
    pub queue: String,
    /// The controller that set the knobs, if it is not part of the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// The run's own seed.
    pub seed: u64,
    /// Measured time: duration less warm-up, seconds.
    pub measured_s: f64,
    /// Application bytes of all flows in the bottleneck's direction that reached their receivers in
    /// the measured time, Mbit/s. Each byte counts once, when its first copy arrives, in order or
    /// not; on a path of one link this never exceeds what the link carried.
    pub goodput_mbps: f64,
    /// Application bytes that their receivers could read, Mbit/s: bytes behind a hole count when
    /// the hole is filled. May exceed what the link carried in the measured time. Null if the
    /// receivers are not observed.
    #[serde(default)]
    pub delivered_in_order_mbps: Option<f64>,
    /// Wire bytes through the bottleneck, Mbit/s.
    pub throughput_mbps: f64,
    /// Mean capacity of the link, Mbit/s.
    pub capacity_mbps: f64,
    /// Throughput over capacity, 0..1.
    pub utilisation: f64,
    /// Time that each delivered packet spent in the queue, ms.
    pub sojourn_ms: Summary,
    /// Cumulative distribution of the sojourn: (ms, share of packets at or below), at most 200
    /// points.
    pub sojourn_cdf: Vec<(f64, f64)>,
    /// Time-weighted backlog, packets.
    pub backlog_packets: Summary,
    /// Time-weighted backlog as time at the link's mean rate, ms.
    pub backlog_ms: Summary,
    /// Time-weighted mean of the limit, packets, if a controller moves it.
    pub limit_packets: Option<f64>,
    /// Packets that the bottleneck delivered.
    pub packets: u64,
    /// Drops at the bottleneck.
    pub drops: u64,
    /// Marks at the bottleneck.
    pub marks: u64,
    /// Drops over arrivals.
    pub loss_rate: f64,
    /// Marks over departures.
    pub mark_rate: f64,
    /// Drops by cause.
    pub drops_by_cause: DropsByCause,
    /// Jain's index over the flows that were active throughout; null without any.
    pub jain: Option<f64>,
    /// Smoothed RTT at the senders (one sample per ACK), ms.
    pub rtt_ms: Option<Summary>,
    /// Completion times of all finite transfers, ms.
    pub fct_ms: Option<Summary>,
    /// Results by flow.
    pub flows: Vec<Flow>,
    /// Results of applications, in the order of the flows (only if the scenario has any).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applications: Vec<Application>,
    /// Results by host and direction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Host>,
    /// The bottleneck's tins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tins: Vec<Tin>,
    /// Counts of the bottleneck's guard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<Guard>,
    /// Hops behind the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<Hop>,
    /// The modem before the bottleneck, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modem: Option<Modem>,
    /// The other direction's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<Up>,
    /// [`grade()`] of `grade_ms`; null without a packet.
    #[serde(default)]
    pub grade: Option<String>,
    /// Mean increase of latency under load, ms: the sum of the mean sojourns in the queues of the
    /// worse direction.
    #[serde(default)]
    pub grade_ms: Option<f64>,
    /// [`grade()`] of `grade_down_ms`; only where the scenario has `[link.up]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grade_down: Option<String>,
    /// Sum of the mean sojourns in the queues downwards, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grade_down_ms: Option<f64>,
    /// [`grade()`] of `grade_up_ms`; only where the scenario has `[link.up]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grade_up: Option<String>,
    /// The mean sojourn at `[link.up]`, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grade_up_ms: Option<f64>,
    /// Quality of Outcome by profile, 0 to 100; null where `aim` is null.
    #[serde(default)]
    pub qoo: Option<Qoo>,
    /// Cloudflare's AIM scores for streaming, games and calls; null without a packet, in a cell and
    /// for a live link.
    #[serde(default)]
    pub aim: Option<Aim>,
    /// The Wi-Fi cell, if the scenario has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wifi: Option<Wifi>,
    /// Time series, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// Events that the simulator handled, warm-up included.
    pub events: u64,
    /// Process CPU time of the run alone, seconds.
    pub cpu_s: f64,
    /// Bottleneck packets delivered (warm-up included) per CPU-second.
    pub packets_per_cpu_s: f64,
    /// Hash over all packet events (time, flow, sequence number, outcome), for tests of
    /// determinism.
    pub trace_hash: String,
}
