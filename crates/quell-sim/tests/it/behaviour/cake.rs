//! CAKE's hosts, tins and ACK filter in a scenario.

use quell_link::record::{Host, Run};
use quell_sim::scenario::{Overrides, Scenario};

use super::common::{measure, near, scenario};

/// 20 Mbit/s down; three flows to a laptop and one to a phone, each host with a server of its own.
fn household(queue: &str) -> Run {
    measure(&format!(
        "duration = \"12s\"\nwarmup = \"4s\"\n[link]\nrate = \"20mbit\"\nqueue = \"{queue}\"\n\
         [[flow]]\ncount = 3\nhost = \"laptop\"\nto_host = \"files\"\nstagger = \"200ms\"\n\
         [[flow]]\ncount = 1\nhost = \"phone\"\nto_host = \"films\"\nstagger = \"200ms\"\n"
    ))
}

fn share(run: &Run, name: &str) -> f64 {
    let host = |h: &&Host| h.host == name;
    run.hosts.iter().find(host).expect("a host").share
}

#[test]
fn hosts_share_alike_where_cake_isolates_them() {
    for queue in ["cake", "cake dual-dsthost", "cake hosts", "cake dsthost"] {
        let run = household(queue);
        near(share(&run, "laptop"), 0.5, 0.03);
        assert_eq!(
            run.hosts.iter().map(|h| h.flows).collect::<Vec<_>>(),
            [3, 1]
        );
        assert_eq!(run.flows[3].host, "phone");
    }
}

#[test]
fn flows_share_alike_where_cake_isolates_them_alone() {
    near(share(&household("cake flows"), "laptop"), 0.75, 0.03);
}

#[test]
fn the_side_that_has_the_hosts_matters() {
    // Upwards the household's hosts are the sources.
    let upward = |queue: &str| {
        let run = measure(&format!(
            "duration = \"12s\"\nwarmup = \"4s\"\n[link]\nrate = \"50mbit\"\n[link.up]\nrate = \"10mbit\"\nqueue = \"{queue}\"\n\
             [[flow]]\ncount = 3\nhost = \"laptop\"\ndirection = \"up\"\n[[flow]]\ncount = 1\nhost = \"phone\"\ndirection = \"up\"\n"
        ));
        share(&run, "laptop")
    };
    near(upward("cake dual-srchost"), 0.5, 0.03);
    near(upward("cake dual-dsthost"), 0.75, 0.03);
    // `cake` weights a flow by the flows of its source or of its destination, whichever has more:
    // here it is always the one server, so flows share alike.
    near(upward("cake"), 0.75, 0.03);
}

#[test]
fn voice_below_its_threshold_does_not_wait_behind_downloads() {
    let run = |dscp: &str| {
        let run = measure(&format!(
            "duration = \"8s\"\nwarmup = \"2s\"\n[link]\nrate = \"10mbit\"\nqueue = \"cake diffserv4 flowblind\"\n\
             [[flow]]\ncount = 4\n[[flow]]\nkind = \"cbr\"\nrate = \"200kbit\"\nsize = 200\ndscp = \"{dscp}\"\n"
        ));
        let names: Vec<&str> = run.tins.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["Bulk", "Best Effort", "Video", "Voice"]);
        run.tins
    };
    let (marked, plain) = (run("EF"), run("CS0"));
    // A voice packet waits at most for a full-size packet on the line, 1.2 ms, plus its own time.
    assert!(marked[3].peak_delay_ms < 2.5, "{:?}", marked[3]);
    assert!(plain[1].average_delay_ms > 3.0, "{:?}", plain[1]);
    assert_eq!((plain[3].packets, plain[1].share), (0, 1.0));
    // 214 of 10,000 kbit/s, with Ethernet headers of 14 bytes.
    near(marked[3].share, 0.0214, 0.001);
}

