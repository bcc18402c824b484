//! Every backend's reader on invalid packets: random, mutated, cut short, overlapping fragments,
//! jumbo. A million here; `QUELL_FUZZ=100000000 cargo test -p quell-live --test it fuzz` for more.

use crate::random::Random;
use quell_live::header::{self, Parser};
use quell_live::nfqueue::{self, Message};
use quell_live::segment::{Frame, HEADER};
use quell_qdisc::Ecn;

fn v4(protocol: u8, fragment: u16, rest: &[u8]) -> Vec<u8> {
    let mut p = vec![0x45, 2, 0, 0, 0, 9, 0, 0, 64, protocol, 0, 0];
    p[2..4].copy_from_slice(&((20 + rest.len()) as u16).to_be_bytes());
    p[6..8].copy_from_slice(&fragment.to_be_bytes());
    p.extend([198, 18, 0, 1, 198, 19, 0, 1]);
    p.extend(rest);
    p
}

fn v6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut p = vec![0x60, 0x20, 0, 0, 0, 0, next, 64];
    p[4..6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
    p.resize(40, 0xfd);
    p.extend(rest);
    p
}

fn tcp(payload: usize) -> Vec<u8> {
    let mut t = vec![0; 20 + payload];
    t[12] = 5 << 4;
    t
}

