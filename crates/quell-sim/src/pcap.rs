//! A capture of the bottleneck in a format that Wireshark reads: pcapng (draft-ietf-opsawg-pcapng),
//! headers only, timestamps in nanoseconds of simulated time.
//!
//! Packets that left a queue are on the interface `bottleneck`, outbound for the bottleneck's queue
//! and inbound for that of the up link; those that it dropped are on the interface `dropped`, with
//! the cause as the packet's comment; a packet that the queue marked has the comment `marked`. The
//! headers are synthesised: flow i runs from 10.0.0.0 + i + 1 to 172.16.0.0 + i + 1. Payload is not
//! captured, but counts, as zeros, in lengths and checksums.

use std::io::{self, Write};

use quell_qdisc::time::Instant;
use quell_qdisc::{DropCause, Ecn, num};

use crate::scenario::Direction;

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It left the queue without CE.
    Sent,
    /// It left the queue with CE.
    Marked,
    /// The queue dropped it.
    Dropped(DropCause),
}

/// One packet as the capture shows it.
#[derive(Clone, Copy, Debug)]
pub struct PacketView<'a> {
    /// Number of its flow (modulo 2^20, for addresses).
    pub flow: u32,
    /// Whether it is a data packet of the flow (`true`) or travels back from the receiver.
    pub data: bool,
    /// Direction across the bottleneck; upstream the Ethernet addresses are swapped.
    pub direction: Direction,
    /// ECN field of the IP header.
    pub ecn: Ecn,
    /// Bytes behind the TCP or UDP header.
    pub payload: u32,
    /// Transport header.
    pub transport: Transport<'a>,
}

/// Content of the transport header.
#[derive(Clone, Copy, Debug)]
pub enum Transport<'a> {
    /// A TCP segment with timestamps (RFC 7323).
    Tcp(TcpView<'a>),
    /// A UDP datagram.
    Udp,
}

/// The fields of a TCP header; numbers are bytes, modulo 2^32.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpView<'a> {
    /// SYN: a connection request, with all of Linux's options (40 bytes of TCP), or, in the
    /// opposite direction, its acceptance.
    pub syn: bool,
    /// PSH: the segment ends a burst.
    pub push: bool,
    /// First byte of the payload.
    pub seq: u32,
    /// Next byte expected.
    pub ack: u32,
    /// Receive window as in the header (scaled by [`SCALE`]).
    pub window: u16,
    /// SACK blocks [left, right), newest first; at most three are written.
    pub sack: &'a [(u32, u32)],
    /// Timestamp and its echo, ms.
    pub timestamps: (u32, u32),
    /// ECE (RFC 3168; with accurate feedback the low bit of ACE).
    pub ece: bool,
    /// CWR (with accurate feedback the middle bit of ACE).
    pub cwr: bool,
    /// AE: the high bit of ACE (accurate feedback only).
    pub ae: bool,
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const OPT_COMMENT: u16 = 1;
const EPB_FLAGS: u16 = 2;
/// Directions of `EPB_FLAGS`.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
const LINKTYPE_ETHERNET: u16 = 1;
/// Ethernet, IPv4 and TCP headers with all options, bytes.
const SNAPLEN: u32 = 14 + 20 + 60;

/// Shift of the window scale: windows are in units of 128 bytes.
pub const SCALE: u8 = 7;

const ETHERNET: usize = 14;
const IPV4: usize = 20;

/// Writes one capture.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    /// Buffer of the current block.
    block: Vec<u8>,
    /// Headers of the current packet.
    frame: Vec<u8>,
    ip_id: u16,
}

impl<W: Write> Writer<W> {
    /// Begins a capture; `out` should be buffered.
    pub fn new(out: W) -> io::Result<Self> {
        let mut w = Self {
            out,
            block: Vec::with_capacity(256),
            frame: Vec::with_capacity(128),
            ip_id: 0,
        };
        w.section_header()?;
        w.interface("bottleneck")?;
        w.interface("dropped")?;
        Ok(w)
    }

