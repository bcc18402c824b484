//! The channel and its nodes, simulated from event to event, not slot by slot.
//!
//! The next event is the end of a frame on the air, an answer or a timeout, or the start of the
//! contender whose backoff ends first. Contenders whose backoffs end together collide; all others
//! stop counting when they hear a frame. A table says which nodes hear each other, so hidden nodes
//! need no special case.
//!
//! Simplifications of IEEE 802.11-2012:
//! - Two frames that overlap at a receiver destroy each other, whatever their strength: there are
//!   no distances. MPDUs of an A-MPDU that ended before the overlap are received.
//! - Propagation takes no time; a frame is sensed 4 us (aCCATime) after it begins, so that
//!   transmissions whose backoffs end within that time collide.
//! - A frame can be lost only at its receiver; every other node that hears it without overlap
//!   reads its duration.
//! - A frame that the sender gives up no longer delays the frames after it: the block ACK request
//!   that would announce this is assumed to take no time.
//! - Block ACK sessions exist from the start; beacons and management frames are left out.

use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, NEVER};
use quell_qdisc::{Gauges, Rng, num};

use super::channel::Bursts;
use super::edca::{Claim, Contender, Exchange};
use super::link::{AirLink, Counts, Limits};
use crate::packet::Pkt;
use crate::phy::{self, CCA, Phy, SIFS, SLOT};
use crate::port::Port;
use crate::scenario::wifi::{Access, Aggregation, Category, Serve};

/// Minimum time over which busy shares and contenders are counted.
const WINDOW: Duration = Duration::from_millis(100);
/// Airtime that a link gains per round of airtime fairness, ns (mac80211's default weight, 256 us).
const QUANTUM: i64 = 256_000;
/// Lowest basic rate, Mbit/s, at which an ACK takes longest: EIFS includes such an ACK.
const LOWEST_BASIC: u32 = 6;

/// A frame on the air.
#[derive(Clone, Copy, Debug)]
struct Frame {
    kind: Kind,
    from: u16,
    to: u16,
    contender: u16,
    began: Instant,
    end: Instant,
    /// End of its reservation of the channel.
    nav: Instant,
    /// End of its next MPDU; `NEVER` if that is the last.
    mpdu_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Rts,
    Cts,
    Data,
    Ack,
}

/// Events that a contender waits for besides channel access.
#[derive(Clone, Copy, Debug)]
enum Due {
    /// The receiver answers an RTS.
    Cts,
    /// The sender sends its data after the CTS, or within a transmission opportunity.
    Data,
    /// The receiver acknowledges.
    Ack,
    /// No answer arrived.
    Timeout,
    /// A discipline may release its next packet.
    Wake,
}

/// State of the channel at one node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Nodes that hear this one.
    audience: Vec<u16>,
    /// Range of its contenders, in order of priority.
    contenders: std::ops::Range<usize>,
    /// Frames on the air that it hears.
    heard: u16,
    sending: bool,
    /// One of its contenders is in an exchange.
    engaged: bool,
    /// Frames that it hears or sends overlap.
    garbled: bool,
    /// The last frame could not be decoded, so EIFS applies.
    eifs: bool,
    nav: Instant,
    /// Start of its last data frame; `NEVER` before the first.
    data_at: Instant,
    /// Time for which it sensed the channel busy, and the part of that which is not due to its own
    /// exchanges.
    busy: (Duration, Duration),
    /// The ends of the last two windows, and `busy` at these times.
    marks: [(Instant, Duration, Duration); 2],
}

/// Parameters of the cell.
#[derive(Clone, Debug)]
pub struct Config {
    pub phy: Phy,
    pub access: Access,
    /// Aggregation: limits of a PPDU.
    pub aggregation: Aggregation,
    /// Order in which neighbours are served.
    pub serve: Serve,
}

/// Totals of the channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Time that at least one frame was on the air.
    pub busy: Duration,
    /// Data frames and RTS that another frame destroyed.
    pub collisions: u64,
}

