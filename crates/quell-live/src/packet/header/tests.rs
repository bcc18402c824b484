use super::*;
use proptest::prelude::*;

const KEY: Key = (1, 2);

/// An IPv4 packet with a correct checksum.
fn v4(protocol: u8, tos: u8, fragment: u16, rest: &[u8]) -> Vec<u8> {
    let mut p = vec![0; 20];
    p[0] = 0x45;
    p[1] = tos;
    p[2..4].copy_from_slice(&((20 + rest.len()) as u16).to_be_bytes());
    p[6..8].copy_from_slice(&fragment.to_be_bytes());
    p[8] = 64;
    p[9] = protocol;
    p[12..16].copy_from_slice(&[100, 64, 0, 1]);
    p[16..20].copy_from_slice(&[100, 64, 0, 2]);
    let c = !(sum(&p, 0) as u16);
    p[10..12].copy_from_slice(&c.to_be_bytes());
    p.extend_from_slice(rest);
    p
}

fn v6(next: u8, class: u8, rest: &[u8]) -> Vec<u8> {
    let mut p = vec![0; 40];
    p[0] = 0x60 | class >> 4;
    p[1] = class << 4;
    p[4..6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
    p[6] = next;
    p[8] = 0xfd;
    p[24] = 0xfd;
    p[39] = 1;
    p.extend_from_slice(rest);
    p
}

fn tcp(source: u16, destination: u16, payload: usize) -> Vec<u8> {
    let mut t = vec![0; 20 + payload];
    t[..2].copy_from_slice(&source.to_be_bytes());
    t[2..4].copy_from_slice(&destination.to_be_bytes());
    t[12] = 5 << 4;
    t
}

#[test]
fn identifiers_of_icmp_distinguish_flows_so_that_a_forged_answer_is_not_in_the_flow_of_a_true_one()
{
    let message = |kind, id: [u8; 2], number| [kind, 0, 0, 0, id[0], id[1], 0, number, 9, 9];
    type Packet = fn(&[u8]) -> Vec<u8>;
    let four: Packet = |rest| v4(ICMP, 0, 0, rest);
    let six: Packet = |rest| v6(ICMP6, 0, rest);
    for (packet, kinds, error) in [(four, &[0, 8, 13, 14][..], 3), (six, &[128, 129], 1)] {
        let class = |kind, id, number| classify(&packet(&message(kind, id, number)), KEY);
        for kind in kinds.iter().copied() {
            let hash = |id, number| class(kind, id, number).hash;
            assert_eq!(hash([1, 2], 3), hash([1, 2], 4), "{kind}");
            assert_ne!(hash([1, 2], 3), hash([1, 3], 3), "{kind}");
            assert_ne!(hash([1, 2], 3), hash([2, 2], 3), "{kind}");
        }
        // In an error these bytes are not an identifier.
        let error = |id| class(error, id, 3);
        assert_eq!(error([1, 2]).hash, error([1, 3]).hash);
        assert_eq!(error([1, 2]).tuple, class(kinds[0], [1, 3], 3).tuple);
        let cut = packet(&message(kinds[0], [1, 2], 3)[..5]);
        assert_eq!(classify(&cut, KEY).hash, error([1, 2]).hash);
    }
    // Fragments of a message stay together.
    let part = |fragment, rest: &[u8]| classify(&v4(ICMP, 0, fragment, rest), KEY).hash;
    assert_eq!(part(0x2000, &message(0, [1, 2], 3)), part(1, &[0; 10]));
}

#[test]
fn ports_distinguish_flows_and_payload_does_not() {
    let hash = |a, b, n| classify(&v4(TCP, 0, 0, &tcp(a, b, n)), KEY).hash;
    assert_eq!(hash(1, 2, 0), hash(1, 2, 100));
    assert_ne!(hash(1, 2, 0), hash(1, 3, 0));
    assert_ne!(hash(1, 2, 0), hash(2, 1, 0));
    assert_ne!(
        hash(1, 2, 0),
        classify(&v4(TCP, 0, 0, &tcp(1, 2, 0)), (3, 4)).hash,
        "another key"
    );
    assert_eq!(classify(&v4(TCP, 0, 0, &tcp(1, 2, 77)), KEY).payload, 77);
    assert_eq!(classify(&v6(TCP, 0, &tcp(1, 2, 78)), KEY).payload, 78);
}

#[test]
fn all_fragments_of_a_datagram_are_one_flow() {
    let first = classify(&v4(UDP, 0, 0x2000, &tcp(1, 2, 0)), KEY);
    let second = classify(&v4(UDP, 0, 0x2003, &[7; 8]), KEY);
    let last = classify(&v4(UDP, 0, 0x0006, &[9; 3]), KEY);
    assert_eq!((first.hash, first.payload), (second.hash, 0));
    assert_eq!(second.hash, last.hash);
    // Fragment header (RFC 8200, section 4.5): offset 0 with more, then offset 8.
    let six = |offset: u16, rest: &[u8]| {
        let mut f = vec![UDP, 0, 0, 0, 0, 0, 0, 9];
        f[2..4].copy_from_slice(&offset.to_be_bytes());
        f.extend_from_slice(rest);
        classify(&v6(FRAGMENT, 0, &f), KEY)
    };
    assert_eq!(six(1, &tcp(1, 2, 4)).hash, six(8, &[5; 30]).hash);
    // An atomic fragment is a whole datagram, so its ports count.
    assert_eq!(
        six(0, &tcp(1, 2, 0)).hash,
        classify(&v6(UDP, 0, &tcp(1, 2, 0)), KEY).hash
    );
}

#[test]
fn extension_headers_hide_no_ports() {
    let mut chain = vec![DESTINATION, 0, 0, 0, 0, 0, 0, 0]; // hop-by-hop
    chain.extend([AUTHENTICATION, 1]); // destination options, 16 bytes
    chain.extend([0; 14]);
    chain.extend([TCP, 4]); // authentication, (4 + 2) * 4 bytes
    chain.extend([0; 22]);
    chain.extend(tcp(5, 6, 11));
    let c = classify(&v6(HOP_BY_HOP, 0, &chain), KEY);
    let plain = classify(&v6(TCP, 0, &tcp(5, 6, 11)), KEY);
    assert_eq!(c, plain);
}

/// `inner` within each kind of tunnel.
fn tunnels(inner: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let kind: [u8; 2] = if inner[0] >> 4 == 4 {
        [8, 0]
    } else {
        [0x86, 0xdd]
    };
    let ip = if inner[0] >> 4 == 4 {
        IP_IN_IP
    } else {
        IPV6_IN_IP
    };
    let ethernet = [&[0; 12][..], &kind, inner].concat();
    let tagged = [&[0; 12][..], &[0x81, 0, 0, 5], &kind, inner].concat();
    let gre = [&[0, 0][..], &kind, inner].concat();
    // Checksum, key and sequence number.
    let full = [&[0xb0, 0][..], &kind, &[9; 12], inner].concat();
    let bridged = [&[0, 0, 0x65, 0x58][..], &ethernet].concat();
    let mut vxlan = vec![0xc0, 1, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0];
    vxlan.extend(&tagged);
    vec![
        ("IP in IPv4", v4(ip, 2, 0, inner)),
        ("IP in IPv6", v6(ip, 2, inner)),
        ("GRE", v4(GRE, 2, 0, &gre)),
        ("GRE with all options", v4(GRE, 2, 0, &full)),
        ("GRE with Ethernet", v6(GRE, 2, &bridged)),
        ("VXLAN", v4(UDP, 2, 0, &vxlan)),
    ]
}

#[test]
fn flows_in_tunnels_are_distinguished_on_request_and_the_ecn_field_is_the_outer_one() {
    let deep = Parser {
        key: KEY,
        tunnels: true,
        stamps: false,
        wants: Wants::default(),
    };
    for inner in [v4(TCP, 0, 0, &tcp(1, 2, 9)), v6(TCP, 0, &tcp(1, 2, 9))] {
        let plain = classify(&inner, KEY);
        for (name, packet) in tunnels(&inner) {
            let class = deep.classify(&packet);
            assert_eq!((class.hash, class.payload), (plain.hash, 9), "{name}");
            assert_eq!(class.ecn, Ecn::Ect0, "{name}");
            assert_ne!(classify(&packet, KEY).hash, plain.hash, "{name}");
            let mut marked = packet.clone();
            assert!(set_ce(&mut marked), "{name}");
            assert_eq!(deep.classify(&marked).hash, plain.hash, "{name}");
            // A tunnel in a tunnel.
            for (outer, packet) in tunnels(&packet) {
                assert_eq!(deep.classify(&packet).hash, plain.hash, "{name} in {outer}");
            }
            // If it is truncated within the inner header, it is the outer flow.
            let cut = &packet[..packet.len() - inner.len() + 12];
            assert_eq!(deep.classify(cut).hash, classify(cut, KEY).hash, "{name}");
        }
    }
}

#[test]
fn a_packet_that_only_resembles_a_tunnel_belongs_to_the_outer_flow() {
    let deep = Parser {
        key: KEY,
        tunnels: true,
        stamps: false,
        wants: Wants::default(),
    };
    let inner = v4(TCP, 0, 0, &tcp(1, 2, 9));
    for packet in [
        v4(GRE, 0, 0, &[&[0x40, 0, 8, 0][..], &inner].concat()), // source routes
        v4(GRE, 0, 0, &[&[0, 1, 8, 0][..], &inner].concat()),    // PPTP
        v4(GRE, 0, 0, &[&[0, 0, 0x88, 0xcc][..], &inner].concat()), // not IP
        v4(IP_IN_IP, 0, 0x2000, &inner),                         // a fragment
        v4(IP_IN_IP, 0, 0, &[]),
        v4(GRE, 0, 0, &[0]),
        v4(UDP, 0, 0, &[0, 1, 0x12, 0xb5, 0, 0, 0, 0, 0, 0]), // VXLAN without a network
    ] {
        assert_eq!(deep.classify(&packet), classify(&packet, KEY));
    }
    // The parser stops at deeply nested tunnels.
    let mut packet = v4(IP_IN_IP, 0, 0, &[]);
    for _ in 0..50 {
        packet = v4(IP_IN_IP, 0, 0, &packet);
    }
    deep.classify(&packet);
}

#[test]
fn an_ethernet_frames_packet_is_found_behind_its_tags() {
    let frame = |head: &[u8]| [&[0; 12][..], head, &[0x45; 20]].concat();
    assert_eq!(ethernet(&frame(&[8, 0])), Some(14));
    assert_eq!(ethernet(&frame(&[0x81, 0, 0, 1, 0x86, 0xdd])), Some(18));
    assert_eq!(
        ethernet(&frame(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0])),
        Some(22)
    );
    assert_eq!(ethernet(&frame(&[8, 6])), None, "ARP");
    assert_eq!(ethernet(&frame(&[0x81, 0])[..14]), None);
    assert_eq!(ethernet(&[]), None);
}

