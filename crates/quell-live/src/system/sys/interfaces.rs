//! Interfaces: `ioctl`s, and the list of addresses.

use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::io;
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