    /// Writes a packet; times must not decrease.
    pub fn packet(&mut self, now: Instant, fate: Fate, p: &PacketView) -> io::Result<()> {
        let length = self.build_frame(p);
        let captured = num::count(self.frame.len());
        let (interface, comment) = match fate {
            Fate::Sent => (0u32, ""),
            Fate::Marked => (0, "marked"),
            Fate::Dropped(DropCause::Overflow) => (1, "dropped: overflow"),
            Fate::Dropped(DropCause::Early) => (1, "dropped: early"),
            Fate::Dropped(DropCause::Forced) => (1, "dropped: forced"),
        };
        self.begin(ENHANCED_PACKET);
        self.u32(interface);
        self.u32((now.as_nanos() >> 32) as u32);
        self.u32(num::low_u32(now.as_nanos()));
        self.u32(captured);
        self.u32(length);
        self.block.extend_from_slice(&self.frame);
        self.pad();
        if interface == 0 {
            let direction = match p.direction {
                Direction::Down => OUTBOUND,
                Direction::Up => INBOUND,
            };
            self.option(EPB_FLAGS, &direction.to_le_bytes());
        }
        if !comment.is_empty() {
            self.option(OPT_COMMENT, comment.as_bytes());
        }
        self.option(0, &[]);
        self.end()
    }

