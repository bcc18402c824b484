//! Sends UDP frames through an interface, for `benches/live/speed` and `benches/live/cores`.
//!
//! `flood DEV SECONDS BYTES FLOWS` sends as many as this machine can and prints their number.
//! `flood DEV SECONDS BYTES FLOWS BURST COUNTERS` sends bursts of `BURST` frames from all
//! processors at once, at a priority above quell's, so that nothing else runs meanwhile. After each
//! burst it waits until `COUNTERS` (a `/proc/PID/net/dev`) has counted all frames. It prints how
//! many frames arrived after the sending, and in how many seconds.
#![allow(unsafe_code)]

#[cfg(target_os = "linux")]
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |k: usize| arguments[k].parse::<u64>().expect("a number");
    let flood = linux::Flood {
        dev: std::ffi::CString::new(arguments[0].clone()).expect("a name"),
        seconds: number(1),
        bytes: number(2) as usize,
        flows: number(3) as u32,
    };
    match arguments.get(5) {
        None => println!("{}", flood.steady()),
        Some(counters) => {
            let (passed, seconds) = flood.bursts(number(4), counters);
            println!("{passed} {seconds}");
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::CString;
    use std::mem::zeroed;
    use std::time::{Duration, Instant};

    const BATCH: usize = 64;
    /// A burst that has not arrived completely by then has lost frames and is not counted.
    const RECEIVE_TIMEOUT: Duration = Duration::from_secs(1);

    pub struct Flood {
        pub dev: CString,
        pub seconds: u64,
        pub bytes: usize,
        pub flows: u32,
    }

    /// A socket and the frames that it sends next.
    struct Source {
        fd: i32,
        frames: Vec<Vec<u8>>,
        flow: u32,
        flows: u32,
    }

    impl Source {
        fn new(flood: &Flood, number: usize) -> Self {
            // An Ethernet frame to a host that does not exist, with addresses of the block for
            // benchmarks (RFC 2544).
            let mut frame = vec![0u8; 14 + flood.bytes];
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
            frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 8, 0]);
            let length = (flood.bytes as u16).to_be_bytes();
            let head = [0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, 17];
            frame[14..24].copy_from_slice(&head);
            frame[26..34].copy_from_slice(&[198, 18, 0, 1, 198, 19, 0, number as u8 + 1]);
            frame[38..40].copy_from_slice(&((flood.bytes - 20) as u16).to_be_bytes());
            // SAFETY: zero is a valid sockaddr_ll; it and the option's value outlive the calls.
            let fd = unsafe {
                let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
                let mut address: libc::sockaddr_ll = zeroed();
                address.sll_family = libc::AF_PACKET as u16;
                address.sll_ifindex = libc::if_nametoindex(flood.dev.as_ptr()) as _;
                let size = size_of_val(&address) as libc::socklen_t;
                let bound = libc::bind(fd, (&raw const address).cast(), size);
                assert_eq!(bound, 0, "root, and an interface");
                let one = 1i32;
                libc::setsockopt(fd, libc::SOL_PACKET, 20, (&raw const one).cast(), 4); // PACKET_QDISC_BYPASS
                fd
            };
            Self {
                fd,
                frames: vec![frame; BATCH],
                flow: 0,
                flows: flood.flows,
            }
        }

        /// Sends a batch and returns how many frames were sent. Each frame is of the next flow,
        /// which has its own source address and port.
        fn send(&mut self) -> u64 {
            // SAFETY: zero is valid for these structures; their pointers lead to memory that
            // outlives the call.
            unsafe {
                let mut parts: [libc::iovec; BATCH] = zeroed();
                let mut messages: [libc::mmsghdr; BATCH] = zeroed();
                let each = self.frames.iter_mut().zip(&mut parts).zip(&mut messages);
                for ((frame, part), message) in each {
                    self.flow = (self.flow + 1) % self.flows;
                    frame[28..30].copy_from_slice(&(self.flow as u16).to_be_bytes());
                    frame[34..36].copy_from_slice(&(self.flow as u16).to_be_bytes());
                    frame[24..26].fill(0);
                    let sum = checksum(&frame[14..34]);
                    frame[24..26].copy_from_slice(&sum.to_be_bytes());
                    part.iov_base = frame.as_mut_ptr().cast();
                    part.iov_len = frame.len();
                    message.msg_hdr.msg_iov = part;
                    message.msg_hdr.msg_iovlen = 1 as _;
                }
                let n = libc::sendmmsg(self.fd, messages.as_mut_ptr(), BATCH as _, 0);
                u64::try_from(n).unwrap_or(0)
            }
        }
    }

    /// Checksum of an IP header (RFC 1071).
    fn checksum(header: &[u8]) -> u16 {
        let words = header.chunks_exact(2);
        let sum: u32 = words
            .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
            .sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        !((sum & 0xffff) + (sum >> 16)) as u16
    }

    /// Packets that the interface v0 has received.
    fn arrived(counters: &str) -> u64 {
        let text = std::fs::read_to_string(counters).expect("counters");
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("v0:"));
        let words = line.expect("v0").split_whitespace();
        words
            .map(|n| n.parse().expect("a number"))
            .nth(1)
            .expect("two columns")
    }

    /// Gives this thread a real-time priority above quell's and pins it to the processor, if one is
    /// given.
    fn urgent(cpu: Option<usize>) {
        // SAFETY: zero is valid for both structures, which outlive the calls.
        unsafe {
            let mut param: libc::sched_param = zeroed();
            param.sched_priority = 50;
            libc::sched_setscheduler(0, libc::SCHED_FIFO, &param);
            if let Some(cpu) = cpu {
                let mut set: libc::cpu_set_t = zeroed();
                libc::CPU_SET(cpu, &mut set);
                libc::sched_setaffinity(0, size_of_val(&set), &set);
            }
        }
    }

    impl Flood {
        pub fn steady(&self) -> u64 {
            let (mut source, mut sent) = (Source::new(self, 0), 0);
            let end = Instant::now() + Duration::from_secs(self.seconds);
            while Instant::now() < end {
                sent += source.send();
            }
            sent
        }

        pub fn bursts(&self, burst: u64, counters: &str) -> (u64, f64) {
            let cpus = std::thread::available_parallelism().map_or(1, usize::from);
            let mut sources: Vec<_> = (0..cpus).map(|number| Source::new(self, number)).collect();
            urgent(None);
            let (mut passed, mut seconds, mut usual) = (0, 0.0, 0.0);
            let end = Instant::now() + Duration::from_secs(self.seconds);
            while Instant::now() < end {
                let before = arrived(counters);
                let share = burst.div_ceil(cpus as u64);
                let sent: u64 = std::thread::scope(|scope| {
                    let threads = sources.iter_mut().enumerate().map(|(cpu, source)| {
                        scope.spawn(move || {
                            urgent(Some(cpu));
                            let mut sent = 0;
                            while sent < share {
                                sent += source.send();
                            }
                            sent
                        })
                    });
                    let threads: Vec<_> = threads.collect();
                    threads.into_iter().filter_map(|t| t.join().ok()).sum()
                });
                let (began, already) = (Instant::now(), arrived(counters) - before);
                // Reading the counters takes CPU time from quell's loops, so it begins near the
                // end.
                std::thread::sleep(Duration::from_secs_f64(0.9 * usual));
                while arrived(counters) - before < sent && began.elapsed() < RECEIVE_TIMEOUT {
                    std::thread::sleep(Duration::from_micros(100));
                }
                if began.elapsed() < RECEIVE_TIMEOUT {
                    passed += sent - already;
                    usual = began.elapsed().as_secs_f64();
                    seconds += usual;
                    // Shortens the next sleep, so that it does not outlast a shorter burst.
                    usual *= 0.9;
                }
                // Leaves time to other processes.
                std::thread::sleep(Duration::from_millis(5));
            }
            (passed, seconds)
        }
    }
}
