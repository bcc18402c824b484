//! Adds the flows of the scenario's tables; starts and ends short transfers.

use std::hash::Hasher;

use quell_link::error::Error;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, NEVER, US};
use quell_qdisc::{Ecn, Rng, num};
use siphasher::sip::SipHasher13;

use super::{World, arm};
use crate::app::client::{Client, Model};
use crate::app::page::Reader;
use crate::app::probe::Prober;
use crate::app::video::Player;
use crate::app::video_call::Place;
use crate::app::{App, Way};
use crate::cc::{CongestionControl, EcnMode};
use crate::labels;
use crate::measure::Report;
use crate::net::Net;
use crate::packet::FlowId;
use crate::scenario::wifi::{Ends, Wifi};
use crate::scenario::{Direction, Flow, FlowKind, Page, Scenario, Tcp, Video};
use crate::slot::{Connection, Datagrams, End, NO_PORT, Path, Slot, Web, source};
use crate::tcp::{Receiver, Sender, receiver, rtt::Rtt, sender};

/// Maximum number of flow slots, and so of live flows.
const MAX_SLOTS: usize = u16::MAX as usize;
/// IP and TCP headers with timestamps, bytes.
const TCP_HEADERS: u32 = 52;

impl World {
    /// Fills the flow table from the scenario.
    pub(crate) fn populate(&mut self) -> Result<(), Error> {
        let scenario = self.scenario.clone();
        for port in 0..self.net.ports.len() {
            // The wire from this port to the next one of a path.
            let delay = self.net.ports[port].delay;
            let class =
                self.class(|net| net.wires.class(delay, num::low_u8(net.after(port) as u64)))?;
            self.net.onward.push(class);
        }
        self.note_label_readers();
        for (table, flow) in scenario.flows.iter().enumerate() {
            let path = self.path(&scenario, flow)?;
            let back = match flow.kind.is_dialogue() {
                true => Some(self.way_back(&scenario, flow)?),
                false => None,
            };
            let mut rng = Rng::new(self.seed, &format!("flow {table}"));
            for k in 0..flow.count {
                let start = Instant::ZERO
                    + flow.start
                    + path.offset
                    + Duration::from_nanos(num::whole_u64(
                        rng.f64() * flow.stagger.as_nanos() as f64,
                    ));
                let stop = flow.stop.map_or(NEVER, |s| Instant::ZERO + s + path.offset);
                self.add(
                    flow,
                    (path, back),
                    (start, stop),
                    Rng::new(rng.u64(), &format!("source {k}")),
                )?;
            }
        }
        Ok(())
    }

    fn class(
        &mut self,
        make: impl FnOnce(&mut crate::net::Net) -> Option<u16>,
    ) -> Result<u16, Error> {
        make(&mut self.net).ok_or_else(|| {
            Error::new("more than 65,536 different delays")
                .remedy("let flows share round-trip times")
        })
    }