/// A cell: nodes that share one channel.
#[derive(Clone, Debug)]
pub struct Cell {
    config: Config,
    nodes: Vec<Node>,
    contenders: Vec<Contender>,
    /// Links, one per port and with its number.
    pub links: Vec<AirLink>,
    /// By contender: limits of a PPDU.
    limits: Vec<Limits>,
    /// Next port, by the current and the last port of a path.
    next_hop: Vec<u8>,
    on_air: Vec<Frame>,
    due: Vec<(Instant, u16, Due)>,
    noise: Bursts,
    rng: Rng,
    next: Instant,
    /// End of the next MPDU that ends before its PPDU.
    mpdu_at: Instant,
    /// End of the current window over which the gauges count.
    roll_at: Instant,
    /// Start of the present busy time, while a frame is on the air.
    busy_since: Instant,
    pub totals: Totals,
    /// Packets delivered, each with the port that it was sent from.
    pub delivered: Vec<(usize, Pkt)>,
    /// Ports whose queues may have dropped ACKs.
    pub touched: Vec<u8>,
}

impl Cell {
    /// A cell; `audiences` are, by node, the nodes that hear it. `contenders` are sorted by node
    /// and priority.
    pub fn new(
        config: Config,
        audiences: Vec<Vec<u16>>,
        contenders: Vec<Contender>,
        links: Vec<AirLink>,
        next_hop: Vec<u8>,
        noise: Bursts,
        seed: u64,
    ) -> Self {
        let range = |n: u16| {
            contenders.partition_point(|c| c.node < n)..contenders.partition_point(|c| c.node <= n)
        };
        let node = |(n, audience): (usize, Vec<u16>)| Node {
            audience,
            contenders: range(num::index_u16(n)),
            heard: 0,
            sending: false,
            engaged: false,
            garbled: false,
            eifs: false,
            nav: Instant::ZERO,
            data_at: NEVER,
            busy: (Duration::ZERO, Duration::ZERO),
            marks: [(Instant::ZERO, Duration::ZERO, Duration::ZERO); 2],
        };
        let nodes: Vec<Node> = audiences.into_iter().enumerate().map(node).collect();
        let limits = contenders
            .iter()
            .map(|c| Limits::new(&config.aggregation, config.phy, c.params.txop))
            .collect();
        Self {
            config,
            nodes,
            limits,
            contenders,
            links,
            next_hop,
            on_air: Vec::new(),
            due: Vec::new(),
            noise,
            rng: Rng::new(seed, "wifi"),
            next: NEVER,
            mpdu_at: NEVER,
            roll_at: Instant::ZERO + WINDOW,
            busy_since: Instant::ZERO,
            totals: Totals::default(),
            delivered: Vec::new(),
            touched: Vec::new(),
        }
    }

    /// Time of the next event.
    #[inline]
    pub fn next(&self) -> Instant {
        self.next.min(self.mpdu_at)
    }

    /// The port of the queue for this link.
    pub fn port(&self, from: u16, to: u16, category: Category) -> Option<u8> {
        let is = |l: &AirLink| (l.from, l.to, l.category) == (from, to, category);
        self.links
            .iter()
            .position(is)
            .map(|i| num::low_u8(i as u64))
    }

    /// The port that follows `port` on the path to `last`.
    #[inline]
    pub fn hop_after(&self, port: usize, last: u8) -> u8 {
        self.next_hop[port * self.links.len() + usize::from(last)]
    }

    /// Handles a packet that has entered a queue.
    #[inline]
    pub fn arrived(&mut self, now: Instant, port: usize, ports: &mut [Port]) {
        let link = &mut self.links[port];
        let c = usize::from(link.contender);
        link.not_before = Instant::ZERO;
        if self.contenders[c].hardware.len() < self.config.aggregation.hardware as usize {
            self.refill(c, now, ports);
        }
    }

