//! TCP as in Linux, in segments of one MSS. Sender and receiver are independent of queues: the
//! world passes them packets and calls them at their deadlines.

pub mod output;
pub mod rack;
pub mod rate;
pub mod receiver;
pub mod recovery;
pub mod rtt;
pub mod sack;
pub mod segments;
pub mod sender;
pub mod state;
pub mod timers;

pub use receiver::Receiver;
pub use sender::Sender;

#[cfg(test)]
mod tests {
    use quell_qdisc::time::{Instant, SEC};

    use quell_link::record::Run;

    use super::{Receiver, Sender, receiver, sender};
    use crate::scenario::{Overrides, Scenario};
    use crate::slot::{Connection, Slot};
    use crate::world::World;

    /// Runs two flows, whose segments are numbered from `first` on, for five seconds. Returns the
    /// record without its hash (which depends on the numbers), and the number of each receiver's
    /// next segment at the end.
    fn run(first: u64, flow: &str, loss: f64) -> (Run, Vec<u64>) {
        let text = format!(
            "duration = \"5s\"\nwarmup = \"500ms\"\n[link]\nrate = \"40mbit\"\nloss = {loss}\n\
             [[flow]]\ncount = 2\nrtt = \"10ms\"\n{flow}\n"
        );
        let scenario = Scenario::parse(&text, "wrap", &Overrides::default()).expect("a scenario");
        let mut world = World::builder(scenario)
            .queue("dualpi2")
            .seed(1)
            .series(SEC / 2)
            .build()
            .expect("a world");
        for slot in &mut world.slots {
            if let Slot::Tcp(c) = slot {
                renumber(c, first);
            }
        }
        world.run_until(Instant::from_secs(5));
        let at = world.slots.iter().filter_map(|slot| match slot {
            Slot::Tcp(c) => Some(c.receiver.next),
            _ => None,
        });
        let at = at.collect();
        let mut record = world.record(0.0);
        record.trace_hash.clear();
        (record, at)
    }

    /// The values that explain a difference best.
    fn brief(run: &Run) -> (f64, u64, u64, u64) {
        (run.goodput_mbps, run.packets, run.drops, run.events)
    }

    /// Replaces both ends by ones whose first segment has the number `first`.
    fn renumber(c: &mut Connection, first: u64) {
        let was = c.sender.c;
        let end = was.end.saturating_add(first);
        let config = sender::Config { first, end, ..was };
        c.sender = Sender::new(config, c.sender.rtt.clone(), &c.cc);
        let config = receiver::Config {
            first,
            ..c.receiver.config
        };
        c.receiver = Receiver::new(was.flow, config);
    }

    #[test]
    fn a_flow_continues_unchanged_behind_segment_2_to_the_32() {
        let near = (1 << 32) - 700;
        for cc in [
            "newreno", "cubic", "bic", "bic_ns3", "bbr", "dctcp", "prague", "vegas", "westwood",
            "illinois", "ledbat", "ledbat++", "bbr3",
        ] {
            for ecn in [false, true] {
                for sack in [true, false] {
                    for loss in [0.0, 0.01] {
                        let flow = format!("cc = \"{cc}\"\necn = {ecn}\nsack = {sack}");
                        let (fresh, _) = run(0, &flow, loss);
                        let (late, at) = run(near, &flow, loss);
                        assert!(at.iter().all(|at| *at > 1 << 32), "{flow}: {at:?}");
                        let (a, b) = (brief(&fresh), brief(&late));
                        assert!(fresh == late, "{flow}, {loss}: {a:?} and {b:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_transfer_ends_behind_segment_2_to_the_32() {
        let (fresh, _) = run(0, "bytes = 3000000", 0.01);
        let (late, at) = run((1 << 32) - 700, "bytes = 3000000", 0.01);
        assert!(at.is_empty(), "connections that ended are gone: {at:?}");
        assert_eq!(late.flows[0].completed, 1);
        assert_eq!(fresh, late);
    }
}
