//! A TCP sender and a receiver without a network between them: the contents of their packets.

use quell_qdisc::time::{Duration, Instant, MS, NEVER};
use quell_qdisc::{Ecn, Packet};
use quell_sim::cc::{CongestionControl, EcnMode};
use quell_sim::packet::{Ack, FlowId, Kind, Pkt};
use quell_sim::scenario::Cc;
use quell_sim::tcp::rtt::Rtt;
use quell_sim::tcp::sender::{Config, Egress};
use quell_sim::tcp::{Receiver, Sender, receiver};

/// Keeps the packets that a sender sends.
#[derive(Default)]
struct Tape(Vec<Pkt>);

impl Egress for Tape {
    fn send(&mut self, _now: Instant, _len: u32, make: impl FnOnce() -> Pkt) {
        self.0.push(make());
    }

    fn send_run(&mut self, _: Instant, _: u32, _: u32, _: impl Fn(u32) -> Pkt) -> bool {
        false
    }
}

struct Ends {
    sender: Sender,
    cc: CongestionControl,
    receiver: Receiver,
    tape: Tape,
    now: Instant,
}

const RTT: Duration = Duration::from_millis(20);

impl Ends {
    fn new(cc: Cc) -> Self {
        Self::with(cc, |_| {})
    }

    fn with(cc: Cc, change: impl FnOnce(&mut Config)) -> Self {
        let cc = CongestionControl::new(&cc);
        let ect = match cc.ecn_mode() {
            EcnMode::Accurate => Ecn::Ect1,
            _ => Ecn::Ect0,
        };
        let mut config = Config {
            flow: FlowId::default(),
            hash: 1,
            mss: 1448,
            wire_bytes: 1514,
            ect,
            window: 1000,
            first: 0,
            end: u64::MAX,
            last_short: 0,
            offer_time: Duration::ZERO,
            iw: 10,
            sack: true,
            limited_transmit: true,
            pacing: false,
        };
        change(&mut config);
        let receiver = receiver::Config {
            first: config.first,
            delack: 2,
            delack_timeout: 40 * MS,
            sack: true,
            ecn: cc.ecn_mode(),
            rtt: RTT,
            quiet: 220 * MS,
        };
        let mut ends = Self {
            sender: Sender::new(config, Rtt::new(200 * MS, false), &cc),
            cc,
            receiver: Receiver::new(FlowId::default(), receiver),
            tape: Tape::default(),
            now: Instant::ZERO,
        };
        ends.sender.connect(Instant::ZERO, &mut ends.tape);
        assert_eq!(ends.tape.0.pop().expect("a SYN").kind(), Kind::Syn);
        ends.now = Instant::ZERO + RTT;
        let answer = Ack {
            syn: true,
            tsecr: 1,
            ..Ack::default()
        };
        ends.sender
            .on_ack(Instant::ZERO + RTT, &answer, &mut ends.cc, &mut ends.tape);
        ends
    }

    /// One round trip. `fate` may change a packet in flight, and returns false to drop it. Returns
    /// the packets that the ACKs release.
    fn round(&mut self, mut fate: impl FnMut(&mut Pkt) -> bool) -> Vec<Pkt> {
        let under_way = std::mem::take(&mut self.tape.0);
        let mut acks = Vec::new();
        for mut p in under_way {
            if !fate(&mut p) {
                continue;
            }
            self.now += Duration::from_micros(100);
            acks.extend(self.receiver.on_data(self.now, &p));
            if self.receiver.ack_due(self.now) {
                acks.push(self.receiver.ack());
            }
        }
        if self.receiver.deadline() < NEVER {
            acks.push(self.receiver.ack());
        }
        self.now += RTT;
        for ack in acks {
            self.now += Duration::from_micros(100);
            while self.sender.deadline() <= self.now {
                self.sender.on_timer(self.now, &mut self.cc, &mut self.tape);
            }
            self.sender
                .on_ack(self.now, &ack, &mut self.cc, &mut self.tape);
        }
        // Leaves time for a paced sender.
        self.now += RTT;
        while self.sender.deadline() <= self.now {
            self.sender.on_timer(self.now, &mut self.cc, &mut self.tape);
        }
        self.tape.0.clone()
    }
}

#[test]
fn classic_ecn_halves_once_per_round_and_says_so_once() {
    let mut ends = Ends::new(Cc::NewReno);
    for _ in 0..3 {
        ends.round(|_| true);
    }
    let before = ends.sender.s.cwnd;
    assert!(before >= 60, "slow start: {before}");
    // Every packet of this round is marked.
    let sent = ends.round(|p| {
        p.set_ce();
        true
    });
    assert_eq!(ends.sender.s.ssthresh, before / 2);
    assert_eq!(sent.iter().filter(|p| p.cwr()).count(), 1, "one CWR");
    // CWR ends the echo of the marks: there is no second reduction, and the window ends at the
    // threshold.
    let mut reductions = 0;
    for _ in 0..4 {
        let threshold = ends.sender.s.ssthresh;
        let sent = ends.round(|_| true);
        reductions += u32::from(ends.sender.s.ssthresh != threshold);
        assert!(sent.iter().all(|p| !p.cwr()));
    }
    assert_eq!(reductions, 0);
    let now = ends.sender.s.cwnd;
    assert!(
        (before / 2..before / 2 + 6).contains(&now),
        "{now} of {before}"
    );
    assert_eq!(ends.sender.retransmits, 0);
    // One mark in each of three rounds: three reductions.
    let before = ends.sender.s.cwnd;
    for _ in 0..3 {
        let mut first = true;
        ends.round(|p| {
            if std::mem::take(&mut first) {
                p.set_ce();
            }
            true
        });
        ends.round(|_| true);
        ends.round(|_| true);
    }
    let now = ends.sender.s.cwnd;
    assert!(
        (before / 8..before / 4 + 4).contains(&now),
        "{now} of {before}"
    );
}