    /// Refills the hardware's queue. If that was empty, the contender plans its access to the
    /// channel, with a backoff if the channel is not free.
    fn refill(&mut self, c: usize, now: Instant, ports: &mut [Port]) {
        let idle = self.contenders[c].hardware.is_empty();
        self.fill(c, now, ports);
        if idle && !self.contenders[c].hardware.is_empty() {
            let node = &self.nodes[usize::from(self.contenders[c].node)];
            if node.heard > 0 || node.sending || node.nav > now || node.engaged {
                self.contenders[c].defer(&mut self.rng);
            }
            let free = !node.engaged;
            self.contenders[c].plan(now, free);
            self.next = self.next.min(self.contenders[c].start_at);
        }
    }

    /// Handles the events at `now`.
    pub fn event(&mut self, now: Instant, ports: &mut [Port]) {
        if self.mpdu_at <= now {
            self.mpdus_arrive(now, ports);
            if self.next > now {
                return;
            }
        }
        if now >= self.roll_at {
            self.roll(now);
        }
        while let Some(i) = self.on_air.iter().position(|f| f.end <= now) {
            self.frame_ends(i, now, ports);
        }
        while let Some(i) = self.due.iter().position(|d| d.0 <= now) {
            let (_, c, due) = self.due.swap_remove(i);
            self.is_due(usize::from(c), due, now, ports);
        }
        for c in 0..self.contenders.len() {
            if self.contenders[c].start_at <= now {
                self.access(c, now, ports);
            }
        }
        let frames = self.on_air.iter().map(|f| f.end);
        let dues = self.due.iter().map(|d| d.0);
        let starts = self.contenders.iter().map(|c| c.start_at);
        self.next = frames.chain(dues).chain(starts).min().unwrap_or(NEVER);
    }

    /// Starts an exchange of a contender whose backoff has ended.
    fn access(&mut self, c: usize, now: Instant, ports: &mut [Port]) {
        let node = usize::from(self.contenders[c].node);
        if self.nodes[node].sending {
            // Another category of this node starts to send at the same instant: the lower one
            // treats this as a collision (9.19.2.3).
            let k = &mut self.contenders[c];
            k.start();
            return k.failed(self.config.access.retries, &mut self.rng);
        }
        if self.config.aggregation.late {
            self.top_up(c, now, ports);
        }
        if !self.prepare(c, now, ports) {
            return;
        }
        self.nodes[node].engaged = true;
        self.contenders[c].start();
        self.contenders[c].txop_end = now + self.contenders[c].params.txop;
        let Some(x) = self.contenders[c].exchange else {
            return;
        };
        if self
            .config
            .access
            .rts
            .is_some_and(|threshold| x.bytes >= threshold)
        {
            let mbps = phy::answer_mbps(x.mcs);
            let time = phy::legacy_time(mbps, phy::RTS_BYTES);
            let rest = SIFS
                + phy::legacy_time(mbps, phy::ACK_BYTES)
                + SIFS
                + self.data_time(&x)
                + SIFS
                + answer_time(&x);
            self.send(Kind::Rts, c, now, time, rest);
        } else {
            self.send_data(c, now);
        }
    }

    /// Composes the contender's next PPDU; false if there is nothing left to send.
    fn prepare(&mut self, c: usize, now: Instant, ports: &mut [Port]) -> bool {
        loop {
            let k = &mut self.contenders[c];
            let Some(claim) = k.hardware.front().copied() else {
                k.plan(now, true);
                return false;
            };
            let link = &mut self.links[usize::from(claim.link)];
            let (mcs, probe) = link.rate.pick(now, k.failures, &mut self.rng);
            let max_frames = if probe { 1 } else { claim.frames };
            let (frames, bytes) = link.compose(&self.limits[c], max_frames, mcs);
            if frames > 0 {
                k.exchange = Some(Exchange {
                    link: claim.link,
                    mcs,
                    frames,
                    bytes,
                    began: now,
                });
                return true;
            }
            // An earlier PPDU included these frames.
            self.release(c);
            self.fill(c, now, ports);
        }
    }

    fn data_time(&self, x: &Exchange) -> Duration {
        self.config.phy.data_time(x.mcs, x.bytes)
    }