#[test]
fn frames_without_ip_are_flows_of_their_addresses_and_type() {
    let parser = Parser {
        key: KEY,
        tunnels: false,
        stamps: false,
        wants: Wants::default(),
    };
    let frame = |from: u8, kind: u16, rest: u8| {
        let mut frame = vec![0; 60];
        (frame[11], frame[20]) = (from, rest);
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        frame
    };
    let hash = |from, kind, rest| parser.classify_frame(&frame(from, kind, rest)).hash;
    assert_eq!(hash(1, 0x0806, 1), hash(1, 0x0806, 2), "ARP");
    assert_ne!(hash(1, 0x0806, 1), hash(2, 0x0806, 1));
    assert_ne!(hash(1, 0x0806, 1), hash(1, 0x88b5, 1));
    let packet = v4(TCP, 0, 0, &tcp(1, 2, 0));
    let whole = [&[7; 12][..], &[8, 0], &packet].concat();
    assert_eq!(parser.classify_frame(&whole), parser.classify(&packet));
    parser.classify_frame(&[]);
}

#[test]
fn a_mark_keeps_the_checksum_right() {
    for tos in [1, 2, 0xb9, 0xfe] {
        let mut p = v4(TCP, tos, 0, &tcp(1, 2, 5));
        assert!(set_ce(&mut p));
        assert_eq!(classify(&p, KEY).ecn, Ecn::Ce);
        assert_eq!(p[1] >> 2, tos >> 2, "the DSCP stays");
        assert_eq!(sum(&p[..20], 0), 0xffff);
        let mut p = v6(TCP, tos, &tcp(1, 2, 5));
        assert!(set_ce(&mut p));
        assert_eq!(classify(&p, KEY).ecn, Ecn::Ce);
        assert_eq!((p[0] & 15) << 4 | p[1] >> 4, tos | 3);
    }
}

