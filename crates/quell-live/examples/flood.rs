//! `flood DEV SECONDS BYTES FLOWS`: as many UDP frames as this machine can send out of an interface, for `benches/live/speed`.
#![allow(unsafe_code)]

#[cfg(target_os = "linux")]
fn main() {
    use std::mem::zeroed;
    use std::time::{Duration, Instant};

    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |k: usize| arguments[k].parse::<u64>().expect("a number");
    let (seconds, bytes, flows) = (number(1), number(2) as usize, number(3) as u32);
    let name = std::ffi::CString::new(arguments[0].clone()).expect("a name");
    const BATCH: usize = 64;
    // An Ethernet frame to a host that is nobody, from addresses of the benchmarks' block (RFC 2544).
    let mut frame = vec![0u8; 14 + bytes];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, (bytes >> 8) as u8, bytes as u8, 0, 0, 0, 0, 64, 17]);
    frame[26..34].copy_from_slice(&[198, 18, 0, 1, 198, 19, 0, 1]);
    frame[38..40].copy_from_slice(&((bytes - 20) as u16).to_be_bytes());
    let mut frames = vec![frame; BATCH];
    let (mut sent, mut flow) = (0u64, 0u32);
    // SAFETY: zero is valid for these structures; their pointers lead to memory that outlives each call.
    unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
        let mut address: libc::sockaddr_ll = zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as _;
        let size = size_of_val(&address) as libc::socklen_t;
        assert_eq!(
            libc::bind(fd, (&raw const address).cast(), size),
            0,
            "root, and an interface"
        );
        let one = 1i32;
        libc::setsockopt(fd, libc::SOL_PACKET, 20, (&raw const one).cast(), 4); // PACKET_QDISC_BYPASS
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            let mut parts: [libc::iovec; BATCH] = zeroed();
            let mut messages: [libc::mmsghdr; BATCH] = zeroed();
            for ((frame, part), message) in frames.iter_mut().zip(&mut parts).zip(&mut messages) {
                flow = (flow + 1) % flows;
                frame[28..30].copy_from_slice(&((flow >> 16) as u16).to_be_bytes());
                frame[34..36].copy_from_slice(&(flow as u16).to_be_bytes());
                part.iov_base = frame.as_mut_ptr().cast();
                part.iov_len = frame.len();
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1 as _;
            }
            let n = libc::sendmmsg(fd, messages.as_mut_ptr(), BATCH as _, 0);
            sent += u64::try_from(n).unwrap_or(0);
        }
    }
    println!("{sent}");
}

#[cfg(not(target_os = "linux"))]
fn main() {}
