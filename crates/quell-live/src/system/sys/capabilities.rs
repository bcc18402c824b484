//! Capabilities and seccomp.

use quell_qdisc::num;

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

/// Drops all capabilities except these from the bounding set: a program that this thread executes
/// cannot get them, even if it is setuid.
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

/// Makes the next executed program keep these capabilities (ambient set, capabilities(7)); false if
/// that failed.
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