    fn send_data(&mut self, c: usize, now: Instant) {
        if let Some(x) = self.contenders[c].exchange {
            let node = usize::from(self.contenders[c].node);
            self.nodes[node].data_at = now;
            self.send(
                Kind::Data,
                c,
                now,
                self.data_time(&x),
                SIFS + answer_time(&x),
            );
        }
    }

    /// Sends a frame, which reserves the channel for `rest` after its end.
    fn send(&mut self, kind: Kind, c: usize, now: Instant, time: Duration, rest: Duration) {
        let Some(x) = self.contenders[c].exchange else {
            return;
        };
        let link = &self.links[usize::from(x.link)];
        let (from, to) = match kind {
            Kind::Rts | Kind::Data => (link.from, link.to),
            Kind::Cts | Kind::Ack => (link.to, link.from),
        };
        if self.on_air.is_empty() {
            self.busy_since = now;
        }
        let mpdu_at = match kind {
            Kind::Data => self.links[usize::from(x.link)].depart(now, time),
            _ => NEVER,
        };
        self.mpdu_at = self.mpdu_at.min(mpdu_at);
        self.on_air.push(Frame {
            kind,
            from,
            to,
            contender: num::index_u16(c),
            began: now,
            end: now + time,
            nav: now + time + rest,
            mpdu_at,
        });
        let sender = &mut self.nodes[usize::from(from)];
        sender.sending = true;
        sender.garbled |= sender.heard > 0;
        sender.eifs = false;
        self.freeze(usize::from(from), now);
        for i in 0..self.nodes[usize::from(from)].audience.len() {
            let n = usize::from(self.nodes[usize::from(from)].audience[i]);
            let node = &mut self.nodes[n];
            node.heard += 1;
            node.garbled |= node.heard > 1 || node.sending;
            self.freeze(n, now);
        }
    }

    /// A node senses a frame: its contenders stop, except those that start before they can sense
    /// it.
    #[inline]
    fn freeze(&mut self, node: usize, now: Instant) {
        let sending = self.nodes[node].sending;
        for k in &mut self.contenders[self.nodes[node].contenders.clone()] {
            let blind = if sending {
                Duration::from_nanos(1)
            } else {
                CCA
            };
            if k.start_at >= now + blind {
                k.freeze(now, self.config.access.countdown);
            }
        }
    }

    /// A node senses that the channel is idle.
    #[inline]
    fn idle(&mut self, n: usize, now: Instant) {
        let node = &mut self.nodes[n];
        node.garbled = false;
        let eifs = if node.eifs && self.config.access.eifs {
            SIFS + phy::legacy_time(LOWEST_BASIC, phy::ACK_BYTES)
        } else {
            Duration::ZERO
        };
        let base = (now + eifs).max(node.nav);
        let free = !node.engaged;
        for k in &mut self.contenders[node.contenders.clone()] {
            k.idle_from(base);
            k.plan(now, free);
        }
    }

    /// Delivers the MPDUs that have ended of A-MPDUs on the air to the upper layer one by one
    /// (9.21.7.6.2); the last one is delivered when its frame ends.
    fn mpdus_arrive(&mut self, now: Instant, ports: &mut [Port]) {
        self.mpdu_at = NEVER;
        for i in 0..self.on_air.len() {
            let f = self.on_air[i];
            if f.mpdu_at <= now {
                let clean = !self.nodes[usize::from(f.to)].garbled;
                self.on_air[i].mpdu_at = self.mpdu_arrives(&f, clean, now, ports);
            }
            self.mpdu_at = self.mpdu_at.min(self.on_air[i].mpdu_at);
        }
    }

    /// Receives an MPDU of the frame; returns the end of the next.
    fn mpdu_arrives(
        &mut self,
        f: &Frame,
        clean: bool,
        now: Instant,
        ports: &mut [Port],
    ) -> Instant {
        let Some(x) = self.contenders[usize::from(f.contender)].exchange else {
            return NEVER;
        };
        let link = &mut self.links[usize::from(x.link)];
        let next = link.arrive(x.mcs, clean, &mut self.noise, &mut self.rng);
        if clean {
            self.deliver(x.link, now, ports);
        }
        next
    }

