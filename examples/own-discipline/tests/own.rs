//! The discipline by itself, and all three in the simulator.

use own_discipline::congestion::Delay;
use own_discipline::controller::Halving;
use own_discipline::discipline::DropHead;
use quell_lab::compare::Comparison;
use quell_link::Queue;
use quell_link::record::Run;
use quell_qdisc::outside::Handle;
use quell_qdisc::packet::TestPacket;
use quell_qdisc::time::{Instant, MS};
use quell_qdisc::{Dequeued, Discipline, DropCause, Ecn, Rng};
use quell_sim::scenario::{Cc, Overrides, Scenario};

fn scenario() -> Scenario {
    let overrides = Overrides {
        rate: Some("20mbit".into()),
        flows: vec!["cubic:2@rtt=30ms".into()],
        duration: Some("10s".into()),
        ..Overrides::default()
    };
    Scenario::load(None, &overrides).expect("a scenario")
}

fn records(comparison: Comparison) -> Vec<Run> {
    comparison.seeds(2).run().expect("runs")
}

/// Without the simulator: a queue, packets and the time.
#[test]
fn packets_that_waited_too_long_are_dropped_at_the_head() {
    let (mut queue, mut rng, mut drops) = (DropHead::new(20 * MS), Rng::new(1, "own"), Vec::new());
    for id in 0..4 {
        let packet = TestPacket::new(id, 1000, 0, Ecn::NotEct);
        queue.enqueue(Instant::from_millis(10 * id), packet, &mut rng, &mut drops);
    }
    // At 35 ms packets 0 and 1 have waited for 35 and 25 ms.
    let got = queue.dequeue(Instant::from_millis(35), &mut rng, &mut drops);
    assert!(matches!(got, Dequeued::Packet(p) if p.id == 2), "{got:?}");
    let dropped: Vec<_> = drops.iter().map(|(p, cause)| (p.id, *cause)).collect();
    assert_eq!(dropped, [(0, DropCause::Early), (1, DropCause::Early)]);
    assert_eq!((queue.len(), queue.bytes()), (1, 1000));
}

#[test]
fn no_packet_leaves_the_queue_later_than_the_limit() {
    let queue = Queue::outside("drop_head", |_| DropHead::<Handle>::new(20 * MS)).expect("a name");
    for run in records(Comparison::of(scenario()).queue(queue)) {
        assert!(
            run.sojourn_ms.max <= 20.0 && run.utilisation > 0.98,
            "{:?}",
            run.sojourn_ms
        );
        assert!(run.drops_by_cause.early > 0 && run.drops_by_cause.overflow == 0);
    }
}

#[test]
fn the_controller_holds_the_delay_near_its_target() {
    let fifo = Queue::parse("fifo").expect("words");
    for run in records(Comparison::of(scenario()).controlled(fifo, Halving::new(10 * MS))) {
        assert_eq!(run.controller.as_deref(), Some("Halving"));
        assert!(
            (5.0..20.0).contains(&run.sojourn_ms.mean),
            "{:?}",
            run.sojourn_ms
        );
    }
    let cake = Queue::parse("cake").expect("words");
    let refused = Comparison::of(scenario())
        .controlled(cake, Halving::new(10 * MS))
        .run();
    assert_eq!(
        refused.unwrap_err().to_string(),
        "`cake` has no knob limit; it has none"
    );
}

#[test]
fn the_congestion_control_keeps_a_few_packets_in_a_long_queue() {
    let mut scenario = scenario();
    for tcp in scenario
        .flows
        .iter_mut()
        .filter_map(|flow| flow.kind.tcp_mut())
    {
        tcp.cc = Cc::outside("delay", Delay::default);
    }
    for run in records(Comparison::of(scenario).words("pfifo").expect("words")) {
        assert_eq!(run.flows[0].cc, "delay");
        // Two flows with up to six packets each.
        assert!(
            run.backlog_packets.p95 < 13.0 && run.utilisation > 0.98,
            "{:?}",
            run.backlog_packets
        );
        assert_eq!(run.drops, 0);
    }
}
