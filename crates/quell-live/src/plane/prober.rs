//! Sockets for ICMP requests to the reflectors that the operator names, and the thread of
//! `quell live` that sends them.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use quell_link::Error;
use quell_qdisc::time;
use serde_json::{Value, json};

use super::shared::Watch;
use crate::firewall;
use crate::packet::echo::{Answer, LENGTH, MAX_REFLECTORS, Prober, ReflectorStats};
use crate::system::{host, sandbox, sys};

/// Most packets read from a socket at a time, and the pause after that many: a flood costs only a
/// share of one core.
const READS: usize = 64;
const PAUSE: time::Duration = time::Duration::from_millis(2);
/// A longer time between two turns means that this process was stopped, or got no CPU time.
const STOPPED: time::Duration = time::Duration::from_millis(250);
/// Time without an answer after which the operator is told.
const QUIET: Duration = Duration::from_secs(10);
/// Longest wait, which bounds the time until the thread notices that it must stop.
const NAP: Duration = Duration::from_millis(50);

/// Parses the values of `--reflector`; duplicates are removed.
///
/// # Errors
/// If one is not an address or not that of a single host, or there are too many.
pub fn addresses(texts: &[String]) -> Result<Vec<IpAddr>, Error> {
    let mut all: Vec<IpAddr> = Vec::new();
    for text in texts.iter().flat_map(|text| text.split(',')) {
        let text = text.trim();
        let wrong = |what: &str| Error::new(format!("\"{text}\" {what}"));
        let address: IpAddr = text.parse().map_err(|_| {
            wrong("is not an address").remedy("write numbers, as in 192.0.2.1 or 2001:db8::1")
        })?;
        let lone = match address {
            IpAddr::V4(v4) => !v4.is_broadcast() && !v4.is_multicast(),
            IpAddr::V6(v6) => !v6.is_multicast() && !v6.is_unicast_link_local(),
        };
        if !lone || address.is_unspecified() || address.is_loopback() {
            return Err(wrong("is not the address of one host behind the line"));
        }
        if !all.contains(&address) {
            all.push(address);
        }
    }
    if all.len() > MAX_REFLECTORS {
        return Err(Error::new(format!(
            "names more than {MAX_REFLECTORS} reflectors"
        )));
    }
    Ok(all)
}

fn no(error: std::io::Error) -> Error {
    Error::new(format!("no socket for ICMP: {}", host::reason(&error))).key("--reflector")
}

/// The reflectors, and a socket to each: one that sends more than is read does not fill the buffer
/// of another.
#[derive(Debug)]
pub struct Reflectors {
    prober: Prober<fn() -> Option<u32>>,
    sockets: Vec<(IpAddr, UdpSocket)>,
    /// Epoll descriptor, readable while a socket is.
    readable: OwnedFd,
    began: time::Instant,
    /// End of the pause after a flood.
    woken: time::Instant,
    /// Time of the last turn; `None` before the first one.
    turned: Option<time::Instant>,
}

impl Reflectors {
    /// Opens sockets whose packets bypass quell's queues and leave by `device`, if given. At the
    /// HTB with handle `htb` they bypass all classes. Sends one request to each reflector.
    ///
    /// # Errors
    /// If an address is one of this machine, whose answers would not cross the line, the kernel
    /// refuses a socket, or a filter of this machine denies packets to a reflector.
    pub fn open(
        addresses: &[IpAddr],
        device: Option<&str>,
        htb: Option<u32>,
    ) -> Result<Self, Error> {
        let own = sys::addresses().map_err(no)?;
        if let Some(address) = addresses.iter().find(|address| own.contains(address)) {
            let error = Error::new(format!("{address} is an address of this machine"));
            return Err(error
                .key("--reflector")
                .remedy("name a host behind the line"));
        }
        Self::open_any(addresses, device, htb)
    }

    /// As [`Self::open`], but allows addresses of this machine.
    fn open_any(
        addresses: &[IpAddr],
        device: Option<&str>,
        htb: Option<u32>,
    ) -> Result<Self, Error> {
        let day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let day_ms = day.map_or(0, |since| (since.as_millis() % 86_400_000) as u64);
        let prober = Prober::new(addresses, sys::random as fn() -> _, day_ms);
        let socket = |&address: &IpAddr| {
            let socket = sys::icmp(address, prober.number(), device, htb.unwrap_or(0))?;
            host::mark(socket.as_fd(), firewall::MARK)?;
            Ok((address, UdpSocket::from(socket)))
        };
        let sockets: Vec<_> = addresses
            .iter()
            .map(socket)
            .collect::<Result<_, _>>()
            .map_err(no)?;
        let readable =
            sys::together(sockets.iter().map(|(_, socket)| socket.as_fd())).map_err(no)?;
        let mut all = Self {
            prober,
            sockets,
            readable,
            began: sys::monotonic(),
            woken: time::Instant::ZERO,
            turned: None,
        };
        for address in addresses {
            if let Err(error) = all.send_request(time::Instant::ZERO)
                && error.raw_os_error() == Some(libc::EPERM)
            {
                let what = format!(
                    "packets to {address} may not leave: {}",
                    host::reason(&error)
                );
                return Err(Error::new(what).key("--reflector").remedy(
                    "if the unit denies them (IPAddressDeny), add what quell live --print-dropin prints; else allow them in the firewall",
                ));
            }
        }
        Ok(all)
    }

