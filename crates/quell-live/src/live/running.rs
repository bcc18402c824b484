//! `quell live` on its interfaces: opening, monitoring and releasing them.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quell_link::Error;
use quell_qdisc::num;

use super::memory::Memory;
use super::rules::{self, HeldInterface};
use super::settings::{Options, Plan};
use super::upkeep::{self, DeviceLoss, Interface, Progress, Rules};
use crate::firewall::{self, Queues, RuleSet};
use crate::plane::backend::af_packet::PacketSocket;
use crate::plane::backend::af_xdp;
use crate::plane::backend::{Copies, InterfaceBackend, PacketQueue};
use crate::plane::passing::Passing;
use crate::plane::prober::{ProbeThread, Reachability, ReflectorTable, Reflectors};
use crate::plane::shared::{Snapshot, Task, Watches};
use crate::plane::worker::{self, Worker, WorkerContext};
use crate::system::host::{self, Signals};
use crate::system::messages::tell;
use crate::system::notice::Notices;
use crate::system::sys;
use crate::system::systemd::Systemd;
use crate::system::watchdog::Watchdog;

/// Interval of the checks for changes that the kernel does not announce.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The directions that can be managed.
const DIRECTIONS: [&str; 2] = ["egress", "ingress"];
/// First number of the packet queues (NFQUEUE) that an interface may get, and their count.
const FIRST_QUEUE: u32 = 29_000;
const QUEUES: u32 = 10_000;

