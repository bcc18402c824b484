//! The few system calls that the standard library lacks, each behind a safe function.
//!
//! Those that `init` calls between `clone` and `exec` only make system calls: no allocation, no
//! locks.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use quell_qdisc::num;
use quell_qdisc::time::Instant;

/// The errno of the last system call.
pub fn errno() -> c_int {
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() }
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Takes ownership of a descriptor that a system call has just returned.
fn owned(fd: c_int) -> io::Result<OwnedFd> {
    // SAFETY: a descriptor that the kernel has just returned has no other owner.
    check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens a file, with O_CLOEXEC.
pub fn open(path: &CStr, flags: c_int) -> io::Result<OwnedFd> {
    // SAFETY: `path` ends in a NUL.
    owned(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) })
}

/// Opens a file in a folder, with O_CLOEXEC. `mode` is that of a newly created file.
pub fn open_at(
    folder: BorrowedFd<'_>,
    name: &CStr,
    flags: c_int,
    mode: u32,
) -> io::Result<OwnedFd> {
    let (fd, flags) = (folder.as_raw_fd(), flags | libc::O_CLOEXEC);
    // SAFETY: `name` ends in a NUL.
    owned(unsafe { libc::openat(fd, name.as_ptr(), flags, mode) })
}

/// Runs `make` with this umask, which applies to all threads meanwhile.
pub fn with_umask<T>(mask: u32, make: impl FnOnce() -> T) -> T {
    // SAFETY: no pointers, no errors.
    let before = unsafe { libc::umask(mask as libc::mode_t) };
    let made = make();
    // SAFETY: as above.
    unsafe { libc::umask(before) };
    made
}

/// Renames a file within a folder.
pub fn rename_at(folder: BorrowedFd<'_>, from: &CStr, to: &CStr) -> io::Result<()> {
    let fd = folder.as_raw_fd();
    // SAFETY: both names end in a NUL.
    check(unsafe { libc::renameat(fd, from.as_ptr(), fd, to.as_ptr()) }).map(drop)
}

/// Deletes a file in a folder.
pub fn unlink_at(folder: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: `name` ends in a NUL.
    check(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

/// A socket for `ioctl`s about interfaces.
pub fn socket(family: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    owned(unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })
}

/// An `ioctl` that reads from or writes to `argument`. The type of a request differs between C
/// libraries.
///
/// # Safety
/// `argument` must be the type that `request` is defined with.
pub unsafe fn ioctl<T>(fd: BorrowedFd<'_>, request: c_ulong, argument: &mut T) -> io::Result<()> {
    #[allow(clippy::cast_possible_truncation, reason = "requests have 32 bits")]
    let request = request as libc::Ioctl;
    // SAFETY: the caller ensures the type; the pointer is valid for the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, std::ptr::from_mut(argument)) })?;
    Ok(())
}

/// An `ioctl` whose argument is a number.
pub fn ioctl_number(fd: BorrowedFd<'_>, request: libc::Ioctl, argument: u32) -> io::Result<()> {
    // SAFETY: the request that this is used for (TUNSETOFFLOAD) takes a number.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, libc::c_ulong::from(argument)) })?;
    Ok(())
}

/// Sends a message to the kernel by rtnetlink, without waiting for an answer.
pub fn netlink(message: &[u32]) {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers; then a buffer that is valid for its length.
    unsafe {
        if let Ok(socket) = owned(libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE)) {
            let bytes = size_of_val(message);
            libc::send(socket.as_raw_fd(), message.as_ptr().cast(), bytes, 0);
        }
    }
}

/// A nonblocking rtnetlink socket for requests.
pub fn rtnetlink() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers.
    owned(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })
}

/// Binds a netlink socket and returns its port, which its requests and the notifications about them
/// carry. Enables explanations of errors (NETLINK_EXT_ACK), if the kernel has them.
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
        check(libc::bind(raw, (&raw const address).cast(), size))?;
        check(libc::getsockname(raw, (&raw mut address).cast(), &mut size))?;
        Ok(address.nl_pid)
    }
}

/// Columns and rows of a terminal; `None` for other files.
pub fn terminal_size(fd: BorrowedFd<'_>) -> Option<(usize, usize)> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ is defined with a winsize.
    unsafe { ioctl(fd, libc::TIOCGWINSZ as c_ulong, &mut size) }.ok()?;
    Some((size.ws_col.into(), size.ws_row.into()))
}

