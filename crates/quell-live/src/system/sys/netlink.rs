//! Netlink sockets: requests, routes, notifications.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use quell_qdisc::num;

use super::poll::readable;
use super::sockets::{attach_filter, bind, filter_step, receive_bytes, send_bytes, set_option};
use super::{check, owned};

/// A netlink socket of this protocol; `flags`: 0 or SOCK_NONBLOCK.
fn open(protocol: c_int, flags: c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | flags;
    // SAFETY: no pointers.
    owned(unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) })
}

/// Sends a request by rtnetlink; errors are ignored.
pub fn send_rtnetlink(message: &[u32]) {
    if let Ok(socket) = open(libc::NETLINK_ROUTE, 0) {
        let bytes = size_of_val(message);
        // SAFETY: the buffer is valid for its length.
        unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), bytes, 0) };
    }
}

/// A nonblocking rtnetlink socket for requests.
pub fn rtnetlink() -> io::Result<OwnedFd> {
    open(libc::NETLINK_ROUTE, libc::SOCK_NONBLOCK)
}

/// Binds a netlink socket and returns its port, which is in its requests and in the notifications
/// about them. Enables explanations of errors (NETLINK_EXT_ACK), if the kernel has them.
pub fn netlink_port(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: zero is a valid sockaddr_nl, in which the kernel chooses the port; the structures
    // outlive the calls.
    unsafe {
        let explain: c_int = 1;
        let mut address: libc::sockaddr_nl = std::mem::zeroed();
        address.nl_family = num::short(libc::AF_NETLINK);
        let mut size = num::count(size_of_val(&address));
        let raw = fd.as_raw_fd();
        let (level, name) = (libc::SOL_NETLINK, libc::NETLINK_EXT_ACK);
        let value = (&raw const explain).cast();
        libc::setsockopt(raw, level, name, value, num::count(size_of_val(&explain)));
        bind(fd, &address)?;
        check(libc::getsockname(raw, (&raw mut address).cast(), &mut size))?;
        Ok(address.nl_pid)
    }
}

/// Lists the IPv4 routes of all tables; `each` gets the message of each route.
pub fn routes(mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let socket = open(libc::NETLINK_ROUTE, 0)?;
    // struct nlmsghdr and struct rtmsg: 28 bytes.
    let flags = num::short(libc::NLM_F_REQUEST | libc::NLM_F_DUMP);
    let mut request = Vec::from(28u32.to_ne_bytes());
    request.extend(libc::RTM_GETROUTE.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    request.resize(28, 0);
    request[16] = libc::AF_INET.to_le_bytes()[0];
    send_bytes(socket.as_fd(), &request)?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        if !readable(socket.as_fd(), Duration::from_secs(5)) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let length = receive_bytes(socket.as_fd(), &mut buffer)?;
        let mut rest = &buffer[..length];
        while let Some(head) = rest.first_chunk::<6>() {
            let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
            match i32::from(u16::from_ne_bytes([head[4], head[5]])) {
                libc::NLMSG_DONE => return Ok(()),
                libc::NLMSG_ERROR => return Err(io::ErrorKind::Unsupported.into()),
                _ => {}
            }
            let Some(message) = rest.get(..length).filter(|_| length >= 16) else {
                break;
            };
            each(message);
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// A nonblocking netlink socket to netfilter with a receive buffer of `room` bytes. While the
/// buffer is full, the kernel's messages are lost without ENOBUFS in this process
/// (NETLINK_NO_ENOBUFS).
pub fn netfilter(room: c_int) -> io::Result<OwnedFd> {
    let fd = open(libc::NETLINK_NETFILTER, libc::SOCK_NONBLOCK)?;
    let forced = set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, room);
    // SO_RCVBUFFORCE is not allowed in a user namespace; then the system's limit applies.
    forced.or_else(|_| set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, room))?;
    set_option(&fd, libc::SOL_NETLINK, libc::NETLINK_NO_ENOBUFS, 1)?;
    Ok(fd)
}

/// A nonblocking netlink socket that gets the notifications of these groups.
pub fn notifications(protocol: c_int, groups: &[c_int]) -> io::Result<OwnedFd> {
    let fd = open(protocol, libc::SOCK_NONBLOCK)?;
    // SAFETY: zero is a valid sockaddr_nl.
    let mut address = unsafe { std::mem::zeroed::<libc::sockaddr_nl>() };
    address.nl_family = num::short(libc::AF_NETLINK);
    // An unbound socket gets no notifications.
    bind(fd.as_fd(), &address)?;
    let join = libc::NETLINK_ADD_MEMBERSHIP;
    for group in groups {
        set_option(&fd, libc::SOL_NETLINK, join, *group)?;
    }
    Ok(fd)
}

/// Makes a netlink socket discard notifications about the requests of the socket with this port.
pub fn leave_out(fd: BorrowedFd<'_>, port: u32) -> io::Result<()> {
    // struct nlmsghdr has the port at byte 12, in this machine's byte order; the filter reads in
    // network byte order.
    let port = u32::from_be_bytes(port.to_ne_bytes());
    let [load, drop, keep] = [
        filter_step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 12),
        filter_step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        filter_step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
    ];
    let is_own = filter_step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, port);
    attach_filter(fd, &mut [load, is_own, drop, keep])
}
