//! TCP connections over the link as their senders see them. Sources are the kernel's list of
//! sockets (sock_diag(7)) in both namespaces, four times a second, and its notification of each
//! destroyed socket.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quell_link::Hist;
use quell_link::record::Flow;
use quell_qdisc::num;

use crate::rtnetlink::message::{attributes, u32_at, u64_at};
use crate::system::{host, sys};

// linux/sock_diag.h, linux/inet_diag.h, linux/netlink.h.
/// SOCK_DIAG_BY_FAMILY: type of a notification.
const BY_FAMILY: u16 = 20;
/// TCPDIAG_GETSOCK: type of the request for a list, and of its entries. It lists both families at
/// once (`inet_diag_dump_compat`), for which the kernel walks its whole table of connections; this
/// takes 2 ms.
const GET_TCP: u16 = 18;
/// SKNLGRP_INET_TCP_DESTROY and SKNLGRP_INET6_TCP_DESTROY: groups of notifications.
const DESTROYED: [i32; 2] = [1, 3];
/// INET_DIAG_INFO and INET_DIAG_CONG: attributes of an entry.
const INFO: u16 = 2;
const CONG: u16 = 4;
/// NLM_F_REQUEST and NLM_F_DUMP.
const FLAGS: u16 = 1 | 0x300;
/// NLMSG_ERROR and NLMSG_DONE: types of messages that end a list.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Sizes in bytes: struct nlmsghdr; with struct inet_diag_req; with struct inet_diag_msg.
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 60;
const MESSAGE: usize = HEADER + 72;
/// TCP states that are listed, as bits: not LISTEN, nor states without a full socket (SYN_RECV,
/// TIME_WAIT).
const STATES: u32 = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
/// Size of the receive buffer; the kernel sends at most 32 KiB at once.
const BUFFER: usize = 64 << 10;
/// Time between two lists.
const INTERVAL: Duration = Duration::from_millis(250);
/// Timeout of one list.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// Most connections that are recorded; later ones are ignored.
const MAX_CONNECTIONS: usize = 10_000;

/// Opens a socket that lists the connections of this network namespace and receives notifications
/// of destroyed ones.
///
/// # Errors
/// If the system refuses the socket.
pub fn socket() -> io::Result<OwnedFd> {
    sys::notifications(libc::NETLINK_SOCK_DIAG, &DESTROYED)
}

/// A thread that observes connections.
pub struct Watcher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Connections>>,
}

impl Watcher {
    /// Starts to observe the connections of `command`, the addresses of the command's side, through
    /// sockets ([`socket`]) of both sides.
    ///
    /// # Errors
    /// If the system refuses the thread.
    pub fn start(near: OwnedFd, far: OwnedFd, command: (Ipv4Addr, Ipv6Addr)) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let mut seen = Connections::new(command);
        let thread = host::thread("quell-flows").spawn(move || {
            let mut buffer = vec![0; BUFFER];
            loop {
                let last = stopped.load(Ordering::Relaxed);
                for (side, fd) in [(Side::Near, &near), (Side::Far, &far)] {
                    // Without a list (a kernel without tcp_diag) no connection is recorded.
                    let _ = list(fd, &mut buffer, |message| seen.record(side, message));
                }
                if last {
                    return seen;
                }
                std::thread::park_timeout(INTERVAL);
            }
        })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Lists the connections a last time. Returns a flow for each end of a connection that sent
    /// data: first those in the direction down, then those up, each in the order in which they
    /// were first seen. The goodput is the mean over `span_s` seconds.
    pub fn finish(mut self, span_s: f64) -> (Vec<Flow>, Vec<Flow>) {
        let flows = self.end().map(|seen| seen.flows(span_s));
        flows
            .unwrap_or_default()
            .into_iter()
            .partition(|flow| flow.direction == "down")
    }

    fn end(&mut self) -> Option<Connections> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take()?;
        thread.thread().unpark();
        thread.join().ok()
    }
}

impl Drop for Watcher {
    /// Ends the thread, whose sockets keep the namespaces alive.
    fn drop(&mut self) {
        self.end();
    }
}

