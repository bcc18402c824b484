//! An 802.11n cell by theory, compared with quell's: the time that frames take, and Bianchi's
//! saturation throughput with and without its refinements. The values by theory use no table of the
//! simulator.

use crate::theory::{Row, run};

/// UDP payload of an IP packet of 1500 bytes, bits.
const PAYLOAD: f64 = 1472.0 * 8.0;
/// MPDU of this packet, bytes: IP packet, LLC/SNAP, QoS header, frame check sequence.
const MPDU: u32 = 1500 + 8 + 26 + 4;
/// A slot, SIFS, and AIFS of best effort (AIFSN 3), us.
const SLOT: f64 = 9.0;
const SIFS: f64 = 16.0;
const AIFS: f64 = SIFS + 3.0 * SLOT;
/// Time for which a sender waits for the ACK after its frame, us: SIFS, a slot and 25 us for the
/// preamble.
const ACK_TIMEOUT: f64 = SIFS + SLOT + 25.0;

/// Duration of a PSDU at MCS 0 to 7, 20 MHz, long guard interval, us: 36 us of preamble, then
/// symbols of 4 us.
fn data_us(mcs: usize, bytes: u32) -> f64 {
    let bits = [26, 52, 78, 104, 156, 208, 234, 260][mcs];
    36.0 + 4.0 * f64::from((16 + 8 * bytes + 6).div_ceil(bits))
}

/// Duration of an ACK or block ACK, us: at 6 Mbit/s after BPSK, 12 after QPSK, 24 after QAM.
fn answer_us(mcs: usize, bytes: u32) -> f64 {
    let mbps = [6, 12, 12, 24, 24, 24, 24, 24][mcs];
    20.0 + 4.0 * f64::from((16 + 8 * bytes + 6).div_ceil(4 * mbps))
}

/// Payload that one saturated station sends without losses, Mbit/s. A cycle is AIFS, the mean of 0
/// to 15 slots, data, SIFS, answer.
fn alone(mcs: usize, aggregated: bool) -> f64 {
    let (frames, psdu, answer) = if aggregated {
        let subframe = 4 + MPDU.next_multiple_of(4);
        let mut n = 1;
        while n < 64 && (n + 1) * subframe <= 65_535 && data_us(mcs, (n + 1) * subframe) <= 5484.0 {
            n += 1;
        }
        (n, n * subframe, 32)
    } else {
        (1, MPDU, 14)
    };
    let cycle = AIFS + 7.5 * SLOT + data_us(mcs, psdu) + SIFS + answer_us(mcs, answer);
    f64::from(frames) * PAYLOAD / cycle
}

/// Goodput of a cell whose stations are all saturated with frames to the access point, Mbit/s.
fn saturated(stations: u32, seconds: u32, keys: &str) -> f64 {
    // Each station's load is 1 Mbit/s more than 100 Mbit/s over the number of stations; 100 Mbit/s
    // are one and a half times the highest rate.
    let text = format!(
        r#"
        duration = "{}s"
        warmup = "1s"
        [wifi]
        stations = {stations}
        queue = "pfifo limit 400"
        {keys}
        [[flow]]
        kind = "cbr"
        from = "*"
        to = "ap"
        rate = "{}mbit"
        count = 1
        "#,
        seconds + 1,
        100 / stations + 1,
    );
    run(&text, 1).goodput_mbps
}

/// One station with and without A-MPDUs at each rate.
pub fn airtime() -> Vec<Row> {
    let mut rows = Vec::new();
    for aggregated in [false, true] {
        for mcs in 0..8 {
            let keys = format!("mcs = {mcs}\nampdu = {aggregated}");
            let what = format!(
                "Wi-Fi, one saturated station, MCS {mcs}{}",
                if aggregated { ", A-MPDU" } else { "" }
            );
            let expected = alone(mcs, aggregated);
            rows.push(Row::relative(
                what,
                "Mbit/s",
                expected,
                saturated(1, 10, &keys),
                0.02,
            ));
        }
    }
    rows
}