    fn frame_ends(&mut self, i: usize, now: Instant, ports: &mut [Port]) {
        let f = self.on_air.swap_remove(i);
        if self.on_air.is_empty() {
            self.totals.busy += now - self.busy_since;
        }
        let time = f.end - f.began;
        let clean = !self.nodes[usize::from(f.to)].garbled;
        for i in 0..self.nodes[usize::from(f.from)].audience.len() {
            let n = usize::from(self.nodes[usize::from(f.from)].audience[i]);
            let node = &mut self.nodes[n];
            node.heard -= 1;
            node.busy.0 += time;
            if n != usize::from(f.to) || matches!(f.kind, Kind::Rts | Kind::Data) {
                node.busy.1 += time;
            }
            node.eifs = node.garbled;
            if !node.garbled && n != usize::from(f.to) {
                node.nav = node.nav.max(f.nav);
            }
            if node.heard == 0 && !node.sending {
                self.idle(n, now);
            }
        }
        let sender = &mut self.nodes[usize::from(f.from)];
        sender.sending = false;
        sender.busy.0 += time;
        if sender.heard == 0 {
            self.idle(usize::from(f.from), now);
        }
        let c = usize::from(f.contender);
        if !clean && matches!(f.kind, Kind::Rts | Kind::Data) {
            self.totals.collisions += 1;
        }
        match f.kind {
            // A node whose NAV is set does not answer an RTS (9.3.2.6).
            Kind::Rts if clean && self.nodes[usize::from(f.to)].nav <= now => {
                self.due.push((now + SIFS, f.contender, Due::Cts));
            }
            Kind::Rts => self.give_up(c, now),
            Kind::Cts if clean => self.due.push((now + SIFS, f.contender, Due::Data)),
            Kind::Data => self.received(c, &f, clean, now, ports),
            Kind::Ack if clean => {
                let answered = self.noise.probability(f.began, f.end);
                let answered = answered == 0.0 || self.rng.f64() >= answered;
                self.finish(c, answered, now, ports);
            }
            Kind::Cts | Kind::Ack => self.finish(c, false, now, ports),
        }
    }

    /// No answer will come; the sender notices that after a timeout.
    fn give_up(&mut self, c: usize, now: Instant) {
        let wait = if self.config.access.eifs {
            SIFS + SLOT + phy::RX_START
        } else {
            Duration::ZERO
        };
        self.due.push((now + wait, num::index_u16(c), Due::Timeout));
    }

    /// A data frame ends at its receiver, which answers if it has received any MPDU.
    fn received(&mut self, c: usize, f: &Frame, clean: bool, now: Instant, ports: &mut [Port]) {
        let _ = self.mpdu_arrives(f, clean, now, ports);
        let got = self.contenders[c].exchange.as_ref();
        if got.is_some_and(|x| self.links[usize::from(x.link)].arrived()) {
            return self.due.push((now + SIFS, num::index_u16(c), Due::Ack));
        }
        if clean {
            self.nodes[usize::from(f.to)].eifs = true;
            if self.nodes[usize::from(f.to)].heard == 0 {
                self.idle(usize::from(f.to), now);
            }
        }
        self.give_up(c, now);
    }

    fn deliver(&mut self, link: u16, now: Instant, ports: &mut [Port]) {
        let port = &mut ports[usize::from(link)];
        let delivered = &mut self.delivered;
        self.links[usize::from(link)]
            .deliver(now, port, |p| delivered.push((usize::from(link), p)));
        if !port.trace().dropped_acks.is_empty() {
            self.touched.push(num::low_u8(link.into()));
        }
    }

    fn is_due(&mut self, c: usize, due: Due, now: Instant, ports: &mut [Port]) {
        if matches!(due, Due::Wake) {
            return self.refill(c, now, ports);
        }
        let Some(x) = self.contenders[c].exchange else {
            return;
        };
        match due {
            Due::Cts => {
                let time = phy::legacy_time(phy::answer_mbps(x.mcs), phy::ACK_BYTES);
                let rest = SIFS + self.data_time(&x) + SIFS + answer_time(&x);
                self.send(Kind::Cts, c, now, time, rest);
            }
            Due::Ack => self.send(Kind::Ack, c, now, answer_time(&x), Duration::ZERO),
            Due::Data => self.send_data(c, now),
            Due::Timeout | Due::Wake => self.finish(c, false, now, ports),
        }
    }