/// Lists the IPv4 routes of all tables; `each` gets a message for each.
pub fn routes(mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let socket = owned(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
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

/// A nonblocking netlink socket to netfilter with a receive buffer of `room` bytes. If the buffer
/// is full, only the kernel is notified, not this process (NETLINK_NO_ENOBUFS).
pub fn netfilter(room: c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers.
    let fd = owned(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_NETFILTER) })?;
    let forced = set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, room);
    // SO_RCVBUFFORCE is not allowed in a user namespace; then the system's limit applies.
    forced.or_else(|_| set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, room))?;
    set_option(&fd, libc::SOL_NETLINK, libc::NETLINK_NO_ENOBUFS, 1)?;
    Ok(fd)
}

/// A nonblocking netlink socket that gets the notifications of these groups.
pub fn notifications(protocol: c_int, groups: &[c_int]) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers; then a sockaddr_nl (of which zero is valid) that outlives the call. An
    // unbound socket gets no notifications.
    let fd = unsafe {
        let fd = owned(libc::socket(libc::AF_NETLINK, kind, protocol))?;
        let mut address: libc::sockaddr_nl = std::mem::zeroed();
        address.nl_family = num::short(libc::AF_NETLINK);
        let size = num::count(size_of_val(&address));
        check(libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size,
        ))?;
        fd
    };
    let join = libc::NETLINK_ADD_MEMBERSHIP;
    for group in groups {
        set_option(&fd, libc::SOL_NETLINK, join, *group)?;
    }
    Ok(fd)
}

/// Filters notifications about requests of the socket with this port out of a netlink socket.
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

/// A step of a filter; a comparison skips `yes` steps if it holds, else `no` steps.
pub fn filter_step(code: u32, yes: u8, no: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: num::low_u16(code.into()),
        jt: yes,
        jf: no,
        k: value,
    }
}

/// Attaches a filter to a socket: the kernel drops what the program drops.
fn attach_filter(fd: BorrowedFd<'_>, program: &mut [libc::sock_filter]) -> io::Result<()> {
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

/// A socket that gets a copy of all packets of an interface, from their IP header on.
pub fn tap(index: u32) -> io::Result<OwnedFd> {
    let all = num::short(libc::ETH_P_ALL).to_be();
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers; then a zeroed sockaddr_ll (which is valid) that outlives the call.
    unsafe {
        let fd = owned(libc::socket(libc::AF_PACKET, kind, 0))?;
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = num::short(libc::AF_PACKET);
        address.sll_protocol = all;
        address.sll_ifindex = index.cast_signed();
        let size = num::count(size_of_val(&address));
        check(libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size,
        ))?;
        Ok(fd)
    }
}

fn set_option(fd: &OwnedFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    set_bytes(fd, level, name, &value.to_ne_bytes())
}

/// 32 random bits from the operating system; `None` if it gives none.
pub fn random() -> Option<u32> {
    let mut bytes = [0; 4];
    // SAFETY: the kernel writes at most `bytes.len()` bytes.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    (got == bytes.len().cast_signed()).then(|| u32::from_ne_bytes(bytes))
}

