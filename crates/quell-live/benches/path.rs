//! The path of a packet through the live plane without system calls, for `benches/instructions`:
//! take a buffer, parse the headers, queue, send, return the buffer.
//! `cargo bench -p quell-live --bench path -- --only live/fq_codel --until 2` offers eight flows of
//! together 1.2 times 100 Mbit/s for 2 seconds of virtual time and prints the number of arrivals.

use std::hint::black_box;

use quell_link::words::Queue;
use quell_live::header::Parser;
use quell_live::link::{Live, LiveLink, Params};
use quell_live::pool::Pool;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant};

const RATE: Rate = Rate::from_mbit(100);
const BYTES: usize = 1486;
const FLOWS: u64 = 8;

fn main() {
    let after = |flag: &str| std::env::args().skip_while(|a| a != flag).nth(1);
    let seconds = after("--until").and_then(|s| s.parse::<f64>().ok());
    let Some(words) = after("--only").and_then(|name| name.strip_prefix("live/").map(String::from))
    else {
        return;
    };
    let mut link = LiveLink::new(Params::line(
        RATE,
        Queue::parse(&words).expect("queue words"),
    ));
    let parser = Parser {
        key: (1, 2),
        tunnels: false,
        stamps: false,
        wants: link.wants(),
    };
    let mut pool = Pool::new(2048, 1 << 25);
    let until = Duration::from_nanos((seconds.unwrap_or(2.0) * 1e9) as u64);
    let every = Rate::from_mbit(120).transmission_time(BYTES as u64);
    let samples = link.controller_mut().and_then(|it| it.samples());
    let mut learner = samples.map(|samples| samples.empty_copy());
    let mut packets = 0;
    for k in 0..until.div_ceil(every) {
        let now = Instant::ZERO + k * every;
        let Some(place) = pool.take() else { continue };
        let packet = &mut pool.bytes(place)[..BYTES];
        header(packet, (packets % FLOWS) as u16);
        let class = parser.classify(black_box(packet));
        link.arrive(now, Live::new(place, BYTES as u32, &class));
        link.advance(now, |_, packet| pool.give(packet.place));
        while let Some(place) = link.freed() {
            pool.give(place);
        }
        packets += 1;
        // As often as `quell live` hands decisions to a learner.
        if packets % 1000 == 0
            && let Some(learner) = &mut learner
            && let Some(samples) = link.controller_mut().and_then(|it| it.samples())
        {
            samples.move_to(learner);
            learner.drain(|_, _, _| ());
        }
    }
    println!("{packets}");
}

/// Writes IPv4 and UDP headers with this source port.
fn header(packet: &mut [u8], port: u16) {
    packet[..2].copy_from_slice(&[0x45, 0]);
    packet[2..4].copy_from_slice(&(BYTES as u16).to_be_bytes());
    packet[9] = 17;
    packet[12..20].copy_from_slice(&[198, 18, 0, 1, 198, 19, 0, 1]);
    packet[20..22].copy_from_slice(&port.to_be_bytes());
}