    /// The path of a table's packets, and the wires that make up its round trip.
    fn path(&mut self, scenario: &Scenario, flow: &Flow) -> Result<Path, Error> {
        if let (Some(wifi), Some(ends)) = (&scenario.wifi, &flow.ends) {
            return self.path_in_cell(wifi, ends, flow.rtt);
        }
        let hops = (
            num::low_u8(flow.hops.0.into()),
            num::low_u8(flow.hops.1.into()),
        );
        let [modem, modem_up] = self.net.modems;
        let down = match hops.0 {
            0 => (modem.unwrap_or(0), hops.1),
            _ => hops,
        };
        let up = scenario.up.as_ref().map(|_| {
            let up = num::low_u8(self.net.up_port() as u64);
            (up, modem_up.unwrap_or(up))
        });
        let (data, acks) = match (flow.direction, up) {
            (Direction::Down, None) => (down, None),
            (Direction::Down, Some(up)) => (down, Some(up)),
            (Direction::Up, Some(up)) => (up, Some(down)),
            (Direction::Up, None) => {
                return Err(Error::new(
                    "a flow with direction = \"up\" needs a [link.up] table",
                ));
            }
        };
        let delay = |range: (u8, u8)| -> Duration {
            let way = self.net.way(range);
            way.map(|port| self.net.ports[port].delay).sum()
        };
        let last = |range: (u8, u8)| self.net.ports[usize::from(range.1)].delay;
        let behind = last(data);
        let inner = delay(data) - behind;
        let rest = flow.rtt.saturating_sub(inner);
        // On the way back each hop has the same delay as on the way there, and [link.up] its own.
        let hops_back = match flow.direction {
            Direction::Down if hops.1 > 0 => delay((hops.0.max(1), hops.1)),
            _ => Duration::ZERO,
        };
        let back = acks.map_or(delay(data), |a| delay(a) + hops_back);
        let extra = flow.rtt.saturating_sub(delay(data) + back);
        let (entry, return_delay) = match acks {
            None => (None, rest),
            Some(a) => {
                let inner = delay(a) - last(a);
                let rest = rest.saturating_sub(inner);
                let entry = (last(data) + hops_back + extra / 2).min(rest);
                (Some((entry, a.0)), rest - entry)
            }
        };
        let acks_entry_wire = match entry {
            Some((delay, port)) => self.class(|net| net.wires.class(delay, port))?,
            None => 0,
        };
        let acks_return_wire = self.class(|net| net.acks.class(return_delay, 0))?;
        Ok(Path {
            data,
            acks,
            acks_entry_wire,
            acks_return_wire,
            offset: extra / 2,
            outside_us: in_us(extra / 2 + behind),
        })
    }

    /// A path through a cell. The base round trip is the delay of one wire, behind the access
    /// point. ACKs of data to a station enter the station's queue at once and take the wire after
    /// their last queue; ACKs of data to the access point take the wire before their first queue.
    /// In a mesh, all ACKs take it last.
    fn path_in_cell(&mut self, wifi: &Wifi, ends: &Ends, rtt: Duration) -> Result<Path, Error> {
        let first_and_last = |net: &Net, ends: &Ends| -> Result<Option<(u8, u8)>, Error> {
            let way = wifi.way(ends.from, ends.to)?;
            let port = |a: usize, b: usize| {
                let cell = net.cell.as_ref()?;
                cell.port(way[a], way[b], ends.category)
            };
            Ok(port(0, 1).zip(port(way.len() - 2, way.len() - 1)))
        };
        let data = first_and_last(&self.net, ends)?.unwrap_or_default();
        let acks = first_and_last(&self.net, &ends.turned())?;
        let entry = if wifi.mesh || ends.to != 0 {
            Duration::ZERO
        } else {
            rtt
        };
        let target = acks.map_or(0, |a| a.0);
        Ok(Path {
            data,
            acks,
            acks_entry_wire: self.class(|net| net.wires.class(entry, target))?,
            acks_return_wire: self.class(|net| net.acks.class(rtt - entry, 0))?,
            offset: Duration::ZERO,
            outside_us: in_us(rtt / 2),
        })
    }

    /// The path of an application's datagrams in the direction opposite to its flow's.
    fn way_back(&mut self, scenario: &Scenario, flow: &Flow) -> Result<Path, Error> {
        let (direction, hops) = match flow.direction {
            Direction::Down => (Direction::Up, (0, 0)),
            Direction::Up => (Direction::Down, (0, num::count(scenario.hops.len()))),
        };
        let to_queue = scenario.up.is_some() || scenario.wifi.is_some();
        if direction == Direction::Up && !to_queue {
            let wire = self.class(|net| net.acks.class(flow.rtt / 2, 0))?;
            return Ok(Path {
                data: (NO_PORT, NO_PORT),
                acks: None,
                acks_entry_wire: 0,
                acks_return_wire: wire,
                offset: Duration::ZERO,
                outside_us: 0,
            });
        }
        let back = Flow {
            direction,
            hops,
            ends: flow.ends.map(|ends| ends.turned()),
            ..flow.clone()
        };
        self.path(scenario, &back)
    }

