//! The knobs of each discipline, its parameters as it shows them, limits that a knob sets, and the
//! bytes queued.

use crate::every;
use quell_qdisc::disciplines::Params;
use quell_qdisc::packet::TestPacket;
use quell_qdisc::time::Instant;
use quell_qdisc::{Discipline, Ecn, KnobSet, Knobs, Qdisc, Rng};

const LEN: u32 = 1514;
const LIMIT: usize = 5;
const FLOWS: u32 = 3;

/// Names of a discipline's knobs, and of its sub-queues' knobs.
fn named(name: &str) -> (Vec<&'static str>, Vec<&'static str>) {
    let limit = vec!["limit"];
    match name.split([' ', ',']).next().unwrap_or_default() {
        "pfifo" | "bfifo" | "fifo" => (vec!["limit", "drop"], vec![]),
        "codel" | "cobalt" | "pie" | "fq" | "fq_codel" | "fq_pie" | "hush" | "outside" => {
            (limit, vec![])
        }
        "fq_fifo" => (limit.clone(), limit),
        "dualpi2" => (vec!["limit", "base_probability"], vec![]),
        "l4s" => (vec!["limit", "base_probability"], vec!["base_probability"]),
        "cake" if name == "cake shaping" => (vec!["rate"], vec![]),
        _ => (vec![], vec![]),
    }
}

/// Fills a queue with packets of some flows.
fn fill(queue: &mut Qdisc<TestPacket>) {
    let (mut rng, mut drops) = (Rng::new(1, "knobs"), Vec::new());
    for i in 0..20 {
        let packet = TestPacket::new(i, LEN, (i as u32 % FLOWS) << 28, Ecn::NotEct);
        queue.enqueue(Instant::ZERO, packet, &mut rng, &mut drops);
    }
}

#[test]
fn each_discipline_has_the_knobs_of_its_kind() {
    for (name, queue, _) in every::every() {
        let names = |set: KnobSet| set.names().collect::<Vec<_>>();
        let found = (names(queue.knobs()), names(queue.sub_knobs()));
        assert_eq!(found, named(name), "{name}");
    }
}

#[test]
fn parameters_are_shown_as_they_were_given() {
    let mut shown = 0;
    for (name, params, _) in every::built_in() {
        let queue = Qdisc::<TestPacket>::new(params.clone());
        let is = match (queue, &params) {
            (Qdisc::Cobalt(q), Params::Cobalt(p)) => q.params() == p,
            (Qdisc::Codel(q), Params::Codel(p)) => q.params() == p,
            (Qdisc::DualPi2(q), Params::DualPi2(p)) => q.params() == p,
            (Qdisc::Fifo(q), Params::Fifo(p)) => q.params() == p,
            (Qdisc::FqFifo(q), Params::FqFifo(p)) => q.params() == p,
            (Qdisc::L4s(q), Params::L4s(p)) => q.params() == p,
            (Qdisc::Pie(q), Params::Pie(p)) => q.params() == p,
            (Qdisc::Red(q), Params::Red(p)) => q.params() == p,
            _ => continue,
        };
        shown += 1;
        assert!(is, "{name}");
    }
    assert_eq!(shown, 19, "variants of the eight that show them");
}

#[test]
fn a_limit_that_is_set_holds_where_there_is_one() {
    for (name, mut queue, _) in every::every() {
        queue.set_knobs(&Knobs {
            limit_packets: Some(LIMIT as u32),
            ..Knobs::default()
        });
        fill(&mut queue);
        // In fq_fifo it is the limit of each flow.
        let each = if queue.sub_knobs().limit { FLOWS } else { 1 };
        let holds = queue.len() <= LIMIT * each as usize;
        assert_eq!(holds, queue.knobs().limit, "{name}: {}", queue.len());
        assert!(queue.len() > 0, "{name}");
    }
}

#[test]
fn bytes_are_those_of_the_packets_that_wait() {
    for (name, mut queue, _) in every::every() {
        assert_eq!((queue.len(), queue.bytes()), (0, 0), "{name}");
        fill(&mut queue);
        assert_eq!(queue.bytes(), u64::from(LEN) * queue.len() as u64, "{name}");
    }
}
