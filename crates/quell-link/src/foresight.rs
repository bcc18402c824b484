//! A plain FIFO and its link, taken out of their [`crate::Bottleneck`]. The time at which a packet
//! leaves the link is known as soon as it is admitted, because no later event changes it.

use quell_qdisc::parts::ring::Ring;
use quell_qdisc::time::{Instant, NEVER};
use quell_qdisc::{Backlog, DropCause, Drops, Packet};

use crate::queue::{Observer, Probe};
use crate::server::Server;

/// The queue and its link.
#[derive(Clone, Debug)]
pub struct Foresight<P> {
    /// Time at which the last admitted packet leaves the link.
    pub through: Instant,
    /// State of the link at that time.
    pub(crate) last: Server,
    pub(crate) limit_packets: usize,
    pub(crate) limit_bytes: u64,
    pub(crate) state: State<P>,
}

/// State that is swapped with the bottleneck.
#[derive(Clone, Debug)]
pub(crate) struct State<P> {
    /// End of the transmission on the link; `NEVER` if idle.
    pub next: Instant,
    pub in_service: Option<P>,
    pub queue: Ring<P>,
    pub bytes: u64,
    pub server: Server,
}

impl<P: Packet> Foresight<P> {
    /// Lets all packets leave whose transmission ends before `before`; returns their number.
    #[inline(always)]
    pub fn depart<O: Observer<P>>(&mut self, before: Instant, probe: &mut Probe<P, O>) -> u64 {
        let mut departed = 0;
        while self.state.next < before {
            departed += 1;
            self.state.serve(self.state.next, probe);
        }
        departed
    }

    /// `count` packets of `len` bytes arrive; `make` makes each from its number, 0 to `count` - 1.
    /// Calls `taken` for each admitted packet with the time at which it leaves the link.
    #[inline(always)]
    pub fn arrive<O: Observer<P>>(
        &mut self,
        now: Instant,
        (len, count): (u32, u32),
        probe: &mut Probe<P, O>,
        make: impl Fn(u32) -> P,
        mut taken: impl FnMut(Instant, &P),
    ) {
        let state = &mut self.state;
        let bytes = state.bytes + u64::from(len) * u64::from(count);
        let fits = state.queue.len() + count as usize <= self.limit_packets;
        if !fits || bytes > self.limit_bytes || state.next == NEVER {
            return self.arrive_singly(now, (len, count), probe, make, taken);
        }
        probe.meter.counters.arrivals += u64::from(count);
        state.bytes = bytes;
        for k in 0..count {
            let packet = state.queue.push(make(k));
            packet.set_enqueued(now);
            self.through = self.last.finish(self.through, len);
            taken(self.through, packet);
        }
        probe.meter.grown(now, state.backlog());
    }

    /// [`Self::arrive`] for a queue that may overflow or a link that is idle.
    #[inline(never)]
    fn arrive_singly<O: Observer<P>>(
        &mut self,
        now: Instant,
        (len, count): (u32, u32),
        probe: &mut Probe<P, O>,
        make: impl Fn(u32) -> P,
        mut taken: impl FnMut(Instant, &P),
    ) {
        let state = &mut self.state;
        for k in 0..count {
            probe.meter.counters.arrivals += 1;
            let bytes = state.bytes + u64::from(len);
            if state.queue.len() >= self.limit_packets || bytes > self.limit_bytes {
                probe.drop(now, make(k), DropCause::Overflow);
                probe.meter.grown(now, state.backlog());
                continue;
            }
            state.bytes = bytes;
            let packet = state.queue.push(make(k));
            packet.set_enqueued(now);
            self.through = self.last.finish(now.max(self.through), len);
            taken(self.through, packet);
            probe.meter.grown(now, state.backlog());
            if state.next == NEVER {
                state.serve(now, probe);
            }
        }
    }
}

impl<P: Packet> State<P> {
    #[inline(always)]
    fn backlog(&self) -> Backlog {
        Backlog {
            packets: self.queue.len(),
            bytes: self.bytes,
        }
    }

    /// Puts the next packet on the link.
    #[inline(always)]
    fn serve<O: Observer<P>>(&mut self, now: Instant, probe: &mut Probe<P, O>) {
        self.in_service = self.queue.pop();
        self.next = match &self.in_service {
            Some(packet) => {
                self.bytes -= u64::from(packet.len());
                probe.departure(now, packet);
                self.server.finish(now, packet.len())
            }
            None => NEVER,
        };
        probe.meter.shrunk(now, self.backlog());
    }
}