/// Passes a message to `each` for every connection of a namespace, and for those destroyed since
/// the last list.
fn list(fd: &OwnedFd, buffer: &mut [u8], mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let mut request = [0; REQUEST];
    request[..4].copy_from_slice(&num::count(REQUEST).to_ne_bytes());
    request[4..6].copy_from_slice(&GET_TCP.to_ne_bytes());
    request[6..8].copy_from_slice(&FLAGS.to_ne_bytes());
    request[8] = 1; // sequence number; notifications have 0
    // struct inet_diag_req: the requested attributes are at byte 3, the states at byte 52.
    request[19] = 1 << (INFO - 1) | 1 << (CONG - 1);
    request[68..72].copy_from_slice(&STATES.to_ne_bytes());
    sys::send_bytes(fd.as_fd(), &request)?;
    let until = Instant::now() + ANSWER_TIMEOUT;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // Notifications may arrive faster than they are read, so that a socket is always readable.
        if left.is_zero() || !sys::readable(fd.as_fd(), left) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let length = match sys::receive_bytes(fd.as_fd(), buffer) {
            // Notifications were lost; the list continues.
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => continue,
            received => received?,
        };
        let mut rest = &buffer[..length];
        while rest.len() >= HEADER {
            let length = u32_at(rest, 0) as usize;
            let Some(message) = rest.get(..length).filter(|_| length >= HEADER) else {
                break;
            };
            match (u16::from_ne_bytes([message[4], message[5]]), message[8]) {
                (DONE | ERROR, 1) => return Ok(()),
                (BY_FAMILY | GET_TCP, _) if length >= MESSAGE => each(message),
                _ => {}
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// Namespace in which a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    /// The command's side.
    Near,
    /// The far side.
    Far,
}

/// The command's port, and the other end's address and port.
type Name = (u16, IpAddr, u16);

/// What is known of one socket.
#[derive(Default)]
struct Sender {
    /// Congestion control.
    cc: String,
    /// Bytes acknowledged by the other end, the SYN included.
    acked: u64,
    /// Bytes received from the other end.
    received: u64,
    retransmits: u32,
    /// Smallest round-trip time, µs.
    min_rtt: Option<u32>,
    /// Smoothed round-trip times, ns, one for each list that shows newly acknowledged data.
    rtts: Hist,
    /// Sum of the congestion windows in these lists, packets, and their number.
    windows: (u64, u32),
}

/// The sockets of connections of the command, in the order in which they were first seen.
struct Connections {
    /// The addresses of the command's side.
    command: (Ipv4Addr, Ipv6Addr),
    /// Indices in `senders`, by side and cookie.
    numbers: BTreeMap<(Side, u64), usize>,
    senders: Vec<(Side, Name, Sender)>,
}

impl Connections {
    fn new(command: (Ipv4Addr, Ipv6Addr)) -> Self {
        Self {
            command,
            numbers: BTreeMap::new(),
            senders: Vec::new(),
        }
    }

    fn is_command(&self, address: IpAddr) -> bool {
        address == self.command.0 || address == self.command.1
    }

    /// Records a message about a socket (struct inet_diag_msg and attributes).
    fn record(&mut self, side: Side, message: &[u8]) {
        let body = &message[HEADER..];
        let port = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
        let address = |at: usize| address(i32::from(body[0]), &body[at..at + 16]);
        let (here, there) = ((address(8), port(4)), (address(24), port(6)));
        let (command, other) = match side {
            Side::Near => (here, there),
            Side::Far => (there, here),
        };
        if !self.is_command(command.0) || self.is_command(other.0) {
            return;
        }
        let name = (command.1, other.0, other.1);
        // The cookie distinguishes sockets with the same addresses.
        let key = (side, u64_at(body, 44));
        let known = self.numbers.get(&key).copied();
        let number = match known {
            Some(number) => number,
            None if self.senders.len() >= MAX_CONNECTIONS => return,
            None => {
                self.senders.push((side, name, Sender::default()));
                self.numbers.insert(key, self.senders.len() - 1);
                self.senders.len() - 1
            }
        };
        let sender = &mut self.senders[number].2;
        for (kind, value) in attributes(&message[MESSAGE..]) {
            match kind {
                INFO => sender.record(value),
                CONG => {
                    let name = value.split(|b| *b == 0).next().unwrap_or_default();
                    sender.cc = String::from_utf8_lossy(name).into_owned();
                }
                _ => {}
            }
        }
    }

    /// A flow for each end of a connection that sent data.
    fn flows(self, span_s: f64) -> Vec<Flow> {
        let far = self.senders.iter().filter(|(side, ..)| *side == Side::Far);
        let at_far: BTreeSet<&Name> = far.map(|(_, name, _)| name).collect();
        let mut flows = Vec::new();
        for (side, name, sender) in &self.senders {
            // A sender on another machine is known only by what the command received.
            if *side == Side::Near && sender.received > 0 && !at_far.contains(name) {
                let afar = Sender {
                    acked: sender.received,
                    ..Sender::default()
                };
                flows.push(afar.flow("down", span_s));
            }
            // The SYN counts as one byte.
            if sender.acked > 1 {
                let direction = if *side == Side::Near { "up" } else { "down" };
                flows.push(sender.flow(direction, span_s));
            }
        }
        flows
    }
}

/// Parses an address. An IPv4-mapped IPv6 address becomes an IPv4 address.
fn address(family: i32, bytes: &[u8]) -> IpAddr {
    match (family, bytes.first_chunk(), bytes.first_chunk()) {
        (libc::AF_INET6, _, Some(six)) => Ipv6Addr::from(*six).to_canonical(),
        (_, Some(four), _) => Ipv4Addr::from(*four).into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    }
}

impl Sender {
    /// Records a struct tcp_info (linux/tcp.h); fields that an older kernel does not have are 0.
    fn record(&mut self, info: &[u8]) {
        // Offsets of tcpi_rtt, tcpi_snd_cwnd, tcpi_total_retrans, tcpi_bytes_acked,
        // tcpi_bytes_received and tcpi_min_rtt.
        const RTT: usize = 68;
        const WINDOW: usize = 80;
        const RETRANSMITS: usize = 100;
        const ACKED: usize = 120;
        const RECEIVED: usize = 128;
        const MIN_RTT: usize = 148;
        let before = self.acked;
        self.acked = self.acked.max(u64_at(info, ACKED));
        self.received = self.received.max(u64_at(info, RECEIVED));
        self.retransmits = self.retransmits.max(u32_at(info, RETRANSMITS));
        let (rtt, min_rtt) = (u32_at(info, RTT), u32_at(info, MIN_RTT));
        // The round-trip time of an idle sender is outdated.
        if self.acked == before || rtt == 0 {
            return;
        }
        self.rtts.record(u64::from(rtt) * 1000);
        self.windows.0 += u64::from(u32_at(info, WINDOW));
        self.windows.1 += 1;
        if min_rtt > 0 && min_rtt < u32::MAX {
            self.min_rtt = Some(self.min_rtt.map_or(min_rtt, |known| known.min(min_rtt)));
        }
    }

    /// The data sent, as a flow; without round-trip times if the sender is not on this machine.
    fn flow(&self, direction: &str, span_s: f64) -> Flow {
        let (windows, samples) = self.windows;
        let goodput_mbps = self.acked as f64 * 8e-6 / span_s.max(1e-9);
        Flow {
            kind: "tcp".into(),
            cc: self.cc.clone(),
            direction: direction.into(),
            base_rtt_ms: f64::from(self.min_rtt.unwrap_or(0)) / 1000.0,
            goodput_mbps,
            delivered_in_order_mbps: goodput_mbps,
            retransmits: self.retransmits.into(),
            cwnd_packets: windows as f64 / f64::from(samples.max(1)),
            rtt_ms: (samples > 0).then(|| self.rtts.summary(1e-6)),
            ..Flow::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND: (Ipv4Addr, Ipv6Addr) = (
        Ipv4Addr::new(100, 64, 0, 2),
        Ipv6Addr::new(0xfd71, 0, 0, 0, 0, 0, 0, 2),
    );

    /// A message about an IPv6 socket with these IPv4-mapped addresses.
    fn message(here: ([u8; 4], u16), there: ([u8; 4], u16), cookie: u8, info: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; MESSAGE];
        bytes[HEADER] = libc::AF_INET6.to_le_bytes()[0];
        for (at, port_at, (address, port)) in [(24, 20, here), (40, 22, there)] {
            bytes[at + 10..at + 12].fill(0xff);
            bytes[at + 12..at + 16].copy_from_slice(&address);
            bytes[port_at..port_at + 2].copy_from_slice(&port.to_be_bytes());
        }
        bytes[HEADER + 44] = cookie;
        for (kind, value) in [(CONG, b"cubic\0".as_slice()), (INFO, info)] {
            bytes.extend(num::low_u16(4 + value.len() as u64).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    /// A struct tcp_info.
    fn info(acked: u64, received: u64, rtt_us: u32) -> Vec<u8> {
        let mut bytes = vec![0; 240];
        bytes[68..72].copy_from_slice(&rtt_us.to_ne_bytes());
        bytes[80..84].copy_from_slice(&10_u32.to_ne_bytes());
        bytes[100..104].copy_from_slice(&7_u32.to_ne_bytes());
        bytes[120..128].copy_from_slice(&acked.to_ne_bytes());
        bytes[128..136].copy_from_slice(&received.to_ne_bytes());
        bytes[148..152].copy_from_slice(&20_000_u32.to_ne_bytes());
        bytes
    }

    #[test]
    fn each_end_of_a_connection_is_a_flow_and_connections_of_others_are_none() {
        let (command, server, other) = ([100, 64, 0, 2], [100, 64, 0, 1], [127, 0, 0, 1]);
        let mut seen = Connections::new(COMMAND);
        for (acked, rtt) in [(1000, 30_000), (1000, 90_000), (2000, 50_000)] {
            let far = message((server, 80), (command, 4000), 1, &info(acked, 100, rtt));
            seen.record(Side::Far, &far);
        }
        let near = message((command, 4000), (server, 80), 9, &info(101, 2000, 20_000));
        seen.record(Side::Near, &near);
        seen.record(
            Side::Near,
            &message((other, 1), (other, 2), 2, &info(5, 5, 5)),
        );
        // Its other end is not on this machine.
        let afar = message((command, 4001), ([192, 0, 2, 1], 443), 3, &info(1, 5000, 1));
        seen.record(Side::Near, &afar);
        let flows = seen.flows(8e-3);
        let summary = |flow: &Flow| {
            (
                flow.direction.clone(),
                flow.cc.clone(),
                flow.goodput_mbps.round(),
                flow.rtt_ms.map(|rtt| rtt.mean.round()),
            )
        };
        assert_eq!(
            flows.iter().map(summary).collect::<Vec<_>>(),
            [
                ("down".into(), "cubic".into(), 2.0, Some(40.0)),
                ("up".into(), "cubic".into(), 0.0, Some(20.0)),
                ("down".into(), String::new(), 5.0, None),
            ]
        );
        assert_eq!(flows[0].retransmits, 7);
        assert!((flows[0].base_rtt_ms - 20.0).abs() < 1e-9);
    }

    #[test]
    fn a_list_ends_in_time_if_notifications_never_end() {
        let (near, far) = sys::socket_pair().expect("sockets");
        let mut notification = vec![0; HEADER];
        notification[..4].copy_from_slice(&num::count(HEADER).to_ne_bytes());
        notification[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        std::thread::scope(|scope| {
            scope.spawn(move || while sys::send_bytes(far.as_fd(), &notification).is_ok() {});
            let began = Instant::now();
            let listed = list(&near, &mut vec![0; BUFFER], |_| {});
            assert_eq!(listed.map_err(|e| e.kind()), Err(io::ErrorKind::TimedOut));
            assert!(began.elapsed() < 4 * ANSWER_TIMEOUT);
            drop(near);
        });
    }

    #[test]
    fn truncated_messages_do_no_harm() {
        let whole = message(([1; 4], 1), ([100, 64, 0, 2], 2), 1, &info(9, 9, 9));
        for length in MESSAGE..whole.len() {
            let mut seen = Connections::new(COMMAND);
            seen.record(Side::Far, &whole[..length]);
            assert!(seen.flows(1.0).len() <= 1);
        }
    }
}