/// A nonblocking raw ICMP socket that only gets answers to echo and timestamp requests with this
/// identifier. Its packets leave by `device`, if given, with this priority (SO_PRIORITY).
pub fn icmp(
    six: bool,
    identifier: u16,
    device: Option<&str>,
    priority: u32,
) -> io::Result<OwnedFd> {
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
    // Answers to requests of other programs, of which a stranger may send many, would fill the
    // buffer. An IPv4 raw socket delivers the IP header, too.
    let header = match six {
        true => libc::BPF_LDX | libc::BPF_IMM,
        false => libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH,
    };
    let own = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let mut program = [
        filter_step(header, 0, 0, 0),
        filter_step(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, 0, 0, 4),
        filter_step(own, 0, 1, identifier.into()),
        filter_step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        filter_step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
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

fn set_bytes(fd: &OwnedFd, level: c_int, name: c_int, value: &[u8]) -> io::Result<()> {
    let size = num::count(value.len());
    // SAFETY: the value outlives the call and has this size.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), size) })?;
    Ok(())
}

/// Receives one message from the kernel.
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

/// Writes as much as a descriptor accepts at once.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the bytes are valid for their length.
    let n = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Reads from a descriptor; 0 at the end.
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is valid for its length.
    let n = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Deletes a file; only makes a system call.
pub fn unlink(path: &CStr) {
    // SAFETY: `path` ends in a NUL.
    unsafe { libc::unlinkat(libc::AT_FDCWD, path.as_ptr(), 0) };
}

/// Writes all of `text` to the file at `path`; false if that failed.
pub fn write_file(path: &CStr, text: &[u8]) -> bool {
    let Ok(file) = open(path, libc::O_WRONLY) else {
        return false;
    };
    // SAFETY: the buffer is valid for its length.
    let n = unsafe { libc::write(file.as_raw_fd(), text.as_ptr().cast(), text.len()) };
    n == text.len().cast_signed()
}

/// Reads the beginning of the file at `path` into `buffer`; returns how many bytes, 0 if it cannot
/// be read.
pub fn read_file(path: &CStr, buffer: &mut [u8]) -> usize {
    let Ok(file) = open(path, libc::O_RDONLY) else {
        return 0;
    };
    let mut filled = 0;
    while filled < buffer.len() {
        let rest = &mut buffer[filled..];
        // SAFETY: the buffer is valid for its length.
        let n = unsafe { libc::read(file.as_raw_fd(), rest.as_mut_ptr().cast(), rest.len()) };
        match n {
            ..=0 => break,
            n => filled += n.cast_unsigned(),
        }
    }
    filled
}

/// A pair of connected sockets that preserve message boundaries.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut pair = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: two descriptors fit into `pair`.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) })?;
    Ok((owned(pair[0])?, owned(pair[1])?))
}

/// Room for one descriptor's control message.
#[repr(C, align(8))]
struct Control([u8; CONTROL as usize]);

const CONTROL: u8 = 64;

/// Sends a message, optionally with a descriptor.
pub fn send(socket: BorrowedFd<'_>, message: &[u8], fd: Option<RawFd>) -> io::Result<()> {
    let mut part = libc::iovec {
        iov_base: message.as_ptr().cast_mut().cast(),
        iov_len: message.len(),
    };
    let mut control = Control([0; CONTROL as usize]);
    // SAFETY: zero is a valid msghdr. The control buffer is aligned, outlives the call, and holds
    // one descriptor (CMSG_SPACE(4) is 24 bytes). sendmsg does not write through iov_base.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        if let Some(fd) = fd {
            header.msg_control = control.0.as_mut_ptr().cast();
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
    let mut control = Control([0; CONTROL as usize]);
    // SAFETY: as in `send`; the kernel fills buffers that are valid for their lengths, and a
    // received descriptor has no other owner.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL.into();
        let n = libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC);
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        let first = libc::CMSG_FIRSTHDR(&header);
        let mut fd = None;
        if !first.is_null()
            && (*first).cmsg_level == libc::SOL_SOCKET
            && (*first).cmsg_type == libc::SCM_RIGHTS
        {
            let raw = libc::CMSG_DATA(first).cast::<c_int>().read_unaligned();
            fd = Some(OwnedFd::from_raw_fd(raw));
        }
        Ok((n.cast_unsigned(), fd))
    }
}

/// Waits until `fd` can be read or `timeout` is over; true if it can be read.
pub fn readable(fd: BorrowedFd<'_>, timeout: Duration) -> bool {
    any_readable([fd], timeout)
}

