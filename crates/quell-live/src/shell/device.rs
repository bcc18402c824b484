//! TUN devices, and what `ifconfig` and `route` do, by `ioctl`: simple enough to run between
//! `clone` and `exec`.
//!
//! A device exists as long as the descriptor that made it. When the process dies, for whatever
//! reason, the device is gone.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};

use quell_qdisc::num;

use crate::system::sys;

/// Packets that the kernel queues until quell reads them; it drops further ones, which quell does
/// not see.
const QUEUE: u32 = 10_000;

/// Offload of UDP segmentation (linux/if_tun.h).
const TUN_F_USO4: u32 = 0x20;
const TUN_F_USO6: u32 = 0x40;

/// One end of the link.
#[derive(Clone, Debug)]
pub struct End {
    /// IPv4 address and prefix length.
    pub four: (Ipv4Addr, u8),
    /// IPv6 address and prefix length; `None` without IPv6.
    pub six: Option<(Ipv6Addr, u8)>,
    /// MTU, bytes.
    pub mtu: u32,
    /// Whether the default route leads through this end.
    pub default_route: bool,
}

/// `struct in6_rtmsg` of linux/ipv6_route.h; all zeros are the default route.
#[derive(Default)]
#[repr(C)]
struct Route6 {
    destination: [u32; 4],
    source: [u32; 4],
    gateway: [u32; 4],
    kind: u32,
    destination_bits: u16,
    source_bits: u16,
    metric: u32,
    info: libc::c_ulong,
    flags: u32,
    index: libc::c_int,
}

/// Makes a TUN device in this network namespace. It is read and written frame by frame (see
/// [`crate::packet::segment`]), without blocking. With `offload` the kernel may hand over large
/// packets and leave checksums to quell.
pub fn tun(name: &CStr, offload: bool) -> io::Result<OwnedFd> {
    let file = sys::open(c"/dev/net/tun", libc::O_RDWR | libc::O_NONBLOCK)?;
    let mut request = named(name);
    request.ifr_ifru.ifru_flags =
        num::short(libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR).cast_signed();
    // SAFETY: TUNSETIFF is defined with an ifreq.
    unsafe { sys::ioctl(file.as_fd(), libc::TUNSETIFF as libc::c_ulong, &mut request)? };
    if offload {
        let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        let udp = TUN_F_USO4 | TUN_F_USO6;
        // Kernels before 6.2 have no UDP segmentation. A kernel that refuses TCP's, too, hands over
        // plain packets.
        if sys::ioctl_number(file.as_fd(), libc::TUNSETOFFLOAD, tcp | udp).is_err() {
            let _ = sys::ioctl_number(file.as_fd(), libc::TUNSETOFFLOAD, tcp);
        }
    }
    Ok(file)
}

/// An `ifreq` about this device.
fn named(name: &CStr) -> libc::ifreq {
    // SAFETY: zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    sys::copy_name(&mut request.ifr_name, name);
    request
}

fn four(address: Ipv4Addr) -> libc::sockaddr {
    // SAFETY: zero is a valid sockaddr_in, which is as large as a sockaddr.
    unsafe {
        let mut a: libc::sockaddr_in = std::mem::zeroed();
        a.sin_family = num::short(libc::AF_INET);
        a.sin_addr.s_addr = u32::from(address).to_be();
        std::mem::transmute(a)
    }
}

/// Brings the loopback device up.
pub fn loopback_up() -> io::Result<()> {
    up(sys::socket(libc::AF_INET)?, c"lo")
}

fn up(socket: OwnedFd, name: &CStr) -> io::Result<()> {
    let mut request = named(name);
    // SAFETY: these requests are defined with an ifreq, whose flags the first one fills in.
    unsafe {
        sys::ioctl(socket.as_fd(), libc::SIOCGIFFLAGS, &mut request)?;
        request.ifr_ifru.ifru_flags |= num::short(libc::IFF_UP).cast_signed();
        sys::ioctl(socket.as_fd(), libc::SIOCSIFFLAGS, &mut request)
    }
}