    /// Ends an exchange; `answered`: the sender has received the acknowledgement.
    fn finish(&mut self, c: usize, answered: bool, now: Instant, ports: &mut [Port]) {
        let Some(x) = self.contenders[c].exchange.take() else {
            return;
        };
        let retries = self.config.access.retries;
        let link = &mut self.links[usize::from(x.link)];
        let airtime = now - x.began;
        link.settle(&x, answered, airtime, retries);
        link.deficit -= airtime.as_nanos().cast_signed();
        let (done, reverse) = (answered || link.is_empty(), link.reverse);
        // The receiver, too, charges the airtime to its link to the sender, as mac80211 does.
        if let Some(reverse) = reverse.filter(|_| answered) {
            self.links[usize::from(reverse)].deficit -= airtime.as_nanos().cast_signed();
        }
        self.deliver(x.link, now, ports);
        if done {
            self.release(c);
        }
        let k = &mut self.contenders[c];
        if answered {
            k.succeeded(&mut self.rng);
        } else {
            k.failed(retries, &mut self.rng);
        }
        self.fill(c, now, ports);
        if answered && self.continues_txop(c, now, ports) {
            return;
        }
        let node = &mut self.nodes[usize::from(self.contenders[c].node)];
        node.engaged = false;
        for k in &mut self.contenders[node.contenders.clone()] {
            if !answered {
                k.not_before(now);
            }
            k.plan(now, true);
        }
    }

    /// Prepares the next exchange of a transmission opportunity, which follows without a backoff,
    /// if it fits completely (9.19.2.4). Returns whether there is one.
    fn continues_txop(&mut self, c: usize, now: Instant, ports: &mut [Port]) -> bool {
        let end = self.contenders[c].txop_end;
        if end <= now || !self.prepare(c, now + SIFS, ports) {
            return false;
        }
        let Some(x) = self.contenders[c].exchange else {
            return false;
        };
        if now + SIFS + self.data_time(&x) + SIFS + answer_time(&x) > end {
            self.links[usize::from(x.link)].decompose();
            self.contenders[c].exchange = None;
            return false;
        }
        self.due.push((now + SIFS, num::index_u16(c), Due::Data));
        true
    }

    /// Removes the hardware's oldest claim.
    fn release(&mut self, c: usize) {
        if let Some(claim) = self.contenders[c].hardware.pop_front() {
            self.links[usize::from(claim.link)].unclaim((claim.frames, claim.bytes));
        }
    }

    /// Fills the hardware's queue.
    fn fill(&mut self, c: usize, now: Instant, ports: &mut [Port]) {
        while self.contenders[c].hardware.len() < self.config.aggregation.hardware as usize {
            let Some(l) = self.choose(c, now, ports) else {
                return self.set_wake(c, now);
            };
            let claim = self.claim(l, c, now, ports);
            if claim.frames > 0 {
                self.contenders[c].hardware.push_back(claim);
            }
        }
    }

    /// Sets the time of the next attempt to dequeue from disciplines that release no packet before
    /// a given time. Called when the hardware has room; if it is full, it is refilled once a place
    /// is free.
    fn set_wake(&mut self, c: usize, now: Instant) {
        let links = self.contenders[c].links.iter();
        let times = links.map(|l| self.links[usize::from(*l)].not_before);
        let Some(at) = times
            .filter(|t| (now + Duration::from_nanos(1)..NEVER).contains(t))
            .min()
        else {
            return;
        };
        let is =
            |d: &&mut (Instant, u16, Due)| d.1 == num::index_u16(c) && matches!(d.2, Due::Wake);
        match self.due.iter_mut().find(is) {
            Some(wake) => wake.0 = at,
            None => self.due.push((at, num::index_u16(c), Due::Wake)),
        }
        self.next = self.next.min(at);
    }