    /// Adds an application over datagrams: a source at each end.
    fn add_application(
        &mut self,
        flow: &Flow,
        paths: [Path; 2],
        span: (Instant, Instant),
        mut rng: Rng,
    ) -> Result<(), Error> {
        let first = num::index_u16(self.measures.reports.len());
        let number = num::index_u16(self.measures.apps.len());
        let app = App::new(&flow.kind, [first, first + 1]);
        self.measures.apps.extend(app);
        for (way, path) in [Way::There, Way::Back].into_iter().zip(paths) {
            let shift = |at: Instant| match at {
                NEVER => NEVER,
                at => at - paths[0].offset + path.offset,
            };
            let span = (shift(span.0), shift(span.1));
            let down = (flow.direction == Direction::Down) == (way == Way::There);
            let mut report = Report::new(flow, span);
            report.down = down;
            self.report(flow, report);
            let rng = Rng::new(rng.u64(), "way");
            let slot = self.send_datagrams(flow, path, span, rng.clone(), Some((number, way)))?;
            let ends = self.measures.apps[usize::from(number)].ends();
            if let (Some(ends), FlowKind::VideoCall(call)) = (ends, &flow.kind) {
                // The end sends in the direction `way` and receives from the other.
                let from = paths[1 - way as usize];
                let arrives = u64::from(from.outside_us) * US + path.offset;
                let place = Place {
                    slot,
                    reaction: arrives.saturating_sub(from.offset),
                    skew: from.offset.as_nanos().cast_signed()
                        - path.offset.as_nanos().cast_signed(),
                };
                ends.join(call, place, span.0, rng);
            }
        }
        Ok(())
    }

    /// Adds an application over TCP.
    fn add_client(
        &mut self,
        flow: &Flow,
        tcp: &Tcp,
        path: Path,
        span: (Instant, Instant),
        rng: Rng,
        report: u16,
    ) -> Result<(), Error> {
        let model = match &flow.kind {
            FlowKind::Page(page) => Model::Page(Reader::new(page, rng, span.0)),
            FlowKind::Video(video) => Model::Video(Player::new(video, span.0)),
            FlowKind::Probe(_) => {
                let scenario = &self.scenario;
                let links = [Some(&scenario.link), scenario.up.as_ref()];
                let rates = links
                    .into_iter()
                    .flatten()
                    .map(|l| l.rate.mean_rate(scenario.duration));
                Model::Probe(Prober::new(
                    rates.min().unwrap_or(Rate::from_bps(1)),
                    span.0,
                ))
            }
            _ => return Ok(()),
        };
        let id = self.slot(Slot::Free)?;
        // The client's own packets are requests, which take the path of the ACKs.
        let requests = Path {
            data: path.acks.unwrap_or(path.data),
            ..path
        };
        let labels = self.labels_of(flow, flow.direction == Direction::Up);
        self.label(id, &requests, labels);
        self.measures.apps.push(App::of_client(report, id.slot));
        let hashes = [self.hash(0), self.hash(1)];
        let client = Client::new(id, report, model, tcp.clone(), path, hashes, span.1);
        self.net
            .timers
            .set(client.wake_at(), source(id.slot, End::Sender));
        self.slots[id.index()] = Slot::Client(Box::new(client));
        Ok(())
    }

    /// Adds the report of another flow and returns its index.
    fn report(&mut self, flow: &Flow, mut report: Report) -> u16 {
        if flow.kind.tcp().is_some() && !self.measures.is_detailed() {
            report.delays = None; // as with RTTs: records of many flows would fill the caches
        }
        let place = num::index_u16(self.measures.reports.len());
        self.labels.push(self.labels_of(flow, report.down));
        let far = labels::far_host(self.seed, flow.to_host.as_deref());
        self.far_hosts.push(far);
        self.measures.reports.push(report);
        self.measures.acks.push(Default::default());
        place
    }

