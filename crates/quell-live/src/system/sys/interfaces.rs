//! Interfaces: `ioctl`s, and the list of addresses.

use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::{check, owned};

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

/// Names and IPv4 addresses (with their masks) of this namespace's interfaces.
pub fn interfaces() -> io::Result<Vec<(String, u32, u32)>> {
    let mut found = Vec::new();
    // SAFETY: the entry's pointers are valid or null while it is listed.
    each_address(|entry| unsafe {
        if let (Some(IpAddr::V4(address)), Some(IpAddr::V4(mask))) =
            (address(entry.ifa_addr), address(entry.ifa_netmask))
        {
            let name = CStr::from_ptr(entry.ifa_name).to_string_lossy();
            found.push((name.into_owned(), address.to_bits(), mask.to_bits()));
        }
    })?;
    Ok(found)
}

/// IPv4 and IPv6 addresses of this namespace's interfaces.
pub fn addresses() -> io::Result<Vec<IpAddr>> {
    let mut found = Vec::new();
    // SAFETY: as in `interfaces`.
    each_address(|entry| found.extend(unsafe { address(entry.ifa_addr) }))?;
    Ok(found)
}

fn each_address(mut each: impl FnMut(&libc::ifaddrs)) -> io::Result<()> {
    let mut list = std::ptr::null_mut();
    // SAFETY: on success `list` is a linked list that stays valid until freeifaddrs.
    unsafe {
        check(libc::getifaddrs(&mut list))?;
        let mut at = list;
        while let Some(entry) = at.as_ref() {
            each(entry);
            at = entry.ifa_next;
        }
        libc::freeifaddrs(list);
    }
    Ok(())
}

/// An IP address; `None` if it is of another family.
///
/// # Safety
/// `at` must be null or valid for the length of its family's addresses.
unsafe fn address(at: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: as above.
    unsafe {
        match c_int::from(at.as_ref()?.sa_family) {
            libc::AF_INET => {
                let bits = (*at.cast::<libc::sockaddr_in>()).sin_addr.s_addr;
                Some(Ipv4Addr::from_bits(u32::from_be(bits)).into())
            }
            libc::AF_INET6 => {
                let octets = (*at.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr;
                Some(Ipv6Addr::from(octets).into())
            }
            _ => None,
        }
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