    /// Flushes buffered data and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn section_header(&mut self) -> io::Result<()> {
        const SHB_USERAPPL: u16 = 4;
        self.begin(SECTION_HEADER);
        self.u32(0x1a2b_3c4d);
        self.u32(1); // version 1.0
        self.block.extend_from_slice(&(-1i64).to_le_bytes());
        self.option(
            SHB_USERAPPL,
            concat!("quell ", env!("CARGO_PKG_VERSION")).as_bytes(),
        );
        self.option(0, &[]);
        self.end()
    }

    fn interface(&mut self, name: &str) -> io::Result<()> {
        const IF_NAME: u16 = 2;
        const IF_TSRESOL: u16 = 9;
        self.begin(INTERFACE_DESCRIPTION);
        self.block
            .extend_from_slice(&LINKTYPE_ETHERNET.to_le_bytes());
        self.block.extend_from_slice(&[0, 0]);
        self.u32(SNAPLEN);
        self.option(IF_NAME, name.as_bytes());
        self.option(IF_TSRESOL, &[9]);
        self.option(0, &[]);
        self.end()
    }

    /// Starts a block; `end` fills in the length.
    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.u32(kind);
        self.u32(0);
    }

    fn end(&mut self) -> io::Result<()> {
        let length = num::count(self.block.len()) + 4;
        self.block[4..8].copy_from_slice(&length.to_le_bytes());
        self.u32(length);
        self.out.write_all(&self.block)
    }

    fn u32(&mut self, x: u32) {
        self.block.extend_from_slice(&x.to_le_bytes());
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.block.extend_from_slice(&code.to_le_bytes());
        self.block
            .extend_from_slice(&num::index_u16(value.len()).to_le_bytes());
        self.block.extend_from_slice(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    /// Fills `frame` with the headers. Returns the length on the wire, without the frame check
    /// sequence.
    fn build_frame(&mut self, p: &PacketView) -> u32 {
        self.frame.clear();
        self.ethernet(p.direction);
        let (protocol, transport) = match p.transport {
            Transport::Tcp(t) => (6, tcp_header_length(p, &t)),
            Transport::Udp => (17, 8),
        };
        let ip_length = num::count(IPV4) + transport + p.payload;
        self.ipv4(p, protocol, ip_length.min(0xffff) as u16);
        match p.transport {
            Transport::Tcp(t) => self.tcp(p, &t, transport),
            Transport::Udp => self.udp(p),
        }
        self.transport_checksum(protocol, transport + p.payload);
        num::count(ETHERNET) + ip_length
    }

    fn ethernet(&mut self, direction: Direction) {
        // Locally administered addresses of the two ends of the bottleneck.
        let (from, to) = match direction {
            Direction::Down => (1, 2),
            Direction::Up => (2, 1),
        };
        self.frame
            .extend_from_slice(&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 8, 0]);
    }

    fn ipv4(&mut self, p: &PacketView, protocol: u8, length: u16) {
        let host = 1 + p.flow % (1 << 20);
        let (sender, receiver) = (0x0a00_0000 + host, 0xac10_0000 + host);
        let (src, dst) = if p.data {
            (sender, receiver)
        } else {
            (receiver, sender)
        };
        self.ip_id = self.ip_id.wrapping_add(1);
        let f = &mut self.frame;
        f.extend_from_slice(&[0x45, p.ecn as u8]);
        f.extend_from_slice(&length.to_be_bytes());
        f.extend_from_slice(&self.ip_id.to_be_bytes());
        // Don't fragment; TTL 64; two bytes for the checksum.
        f.extend_from_slice(&[0x40, 0, 64, protocol, 0, 0]);
        f.extend_from_slice(&src.to_be_bytes());
        f.extend_from_slice(&dst.to_be_bytes());
        let sum = checksum(0, &f[ETHERNET..]);
        f[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&sum.to_be_bytes());
    }

    fn ports(&mut self, data: bool) {
        const PORTS: (u16, u16) = (50_000, 5_001);
        let (src, dst) = if data { PORTS } else { (PORTS.1, PORTS.0) };
        self.frame.extend_from_slice(&src.to_be_bytes());
        self.frame.extend_from_slice(&dst.to_be_bytes());
    }

    fn tcp(&mut self, p: &PacketView, t: &TcpView, header: u32) {
        const SYN: u8 = 0x02;
        const ACK: u8 = 0x10;
        let kind = match (t.syn, p.data) {
            (true, true) => SYN,
            (true, false) => SYN | ACK,
            (false, _) => ACK,
        };
        self.ports(p.data);
        let f = &mut self.frame;
        f.extend_from_slice(&t.seq.to_be_bytes());
        f.extend_from_slice(&t.ack.to_be_bytes());
        let offset = num::low_u8(((header / 4) << 4).into()) | u8::from(t.ae);
        let ecn = u8::from(t.cwr) << 7 | u8::from(t.ece) << 6;
        f.extend_from_slice(&[offset, kind | ecn | u8::from(t.push) << 3]);
        f.extend_from_slice(&t.window.to_be_bytes());
        f.extend_from_slice(&[0; 4]); // checksum, urgent pointer
        if kind == SYN {
            // MSS 1460, window scale, SACK permitted.
            f.extend_from_slice(&[2, 4, 0x05, 0xb4, 1, 3, 3, SCALE, 4, 2, 8, 10]);
            f.extend_from_slice(&t.timestamps.0.to_be_bytes());
            f.extend_from_slice(&[0; 4]);
            return;
        }
        f.extend_from_slice(&[1, 1, 8, 10]);
        f.extend_from_slice(&t.timestamps.0.to_be_bytes());
        f.extend_from_slice(&t.timestamps.1.to_be_bytes());
        let blocks = sack_blocks(t);
        if !blocks.is_empty() {
            f.extend_from_slice(&[1, 1, 5, 2 + 8 * num::low_u8(blocks.len() as u64)]);
            for (left, right) in blocks {
                f.extend_from_slice(&left.to_be_bytes());
                f.extend_from_slice(&right.to_be_bytes());
            }
        }
    }

    fn udp(&mut self, p: &PacketView) {
        self.ports(p.data);
        self.frame
            .extend_from_slice(&(8 + num::low_u16(p.payload.into())).to_be_bytes());
        self.frame.extend_from_slice(&[0; 2]);
    }

    /// Writes the checksum of TCP or UDP over the pseudo-header and the header; the payload is
    /// zeros, which add nothing. `length` is that of header and payload.
    fn transport_checksum(&mut self, protocol: u8, length: u32) {
        let start = ETHERNET + IPV4;
        let field = start + if protocol == 6 { 16 } else { 6 };
        let addresses = sum(&self.frame[start - 8..start]);
        let sum = checksum(
            addresses + u32::from(protocol) + length,
            &self.frame[start..],
        );
        // UDP's 0 means "none" (RFC 768).
        let sum = if protocol == 17 && sum == 0 {
            0xffff
        } else {
            sum
        };
        self.frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

fn sack_blocks<'a>(t: &TcpView<'a>) -> &'a [(u32, u32)] {
    &t.sack[..t.sack.len().min(3)]
}