    /// Adds a source of datagrams, whose report is the last one.
    fn send_datagrams(
        &mut self,
        flow: &Flow,
        path: Path,
        span: (Instant, Instant),
        rng: Rng,
        app: Option<(u16, Way)>,
    ) -> Result<u16, Error> {
        let report = num::index_u16(self.measures.reports.len() - 1);
        let slot = self.slot(Slot::Free)?;
        self.label(slot, &path, self.labels[usize::from(report)]);
        let hash = self.hash(0);
        let mut d = Datagrams::new(slot, hash, path, flow.kind.clone(), rng, span, report);
        d.app = app;
        self.net.timers.set(d.at, source(slot.slot, End::Sender));
        self.slots[slot.index()] = Slot::Udp(Box::new(d));
        Ok(slot.slot)
    }

    fn add(
        &mut self,
        flow: &Flow,
        (path, back): (Path, Option<Path>),
        span: (Instant, Instant),
        rng: Rng,
    ) -> Result<(), Error> {
        if let Some(back) = back {
            return match &flow.kind {
                FlowKind::Ping(ping) => {
                    let ways = match flow.direction {
                        Direction::Down => [back, path],
                        Direction::Up => [path, back],
                    };
                    self.add_pinger(flow, ping, ways, span, rng)
                }
                _ => self.add_application(flow, [path, back], span, rng),
            };
        }
        let report = self.report(flow, Report::new(flow, span));
        match &flow.kind {
            FlowKind::Tcp(tcp)
            | FlowKind::Download(tcp)
            | FlowKind::Upload(tcp)
            | FlowKind::Backup(tcp) => {
                self.connect(tcp, tcp.bytes, path, span, report)?;
            }
            FlowKind::Ping(_) => {}
            FlowKind::Web(_) => {
                if let Some(web) = Web::new(&flow.kind, path, rng, span, report) {
                    let at = web.at;
                    let slot = self.slot(Slot::Web(Box::new(web)))?;
                    self.net.timers.set(at, source(slot.slot, End::Sender));
                }
            }
            FlowKind::Page(Page { tcp, .. })
            | FlowKind::Video(Video { tcp, .. })
            | FlowKind::Probe(tcp) => self.add_client(flow, tcp, path, span, rng, report)?,
            _ => {
                self.send_datagrams(flow, path, span, rng, None)?;
            }
        }
        Ok(())
    }

    /// Puts `content` into a free entry of the flow table, or into a new one.
    ///
    /// # Errors
    /// If the table has `MAX_SLOTS` entries and none is free.
    pub(crate) fn slot(&mut self, content: Slot) -> Result<FlowId, Error> {
        if let Some(slot) = self.free.pop() {
            self.slots[usize::from(slot)] = content;
            return Ok(FlowId {
                slot,
                generation: self.generations[usize::from(slot)],
            });
        }
        if self.slots.len() >= MAX_SLOTS {
            return Err(Error::new("more than 65,535 live flows")
                .remedy("lower count, or the arrivals of web flows"));
        }
        self.slots.push(content);
        self.generations.push(0);
        Ok(FlowId {
            slot: num::index_u16(self.slots.len() - 1),
            generation: 0,
        })
    }

