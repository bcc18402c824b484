//! `quell live` on its interfaces: taken, watched over, given back.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quell_link::Error;

use super::af_packet::PacketSocket;
use super::af_xdp;
use super::backend::{Copies, InterfaceBackend, PacketQueue};
use super::firewall::Changes;
use super::host::{self, Signals};
use super::live::tell;
use super::notice::Notices;
use super::rules::{self, Held};
use super::settings::{self, Options, Settings};
use super::sys;
use super::systemd::Systemd;
use super::watchdog::Watchdog;
use super::worker::{self, Snapshot, Worker};
use crate::link::Params;

/// How often all is looked at of which nobody says that it has changed.
const LOOK: Duration = Duration::from_secs(1);
/// Where the numbers of packet queues begin: two per interface.
const FIRST_QUEUE: u32 = 29_000;

/// The directions of an interface that is taken.
pub struct Running {
    held: Vec<Held>,
    watchdog: Watchdog,
    rules: Option<Rules>,
    /// Rules that somebody else removed and that were put back.
    pub restored: Arc<AtomicU64>,
    pub workers: Vec<(&'static str, Worker)>,
    /// The interfaces, and their numbers.
    interfaces: Vec<(String, u32)>,
    /// What hands frames over.
    hooks: Vec<af_xdp::Hook>,
}

/// Rules that were made, and what tells of others' changes.
struct Rules {
    changes: Changes,
    notices: Notices,
    /// Whether the kernel tells of changes; if not, they are looked at every second.
    noticed: bool,
    /// Why they could not be put back.
    trouble: Option<String>,
}

impl Rules {
    /// Puts back what somebody else removed, and says so; how many rules.
    fn keep(&mut self, dev: &str) -> usize {
        if !self.notices.came() && self.noticed && self.trouble.is_none() {
            return 0;
        }
        match self.changes.make() {
            Ok(0) => self.trouble = None,
            Ok(made) => {
                self.trouble = None;
                tell(&format!(
                    "{dev}: {made} rules were gone and have been put back; meanwhile traffic passed unmanaged"
                ));
                return made;
            }
            Err(why) => {
                if self.trouble.as_ref() != Some(&why) {
                    tell(&format!(
                        "{dev}: rules may be gone: {why}; tried again each second"
                    ));
                }
                self.trouble = Some(why);
            }
        }
        0
    }
}

/// What the loops had done at the last look.
#[derive(Default)]
struct Progress {
    turns: Vec<u32>,
    stalls: u64,
}

impl Progress {
    /// Whether all loops have come round since.
    fn all(&mut self, workers: &[(&'static str, Worker)]) -> bool {
        let turns: Vec<_> = workers.iter().map(|(_, worker)| worker.turns()).collect();
        let before = std::mem::replace(&mut self.turns, turns);
        self.turns
            .iter()
            .zip(&before)
            .all(|(now, then)| now != then)
    }

    /// Says that loops stood still meanwhile, where they did.
    fn tell_stalls(&mut self, workers: &[(&'static str, Worker)]) {
        let stalls = workers.iter().map(|(_, w)| w.watch().look().stalls).sum();
        let new = stalls - std::mem::replace(&mut self.stalls, stalls);
        if new > 0 {
            tell(&format!(
                "{new} loops stood still: meanwhile traffic passed unmanaged"
            ));
        }
    }
}

/// How many packets the queue of a direction may hold: none, where that is not managed.
fn most_packets(settings: &Settings, name: &str) -> Result<u32, Error> {
    let directions = settings.directions();
    let managed = directions.iter().find(|d| d.name == name);
    managed.map_or(Ok(0), |d| Ok(worker::most_packets(&d.params()?)))
}

/// An interface's number and MTU.
fn interface(option: &str, dev: &str) -> Result<(u32, u32), Error> {
    let index = host::index(dev).ok_or_else(|| {
        Error::new("there is no such interface")
            .key(format!("{option} {dev}"))
            .remedy(format!("there are {}", host::names().join(", ")))
    })?;
    let mtu = host::mtu(dev).map_err(|e| Error::new(format!("{dev}: {}", host::reason(&e))))?;
    Ok((index, mtu))
}

impl Running {
    /// Takes the interfaces.
    pub fn start(settings: &Settings, dry: bool) -> Result<Self, Error> {
        // Before there are threads: it is a fork.
        let watchdog = Watchdog::start()?;
        let dev = settings.dev();
        let (index, mtu) = interface("--dev", dev)?;
        let mut running = Self {
            held: Vec::new(),
            watchdog,
            rules: None,
            restored: Arc::default(),
            workers: Vec::new(),
            interfaces: vec![(dev.to_owned(), index)],
            hooks: Vec::new(),
        };
        if !dry {
            running.held.push(rules::hold(dev)?);
        }
        let done = match &settings.to {
            Some(to) if !dry => running.between(settings, (index, mtu), to),
            _ if dry => running.copies(settings, index, mtu),
            _ => running.queues(settings, index, mtu),
        };
        match done {
            Ok(()) => Ok(running),
            Err(error) => {
                running.end()?;
                Err(error)
            }
        }
    }

    /// Copies only.
    fn copies(&mut self, settings: &Settings, index: u32, mtu: u32) -> Result<(), Error> {
        for direction in settings.directions() {
            let backend = Copies::open(index, direction.name == "egress", mtu)?;
            self.work(
                settings,
                direction.name,
                backend,
                direction.params()?,
                false,
            )?;
        }
        Ok(())
    }

    /// Packet queues of the kernel, and the rules that send packets there.
    fn queues(&mut self, settings: &Settings, index: u32, mtu: u32) -> Result<(), Error> {
        let first = (FIRST_QUEUE + 2 * index % 10_000) as u16;
        let (mut egress, mut ingress) = (None, None);
        for direction in settings.directions() {
            let params = direction.params()?;
            let backend = PacketQueue::open(first, worker::kernel_length(&params), mtu)?;
            let queue = match direction.name {
                "egress" => &mut egress,
                _ => &mut ingress,
            };
            *queue = Some(backend.number);
            self.work(settings, direction.name, backend, params, false)?;
        }
        let changes = Changes::new(settings.dev(), egress, ingress)?;
        // Before the rules: what changes from then on is heard of.
        let notices = Notices::of_rules()?;
        self.held[0].insert(&changes)?;
        self.rules = Some(Rules {
            noticed: changes.noticed(),
            changes,
            notices,
            trouble: None,
        });
        Ok(())
    }

    /// Both ways between two interfaces; one that is not managed goes on at once.
    fn between(&mut self, settings: &Settings, dev: (u32, u32), to: &str) -> Result<(), Error> {
        let other = interface("--to", to)?;
        if other.0 == dev.0 {
            let error = Error::new("is the same interface").key(format!("--to {to}"));
            return Err(error.remedy("name another one"));
        }
        self.held.push(rules::hold(to)?);
        self.interfaces.push((to.to_owned(), other.0));
        let mtu = dev.1.max(other.1);
        if settings.xdp() {
            let packets = [
                most_packets(settings, "ingress")?,
                most_packets(settings, "egress")?,
            ];
            let most = packets[0].max(packets[1]);
            if most > af_xdp::MOST {
                let room = af_xdp::MOST;
                tell(&format!(
                    "AF_XDP holds at most {room} packets in each direction: a queue that may hold {most} is limited to that"
                ));
            }
            let ([ingress, egress], hooks) = af_xdp::open(dev.0, other.0, mtu, packets)?;
            self.start_between(settings, "egress", egress)?;
            self.start_between(settings, "ingress", ingress)?;
            self.hooks = hooks.set()?;
            return Ok(());
        }
        self.start_between(settings, "egress", PacketSocket::open(other.0, dev.0, mtu)?)?;
        self.start_between(
            settings,
            "ingress",
            PacketSocket::open(dev.0, other.0, mtu)?,
        )
    }

    fn start_between(
        &mut self,
        settings: &Settings,
        name: &'static str,
        backend: impl InterfaceBackend,
    ) -> Result<(), Error> {
        let directions = settings.directions();
        let managed = directions.iter().find(|d| d.name == name);
        let params = managed.unwrap_or(&directions[0]).params()?;
        self.work(settings, name, backend, params, managed.is_none())
    }

    /// Starts a loop, and has it watched.
    fn work(
        &mut self,
        settings: &Settings,
        name: &'static str,
        backend: impl InterfaceBackend,
        params: Params,
        free: bool,
    ) -> Result<(), Error> {
        let post = self.watchdog.post();
        if let Some(bytes) = backend.opener() {
            self.watchdog.guard(&post, backend.fd(), bytes)?;
        }
        let worker = Worker::start(backend, params, settings.parser(), free, post)?;
        self.workers.push((name, worker));
        Ok(())
    }

    /// Lets everything go on that is held, then removes the rules: no packet is lost. The last looks.
    pub fn end(mut self) -> Result<Vec<(&'static str, Snapshot)>, Error> {
        for (_, worker) in &self.workers {
            worker.open();
        }
        // What comes now takes the kernel's way.
        drop(self.hooks);
        let undone: Result<Vec<_>, _> = self.held.iter().map(Held::undo).collect();
        self.watchdog.dismiss();
        let looks = self
            .workers
            .into_iter()
            .map(|(n, worker)| (n, worker.finish()));
        let looks = looks.collect();
        undone.map(|_| looks)
    }

    /// Waits for a signal, the end of the time or of the interface, which is an error.
    pub fn watch(
        &mut self,
        signals: &Signals,
        settings: &mut Settings,
        options: &Options,
        end: Option<Instant>,
        say: &dyn Fn(&str),
    ) -> Result<(), Error> {
        let links = Notices::of_links()?;
        let systemd = Systemd::new();
        systemd.tell("READY=1");
        let mut progress = Progress::default();
        loop {
            let left = end.map_or(LOOK, |end| {
                LOOK.min(end.saturating_duration_since(Instant::now()))
            });
            let rules = self.rules.as_ref().map(|rules| rules.notices.as_fd());
            let fds = [
                signals.as_fd(),
                links.as_fd(),
                rules.unwrap_or(links.as_fd()),
            ];
            sys::any_readable(fds, left);
            match signals.next() {
                Some(libc::SIGHUP) => self.reload(settings, options, say),
                Some(_) => return Ok(()),
                None => {}
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return Ok(());
            }
            links.came();
            let gone = |(name, index): &&(String, u32)| host::index(name) != Some(*index);
            if let Some((name, _)) = self.interfaces.iter().find(gone) {
                let what = format!("{name} has vanished");
                return Err(Error::new(what).remedy("start again when it is back"));
            }
            if !self.workers.iter().all(|(_, worker)| worker.alive()) {
                let what = "the loop of a direction has ended";
                return Err(Error::new(what).remedy("traffic flows unmanaged"));
            }
            if self.watchdog.revive() {
                tell("the watchdog had ended and was started again");
            }
            if progress.all(&self.workers) {
                systemd.tell("WATCHDOG=1");
            }
            progress.tell_stalls(&self.workers);
            if let Some(rules) = &mut self.rules {
                let made = rules.keep(settings.dev());
                self.restored.fetch_add(made as u64, Ordering::Relaxed);
            }
        }
    }

    /// Reads the configuration again; one that is wrong changes nothing.
    fn reload(&self, old: &mut Settings, options: &Options, say: &dyn Fn(&str)) {
        let Some(path) = &options.config else {
            return say("SIGHUP: there is no --config to read again");
        };
        let new = settings::settings(options);
        let new = new.and_then(|new| settings::changeable(old, new, path));
        let new = match new {
            Ok(new) => new,
            Err(error) => return tell(&format!("not reloaded: {error}")),
        };
        for (direction, before) in new.directions().iter().zip(old.directions()) {
            let worker = self
                .workers
                .iter()
                .find(|(name, _)| *name == direction.name);
            if let (true, Some((_, worker)), Ok(params)) =
                (*direction != before, worker, direction.params())
            {
                worker.change(params);
            }
        }
        *old = new;
        say(&format!("reloaded: {}", old.announce(false)));
        old.notes().iter().for_each(|note| say(note));
    }
}