#[test]
fn dctcp_reduces_by_half_the_share_of_marks() {
    let mut ends = Ends::new(Cc::Dctcp);
    for _ in 0..4 {
        ends.round(|_| true);
    }
    // All packets of many rounds are marked: alpha approaches 1, and the window is halved each
    // round, down to two.
    for _ in 0..40 {
        ends.round(|p| {
            p.set_ce();
            true
        });
    }
    assert!(ends.sender.s.cwnd <= 3, "{}", ends.sender.s.cwnd);
    // Without marks it grows again, by a packet per round.
    let before = ends.sender.s.cwnd;
    for _ in 0..20 {
        ends.round(|_| true);
    }
    let gained = ends.sender.s.cwnd - before;
    assert!((17..=21).contains(&gained), "{gained}");
}

#[test]
fn new_data_are_ect_and_retransmissions_never() {
    for (cc, ect) in [
        (Cc::NewReno, Ecn::Ect0),
        (Cc::Cubic { rfc9438: false }, Ecn::Ect0),
        (Cc::Dctcp, Ecn::Ect0),
        (
            Cc::Prague {
                rate_scaling: false,
            },
            Ecn::Ect1,
        ),
        (Cc::Bbr, Ecn::Ect0),
    ] {
        let mut ends = Ends::new(cc.clone());
        let (mut highest, mut again, mut count) = (None, 0, 0u32);
        for _ in 0..30 {
            for p in ends.round(|_| {
                count += 1;
                count % 17 != 0
            }) {
                if Some(p.seq) > highest {
                    highest = Some(p.seq);
                    assert_eq!(p.ecn(), ect, "{cc:?}: new data");
                } else {
                    again += 1;
                    assert_eq!(p.ecn(), Ecn::NotEct, "{cc:?}: RFC 3168, section 6.1.5");
                    assert!(!p.cwr());
                }
            }
        }
        assert!(again > 3, "{cc:?}: {again}");
    }
}

#[test]
fn sack_blocks_make_acks_longer() {
    let ack = |count| Ack {
        count,
        ..Ack::default()
    };
    // 20 bytes of IP, 20 of TCP, 12 for timestamps; 2 of padding, 2 of kind and length, 8 for each
    // block.
    let sizes: Vec<u32> = (0..4).map(|n| ack(n).ip_bytes()).collect();
    assert_eq!(sizes, [52, 64, 72, 80]);
}

#[test]
fn limited_transmit_sends_on_the_first_two_duplicates() {
    // The first of three segments is lost. The two duplicate ACKs send a new segment each (RFC
    // 3042).
    for (limited, sack) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut ends = Ends::with(Cc::NewReno, |c| {
            (c.iw, c.limited_transmit, c.sack) = (3, limited, sack);
        });
        assert_eq!(std::mem::take(&mut ends.tape.0).len(), 3);
        for duplicate in 1..=2u32 {
            ends.now += RTT + Duration::from_nanos(10);
            let mut ack = Ack::default();
            if sack {
                ack.count = 1;
                ack.blocks[0] = (1, 1 + duplicate);
            }
            ends.sender
                .on_ack(ends.now, &ack, &mut ends.cc, &mut ends.tape);
            ends.now -= RTT;
        }
        let sent: Vec<u32> = ends.tape.0.iter().map(|p| p.seq).collect();
        let wanted: &[u32] = if limited { &[3, 4] } else { &[] };
        assert_eq!(sent, wanted, "limited transmit {limited}, SACK {sack}");
    }
}

#[test]
fn the_count_of_ce_may_wrap() {
    // RFC 9768 counts in a field that wraps; quell's has 32 bits.
    let prague = Cc::Prague {
        rate_scaling: false,
    };
    let mut ends = Ends::new(prague);
    let mut seen = Vec::new();
    for count in [u32::MAX - 1, u32::MAX, 0, 1, 2] {
        ends.now += RTT;
        let ack = Ack {
            cumulative: ends.tape.0.len() as u32 - 1,
            ce: count,
            tsecr: 1,
            ..Ack::default()
        };
        ends.sender
            .on_ack(ends.now, &ack, &mut ends.cc, &mut ends.tape);
        seen.push(ends.sender.s.delivered_ce);
    }
    let each: Vec<u64> = seen.windows(2).map(|w| w[1] - w[0]).collect();
    assert_eq!(each, [1, 1, 1, 1]);
}
