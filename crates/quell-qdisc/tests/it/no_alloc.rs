//! No discipline allocates per packet once its buffers have grown to the backlog's peak, and no
//! policy allocates in a forward pass.

use quell_qdisc::packet::TestPacket;
use quell_qdisc::policy::Policy;
use quell_qdisc::time::{Instant, MS};
use quell_qdisc::{Dequeued, Discipline, DropCause, Drops, Ecn, Qdisc, Rng};

use crate::every::every;

/// Counts drops.
struct Count(u64);

impl Drops<TestPacket> for Count {
    fn drop(&mut self, _now: Instant, _packet: TestPacket, _cause: DropCause) {
        self.0 += 1;
    }
}

/// Two seconds of 40 flows on a link that sends a packet per `gap`: bursts overflow the queue,
/// lulls empty it. Returns the number of packets sent.
fn traffic(q: &mut Qdisc<TestPacket>, now: &mut Instant, rng: &mut Rng, drops: &mut Count) -> u64 {
    let gap = MS / 4;
    let mut out = 0;
    for step in 0..8000u64 {
        *now += gap;
        while q.next_timer() <= *now {
            let due = q.next_timer();
            q.on_timer(due);
        }
        let arrivals = if step % 1000 < 600 { 2 } else { 0 };
        // A burst that fills every queue and has packets of every flow.
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
        let (mut now, mut rng, mut drops) = (Instant::ZERO, Rng::new(1, name), Count(0));
        traffic(&mut q, &mut now, &mut rng, &mut drops);
        let mut out = 0;
        let made = allocation_counter::measure(|| {
            out = traffic(&mut q, &mut now, &mut rng, &mut drops);
        });
        assert_eq!(made.count_total, 0, "{name}");
        assert!(
            out > 1000 && drops.0 > 100,
            "{name}: {out} out, {} dropped",
            drops.0
        );
    }
}

#[test]
fn evaluating_a_policy_allocates_nothing() {
    let bytes = include_bytes!("../data/policy/torch.safetensors");
    let policy = Policy::load("torch.safetensors", bytes).unwrap();
    for policy in [policy.to_integers(), policy] {
        let (x, mut y) = ([0.5; 17 * 5], vec![0.0; 17 * policy.outputs()]);
        let mut scratch = policy.scratch();
        // The first call looks up the CPU's features.
        policy.forward(&x[..5], &mut scratch);
        let made = allocation_counter::measure(|| {
            policy.forward(&x[..5], &mut scratch);
            policy.forward_batch(&x, &mut scratch, &mut y);
        });
        assert_eq!(made.count_total, 0);
    }
}