#[test]
fn packets_without_ecn_are_never_marked() {
    for mut p in [
        v4(TCP, 0, 0, &[]),
        v4(TCP, 3, 0, &[]),
        v6(TCP, 0, &[]),
        v6(TCP, 0xff, &[]),
        vec![],
        vec![0x45; 19],
    ] {
        let before = p.clone();
        assert!(!set_ce(&mut p));
        assert_eq!(p, before);
    }
}

#[test]
fn bytes_that_are_not_a_packet_are_one_flow_without_ecn() {
    let odd = classify(&[], KEY);
    assert_eq!((odd.ecn, odd.payload), (Ecn::NotEct, 0));
    for bytes in [
        &[0x45][..],
        &[0x60; 39],
        &[0xff; 60],
        &[0x41; 30],
        &[0; 1500],
    ] {
        assert_eq!(classify(bytes, KEY), odd);
    }
    // Lengths that reach beyond the packet, or a total length below the header's.
    let mut p = v4(TCP, 2, 0, &tcp(1, 2, 0));
    p[2..4].copy_from_slice(&[0xff, 0xff]);
    assert_eq!(classify(&p, KEY).payload, 0);
    p[2..4].copy_from_slice(&[0, 19]);
    assert_eq!(classify(&p, KEY), odd);
}