#[test]
fn a_queue_that_washes_hides_priorities_from_those_behind_it() {
    let tins = |words: &str| {
        let run = measure(&format!(
            "duration = \"3s\"\nwarmup = \"1s\"\n[link]\nrate = \"10mbit\"\nqueue = \"{words}\"\n[[hop]]\nrate = \"10mbit\"\nqueue = \"cake\"\n\
             [link.up]\nrate = \"10mbit\"\nqueue = \"cake\"\n\
             [[flow]]\nkind = \"cbr\"\nrate = \"1mbit\"\ndscp = \"EF\"\n[[flow]]\nkind = \"cbr\"\nrate = \"1mbit\"\ndscp = \"LE\"\ndirection = \"up\"\n"
        ));
        let up = run.up.expect("a queue upwards");
        assert_eq!(up.tins[0].share, 1.0, "bulk upwards");
        run.hops[0].sojourn_ms
    };
    // The record does not contain a hop's tins; the test only sees that the world runs with both.
    assert_eq!(tins("cake wash").max, tins("cake nowash").max);
}

#[test]
fn a_mark_chooses_the_tin() {
    let run = measure(
        "duration = \"3s\"\nwarmup = \"1s\"\n[link]\nrate = \"10mbit\"\nqueue = \"cake diffserv4 fwmark 0xff\"\n\
         [[flow]]\nkind = \"cbr\"\nrate = \"1mbit\"\ndscp = \"EF\"\nfwmark = 1\n",
    );
    assert_eq!(
        (run.tins[0].name.as_str(), run.tins[0].share),
        ("Bulk", 1.0)
    );
}

/// 50 Mbit/s down and 500 kbit/s up, which is too little for all ACKs.
fn asymmetric(words: &str) -> Run {
    measure(&format!(
        "duration = \"12s\"\nwarmup = \"4s\"\n[link]\nrate = \"50mbit\"\nqueue = \"fq_codel\"\n[link.up]\nrate = \"500kbit\"\nqueue = \"{words}\"\n\
         [[flow]]\ncount = 2\nstagger = \"100ms\"\n[[flow]]\ncount = 1\ndirection = \"up\"\n"
    ))
}

#[test]
fn the_ack_filter_spares_a_narrow_up_link() {
    let (plain, filtered) = (asymmetric("cake"), asymmetric("cake ack-filter"));
    let up = |run: &Run| run.up.clone().expect("a queue upwards");
    let dropped = |run: &Run| up(run).tins.iter().map(|t| t.ack_drops).sum::<u64>();
    assert_eq!(dropped(&plain), 0);
    assert!(dropped(&filtered) > 1000, "{}", dropped(&filtered));
    let upload = |run: &Run| run.flows[2].goodput_mbps;
    assert!(
        upload(&filtered) > 1.1 * upload(&plain)
            || filtered.goodput_mbps > 1.1 * plain.goodput_mbps,
        "{} and {} up, {} and {} down",
        upload(&plain),
        upload(&filtered),
        plain.goodput_mbps,
        filtered.goodput_mbps
    );
}

#[test]
fn atm_costs_a_small_packet_two_cells() {
    // 52 bytes and 40 bytes of overhead take two cells of 53 bytes.
    let rate = |words: &str| {
        let run = measure(&format!(
            "duration = \"4s\"\nwarmup = \"1s\"\n[link]\nrate = \"100mbit\"\nqueue = \"cake bandwidth 1mbit {words}\"\n\
             [[flow]]\nkind = \"cbr\"\nrate = \"5mbit\"\nsize = 52\n"
        ));
        run.throughput_mbps
    };
    // Bytes that CAKE counts per packet: 66 with the Ethernet header; 106; 52 + 18, at least 64;
    // and 66 + 18 with `raw`, which keeps the Ethernet header.
    near(rate(""), 1.0, 0.01);
    near(rate("pppoe-llcsnap"), 66.0 / 106.0, 0.01);
    near(rate("docsis"), 66.0 / 70.0, 0.01);
    near(rate("raw docsis"), 66.0 / 84.0, 0.01);
}