    /// Time since the start.
    fn now(&self) -> time::Instant {
        time::Instant::ZERO + sys::monotonic().saturating_since(self.began)
    }

    /// Sends the next request, if one is due.
    fn send_request(&mut self, now: time::Instant) -> std::io::Result<()> {
        let mut request = [0; LENGTH];
        if let Some((to, length)) = self.prober.next_request(now, &mut request)
            && let Some((_, socket)) = self.sockets.iter().find(|(address, _)| *address == to)
        {
            socket.send_to(&request[..length], SocketAddr::new(to, 0))?;
        }
        Ok(())
    }

    /// A descriptor that is readable when answers arrive; `None` during the pause after a flood.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        (self.woken <= sys::monotonic()).then(|| self.readable.as_fd())
    }

    /// Time at which [`Self::turn`] must be called next, on the monotonic clock.
    pub fn due(&self) -> time::Instant {
        let due = self.began + (self.prober.due() - time::Instant::ZERO);
        if self.woken > sys::monotonic() {
            due.min(self.woken)
        } else {
            due
        }
    }

    /// Sends a request if one is due, and reads answers. A request that cannot be sent counts as
    /// unanswered.
    pub fn turn(&mut self, mut each: impl FnMut(Answer)) {
        let now = self.now();
        if now >= self.prober.due() {
            let _ = self.send_request(now);
        }
        // Answers that waited in the sockets, while the loops started or this process was stopped,
        // are discarded: their delays include that wait.
        let before = self.turned.replace(now);
        let stale = before.is_none_or(|before| now > before + STOPPED);
        let mut packet = [0; 256];
        for (address, socket) in &self.sockets {
            for reads in 0.. {
                if reads == READS {
                    self.woken = sys::monotonic() + PAUSE;
                    break;
                }
                let Ok(length) = socket.recv(&mut packet) else {
                    break;
                };
                if stale {
                    continue;
                }
                let packet = &packet[..length];
                // A raw IPv4 socket delivers the IP header, a raw IPv6 socket does not.
                let header = match address {
                    IpAddr::V4(_) => packet.first().map_or(0, |byte| 4 * usize::from(byte & 15)),
                    IpAddr::V6(_) => 0,
                };
                let now = self.now();
                let icmp = packet.get(header..).unwrap_or_default();
                if let Some(answer) = self.prober.take(now, *address, icmp) {
                    each(answer);
                }
            }
        }
    }

    /// Answers so far.
    pub fn answered(&self) -> u64 {
        self.prober.seen().map(|(_, seen)| seen.answered).sum()
    }

    /// Statistics of each reflector.
    pub fn seen(&self) -> Vec<(IpAddr, ReflectorStats)> {
        self.prober.seen().collect()
    }
}

/// Statistics per reflector, shared with the status server.
#[derive(Clone, Debug, Default)]
pub struct ReflectorTable(Arc<Mutex<Vec<(IpAddr, ReflectorStats)>>>);

impl ReflectorTable {
    /// The statistics as JSON, an object for each reflector.
    pub fn json(&self) -> Value {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let row = |(address, seen): &(IpAddr, ReflectorStats)| {
            json!({
                "address": address.to_string(),
                "sent": seen.sent,
                "answered": seen.answered,
                "refused": seen.refused,
                "round_trip_ms": seen.round_trip.map(|time| time.as_millis_f64()),
                "timestamps": seen.dated,
            })
        };
        known.iter().map(row).collect()
    }

    /// Answers so far.
    pub fn answered(&self) -> u64 {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(_, seen)| seen.answered).sum()
    }
}

/// Reachability of the reflectors, of which only changes are reported.
#[derive(Debug)]
pub struct Reachability {
    answered: u64,
    since: Instant,
    quiet: bool,
    traffic: bool,
}

impl Reachability {
    /// `traffic`: without answers the control loops use the timestamps of TCP traffic.
    pub fn new(traffic: bool) -> Self {
        Self {
            traffic,
            answered: 0,
            since: Instant::now(),
            quiet: false,
        }
    }