fn packets() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..120);
    prop_oneof![
        bytes(),
        (any::<u8>(), any::<u8>(), any::<u16>(), bytes()).prop_map(|(p, t, f, r)| v4(p, t, f, &r)),
        (
            prop_oneof![
                Just(HOP_BY_HOP),
                Just(ROUTING),
                Just(FRAGMENT),
                Just(AUTHENTICATION),
                Just(DESTINATION),
                any::<u8>()
            ],
            any::<u8>(),
            bytes()
        )
            .prop_map(|(n, c, r)| v6(n, c, &r)),
    ]
}

/// Headers with this byte of DSCP and ECN, and a correct checksum.
fn with_traffic_class(six: bool, byte: u8) -> Vec<u8> {
    let mut p = vec![0; 60];
    if six {
        (p[0], p[1], p[5]) = (0x60 | byte >> 4, byte << 4 | 5, 20);
        return p;
    }
    (p[0], p[1], p[3]) = (0x45, byte, 60);
    let sum = !sum(&p[..20], 0);
    p[10..12].copy_from_slice(&(sum as u16).to_be_bytes());
    p
}

#[test]
fn hosts_and_the_dscp_are_read_where_the_queue_wants_them() {
    let parser = Parser {
        key: KEY,
        tunnels: false,
        stamps: false,
        wants: Wants {
            labels: true,
            ..Wants::default()
        },
    };
    for six in [false, true] {
        for (at, mut p) in [
            (0, with_traffic_class(six, 46 << 2 | 2)),
            (1, with_traffic_class(six, 46 << 2)),
        ] {
            let labels = parser.classify(&p).labels;
            assert_eq!(labels.dscp, 46, "{six} {at}");
            assert_eq!(classify(&p, KEY).labels, Labels::default());
            // Another destination is another host, and the same source.
            let destination = if six { 39 } else { 19 };
            p[destination] = 9;
            let other = parser.classify(&p).labels;
            assert_eq!(other.source, labels.source);
            assert_ne!(other.destination, labels.destination);
        }
    }
}