/// Bianchi's chain: the probability that a station sends in a slot when each of its frames collides
/// with probability `p`. Windows double from 16 to 1024; a frame is sent at most `tries` times
/// (Bianchi 2000: without limit). `less`: by how many slots the first backoff is on average shorter
/// than (window - 1) / 2.
fn tau(p: f64, tries: Option<u32>, less: f64) -> f64 {
    let (mut attempts, mut slots, mut weight) = (0.0, 0.0, 1.0);
    for stage in 0..tries.unwrap_or(2000) {
        let window = f64::from(16 << stage.min(6));
        attempts += weight;
        let less = if stage == 0 { less } else { 0.0 };
        slots += weight * ((window - 1.0) / 2.0 - less + 1.0);
        weight *= p;
    }
    attempts / slots
}

/// Finds by bisection the probability that one of `n` stations sends in a slot.
fn solve(n: u32, tries: Option<u32>, less: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..100 {
        let p = (low + high) / 2.0;
        let collides = 1.0 - (1.0 - tau(p, tries, less)).powi(n as i32 - 1);
        if collides > p {
            low = p;
        } else {
            high = p;
        }
    }
    tau((low + high) / 2.0, tries, less)
}

/// Payload, Mbit/s, when `n` stations send with probability `tau` in a slot; a success carries
/// `frames` frames and lasts `success` us, a collision `collision`.
fn throughput(n: u32, tau: f64, frames: f64, success: f64, collision: f64) -> f64 {
    let idle = (1.0 - tau).powi(n as i32);
    let one = f64::from(n) * tau * (1.0 - tau).powi(n as i32 - 1);
    let mean = idle * SLOT + one * success + (1.0 - idle - one) * collision;
    one * frames * PAYLOAD / mean
}

const STATIONS: [u32; 8] = [1, 2, 3, 5, 8, 12, 16, 20];
const MCS: usize = 3;

/// Bianchi, "Performance Analysis of the IEEE 802.11 Distributed Coordination Function", IEEE JSAC
/// 18, 2000: frames are sent until they arrive, and all stations wait after a collision as after a
/// success.
pub fn bianchi() -> Vec<Row> {
    let frame = data_us(MCS, MPDU);
    let success = frame + SIFS + answer_us(MCS, 14) + AIFS;
    rows_of(
        "Bianchi 2000",
        "retries = \"unlimited\"\neifs = false",
        |n| throughput(n, solve(n, None, 0.0), 1.0, success, frame + AIFS),
    )
}

/// Bianchi's model with the standard's rules: at most seven transmissions, and EIFS after a
/// collision (Tinnirello, Bianchi and Xiao, "Refinements on IEEE 802.11 Distributed Coordination
/// Function Modeling Approaches", IEEE Trans. Vehicular Technology 59, 2010).
pub fn refined() -> Vec<Row> {
    let frame = data_us(MCS, MPDU);
    let success = frame + SIFS + answer_us(MCS, 14) + AIFS;
    let collision = frame + ACK_TIMEOUT + AIFS;
    let mut rows = rows_of("finite retries, EDCA", "", |n| {
        throughput(n, solve(n, Some(7), 0.0), 1.0, success, collision)
    });
    // By DCF's rule only the last sender can use the first slot after a success: it draws 0 one
    // time in 16 and sends again at once; for all others that slot belongs to the success. Its
    // other draws count from the slot after: 0 to 14 instead of 1 to 15. The slot after a collision
    // is not used.
    let again = 1.0 / 16.0;
    rows.extend(rows_of("finite retries, DCF", "countdown = \"dcf\"", |n| {
        throughput(
            n,
            solve(n, Some(7), 0.5),
            1.0 / (1.0 - again),
            success / (1.0 - again) + SLOT,
            collision + SLOT,
        )
    }));
    rows
}

fn rows_of(what: &str, keys: &str, expected: impl Fn(u32) -> f64) -> Vec<Row> {
    let keys = format!("mcs = {MCS}\nampdu = false\n{keys}");
    let row = |n: &u32| {
        Row::relative(
            format!("Wi-Fi, {n} saturated stations, {what}"),
            "Mbit/s",
            expected(*n),
            saturated(*n, 20, &keys),
            0.03,
        )
    };
    STATIONS.iter().map(row).collect()
}

/// All rows of the table.
pub fn all() -> Vec<Row> {
    [airtime(), bianchi(), refined()].concat()
}