/// Gives a device its addresses and brings it up; returns whether IPv6 worked.
pub fn configure(name: &CStr, end: &End) -> io::Result<bool> {
    let socket = sys::socket(libc::AF_INET)?;
    let mut request = named(name);
    // SAFETY: these requests are defined with an ifreq; each reads the member that was set.
    unsafe {
        request.ifr_ifru.ifru_mtu = end.mtu.cast_signed();
        sys::ioctl(socket.as_fd(), libc::SIOCSIFMTU, &mut request)?;
        sys::ioctl(socket.as_fd(), libc::SIOCGIFINDEX, &mut request)?;
        set_queue_length(request.ifr_ifru.ifru_ifindex);
        request.ifr_ifru.ifru_addr = four(end.four.0);
        sys::ioctl(socket.as_fd(), libc::SIOCSIFADDR, &mut request)?;
        let mask = u32::MAX << (32 - end.four.1);
        request.ifr_ifru.ifru_netmask = four(mask.into());
        sys::ioctl(socket.as_fd(), libc::SIOCSIFNETMASK, &mut request)?;
    }
    up(socket, name)?;
    if end.default_route {
        default_route(name)?;
    }
    // A machine without IPv6 still has IPv4.
    Ok(end
        .six
        .is_some_and(|six| configure_six(name, six, end.default_route).is_ok()))
}

/// Sets the kernel's queue for the device to [`QUEUE`] packets. By netlink, because the `ioctl`
/// needs a privilege that user namespaces do not give. If the kernel refuses, the queue stays at
/// 500.
fn set_queue_length(index: libc::c_int) {
    let mut m = [0u32; 10];
    // struct nlmsghdr: length, type and flags; struct ifinfomsg: index; struct rtattr: length and
    // type, value.
    m[0] = num::count(size_of_val(&m));
    m[1] = u32::from_ne_bytes(halves(libc::RTM_NEWLINK, num::short(libc::NLM_F_REQUEST)));
    m[5] = index.cast_unsigned();
    m[8] = u32::from_ne_bytes(halves(8, libc::IFLA_TXQLEN));
    m[9] = QUEUE;
    sys::send_rtnetlink(&m);
}

/// Two 16-bit numbers in native byte order.
fn halves(first: u16, second: u16) -> [u8; 4] {
    let (a, b) = (first.to_ne_bytes(), second.to_ne_bytes());
    [a[0], a[1], b[0], b[1]]
}

fn default_route(name: &CStr) -> io::Result<()> {
    let socket = sys::socket(libc::AF_INET)?;
    let any = four(Ipv4Addr::UNSPECIFIED);
    // SAFETY: zero is a valid rtentry; SIOCADDRT is defined with one, and rt_dev is a string that
    // outlives the call.
    unsafe {
        let mut route: libc::rtentry = std::mem::zeroed();
        (route.rt_dst, route.rt_genmask, route.rt_flags) = (any, any, libc::RTF_UP);
        route.rt_dev = sys::pointer(name).cast();
        sys::ioctl(socket.as_fd(), libc::SIOCADDRT, &mut route)
    }
}

fn configure_six(name: &CStr, (address, prefix): (Ipv6Addr, u8), route: bool) -> io::Result<()> {
    let socket = sys::socket(libc::AF_INET6)?;
    let mut request = named(name);
    // SAFETY: each request is defined with the type that it gets; SIOCGIFINDEX fills in the index
    // that is read behind it.
    unsafe {
        sys::ioctl(socket.as_fd(), libc::SIOCGIFINDEX, &mut request)?;
        let index = request.ifr_ifru.ifru_ifindex;
        let mut six: libc::in6_ifreq = std::mem::zeroed();
        six.ifr6_addr.s6_addr = address.octets();
        six.ifr6_prefixlen = prefix.into();
        six.ifr6_ifindex = index;
        sys::ioctl(socket.as_fd(), libc::SIOCSIFADDR, &mut six)?;
        if route {
            let mut all = Route6 {
                metric: 1,
                flags: libc::RTF_UP.into(),
                index,
                ..Route6::default()
            };
            sys::ioctl(socket.as_fd(), libc::SIOCADDRT, &mut all)?;
        }
    }
    Ok(())
}