#[test]
fn washing_clears_the_dscp_and_leaves_ecn_and_the_checksum_valid() {
    for six in [false, true] {
        for ecn in 0..4 {
            let mut p = with_traffic_class(six, 46 << 2 | ecn);
            let wash = Change {
                mark: false,
                wash: true,
            };
            assert!(!wash.apply(&mut p));
            assert_eq!(p, with_traffic_class(six, ecn));
            let both = Change {
                mark: true,
                wash: true,
            };
            let mut p = with_traffic_class(six, 8 << 2 | ecn);
            let marked = both.apply(&mut p);
            assert_eq!(marked, matches!(ecn, 1 | 2));
            assert_eq!(p, with_traffic_class(six, if marked { 3 } else { ecn }));
        }
    }
}

#[test]
fn the_far_host_is_an_address_and_in_ipv6_its_network_of_48_bits() {
    let tuple = |version, source: [u8; 16], ports| Tuple {
        source,
        destination: [9; 16],
        protocol: TCP,
        ports,
        version,
    };
    let far = |tuple: Tuple| tuple.far_host(true, KEY);
    let (one, mut near, mut other) = ([1; 16], [1; 16], [1; 16]);
    (near[6], other[5]) = (2, 2);
    for version in [4, 6] {
        assert_eq!(
            far(tuple(version, one, [0; 4])),
            far(tuple(version, one, [7; 4]))
        );
        assert_ne!(
            far(tuple(version, one, [0; 4])),
            far(tuple(version, other, [0; 4]))
        );
        let back = Tuple {
            source: [9; 16],
            destination: one,
            ..tuple(version, one, [0; 4])
        };
        assert_eq!(far(tuple(version, one, [0; 4])), back.far_host(false, KEY));
    }
    assert_eq!(far(tuple(6, one, [0; 4])), far(tuple(6, near, [0; 4])));
    let [mut four, mut six] = [[0; 16]; 2];
    four[..4].copy_from_slice(&[32, 1, 13, 184]);
    six[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    assert_ne!(far(tuple(4, four, [0; 4])), far(tuple(6, six, [0; 4])));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn no_packet_however_mangled_causes_a_panic(mut p in packets(), cut in 0..160usize, flip in any::<(u8, u8)>()) {
        if let Some(b) = p.get_mut(usize::from(flip.0)) {
            *b ^= flip.1;
        }
        p.truncate(cut);
        let c = classify(&p, KEY);
        prop_assert!(c.payload as usize <= p.len());
        let v4 = p.first().is_some_and(|b| b >> 4 == 4);
        let header = if v4 && p.len() > 20 { usize::from(p[0] & 15) * 4 } else { 0 };
        let before = (header >= 20 && header <= p.len()).then(|| sum(&p[..header], 0));
        let marked = set_ce(&mut p);
        prop_assert_eq!(marked, matches!(c.ecn, Ecn::Ect0 | Ecn::Ect1));
        if marked {
            prop_assert_eq!(classify(&p, KEY), Class { ecn: Ecn::Ce, ..c });
        }
        if let Some(before) = before {
            // 0 and 0xffff are the same number in ones' complement.
            prop_assert_eq!(sum(&p[..header], 0) % 0xffff, before % 0xffff);
        }
    }
}
