//! No discipline allocates per packet once its buffers have grown to the backlog's peak.

#[path = "it/every/mod.rs"]
mod every;

use std::alloc::System;

use every::every;
use quell_qdisc::packet::TestPacket;
use quell_qdisc::{Dequeued, Discipline, DropCause, Drops, Ecn, MS, Nanos, Qdisc, Rng};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Counts what is dropped.
struct Count(u64);

impl Drops<TestPacket> for Count {
    fn drop(&mut self, _now: Nanos, _packet: TestPacket, _cause: DropCause) {
        self.0 += 1;
    }
}

/// Two seconds of 40 flows on a link that takes a packet per `gap`: bursts overflow the queue, lulls empty it.
fn traffic(q: &mut Qdisc<TestPacket>, now: &mut Nanos, rng: &mut Rng, drops: &mut Count) -> u64 {
    let gap = MS / 4;
    let mut out = 0;
    for step in 0..8000u64 {
        *now += gap;
        while q.next_timer() <= *now {
            let due = q.next_timer();
            q.on_timer(due);
        }
        let arrivals = if step % 1000 < 600 { 2 } else { 0 };
        // A burst that fills any queue here, and touches every bucket's flow.
        let arrivals = if step % 1000 == 0 { 400 } else { arrivals };
        for i in 0..arrivals {
            let hash = ((step + i) % 40) as u32;
            let ecn = if i % 2 == 0 { Ecn::Ect0 } else { Ecn::NotEct };
            let packet = TestPacket::new(step, 1514, hash.wrapping_mul(0x9e37_79b9), ecn);
            q.enqueue(*now, packet, rng, drops);
        }
        if let Dequeued::Packet(_) = q.dequeue(*now, rng, drops) {
            out += 1;
        }
    }
    out
}

#[test]
fn steady_state_allocates_nothing() {
    for (name, mut q, _) in every() {
        let (mut now, mut rng, mut drops) = (0, Rng::new(1, name), Count(0));
        traffic(&mut q, &mut now, &mut rng, &mut drops);
        let region = Region::new(GLOBAL);
        let out = traffic(&mut q, &mut now, &mut rng, &mut drops);
        let change = region.change();
        assert_eq!(change.allocations + change.reallocations, 0, "{name}");
        assert!(
            out > 1000 && drops.0 > 100,
            "{name}: {out} out, {} dropped",
            drops.0
        );
    }
}