    /// Keyed hash of a new flow (0) or of the opposite direction of the last new flow (1).
    pub(crate) fn hash(&mut self, direction: u8) -> u32 {
        self.next_id += u64::from(direction == 0);
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1);
        hasher.write_u64(self.next_id);
        hasher.write_u8(direction);
        num::low_u32(hasher.finish())
    }

    /// Adds a TCP connection that starts at `span.0`.
    pub(crate) fn connect(
        &mut self,
        tcp: &Tcp,
        bytes: Option<u64>,
        path: Path,
        span: (Instant, Instant),
        report: u16,
    ) -> Result<FlowId, Error> {
        let id = self.slot(Slot::Free)?;
        self.label(id, &path, self.labels[usize::from(report)]);
        if let Some(stamps) = &mut self.net.stamps {
            stamps.connect(id, self.far_hosts[usize::from(report)]);
        }
        let (hash, ack_hash) = (self.hash(0), self.hash(1));
        let cc = CongestionControl::of(&tcp.cc, tcp.ecn);
        let mode = cc.ecn_mode();
        let ect = match (tcp.ecn, tcp.ect1 || mode == EcnMode::Accurate) {
            (false, _) => Ecn::NotEct,
            (true, true) => Ecn::Ect1,
            (true, false) => Ecn::Ect0,
        };
        let mss = u64::from(tcp.mss);
        let end = bytes.map_or(u64::MAX, |b| b.div_ceil(mss));
        let last_short = bytes.map_or(0, |b| num::low_u32(b.div_ceil(mss) * mss - b));
        let overhead = self.net.ports[usize::from(path.data.0)].overhead;
        let offer_time = match tcp.rate {
            Rate::MAX => Duration::ZERO,
            rate => rate.transmission_time(mss),
        };
        let config = sender::Config {
            flow: id,
            hash,
            mss: tcp.mss,
            wire_bytes: tcp.mss + TCP_HEADERS + overhead,
            ect,
            window: (tcp.buffer / mss).clamp(1, 1 << 24) as u32,
            first: 0,
            end,
            last_short,
            offer_time,
            iw: tcp.iw,
            sack: tcp.sack,
            limited_transmit: tcp.limited_transmit,
            pacing: tcp.pacing || cc.needs_pacing(),
        };
        let rtt = Rtt::new(tcp.min_rto, tcp.rto_ns3);
        let base = self.measures.reports[usize::from(report)].rtt;
        let mut receiver = Receiver::new(
            id,
            receiver::Config {
                first: 0,
                delack: tcp.delack,
                delack_timeout: tcp.delack_timeout,
                sack: tcp.sack,
                ecn: mode,
                rtt: base,
                quiet: base + tcp.min_rto,
            },
        );
        let sender = Sender::new(config, rtt, &cc);
        let sampler;
        (sampler, receiver.until_sample) = self.measures.sampler(report);
        let mut c = Connection {
            sender,
            cc,
            receiver,
            path,
            pending: [NEVER; 2],
            next_change_at: span.0.min(span.1),
            began: span.0,
            stop: span.1,
            report,
            ack_hash,
            sampler,
            owner: None,
        };
        arm(&mut c, &mut self.net, id.slot, End::Sender);
        self.slots[id.index()] = Slot::Tcp(c);
        Ok(id)
    }

    /// Starts the next short transfer.
    pub(crate) fn on_web(&mut self, slot: u16) {
        let now = self.now;
        let Slot::Web(web) = &mut self.slots[usize::from(slot)] else {
            return;
        };
        if web.at >= web.stop {
            return;
        }
        let bytes = web.next();
        let (at, tcp, path, report, stop) =
            (web.at, web.tcp.clone(), web.path, web.report, web.stop);
        self.net.timers.set(at, source(slot, End::Sender));
        if self
            .connect(&tcp, Some(bytes), path, (now, stop), report)
            .is_err()
        {
            self.measures.refuse(report);
        }
    }

    /// Handles a sender whose segments are all acknowledged: a transfer is complete, or a client's
    /// connection has no more data to send.
    pub(crate) fn finish(&mut self, slot: u16) {
        let Slot::Tcp(c) = &mut self.slots[usize::from(slot)] else {
            return;
        };
        if let Some((client, number)) = c.owner {
            arm(c, &mut self.net, slot, End::Sender);
            return self.client_idle(client, number);
        }
        self.measures.completed(self.now, c);
        self.close(slot);
    }

    /// Closes a connection; its packets still in flight are ignored.
    pub(crate) fn close(&mut self, slot: u16) {
        let i = usize::from(slot);
        let Slot::Tcp(c) = &self.slots[i] else { return };
        let lost = self.net.losses(i);
        self.measures.closed(c, lost);
        self.net.forget_losses(i);
        self.slots[i] = Slot::Free;
        self.generations[i] = self.generations[i].wrapping_add(1);
        self.free.push(slot);
    }
}

/// A time in µs, at most `u32::MAX` (71 minutes).
fn in_us(time: Duration) -> u32 {
    u32::try_from(time / US).unwrap_or(u32::MAX)
}