/// Waits until one of them can be read or `timeout` is over; true if one can be read.
pub fn any_readable<const N: usize>(fds: [BorrowedFd<'_>; N], timeout: Duration) -> bool {
    poll(&mut fds.map(|fd| polled(fd, false)), timeout)
}

/// Waits until one of them can be read or `timeout` is over; returns which can.
pub fn which_readable<const N: usize>(
    fds: [Option<BorrowedFd<'_>>; N],
    timeout: Duration,
) -> [bool; N] {
    // Entries with a negative descriptor are ignored (poll(2)).
    let mut polls = fds.map(|fd| libc::pollfd {
        fd: fd.map_or(-1, |fd| fd.as_raw_fd()),
        events: libc::POLLIN,
        revents: 0,
    });
    poll(&mut polls, timeout);
    polls.map(|polled| polled.revents != 0)
}

/// Waits until one of them can be read (or written, if its flag is true) or `timeout` is over; true
/// if one can.
pub fn any_ready(fds: &[(BorrowedFd<'_>, bool)], timeout: Duration) -> bool {
    let mut polls: Vec<_> = fds.iter().map(|(fd, write)| polled(*fd, *write)).collect();
    poll(&mut polls, timeout)
}

fn polled(fd: BorrowedFd<'_>, write: bool) -> libc::pollfd {
    libc::pollfd {
        fd: fd.as_raw_fd(),
        events: if write { libc::POLLOUT } else { libc::POLLIN },
        revents: 0,
    }
}

fn poll(polls: &mut [libc::pollfd], timeout: Duration) -> bool {
    let time = libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i32::MAX.into()),
        tv_nsec: timeout.subsec_nanos() as _,
    };
    let count = polls.len() as libc::nfds_t;
    // SAFETY: the structures outlive the call; no signal mask.
    unsafe { libc::ppoll(polls.as_mut_ptr(), count, &time, std::ptr::null()) > 0 }
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

/// Whether this thread has these capabilities (effective set).
pub fn capable(bits: &[u32]) -> bool {
    let mut data = [0u32; 6];
    capget(&mut data);
    bits.iter()
        .all(|bit| data[3 * (*bit as usize / 32)] >> (bit % 32) & 1 == 1)
}

/// `_LINUX_CAPABILITY_VERSION_3`, and 0 for the calling thread.
const CAPABILITY_HEADER: [u32; 2] = [0x2008_0522, 0];

/// Reads the capabilities in the kernel's layout: effective, permitted and inheritable of bits 0 to
/// 31, then of 32 to 63.
fn capget(data: &mut [u32; 6]) {
    let mut header = CAPABILITY_HEADER;
    // SAFETY: version 3 has a header of two words and data of six.
    unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), data.as_mut_ptr()) };
}

/// Drops all capabilities of this thread except these.
pub fn limit_capabilities(bits: &[u32]) {
    let mut data = [0u32; 6];
    capget(&mut data);
    let mut keep = [0u32; 2];
    for bit in bits {
        keep[*bit as usize / 32] |= 1 << (bit % 32);
    }
    for (k, word) in data.iter_mut().enumerate() {
        *word &= keep[k / 3];
    }
    let mut header = CAPABILITY_HEADER;
    // SAFETY: as in `capget`. Capabilities dropped from the permitted set leave the ambient set,
    // too.
    unsafe { libc::syscall(libc::SYS_capset, header.as_mut_ptr(), data.as_ptr()) };
}

/// Limits the capabilities of programs that this thread starts to these, also for setuid programs
/// (bounding set).
pub fn bound_capabilities(bits: &[u32]) {
    for bit in (0..64).filter(|bit| !bits.contains(bit)) {
        // SAFETY: prctl takes numbers here; it fails if there is no such capability, or it may not
        // be dropped.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(bit), 0, 0, 0) };
    }
}

/// Installs a seccomp filter for this thread; no effect if the kernel does not support it.
pub fn seccomp(program: &mut [libc::sock_filter]) {
    let program = libc::sock_fprog {
        len: num::index_u16(program.len()),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: prctl takes numbers, then a program that outlives the call and that the kernel
    // checks.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as libc::c_ulong, 0, 0, 0);
        let mode = libc::SECCOMP_MODE_FILTER as libc::c_ulong;
        libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program);
    }
}

/// Makes the next executed program keep these capabilities (ambient set, capabilities(7)).
pub fn keep_capabilities(bits: &[u32]) -> bool {
    let mut data = [0u32; 6];
    capget(&mut data);
    for bit in bits {
        data[3 * (*bit as usize / 32) + 2] |= 1 << (bit % 32);
    }
    let mut header = CAPABILITY_HEADER;
    // SAFETY: as in `capget`; prctl takes numbers here.
    unsafe {
        libc::syscall(libc::SYS_capset, header.as_mut_ptr(), data.as_ptr()) == 0
            && bits.iter().all(|bit| {
                let raise = libc::PR_CAP_AMBIENT_RAISE;
                libc::prctl(libc::PR_CAP_AMBIENT, raise, u64::from(*bit), 0, 0) == 0
            })
    }
}

