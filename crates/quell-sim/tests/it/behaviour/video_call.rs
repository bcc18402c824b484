//! Video calls over simulated links, compared with what the draft of Google Congestion Control
//! promises.

use quell_link::record::{Application, Run};

use super::common::measure;

/// A video call of two minutes, measured from `warmup` on.
fn run(warmup: u32, links: &str, more: &str) -> Run {
    measure(&format!(
        "duration = \"120s\"\nwarmup = \"{warmup}s\"\n{links}\n[[flow]]\nkind = \"video_call\"\nrtt = \"40ms\"\n{more}"
    ))
}

fn call(run: &Run) -> &Application {
    let found = run.applications.iter().find(|a| a.kind == "video_call");
    found.expect("a video call")
}

fn rate(run: &Run) -> f64 {
    call(run).rate_mbps.expect("pictures")
}

fn p95(run: &Run) -> f64 {
    call(run).frame_delay_ms.expect("pictures").p95
}

#[test]
fn it_nearly_fills_a_constant_link_and_keeps_its_queue_short() {
    let links = "[link]\nrate = \"1mbit\"\nqueue = \"pfifo limit 1000\"\n[link.up]\n";
    let alone = run(60, links, "");
    // Headers take 7 %, reports take 3 %, and a decrease lowers the rate to 85 %.
    assert!((0.6..0.95).contains(&rate(&alone)), "{}", rate(&alone));
    assert!(alone.sojourn_ms.mean < 80.0, "{:?}", alone.sojourn_ms);
    assert!(p95(&alone) < 300.0, "{}", p95(&alone));
    let again = run(60, links, "");
    assert_eq!(alone.trace_hash, again.trace_hash);
    assert_eq!(alone.applications, again.applications);
}

#[test]
fn on_a_fast_link_a_frame_takes_the_path_and_the_pacer() {
    let links = [
        "[link]\nrate = \"50mbit\"\n[link.up]\n",
        // Neither reports nor the other end's pictures meet a queue.
        "[link]\nrate = \"50mbit\"\n",
        "[wifi]\n[[wifi.node]]\nname = \"ap\"\n[[wifi.node]]\nname = \"tablet\"\nmcs = 7\n",
    ];
    for links in links {
        let r = run(60, links, "");
        // 2.5 Mbit/s less the headers, 58 of 1228 bytes.
        assert!((2.25..2.5).contains(&rate(&r)), "{}", rate(&r));
        assert_eq!(call(&r).freezes_per_minute, Some(0.0));
        assert_eq!(call(&r).below_24fps, Some(0.0));
        // The path has 20 ms, and the pacer sends a frame in 1/30 s / 2.5 = 13 ms.
        let delay = call(&r).frame_delay_ms.expect("pictures");
        assert!((25.0..45.0).contains(&delay.p50), "{delay:?}");
        assert!(delay.p95 < 60.0, "{delay:?}");
    }
}

#[test]
fn it_backs_off_beside_tcp_and_keeps_a_share() {
    let links = "[link]\nrate = \"3mbit\"\nqueue = \"pfifo limit 50\"\n[link.up]\n";
    let alone = run(60, links, "");
    let shared = run(
        60,
        links,
        "[[flow]]\ncount = 1\nrtt = \"40ms\"\nstart = \"30s\"\n",
    );
    assert!(rate(&alone) > 1.8, "{}", rate(&alone));
    assert!(rate(&shared) < 0.9 * rate(&alone), "{}", rate(&shared));
    // CUBIC fills the queue and takes most of the link; the call's minimum rate is 0.03 Mbit/s.
    assert!(rate(&shared) > 0.1, "{}", rate(&shared));
}

#[test]
fn a_drop_of_the_capacity_is_over_within_seconds() {
    let r = run(
        70,
        "[link]\nschedule = [[\"0s\", \"4mbit\"], [\"60s\", \"1mbit\"]]\nqueue = \"pfifo limit 1000\"\n[link.up]\nrate = \"10mbit\"\n",
        "",
    );
    // 10 s after the drop the queue is short again, and the rate is below that of the link.
    assert!((0.5..0.95).contains(&rate(&r)), "{}", rate(&r));
    assert!(p95(&r) < 300.0, "{}", p95(&r));
    let freezes = call(&r).freezes_per_minute.expect("a call");
    assert!(freezes < 6.0, "{freezes}");
}

#[test]
fn lost_packets_are_sent_again_and_much_loss_lowers_the_rate() {
    let with = |loss: f64| {
        let links = format!("[link]\nrate = \"20mbit\"\nloss = {loss}\n[link.up]\n");
        run(90, &links, "")
    };
    // The next packet shows the gap, and the retransmission takes a round trip: frames are late,
    // but none is missing.
    let (clean, lossy) = (with(0.0), with(0.01));
    assert_eq!(call(&lossy).below_24fps, Some(0.0));
    let more = p95(&lossy) - p95(&clean);
    assert!((20.0..120.0).contains(&more), "{more}");
    assert!(rate(&with(0.3)) < 0.2 * rate(&lossy));
}

#[test]
fn a_call_that_ends_is_measured_up_to_its_end() {
    let r = run(
        10,
        "[link]\nrate = \"20mbit\"\n[link.up]\n",
        "stop = \"40s\"\n",
    );
    assert_eq!(call(&r).below_24fps, Some(0.0));
    assert_eq!(call(&r).freezes_per_minute, Some(0.0));
}
