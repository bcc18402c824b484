//! Sockets: local pairs, packets, ICMP, connections.

use std::ffi::c_int;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::slice;

use quell_qdisc::num;

use super::{check, owned};

/// An instruction of a classic BPF filter; a comparison skips `yes` instructions if it holds, else
/// `no` instructions.
pub fn filter_step(code: u32, yes: u8, no: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: num::low_u16(code.into()),
        jt: yes,
        jf: no,
        k: value,
    }
}

/// Attaches a filter to a socket: the kernel drops the packets for which the program returns 0.
pub(super) fn attach_filter(
    fd: BorrowedFd<'_>,
    program: &mut [libc::sock_filter],
) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: num::index_u16(program.len()),
        filter: program.as_mut_ptr(),
    };
    let size = num::count(size_of_val(&program));
    let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    // SAFETY: the program outlives the call; the kernel checks and copies it.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const program).cast(),
            size,
        )
    })?;
    Ok(())
}

/// Binds a socket to an address, a structure of its family.
pub(super) fn bind<A>(fd: BorrowedFd<'_>, address: &A) -> io::Result<()> {
    let size = num::count(size_of_val(address));
    // SAFETY: the address outlives the call and has this size.
    check(unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(address).cast(), size) })?;
    Ok(())
}

/// A socket that gets a copy of all packets of an interface, from their IP header on.
pub fn tap(index: u32) -> io::Result<OwnedFd> {
    let all = num::short(libc::ETH_P_ALL).to_be();
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers; zero is a valid sockaddr_ll.
    let (fd, mut address) = unsafe {
        let fd = owned(libc::socket(libc::AF_PACKET, kind, 0))?;
        (fd, std::mem::zeroed::<libc::sockaddr_ll>())
    };
    address.sll_family = num::short(libc::AF_PACKET);
    address.sll_protocol = all;
    address.sll_ifindex = index.cast_signed();
    bind(fd.as_fd(), &address)?;
    Ok(fd)
}

pub(super) fn set_option(fd: &OwnedFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    set_bytes(fd, level, name, &value.to_ne_bytes())
}

/// A nonblocking raw ICMP socket that only gets this host's answers to echo and timestamp requests
/// with this identifier. Its packets leave by `device`, if given, with this priority (SO_PRIORITY).
pub fn icmp(
    host: IpAddr,
    identifier: u16,
    device: Option<&str>,
    priority: u32,
) -> io::Result<OwnedFd> {
    let six = host.is_ipv6();
    let (family, protocol) = match six {
        true => (libc::AF_INET6, libc::IPPROTO_ICMPV6),
        false => (libc::AF_INET, libc::IPPROTO_ICMP),
    };
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers.
    let fd = owned(unsafe { libc::socket(family, kind, protocol) })?;
    // ICMP_FILTER (linux/icmp.h) and ICMP6_FILTER (RFC 3542): types whose bits are set are filtered
    // out.
    const FILTER: c_int = 1;
    let mut blocked = [u32::MAX; 8];
    let (level, words) = match six {
        true => {
            blocked[129 / 32] &= !(1 << (129 % 32));
            (libc::IPPROTO_ICMPV6, 8)
        }
        false => {
            blocked[0] &= !(1 | 1 << 14);
            (libc::SOL_RAW, 1)
        }
    };
    let bytes: Vec<u8> = blocked[..words]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    set_bytes(&fd, level, FILTER, &bytes)?;
    // A second filter drops answers of other hosts or to other identifiers: a stranger may send
    // many, which would fill the buffer. An IPv4 raw socket delivers the IP header, too.
    let (header, source, address) = match host {
        IpAddr::V4(host) => (
            libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH,
            12,
            host.octets().to_vec(),
        ),
        IpAddr::V6(host) => (
            libc::BPF_LDX | libc::BPF_IMM,
            libc::SKF_NET_OFF.cast_unsigned() + 8,
            host.octets().to_vec(),
        ),
    };
    let load = |code, at| filter_step(libc::BPF_LD | code, 0, 0, at);
    let mut tests = vec![(load(libc::BPF_H | libc::BPF_IND, 4), identifier.into())];
    for (at, word) in (source..).step_by(4).zip(address.chunks_exact(4)) {
        let word = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
        tests.push((load(libc::BPF_W | libc::BPF_ABS, at), word));
    }
    let mut program = vec![filter_step(header, 0, 0, 0)];
    let count = num::count(tests.len());
    for (left, (load, value)) in (0..count).rev().zip(tests) {
        let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        let end = num::low_u8((2 * left + 1).into());
        program.extend([load, filter_step(equal, 0, end, value)]);
    }
    let end = libc::BPF_RET | libc::BPF_K;
    program.extend([filter_step(end, 0, 0, u32::MAX), filter_step(end, 0, 0, 0)]);
    attach_filter(fd.as_fd(), &mut program)?;
    let level = libc::SOL_SOCKET;
    set_bytes(&fd, level, libc::SO_PRIORITY, &priority.to_ne_bytes())?;
    if let Some(name) = device {
        set_bytes(
            &fd,
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            name.as_bytes(),
        )?;
    }
    Ok(fd)
}