/// Length of the TCP header, bytes: 20, timestamps with padding (12), and any SACK blocks with
/// padding; 40 for a SYN, which has more options.
fn tcp_header_length(p: &PacketView, t: &TcpView) -> u32 {
    if t.syn && p.data {
        return 40;
    }
    let blocks = num::count(sack_blocks(t).len());
    32 + if blocks > 0 { 4 + 8 * blocks } else { 0 }
}

/// Sum of 16-bit words (RFC 1071); all headers here are of even length.
fn sum(bytes: &[u8]) -> u32 {
    bytes
        .chunks_exact(2)
        .map(|b| u32::from(u16::from_be_bytes([b[0], b[1]])))
        .sum()
}

fn checksum(start: u32, bytes: &[u8]) -> u16 {
    let mut s = start + sum(bytes);
    while s > 0xffff {
        s = (s & 0xffff) + (s >> 16);
    }
    !num::low_u16(s.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn data(flow: u32, seq: u32, ecn: Ecn) -> PacketView<'static> {
        PacketView {
            flow,
            data: true,
            direction: Direction::Down,
            ecn,
            payload: 1448,
            transport: Transport::Tcp(TcpView {
                seq,
                window: 46_875,
                timestamps: (1234, 1200),
                ..TcpView::default()
            }),
        }
    }

    fn capture() -> Vec<u8> {
        let mut w = Writer::new(Vec::new()).unwrap();
        w.packet(
            Instant::from_nanos(1_000_000_007),
            Fate::Sent,
            &data(0, 1, Ecn::Ect0),
        )
        .unwrap();
        w.packet(
            Instant::from_millis(1_001),
            Fate::Marked,
            &data(1, 1449, Ecn::Ce),
        )
        .unwrap();
        let early = Fate::Dropped(DropCause::Early);
        w.packet(
            Instant::from_millis(1_002),
            early,
            &data(0, 2897, Ecn::NotEct),
        )
        .unwrap();
        let ack = PacketView {
            data: false,
            direction: Direction::Up,
            payload: 0,
            transport: Transport::Tcp(TcpView {
                ack: 1449,
                sack: &[(4345, 5793), (2897, 3000)],
                timestamps: (1240, 1234),
                ece: true,
                ae: true,
                ..TcpView::default()
            }),
            ..data(0, 0, Ecn::NotEct)
        };
        w.packet(Instant::from_secs(5), Fate::Sent, &ack).unwrap();
        let udp = PacketView {
            payload: 172,
            transport: Transport::Udp,
            ..data(70_000, 0, Ecn::Ect1)
        };
        w.packet(Instant::from_secs(6), Fate::Sent, &udp).unwrap();
        w.finish().unwrap()
    }

    /// Type of each block, and its body without type and lengths.
    fn blocks(mut bytes: &[u8]) -> Vec<(u32, &[u8])> {
        let u32_at = |b: &[u8], i: usize| u32::from_le_bytes(b[i..i + 4].try_into().unwrap());
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let (kind, length) = (u32_at(bytes, 0), u32_at(bytes, 4) as usize);
            assert_eq!(length % 4, 0);
            assert_eq!(u32_at(bytes, length - 4) as usize, length);
            all.push((kind, &bytes[8..length - 4]));
            bytes = &bytes[length..];
        }
        all
    }

    #[test]
    fn blocks_are_aligned_and_their_two_lengths_agree() {
        let bytes = capture();
        let kinds: Vec<u32> = blocks(&bytes).iter().map(|b| b.0).collect();
        assert_eq!(kinds, [SECTION_HEADER, 1, 1, 6, 6, 6, 6, 6]);
    }

    #[test]
    fn lengths_are_the_wires_and_only_headers_are_captured() {
        let bytes = capture();
        let lengths: Vec<(u32, u32)> = blocks(&bytes)[3..]
            .iter()
            .map(|(_, b)| {
                let at = |i: usize| u32::from_le_bytes(b[i..i + 4].try_into().unwrap());
                (at(12), at(16))
            })
            .collect();
        // Data: 14 + 20 + 32 of 1514. ACK with two blocks: 20 more. UDP: 14 + 20 + 8 of 214.
        assert_eq!(
            lengths,
            [(66, 1514), (66, 1514), (66, 1514), (86, 86), (42, 214)]
        );
    }

    #[test]
    fn checksums_of_ip_and_tcp_hold_for_a_payload_of_zeros() {
        let bytes = capture();
        for (_, b) in &blocks(&bytes)[3..] {
            let captured = u32::from_le_bytes(b[12..16].try_into().unwrap()) as usize;
            let frame = &b[20..20 + captured];
            let (ip, rest) = frame[ETHERNET..].split_at(IPV4);
            // RFC 1071: a header with its checksum sums to all ones.
            assert_eq!(checksum(0, ip), 0);
            let length = u32::from(u16::from_be_bytes([ip[2], ip[3]])) - IPV4 as u32;
            assert_eq!(
                checksum(sum(&ip[12..]) + u32::from(ip[9]) + length, rest),
                0
            );
        }
    }

    #[test]
    fn no_memory_is_taken_per_packet() {
        let mut w = Writer::new(io::sink()).unwrap();
        let before = (w.block.capacity(), w.frame.capacity());
        for i in 0..1000 {
            w.packet(
                Instant::from_nanos(i),
                Fate::Dropped(DropCause::Overflow),
                &data(0, 1, Ecn::Ce),
            )
            .unwrap();
        }
        assert_eq!((w.block.capacity(), w.frame.capacity()), before);
    }

    #[test]
    fn wireshark_decodes_every_field() {
        let version = Command::new("tshark").arg("--version").output();
        if !version.is_ok_and(|o| o.status.success()) {
            eprintln!("skipped: tshark is not installed (Debian: apt-get install tshark)");
            return;
        }
        let path = std::env::temp_dir().join(format!("quell-{}.pcapng", std::process::id()));
        let mut file = std::fs::File::create_new(&path).unwrap();
        file.write_all(&capture()).unwrap();
        let fields = [
            "frame.time_epoch",
            "frame.interface_name",
            "frame.len",
            "frame.comment",
            "ip.src",
            "ip.dsfield.ecn",
            "ip.checksum.status",
            "tcp.len",
            "tcp.options.sack_le",
            "tcp.options.sack_re",
            "tcp.options.timestamp.tsval",
            "tcp.flags.ece",
            "udp.length",
        ];
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(&path);
        tshark.args([
            "-o",
            "ip.check_checksum:TRUE",
            "-o",
            "tcp.relative_sequence_numbers:FALSE",
        ]);
        tshark.args(["-T", "fields", "-E", "separator=|"]);
        for f in fields {
            tshark.args(["-e", f]);
        }
        let out = tshark.output().unwrap();
        std::fs::remove_file(&path).unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "1.000000007|bottleneck|1514||10.0.0.1|2|1|1448|||1234|0|",
                "1.001000000|bottleneck|1514|marked|10.0.0.2|3|1|1448|||1234|0|",
                "1.002000000|dropped|1514|dropped: early|10.0.0.1|0|1|1448|||1234|0|",
                "5.000000000|bottleneck|86||172.16.0.1|0|1|0|4345,2897|5793,3000|1240|1|",
                "6.000000000|bottleneck|214||10.1.17.113|1|1||||||180",
            ]
        );
    }
}
