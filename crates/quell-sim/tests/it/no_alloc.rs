//! A world in its steady state allocates nothing, whatever its traffic.

use quell_qdisc::time::{Instant, SEC};

use quell_sim::scenario::{Overrides, Scenario};
use quell_sim::{Status, World};

fn run_to(w: &mut World, end: Instant) {
    while w.run_until(end) != Status::Done {}
}

/// Allocations in the 10 s from `warm` on.
fn allocations(text: &str, queue: &str, warm: u64) -> u64 {
    let scenario = Scenario::parse(text, "steady", &Overrides::default()).expect("a scenario");
    let mut w = World::builder(scenario)
        .queue(queue)
        .seed(1)
        .build()
        .expect("a world");
    run_to(&mut w, Instant::from_secs(warm));
    let packets = w.packets();
    let made = allocation_counter::measure(|| run_to(&mut w, Instant::ZERO + (warm + 10) * SEC));
    assert!(w.packets() - packets > 5000, "{text} {queue}");
    made.count_total
}

#[test]
fn steady_state_allocates_nothing() {
    for cc in [
        "newreno", "cubic", "bic", "bic_ns3", "bbr", "dctcp", "prague", "vegas", "westwood",
        "illinois", "ledbat", "ledbat++", "bbr3",
    ] {
        for queue in [
            "pfifo limit 1000",
            "pfifo limit 50",
            "fq_codel",
            "pie",
            "dualpi2",
            "cake",
            "lfq limit 40",
        ] {
            let text = format!(
                "duration = \"400s\"\nwarmup = \"5s\"\n[link]\nrate = \"20mbit\"\n[[flow]]\ncc = \"{cc}\"\ncount = 10\nrtt = \"20ms\"\n"
            );
            // If flows starve alternately, a small buffer may still grow to its largest size: at
            // most two allocations in 16,000 packets.
            let plain = matches!(cc, "newreno" | "cubic") && queue != "pfifo limit 50";
            let max_allocations = if plain { 0 } else { 2 };
            let made = allocations(&text, queue, 150);
            assert!(made <= max_allocations, "{cc} through {queue}: {made}");
        }
    }
    // A path of three queues with random loss and an up link whose queue drops ACKs; flows without
    // SACK, and every kind of datagrams.
    let text = "duration = \"400s\"\nwarmup = \"5s\"\n[link]\nrate = \"20mbit\"\nloss = 0.002\n[link.up]\nrate = \"600kbit\"\nqueue = \"pfifo limit 30\"\n\
        [[hop]]\nrate = \"18mbit\"\nqueue = \"codel\"\n[[hop]]\nrate = \"19mbit\"\nnic = 5\n\
        [[flow]]\ncc = \"newreno\"\nsack = false\ncount = 3\n[[flow]]\ncc = \"cubic\"\ncount = 3\necn = true\n[[flow]]\ndirection = \"up\"\ncount = 1\n\
        [[flow]]\nkind = \"cbr\"\n[[flow]]\nkind = \"poisson\"\nsize = \"exp:700\"\n[[flow]]\nkind = \"onoff\"\n";
    for queue in ["fq_codel", "rlaqm", "pie ns3-2018"] {
        let made = allocations(text, queue, 300);
        assert_eq!(made, 0, "everything at once through {queue}");
    }
    // A cell with losses, collisions and aggregates; flows from and to the access point, and
    // between stations.
    let text = "duration = \"400s\"\nwarmup = \"5s\"\n[wifi]\nstations = 3\nmcs = 5\nper = 0.05\n[[flow]]\ncount = 2\n\
        [[flow]]\nfrom = \"sta1\"\nto = \"sta2\"\ncount = 1\n[[flow]]\nfrom = \"sta3\"\nkind = \"cbr\"\nac = \"vo\"\n";
    for queue in ["fq_codel", "learnqueue", "wqm"] {
        let made = allocations(text, queue, 300);
        assert_eq!(made, 0, "a cell of {queue}");
    }
}