    /// A message if reachability has changed, given the number of answers so far.
    pub fn message(&mut self, answered: u64, now: Instant) -> Option<&'static str> {
        let came = answered != self.answered;
        if came {
            (self.answered, self.since) = (answered, now);
        }
        let quiet = !came && now.saturating_duration_since(self.since) > QUIET;
        match (self.quiet, quiet) {
            (false, true) => {
                self.quiet = true;
                Some(match (answered, self.traffic) {
                    (_, true) => {
                        "no reflector answers: the rates follow the timestamps of the TCP traffic"
                    }
                    (0, _) => {
                        "no reflector answers: nothing says how much the line carries, and the rates grow until they no longer limit it (name other reflectors)"
                    }
                    _ => "no reflector answers any more: the rates stay at what the line carried",
                })
            }
            (true, false) if came => {
                self.quiet = false;
                Some("reflectors answer again")
            }
            _ => None,
        }
    }
}

/// The thread that sends requests to the reflectors.
#[derive(Debug)]
pub struct ProbeThread {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl ProbeThread {
    /// Starts the thread. It passes each answer to all `loops`; the flag of a loop is true for
    /// ingress.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(
        mut reflectors: Reflectors,
        loops: Vec<(bool, Watch)>,
        known: ReflectorTable,
    ) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let work = move || {
            sys::be_punctual(1);
            sandbox::reflectors();
            let mut due = time::Instant::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                reflectors.turn(|answer| {
                    for (back, of) in &loops {
                        of.hear(&answer, *back);
                    }
                });
                let now = sys::monotonic();
                if now >= due {
                    due = now + 100 * time::MS;
                    *known.0.lock().unwrap_or_else(PoisonError::into_inner) = reflectors.seen();
                }
                let wait = Duration::from_nanos(reflectors.due().saturating_since(now).as_nanos());
                sys::which_readable([reflectors.fd()], wait.min(NAP));
            }
        };
        let thread = host::thread("quell-reflectors");
        let thread = thread.spawn(work);
        let thread = thread.map_err(|e| Error::new(format!("cannot start a thread: {e}")))?;
        Ok(Self { stop, thread })
    }

    /// Stops the thread and waits for its end.
    pub fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn answers_that_waited_while_the_process_was_stopped_are_discarded() {
        let opened = Reflectors::open_any(&[Ipv4Addr::LOCALHOST.into()], None, None);
        let Ok(mut reflectors) = opened else {
            eprintln!("skipped: no right to a raw socket");
            return;
        };
        let mut heard = Vec::new();
        reflectors.turn(|answer| heard.push(answer.round_trip));
        // The next request is due after 200 ms.
        std::thread::sleep(Duration::from_millis(210));
        reflectors
            .send_request(reflectors.now())
            .expect("a request");
        let (stopped, begin) = (STOPPED + 50 * time::MS, Instant::now());
        std::thread::sleep(Duration::from_nanos(stopped.as_nanos()));
        while heard.len() < 2 {
            assert!(begin.elapsed() < Duration::from_secs(20), "no answers");
            reflectors.turn(|answer| heard.push(answer.round_trip));
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(heard.iter().all(|time| *time < stopped), "{heard:?}");
    }

    #[test]
    fn an_address_of_this_machine_is_refused() {
        let own = sys::addresses().expect("a list");
        assert!(own.contains(&Ipv4Addr::LOCALHOST.into()));
        for address in own {
            let error = Reflectors::open(&[address], None, None).expect_err("its own");
            assert_eq!(
                error.to_string(),
                format!(
                    "--reflector: {address} is an address of this machine; name a host behind the line"
                )
            );
        }
    }

    #[test]
    fn changes_of_reachability_are_reported_once() {
        let (mut reachability, begin) = (Reachability::new(false), Instant::now());
        let mut message =
            |answered, s| reachability.message(answered, begin + Duration::from_secs(s));
        assert_eq!(message(0, 5), None);
        assert!(message(0, 12).is_some_and(|line| line.contains("rates grow")));
        assert_eq!(message(0, 40), None);
        assert_eq!(message(3, 41), Some("reflectors answer again"));
        assert_eq!(message(3, 45), None);
        assert!(message(3, 52).is_some_and(|line| line.contains("stay")));
        assert_eq!(message(3, 99), None);
    }

    #[test]
    fn reflectors_are_addresses_of_single_hosts_each_once() {
        let list = |texts: &[&str]| {
            let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
            addresses(&texts)
        };
        assert_eq!(
            list(&["192.0.2.1,2001:db8::1", "192.0.2.1"]).unwrap(),
            [
                IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
                IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))
            ]
        );
        for wrong in [
            "",
            "dns.example",
            "255.255.255.255",
            "224.0.0.1",
            "::",
            "fe80::1",
            "0.0.0.0",
            "127.0.0.1",
            "::1",
        ] {
            assert!(list(&[wrong]).is_err(), "{wrong}");
        }
        let many: Vec<_> = (0..17).map(|k| format!("192.0.2.{k}")).collect();
        assert!(addresses(&many).unwrap_err().to_string().contains("16"));
    }
}