    /// Adds packets that have arrived since the next PPDU was claimed.
    fn top_up(&mut self, c: usize, now: Instant, ports: &mut [Port]) {
        if let Some(old) = self.contenders[c].hardware.front().copied() {
            self.release(c);
            let claim = self.claim(old.link, c, now, ports);
            self.contenders[c].hardware.push_front(claim);
        }
    }

    fn claim(&mut self, link: u16, c: usize, now: Instant, ports: &mut [Port]) -> Claim {
        let port = &mut ports[usize::from(link)];
        let (frames, bytes) = self.links[usize::from(link)].claim(now, port, &self.limits[c]);
        if !port.trace().dropped_acks.is_empty() {
            self.touched.push(num::low_u8(link.into()));
        }
        Claim {
            link,
            frames,
            bytes,
        }
    }

    /// The link to serve next among those with something to send.
    fn choose(&mut self, c: usize, now: Instant, ports: &[Port]) -> Option<u16> {
        let k = &mut self.contenders[c];
        let ready = |l: u16, link: &AirLink| {
            link.waiting() || (!ports[usize::from(l)].queue.is_empty() && link.not_before <= now)
        };
        let mut any = false;
        loop {
            for _ in 0..k.links.len() {
                let l = k.links[k.next_link];
                let link = &mut self.links[usize::from(l)];
                if ready(l, link) {
                    any = true;
                    if self.config.serve == Serve::RoundRobin {
                        k.next_link = (k.next_link + 1) % k.links.len();
                        return Some(l);
                    }
                    if link.deficit > 0 {
                        return Some(l);
                    }
                    link.deficit += QUANTUM;
                }
                k.next_link = (k.next_link + 1) % k.links.len();
            }
            if !any {
                return None;
            }
        }
    }

    /// Ends a window over which the gauges count.
    fn roll(&mut self, now: Instant) {
        self.roll_at = now + WINDOW;
        for node in &mut self.nodes {
            node.marks = [node.marks[1], (now, node.busy.0, node.busy.1)];
        }
    }

    /// Sets the gauges of the channel for the controller of this port's queue.
    pub fn gauges(&self, now: Instant, port: usize, g: &mut Gauges) {
        let link = &self.links[port];
        let node = &self.nodes[usize::from(link.from)];
        let (since, busy, others) = node.marks[0];
        let share = |time: Duration| {
            (time.as_nanos() as f64 / (now - since).max(Duration::from_nanos(1)).as_nanos() as f64)
                .min(1.0)
        };
        g.rate = self.config.phy.rate(link.rate.best(now));
        g.achieved = Rate::from_bps_f64(link.achieved_bps);
        g.busy = share(node.busy.0 - busy);
        g.share = 1.0 - share(node.busy.1 - others);
        let heard = node.audience.iter().map(|n| &self.nodes[usize::from(*n)]);
        let active = |n: &&Node| n.data_at != NEVER && n.data_at >= since;
        g.contenders = 1 + num::count(heard.filter(active).count());
        g.aggregate = link.aggregate;
    }

    /// Resets the counters at the end of the warm-up.
    pub fn restart(&mut self, now: Instant) {
        self.totals = Totals::default();
        self.busy_since = now;
        for link in &mut self.links {
            link.counts = Counts::default();
        }
    }

    /// Time until `now` that at least one frame was on the air.
    pub fn busy(&self, now: Instant) -> Duration {
        let running = if self.on_air.is_empty() {
            Duration::ZERO
        } else {
            now - self.busy_since
        };
        self.totals.busy + running
    }
}

/// Duration of the acknowledgement: an ACK for a single MPDU, a block ACK for an A-MPDU.
fn answer_time(x: &Exchange) -> Duration {
    let bytes = if x.frames > 1 {
        phy::BLOCK_ACK_BYTES
    } else {
        phy::ACK_BYTES
    };
    phy::legacy_time(phy::answer_mbps(x.mcs), bytes)
}