/// The effective user and group of this process.
pub fn identity() -> (u32, u32) {
    // SAFETY: no arguments, no errors.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Gives this thread real-time priority and exact timers, as far as allowed; returns whether it has
/// real-time priority.
pub fn be_punctual(priority: c_int) -> bool {
    // SAFETY: zero is a valid sched_param, which outlives the call; prctl takes numbers here. The
    // system call is made directly, since musl's function always fails.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1u64, 0, 0, 0);
        let mut param: libc::sched_param = std::mem::zeroed();
        param.sched_priority = priority;
        let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
        libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const param) == 0
    }
}

/// Numbers of the CPUs that this process may use.
pub fn processors() -> Vec<usize> {
    // SAFETY: zero is a valid set, filled by the kernel for its size; numbers below CPU_SETSIZE lie
    // within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        let all = 0..libc::CPU_SETSIZE as usize;
        all.filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
    }
}

/// Pins this thread to a CPU. No effect if that is offline by now.
pub fn pin(cpu: usize) {
    // SAFETY: zero is a valid set, which outlives the call; the number comes from `processors`.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// The time on CLOCK_MONOTONIC.
pub fn monotonic() -> Instant {
    // SAFETY: zero is a valid timespec to be filled; it outlives the call.
    let now = unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now);
        now
    };
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(now.tv_nsec).unwrap_or_default();
    Instant::from_nanos(seconds * 1_000_000_000 + nanos)
}

/// Sends a signal to a process.
pub fn kill(pid: c_int, signal: c_int) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::kill(pid, signal) == 0 }
}

/// Makes the kernel kill the program when the thread that starts it ends.
pub fn end_with_parent(command: &mut Command) {
    let parent = std::process::id().cast_signed();
    let prepare = move || {
        // SAFETY: numbers only; both calls may be made between fork and exec.
        let there = unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) == 0
                && libc::getppid() == parent
        };
        match there {
            true => Ok(()),
            false => Err(io::ErrorKind::Interrupted.into()),
        }
    };
    // SAFETY: the closure allocates nothing and makes system calls only.
    unsafe { command.pre_exec(prepare) };
}

/// Waits for the end of a child; `None` if there is none.
pub fn reap(pid: c_int) -> Option<c_int> {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    match unsafe { libc::waitpid(pid, &mut status, 0) } {
        -1 => None,
        _ => Some(status),
    }
}

/// Makes this process group the terminal's foreground group again, if standard input is a terminal.
pub fn take_terminal_back() {
    // SAFETY: signal dispositions are restored to what they were; no pointers besides.
    unsafe {
        if libc::isatty(0) == 1 {
            let was = libc::signal(libc::SIGTTOU, libc::SIG_IGN);
            libc::tcsetpgrp(0, libc::getpgrp());
            libc::signal(libc::SIGTTOU, was);
        }
    }
}

/// Names and IPv4 addresses (with their masks) of this namespace's interfaces.
pub fn interfaces() -> io::Result<Vec<(String, u32, u32)>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: on success `list` is a linked list that stays valid until freeifaddrs; addresses are
    // read according to their family.
    unsafe {
        check(libc::getifaddrs(&mut list))?;
        let mut found = Vec::new();
        let mut at = list;
        let v4 = |a: *mut libc::sockaddr| {
            (!a.is_null() && c_int::from((*a).sa_family) == libc::AF_INET)
                .then(|| u32::from_be((*a.cast::<libc::sockaddr_in>()).sin_addr.s_addr))
        };
        while !at.is_null() {
            let name = CStr::from_ptr((*at).ifa_name).to_string_lossy();
            if let (Some(address), Some(mask)) = (v4((*at).ifa_addr), v4((*at).ifa_netmask)) {
                found.push((name.into_owned(), address, mask));
            }
            at = (*at).ifa_next;
        }
        libc::freeifaddrs(list);
        Ok(found)
    }
}

/// Copies a name into a fixed-size field, truncated to fit with its NUL.
pub fn copy_name(field: &mut [libc::c_char], name: &CStr) {
    let bytes = name.to_bytes();
    let fits = bytes.len().min(field.len() - 1);
    for (to, from) in field.iter_mut().zip(&bytes[..fits]) {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    field[fits] = 0;
}

/// A mutable pointer to a string for an `ioctl`'s structure.
pub fn pointer(name: &CStr) -> *mut c_void {
    name.as_ptr().cast_mut().cast()
}
