//! Disciplines that hold packets back although the link is free, in front of every kind of link.

use std::sync::atomic::AtomicBool;

use quell_link::Queue;
use quell_link::record::Run;
use quell_qdisc::fifo::{self, Fifo};
use quell_qdisc::outside::Handle;
use quell_qdisc::time::{Duration, Instant, SEC};
use quell_qdisc::{Dequeued, Discipline, Drops, Rng};
use quell_sim::{RunOptions, Session, World};

use super::common::{near, scenario};

const CELL: &str = "[wifi]\nstations = 2\n";

fn measure(text: &str, queue: &Queue) -> Run {
    let text = format!("duration = \"4s\"\nwarmup = \"1s\"\n{text}");
    let world = World::builder(scenario(&text))
        .queue(queue)
        .seed(1)
        .build()
        .expect("a world");
    let session = Session::new(world, &RunOptions::default()).expect("a session");
    session.complete(&AtomicBool::new(false)).expect("a run")
}

#[test]
fn cake_sends_at_its_bandwidth_in_a_cell() {
    let queue = Queue::parse("cake bandwidth 5mbit").expect("words");
    for wifi in [
        CELL,
        "[wifi]\nstations = 2\nserve = \"airtime\"\n",
        "[wifi]\nstations = 2\namsdu = 0\nhardware = 1\n",
    ] {
        for flows in [
            "[[flow]]\nkind = \"cbr\"\nrate = \"20mbit\"\nto = \"sta1\"\n",
            "[[flow]]\nkind = \"cbr\"\nrate = \"20mbit\"\nfrom = \"sta1\"\n",
            "[[flow]]\ncount = 2\nto = \"sta1\"\n",
        ] {
            let run = measure(&format!("{wifi}{flows}"), &queue);
            near(run.throughput_mbps, 5.0, 0.3);
        }
        // Each of the access point's two queues has this bandwidth.
        let flows = "[[flow]]\nkind = \"cbr\"\nrate = \"20mbit\"\ncount = 2\n";
        near(
            measure(&format!("{wifi}{flows}"), &queue).throughput_mbps,
            10.0,
            0.6,
        );
    }
}

/// A FIFO that sends packets in pairs: a single packet waits for a second one, for at most
/// `patience`.
#[derive(Clone, Debug)]
struct Pairs {
    fifo: Fifo<Handle>,
    patience: Duration,
    owed: bool,
}

impl Discipline<Handle> for Pairs {
    fn enqueue<D: Drops<Handle>>(
        &mut self,
        now: Instant,
        packet: Handle,
        rng: &mut Rng,
        drops: &mut D,
    ) {
        self.fifo.enqueue(now, packet, rng, drops);
    }
    fn dequeue<D: Drops<Handle>>(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        drops: &mut D,
    ) -> Dequeued<Handle> {
        if self.fifo.len() == 1 && !self.owed {
            return Dequeued::NotBefore(now.saturating_add(self.patience));
        }
        self.owed = !self.owed && self.fifo.len() > 0;
        self.fifo.dequeue(now, rng, drops)
    }
    fn len(&self) -> usize {
        self.fifo.len()
    }
    fn bytes(&self) -> u64 {
        self.fifo.bytes()
    }
}

#[test]
fn a_discipline_that_waits_is_polled_again_at_an_arrival() {
    for patience in [
        10 * SEC,
        Duration::MAX - Duration::from_nanos(1),
        Duration::MAX,
    ] {
        let pairs = Queue::outside("pairs", move |_| Pairs {
            fifo: Fifo::new(fifo::Params::default()),
            patience,
            owed: false,
        });
        let pairs = pairs.expect("a name");
        for link in [
            "[link]\nrate = \"10mbit\"\n",
            "[link]\nrate = \"10mbit\"\nnic = 3\n",
            "[link]\nrate = \"10mbit\"\nshaper = \"htb\"\n",
            "[link]\ntrace = \"builtin:lte\"\n",
            CELL,
        ] {
            let run = measure(
                &format!("{link}[[flow]]\nkind = \"cbr\"\ncount = 1\nrate = \"1mbit\"\n"),
                &pairs,
            );
            for flow in &run.flows {
                near(flow.goodput_mbps, 1.0, 0.05);
            }
            // The first packet of a pair waits for the second, which arrives 12 ms later.
            let sojourn = run.sojourn_ms;
            assert!(
                sojourn.mean > 4.0 && sojourn.max < 60.0,
                "{link}: {sojourn:?}"
            );
        }
    }
}