/// Valid packets, and unusual ones that networks carry: fragments, extension headers, tunnels.
fn honest() -> Vec<Vec<u8>> {
    let udp = [0, 1, 0, 2, 0, 12, 0, 0, 1, 2, 3, 4];
    let mut chain = vec![60, 0, 0, 0, 0, 0, 0, 0, 51, 1];
    chain.extend([0; 14]);
    chain.extend([44, 4]);
    chain.extend([0; 22]);
    chain.extend([6, 0, 0, 0, 0, 0, 0, 7]);
    chain.extend(tcp(30));
    let mut vxlan = vec![0xc0, 1, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0];
    vxlan.extend([0; 12]);
    vxlan.extend([0x81, 0, 0, 5, 8, 0]);
    vxlan.extend(v4(6, 0, &tcp(10)));
    let gre = [&[0xb0, 0, 0x86, 0xdd][..], &[9; 12], &v6(17, &udp)].concat();
    let bridged = [&[0, 0, 0x65, 0x58][..], &[0; 12], &[8, 0], &v4(17, 0, &udp)].concat();
    // A jumbogram (RFC 2675): length 0, hop-by-hop with the length option.
    let mut jumbo = v6(0, &[6, 0, 0xc2, 4, 0, 1, 0, 0]);
    jumbo.extend(tcp(40));
    jumbo[4..6].fill(0);
    let mut packets = vec![
        v4(6, 0, &tcp(100)),
        v4(17, 0, &udp),
        // Fragments, of which the second overlaps the first.
        v4(17, 0x2000, &[7; 40]),
        v4(17, 0x2002, &[8; 40]),
        v4(17, 0x1fff, &[9; 40]),
        v6(6, &tcp(60)),
        v6(44, &[17, 0, 0, 1, 0, 0, 0, 9, 0, 1, 0, 2]),
        v6(44, &[17, 0, 0, 9, 0, 0, 0, 9, 0, 1, 0, 2]),
        v6(0, &chain),
        jumbo,
        v4(47, 0, &gre),
        v6(47, &bridged),
        v4(41, 0, &v6(0, &chain)),
        v4(4, 0, &v4(4, 0, &v4(4, 0, &v4(17, 0, &udp)))),
        v4(17, 0, &vxlan),
    ];
    // As Ethernet frames, too.
    let frames: Vec<_> = packets
        .iter()
        .map(|p| {
            let kind: [u8; 2] = if p[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
            [&[2; 12][..], &[0x81, 0, 0, 1], &kind, p].concat()
        })
        .collect();
    packets.extend(frames);
    packets
}

/// Makes the next packet: a valid one with a few bytes changed and perhaps the end cut off, or
/// random bytes.
fn make(packet: &mut Vec<u8>, honest: &[Vec<u8>], rng: &mut Random) {
    packet.clear();
    match rng.below(1000) {
        // Large, as the kernel hands them over.
        0 => {
            packet.extend(&honest[rng.below(honest.len())]);
            packet.resize(packet.len() + rng.below(65_536), 1);
        }
        1..100 => {
            packet.resize(rng.below(160), 0);
            rng.fill(packet);
        }
        _ => packet.extend(&honest[rng.below(honest.len())]),
    }
    for _ in 0..rng.below(6) {
        if !packet.is_empty() {
            // Changes headers more often than the rest.
            let most = packet.len().min(1 << (3 + rng.below(6)));
            let (at, change) = (rng.below(most), rng.next() as u8);
            packet[at] = change;
        }
    }
    if rng.below(3) == 0 {
        packet.truncate(rng.below(packet.len() + 1));
    }
}

/// Runs the reader of every backend.
fn read(
    packet: &mut [u8],
    deep: &Parser,
    rng: &mut Random,
    buffer: &mut [u8],
    message: &mut Vec<u8>,
) {
    let class = deep.classify(packet);
    assert!(class.payload as usize <= packet.len());
    if let Some(at) = header::ethernet(packet) {
        deep.classify(&packet[at..]);
    }
    // A message of the kernel's packet queue, in half of the cases damaged.
    message.clear();
    let size = packet.len().min(60_000);
    message.extend((20 + 12 + 4 + size as u32).to_ne_bytes());
    message.extend([0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    message.extend([11, 0, 1, 0, 0, 0, 0, 5, 8, 0, 4, 0]);
    message.extend((4 + size as u16).to_ne_bytes());
    message.extend([10, 0]);
    message.extend(&packet[..size]);
    if rng.below(2) == 0 {
        let at = rng.below(message.len().min(40));
        message[at] = rng.next() as u8;
        message.truncate(rng.below(message.len() + 60));
    }
    for found in nfqueue::messages(message) {
        if let Message::Packet(held) = found {
            deep.classify(held.bytes);
        }
    }
    // A frame of a device with offloads: virtio's header is random, or fits a TCP packet.
    if rng.below(4) == 0 && packet.len() + HEADER <= buffer.len() / 2 {
        let (frame, out) = buffer.split_at_mut(HEADER + packet.len());
        rng.fill(&mut frame[..HEADER]);
        if rng.below(2) == 0 {
            frame[..2].copy_from_slice(&[1, if packet.first() == Some(&0x45) { 1 } else { 4 }]);
            frame[4..6].copy_from_slice(&(1 + rng.below(1500) as u16).to_ne_bytes());
            let start = if frame[1] == 1 { 20u16 } else { 40 };
            frame[6..8].copy_from_slice(&start.to_ne_bytes());
            frame[8..10].copy_from_slice(&16u16.to_ne_bytes());
        }
        frame[HEADER..].copy_from_slice(packet);
        if let Some(parts) = Frame::parse(frame) {
            for k in 0..parts.count().min(50) {
                parts.write(k, out);
            }
        }
    }
    let marked = header::set_ce(packet);
    assert_eq!(marked, matches!(class.ecn, Ecn::Ect0 | Ecn::Ect1));
}

#[test]
fn no_packet_makes_a_reader_panic() {
    let count = std::env::var("QUELL_FUZZ").map_or(1_000_000, |n| n.parse::<u64>().unwrap());
    let honest = honest();
    let each = |seed: u64| {
        let honest = &honest;
        move || {
            let mut rng = Random(0x9e37_79b9_7f4a_7c15 + seed);
            let deep = Parser {
                key: (1, seed),
                tunnels: true,
                stamps: true,
                wants: quell_qdisc::discipline::Wants {
                    labels: true,
                    acknowledgments: true,
                    ..Default::default()
                },
            };
            let (mut packet, mut message) = (Vec::new(), Vec::new());
            let mut buffer = vec![0; 200_000];
            for _ in 0..count / 2 {
                make(&mut packet, honest, &mut rng);
                read(&mut packet, &deep, &mut rng, &mut buffer, &mut message);
            }
        }
    };
    std::thread::scope(|s| {
        for seed in 0..2 {
            s.spawn(each(seed));
        }
    });
}