pub(super) fn set_bytes(fd: &OwnedFd, level: c_int, name: c_int, value: &[u8]) -> io::Result<()> {
    let size = num::count(value.len());
    // SAFETY: the value outlives the call and has this size.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), size) })?;
    Ok(())
}

/// Receives one message from the kernel; returns its length.
pub fn receive_bytes(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is valid for its length.
    let n = unsafe { libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Receives a packet from a [`tap`]; `buffer` gets its beginning. Returns its length, its type
/// (`PACKET_OUTGOING` and so on) and its protocol.
pub fn receive_copy(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, u8, u16)> {
    // SAFETY: zero is a valid sockaddr_ll; the kernel fills buffers that are valid for their
    // lengths.
    unsafe {
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        let mut size = num::count(size_of_val(&address));
        let n = libc::recvfrom(
            fd.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            libc::MSG_TRUNC,
            (&raw mut address).cast(),
            &raw mut size,
        );
        let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        Ok((n, address.sll_pkttype, u16::from_be(address.sll_protocol)))
    }
}

/// Sends messages to the kernel, which reads them all before this returns.
pub fn send_bytes(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the buffer is valid for its length.
    match unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) } {
        n if n < 0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A pair of connected sockets that preserve message boundaries.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut pair = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: two descriptors fit into `pair`.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) })?;
    Ok((owned(pair[0])?, owned(pair[1])?))
}

/// Aligned room for one control message.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct Control([u8; Self::SIZE as usize]);

impl Control {
    const SIZE: u8 = 64;
    /// Without a message.
    pub const EMPTY: Self = Self([0; Self::SIZE as usize]);
}

/// A message's header with these buffers (at most 255), and with room for a control message. It is
/// valid as long as they are.
pub fn message_header(parts: &mut [libc::iovec], control: Option<&mut Control>) -> libc::msghdr {
    // SAFETY: zero is a valid msghdr.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = parts.as_mut_ptr();
    header.msg_iovlen = num::low_u8(num::count(parts.len()).into()).into();
    if let Some(control) = control {
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = Control::SIZE.into();
    }
    header
}

/// The content of a message's control message, if it has one of this level and kind.
///
/// # Safety
/// The buffers of [`message_header`] must still be valid, the kernel must have received into them,
/// and `T` must be what it puts into such a message.
pub unsafe fn control_message<T>(header: &libc::msghdr, level: c_int, kind: c_int) -> Option<T> {
    // SAFETY: the kernel wrote whole control messages of the stated lengths.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(header);
        if first.is_null() || (*first).cmsg_level != level || (*first).cmsg_type != kind {
            return None;
        }
        Some(libc::CMSG_DATA(first).cast::<T>().read_unaligned())
    }
}

/// Sends a message, optionally with a descriptor.
pub fn send(socket: BorrowedFd<'_>, message: &[u8], fd: Option<RawFd>) -> io::Result<()> {
    let mut part = libc::iovec {
        iov_base: message.as_ptr().cast_mut().cast(),
        iov_len: message.len(),
    };
    let mut room = Control::EMPTY;
    let room = fd.is_some().then_some(&mut room);
    let mut header = message_header(slice::from_mut(&mut part), room);
    // SAFETY: the control buffer is aligned, outlives the call, and holds one descriptor
    // (CMSG_SPACE(4) is 24 bytes). sendmsg does not write through iov_base.
    unsafe {
        if let Some(fd) = fd {
            header.msg_controllen = libc::CMSG_SPACE(4) as _;
            let first = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(first).cast::<c_int>().write_unaligned(fd);
        }
        match libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_NOSIGNAL) {
            n if n < 0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

/// Receives a message (0 bytes: the other end is closed), and the descriptor in it, if there is
/// one.
pub fn receive(socket: BorrowedFd<'_>, message: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut part = libc::iovec {
        iov_base: message.as_mut_ptr().cast(),
        iov_len: message.len(),
    };
    let mut room = Control::EMPTY;
    let mut header = message_header(slice::from_mut(&mut part), Some(&mut room));
    // SAFETY: the kernel fills buffers that are valid for their lengths, and a received descriptor
    // has no other owner.
    unsafe {
        let n = libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC);
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = control_message::<c_int>(&header, libc::SOL_SOCKET, libc::SCM_RIGHTS);
        Ok((n.cast_unsigned(), fd.map(|fd| OwnedFd::from_raw_fd(fd))))
    }
}

/// Accepts a connection at a listening socket; the new socket is nonblocking.
pub fn accept(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let null = std::ptr::null_mut();
    // SAFETY: both pointers may be null: the address is not needed.
    owned(unsafe { libc::accept4(fd.as_raw_fd(), null, null.cast(), flags) })
}

/// Writes to a connection without blocking; returns how many bytes. A closed connection is an error
/// and causes no signal.
pub fn write_socket(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the buffer is valid for its length.
    let n = unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}