/// The managed directions of an interface.
pub struct Running {
    dry: bool,
    held: Vec<HeldInterface>,
    watchdog: Watchdog,
    rules: Option<Rules>,
    /// Rules that another program removed and that were put back.
    pub restored: Arc<AtomicU64>,
    workers: Vec<(&'static str, Worker)>,
    /// What the queues have learned; `None` in a dry run.
    memory: Option<Memory>,
    /// Both directions, managed or not; kept when the interface is opened again.
    watches: [(&'static str, Watches); 2],
    interfaces: Vec<Interface>,
    /// XDP programs on the interfaces, with the backend `af_xdp`.
    hooks: Vec<af_xdp::Hook>,
    prober: Option<ProbeThread>,
    /// What TCP traffic shows of the line; only with `--autorate`.
    passing: Option<Passing>,
    /// State of the reflectors.
    pub reflectors: ReflectorTable,
}

/// Number of an interface's first packet queue: a hash (FNV-1a) of the interface's name and index.
/// A rule that a killed process left matches by the interface's name. If the number depended on the
/// index alone and two interfaces had exchanged names since, the rule would lead packets of one
/// interface to the queues of the other.
fn first_queue(dev: &Interface) -> u16 {
    let bytes = dev.name.bytes().chain(dev.index.to_le_bytes());
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
    num::low_u16((FIRST_QUEUE + bytes.fold(2_166_136_261, mix) % QUEUES).into())
}

/// Packets that the queue of a direction may hold; 0 if the direction is not managed.
fn most_packets(plan: &Plan, name: &str) -> u32 {
    let managed = plan.direction(name);
    managed.map_or(0, |d| worker::most_packets(&d.params))
}

impl Running {
    /// Takes the interfaces and starts the loops.
    pub fn start(plan: &Plan, dry: bool) -> Result<Self, Error> {
        let mut running = Self {
            dry,
            held: Vec::new(),
            // Before there are threads, since it forks.
            watchdog: Watchdog::start()?,
            rules: None,
            restored: Arc::default(),
            watches: DIRECTIONS.map(|name| (name, Watches::new(plan.loops.len()))),
            workers: Vec::new(),
            memory: None,
            interfaces: Vec::new(),
            hooks: Vec::new(),
            prober: None,
            passing: None,
            reflectors: ReflectorTable::default(),
        };
        match running.take(plan) {
            Ok(()) => Ok(running),
            Err(error) => {
                running.release()?;
                Err(error)
            }
        }
    }

    fn take(&mut self, plan: &Plan) -> Result<(), Error> {
        let dev = Interface::find("--dev", plan.dev())?;
        let name = dev.name.clone();
        self.interfaces = vec![dev.clone()];
        if !self.dry {
            self.held.push(rules::hold(&name)?);
            let learned = || Memory::new(plan, &self.watches);
            self.memory.get_or_insert_with(learned);
        }
        let loops = self.watches.iter().map(|(_, watches)| watches.of(0));
        self.passing = plan.moves().then(|| Passing::new(loops.collect()));
        // Before packets are held, since the kernel may refuse a socket.
        let reflectors = self.sockets(plan, &name)?;
        match &plan.options.to {
            Some(to) if !self.dry => self.between(plan, &dev, to),
            _ if self.dry => self.copies(plan, &dev),
            _ => self.queues(plan, &dev),
        }?;
        if let Some(reflectors) = reflectors {
            let each = self.workers.iter();
            let loops = each.map(|(name, worker)| (*name == "ingress", worker.watch()));
            let known = self.reflectors.clone();
            self.prober = Some(ProbeThread::start(reflectors, loops.collect(), known)?);
        }
        Ok(())
    }

    /// Sockets to the reflectors, if there are any; bound to the interface unless quell forwards
    /// between two interfaces (`--to`).
    fn sockets(&self, plan: &Plan, dev: &str) -> Result<Option<Reflectors>, Error> {
        if plan.reflectors.is_empty() {
            return Ok(None);
        }
        let dev = plan.options.to.is_none().then_some(dev);
        Reflectors::open(&plan.reflectors, dev, None).map(Some)
    }

    /// Dry run: works on copies of the packets.
    fn copies(&mut self, plan: &Plan, dev: &Interface) -> Result<(), Error> {
        self.bind()?;
        for direction in &plan.directions {
            let backend = Copies::open(dev.index, direction.name == "egress", dev.mtu)?;
            let task = Task::new(direction.params.clone(), 1);
            self.work(plan, direction.name, vec![backend], &task, false)?;
        }
        Ok(())
    }

    /// Opens the kernel's packet queues (NFQUEUE), and inserts the rules that send packets there.
    fn queues(&mut self, plan: &Plan, dev: &Interface) -> Result<(), Error> {
        let first = first_queue(dev);
        let used = firewall::used_queues();
        let (mut egress, mut ingress) = (None, None);
        for direction in &plan.directions {
            let params = direction.params.clone();
            let (loops, length) = (plan.loops.len(), worker::kernel_length(&params));
            let arriving = direction.name == "ingress";
            let backends = PacketQueue::row(first, &used, loops, length, dev.mtu, arriving)?;
            let queues: &mut Option<Queues> = match direction.name {
                "egress" => &mut egress,
                _ => &mut ingress,
            };
            let first = backends[0].number;
            *queues = Some(first..=first + num::index_u16(loops - 1));
            let task = Task::new(params, loops);
            self.work(plan, direction.name, backends, &task, false)?;
        }
        let rules = RuleSet::new(&dev.name, egress, ingress)?;
        // Before the rules, so that no change of them is missed.
        let notices = Notices::of_rules()?;
        self.held[0].insert(&rules)?;
        self.rules = Some(Rules::new(rules, notices));
        Ok(())
    }

    /// Opens both directions between two interfaces; packets of an unmanaged direction are
    /// forwarded immediately.
    fn between(&mut self, plan: &Plan, dev: &Interface, to: &str) -> Result<(), Error> {
        let other = Interface::find("--to", to)?;
        if other.index == dev.index {
            let error = Error::new("is the same interface").key(format!("--to {to}"));
            return Err(error.remedy("name another one"));
        }
        self.held.push(rules::hold(to)?);
        let mtu = dev.mtu.max(other.mtu);
        let names = [&dev.name, &other.name];
        let queues = names.map(|name| host::receive_queues(name));
        let (dev, other) = (dev.index, self.add(other));
        self.bind()?;
        let loops = plan.loops.len();
        if plan.xdp() {
            let packets = [most_packets(plan, "ingress"), most_packets(plan, "egress")];
            let most = packets[0].max(packets[1]);
            if most > af_xdp::MAX_PACKETS {
                let room = af_xdp::MAX_PACKETS;
                tell(&format!(
                    "AF_XDP holds at most {room} packets in each direction: a queue that may hold {most} is limited to that"
                ));
            }
            let [index, other] = [(dev, queues[0]), (other, queues[1])];
            let devices = [index, other].map(|(index, queues)| af_xdp::Device { index, queues });
            let ([ingress, egress], hooks) = af_xdp::open(devices, mtu, packets, loops)?;
            if egress.len() < loops {
                let run = egress.len();
                tell(&format!(
                    "AF_XDP has a loop for each receive queue at most: of {loops} processors {run} are used (ethtool -L shows how many queues there are)"
                ));
            }
            self.start_between(plan, "egress", egress)?;
            self.start_between(plan, "ingress", ingress)?;
            self.hooks = hooks.set()?;
            return Ok(());
        }
        let egress = PacketSocket::fan(other, dev, mtu, loops)?;
        self.start_between(plan, "egress", egress)?;
        let ingress = PacketSocket::fan(dev, other, mtu, loops)?;
        self.start_between(plan, "ingress", ingress)
    }

    /// Adds an interface; returns its index.
    fn add(&mut self, interface: Interface) -> u32 {
        let index = interface.index;
        self.interfaces.push(interface);
        index
    }

    /// Registers the interfaces, to notice when sockets lose them. Must be called before sockets
    /// are bound to them.
    fn bind(&mut self) -> Result<(), Error> {
        self.interfaces.iter_mut().try_for_each(Interface::bind)
    }

    fn start_between(
        &mut self,
        plan: &Plan,
        name: &'static str,
        backends: Vec<impl InterfaceBackend>,
    ) -> Result<(), Error> {
        let managed = plan.direction(name);
        let params = managed.unwrap_or(&plan.directions[0]).params.clone();
        let task = Task::new(params, backends.len());
        self.work(plan, name, backends, &task, managed.is_none())
    }

    /// Starts the loops of a direction, one for each backend, under the watchdog. With `free` they
    /// send every packet immediately.
    fn work(
        &mut self,
        plan: &Plan,
        name: &'static str,
        backends: Vec<impl InterfaceBackend>,
        task: &Task,
        free: bool,
    ) -> Result<(), Error> {
        let watches = self.watches.iter().find(|(known, _)| *known == name);
        let watches = watches.map(|(_, all)| all.clone()).unwrap_or_default();
        for (number, (backend, cpu)) in backends.into_iter().zip(&plan.loops).enumerate() {
            let heartbeat = self.watchdog.heartbeat();
            if let Some(bytes) = backend.opener() {
                self.watchdog.guard(&heartbeat, backend.fd(), bytes)?;
            }
            let context = WorkerContext {
                heartbeat,
                watch: watches.of(number),
                cpu: *cpu,
                passing: self.passing.clone().map(|all| (all, name == "ingress")),
            };
            let worker = Worker::start(backend, task.clone(), plan.parser(), free, context)?;
            self.workers.push((name, worker));
        }
        Ok(())
    }

    /// Sends all held packets, then removes the rules, so that no packet is lost. Returns the final
    /// snapshots.
    pub fn end(mut self) -> Result<Vec<(&'static str, Snapshot)>, Error> {
        self.release()?;
        if let Some(memory) = &mut self.memory {
            memory.end();
        }
        Ok(self
            .watches
            .iter()
            .map(|(n, w)| (*n, w.snapshot()))
            .collect())
    }

    /// Sends all held packets, removes the rules and ends the loops.
    fn release(&mut self) -> Result<(), Error> {
        if let Some(prober) = self.prober.take() {
            prober.end();
        }
        for (_, worker) in &self.workers {
            worker.open();
        }
        // From here on packets take the kernel's path.
        self.hooks.clear();
        self.rules = None;
        let undone: Result<Vec<_>, _> = self.held.iter().map(HeldInterface::undo).collect();
        self.watchdog.dismiss();
        for (_, worker) in &self.workers {
            worker.stop();
        }
        for (_, worker) in self.workers.drain(..) {
            worker.finish();
        }
        // What cannot be undone now is tried again when quell live ends.
        undone.map(|_| self.held.clear())
    }

    /// Opens the interfaces again, with their present names and properties.
    fn reopen(&mut self, plan: &Plan) -> Result<(), Error> {
        let mut plan = plan.clone();
        let mut names = self.interfaces.iter().map(|i| i.name.clone());
        plan.options.dev = names.next();
        plan.options.to = plan.options.to.and(names.next());
        let known = self.interfaces.clone();
        self.release()?;
        let taken = self.take(&plan);
        if taken.is_err() {
            self.release()?;
            self.interfaces = known;
        }
        taken
    }

    /// Opens the interfaces again if they have changed. An error ends quell live: an interface has
    /// vanished, or earlier changes cannot be undone.
    fn follow(&mut self, plan: &Plan, state: &mut DeviceLoss) -> Result<(), Error> {
        let links = upkeep::look(&mut self.interfaces);
        let Some(why) = state.reason(links, Instant::now())? else {
            return Ok(());
        };
        match self.reopen(plan) {
            Ok(()) => {
                state.trouble = None;
                tell(&format!("{why}: reopened"));
            }
            Err(error) if !self.held.is_empty() => return Err(error),
            Err(error) => {
                let what = error.to_string();
                if state.trouble.as_ref() != Some(&what) {
                    tell(&format!(
                        "{why}: traffic passes unmanaged until this is fixed: {what}"
                    ));
                }
                state.trouble = Some(what);
            }
        }
        Ok(())
    }

    /// Notes about the files of what the queues have learned.
    pub fn notes(&mut self) -> Vec<String> {
        self.memory.as_mut().map_or_else(Vec::new, Memory::notes)
    }

    /// Watches of the directions that have loops.
    pub fn watches(&self) -> Vec<(&'static str, Watches)> {
        let has_worker = |name| self.workers.iter().any(|(known, _)| *known == name);
        let each = self.watches.iter().filter(|(name, _)| has_worker(*name));
        each.map(|(name, watch)| (*name, watch.clone())).collect()
    }

    /// Runs until a signal or `end`. A vanished interface is an error.
    pub fn watch(
        &mut self,
        signals: &Signals,
        plan: &mut Plan,
        options: &Options,
        end: Option<Instant>,
        say: &dyn Fn(&str),
    ) -> Result<(), Error> {
        let links = Notices::of_links()?;
        let systemd = Systemd::new();
        systemd.tell("READY=1");
        let (mut progress, mut following) = (Progress::default(), DeviceLoss::default());
        let mut reachability = Reachability::new(plan.reads_traffic());
        loop {
            let left = end.map_or(CHECK_INTERVAL, |end| {
                CHECK_INTERVAL.min(end.saturating_duration_since(Instant::now()))
            });
            let rules = self.rules.as_ref().map(Rules::fd);
            let fds = [
                signals.as_fd(),
                links.as_fd(),
                rules.unwrap_or(links.as_fd()),
            ];
            sys::any_readable(fds, left);
            match signals.next() {
                Some(libc::SIGHUP) if options.config.is_some() => self.reload(plan, options, say),
                // Without a configuration file SIGHUP ends the command, too: its terminal has
                // closed.
                Some(_) => return Ok(()),
                None => {}
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return Ok(());
            }
            links.drain();
            self.follow(plan, &mut following)?;
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
            let failures = progress.failures(plan.dev(), &self.watches);
            failures.iter().for_each(|line| tell(line));
            progress.tell_refused(plan.dev());
            if self.prober.is_some()
                && let Some(line) = reachability.message(self.reflectors.answered(), Instant::now())
            {
                tell(line);
            }
            if let Some(memory) = &mut self.memory {
                memory.look();
            }
            if let Some(rules) = &mut self.rules {
                let made = rules.keep(plan.dev());
                self.restored.fetch_add(made as u64, Ordering::Relaxed);
            }
        }
    }

    /// Reads the configuration again; an invalid one changes nothing.
    fn reload(&mut self, old: &mut Plan, options: &Options, say: &dyn Fn(&str)) {
        let Some(path) = &options.config else {
            return;
        };
        let new = match Plan::new(options).and_then(|new| new.after(old, path)) {
            Ok(new) => new,
            Err(error) => return tell(&format!("not reloaded: {error}")),
        };
        for (direction, before) in new.directions.iter().zip(&old.directions) {
            let workers = self.workers.iter();
            let workers: Vec<_> = workers
                .filter(|(name, _)| *name == direction.name)
                .collect();
            if !direction.same(before) {
                if let Some(memory) = &mut self.memory {
                    memory.change(direction);
                }
                let task = Task::new(direction.params.clone(), workers.len());
                for (_, worker) in workers {
                    worker.change(task.clone());
                }
            }
        }
        *old = new;
        say(&format!("reloaded: {}", old.announce(false)));
        old.notes().iter().for_each(|note| say(note));
        self.notes().iter().for_each(|note| say(note));
    }
}
