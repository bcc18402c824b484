//! Pings: requests to reflectors, and their answers.

use quell_qdisc::control::Echo;
use quell_qdisc::time::{Duration, Instant, NEVER, US};
use quell_qdisc::{Rng, num};

use super::World;
use crate::app::ping::{Answer, Pinger};
use crate::packet::{Pkt, micros};
use crate::scenario::{Flow, Ping};
use crate::slot::{End, Path, Slot, source};

impl World {
    /// Adds the probes of one reflector of a table; `ways` are the paths up and down.
    pub(crate) fn add_pinger(
        &mut self,
        flow: &Flow,
        ping: &Ping,
        ways: [Path; 2],
        (start, stop): (Instant, Instant),
        rng: Rng,
    ) -> Result<(), quell_link::Error> {
        let number = self.pingers;
        self.pingers += 1;
        let id = self.slot(Slot::Free)?;
        let labels = self.labels_of(flow, false);
        self.label(id, &ways[0], labels);
        let within = ways.map(|way| self.net.delay_within(way.data));
        // The reflectors are probed in turn.
        let share = ping.interval / u64::from(flow.count.max(1));
        let pinger = Pinger {
            id,
            hash: self.hash(0),
            ways,
            number,
            at: start + share * u64::from(number),
            stop,
            rest: flow.rtt.saturating_sub(within[0] + within[1]),
            to_reflector: (flow.rtt / 2).saturating_sub(within[0]),
            ping: ping.clone(),
            answers: Vec::new(),
            rng,
        };
        let timer = source(id.slot, End::Sender);
        self.net.timers.set(pinger.at, timer);
        self.slots[id.index()] = Slot::Ping(Box::new(pinger));
        Ok(())
    }

    /// Sends a request, or an answer from its reflector.
    #[cold]
    pub(crate) fn on_pinger(&mut self, slot: u16, end: End) {
        let now = self.now;
        self.net.timers.clear(source(slot, end));
        let Slot::Ping(pinger) = &mut self.slots[usize::from(slot)] else {
            return;
        };
        let way = end as usize;
        let port = usize::from(pinger.ways[way].data.0);
        let mut p = pinger.packet(way, self.net.ports[port].overhead);
        match end {
            End::Sender => {
                if now >= pinger.stop {
                    return;
                }
                p.tsval = micros(now);
                pinger.at += pinger.ping.interval;
                self.net.timers.set(pinger.at, source(slot, end));
            }
            End::Receiver => {
                let due = pinger.answers.iter().position(|answer| answer.at <= now);
                let Some(due) = due else { return };
                let answer = pinger.answers.swap_remove(due);
                (p.tsval, p.seq) = (answer.sent, answer.up);
                let next = pinger.next();
                if next < NEVER {
                    self.net.timers.set(next, source(slot, end));
                }
            }
        }
        self.net.enter(now, port, p);
        self.net.forget_acks(port);
    }

    /// Handles a request that has left the last queue upstream, or an answer that has arrived.
    #[cold]
    pub(crate) fn on_ping(&mut self, p: &Pkt) {
        let (now, slot) = (self.now, p.flow.slot);
        let Slot::Ping(pinger) = &mut self.slots[usize::from(slot)] else {
            return;
        };
        let since = micros(now).wrapping_sub(p.tsval);
        if p.cwr() {
            if pinger.rng.f64() < pinger.ping.loss {
                return;
            }
            let late = pinger.rng.exp(1.0) * pinger.ping.jitter.as_nanos() as f64;
            let attack = self
                .net
                .delay_attack
                .as_ref()
                .filter(|attack| pinger.number < attack.reflectors);
            let hold = attack.map_or(Duration::ZERO, |attack| {
                attack.hold_time(now, pinger.ping.interval)
            });
            pinger.answers.push(Answer {
                at: now + pinger.rest + Duration::from_nanos(num::whole_u64(late)) + hold,
                sent: p.tsval,
                // A reflector that lies splits its delay between the directions.
                up: since + num::low_u32((pinger.to_reflector + hold / 2) / US),
            });
            let timer = source(slot, End::Receiver);
            return self.net.timers.set(pinger.next(), timer);
        }
        let (number, dated) = (pinger.number, pinger.ping.timestamps);
        for (port, one_way) in [(0, since.wrapping_sub(p.seq)), (self.net.up_port(), p.seq)] {
            let probe = Echo {
                now,
                reflector: number,
                round_trip: Duration::from_micros(since.into()),
                one_way: dated.then_some(Duration::from_micros(one_way.into())),
            };
            self.net.ports[port].on_probe(now, &probe);
        }
    }
}