#[test]
fn a_framed_link_sends_cells_while_the_queue_sees_ethernet() {
    let run = |queue: &str, shaper: &str| {
        measure(&format!(
            "duration = \"6s\"\nwarmup = \"2s\"\n[link]\nrate = \"1mbit\"\nshaper = \"{shaper}\"\nframing = \"pppoe-llcsnap\"\nqueue = \"{queue}\"\n\
             [[flow]]\nkind = \"cbr\"\nrate = \"5mbit\"\nsize = 1500\n"
        ))
    };
    for shaper in ["line", "htb"] {
        // 1540 bytes are 33 cells of 53 bytes; the queue counts 1514.
        let r = run("pfifo limit 20", shaper);
        near(r.throughput_mbps, 1514.0 / 1749.0, 0.01);
        near(r.utilisation, 1.0, 0.01);
    }
    // A shaper that knows the framing stays below the link's rate; one that does not exceeds it.
    let right = run("cake bandwidth 980kbit pppoe-llcsnap", "line");
    near(right.utilisation, 0.98, 0.01);
    let wrong = run("cake bandwidth 980kbit", "line");
    near(wrong.utilisation, 1.0, 0.01);
}

#[test]
fn an_unknown_framing_names_the_known_ones() {
    let text = "[link]\nrate = \"1mbit\"\nframing = \"docsys\"\n";
    let e = Scenario::parse(text, "s.toml", &Overrides::default()).expect_err("no framing");
    let e = e.to_string();
    assert!(
        e.starts_with("s.toml:3: link.framing: unknown framing `docsys`; did you mean `docsis`?"),
        "{e}"
    );
}

#[test]
fn a_framing_may_be_written_in_numbers() {
    let parse = |framing: &str| {
        let text = format!("[link]\nrate = \"1mbit\"\nframing = \"{framing}\"\n");
        Scenario::parse(&text, "s.toml", &Overrides::default())
    };
    let framing = |words: &str| {
        parse(words)
            .expect(words)
            .link
            .framing
            .clone()
            .unwrap()
            .framing
    };
    assert_eq!(framing("overhead 18 mpu 64 noatm"), framing("docsis"));
    assert_eq!(framing("overhead 40 atm"), framing("pppoe-llcsnap"));
    assert_eq!(framing("docsis overhead 9"), framing("overhead 9 mpu 64"));
    for wrong in [
        "overhead",
        "overhead much",
        "overhead 257",
        "overhead -65",
        "mpu -1",
    ] {
        let e = parse(wrong).expect_err(wrong).to_string();
        assert!(e.contains("has no number of bytes behind it; write"), "{e}");
    }
}

#[test]
fn hosts_and_dscps_are_written_as_they_were_read() {
    let text = "[link]\nrate = \"1mbit\"\n[[flow]]\nhost = \"laptop\"\nto_host = \"films\"\ndscp = \"af41\"\nfwmark = 7\n";
    let read = scenario(text);
    let flow = &read.flows[0];
    assert_eq!((flow.dscp, flow.fwmark), (34, 7));
    assert_eq!(scenario(&read.to_toml()), read);
    let overrides = Overrides {
        rate: Some("1mbit".into()),
        flows: vec![
            "cubic:2@host=laptop@dscp=EF".into(),
            "udp@to_host=films".into(),
        ],
        ..Overrides::default()
    };
    let short = Scenario::load(None, &overrides).expect("a scenario");
    assert_eq!(short.flows[0].host.as_deref(), Some("laptop"));
    assert_eq!(short.flows[0].dscp, 46);
    assert_eq!(short.flows[1].to_host.as_deref(), Some("films"));
}

#[test]
fn errors_about_names_give_the_line_and_key() {
    let error = |flow: &str| {
        let text = format!("[link]\nrate = \"1mbit\"\n[[flow]]\n{flow}\n");
        let read = Scenario::parse(&text, "s.toml", &Overrides::default());
        read.expect_err(flow).to_string()
    };
    assert_eq!(
        error("dscp = \"AF51\""),
        "s.toml:4: flow[1].dscp: \"AF51\" is not a DSCP; write CS0 to CS7, AF11 to AF43, EF, VA, LE, or 0 to 63"
    );
    assert_eq!(
        error("host = \" \""),
        "s.toml:4: flow[1].host: not a name; write host = \"laptop\""
    );
    let cell = "[wifi]\nstations = 2\n[[flow]]\nhost = \"laptop\"\n";
    let read = Scenario::parse(cell, "s.toml", &Overrides::default());
    assert!(read.is_err_and(|e| e.to_string().contains("`host` is not for a cell")));
}
