//! `quell live`: a queue on what leaves or arrives at an interface (docs/live.md). What is asked for, the time that it runs, and what it
//! tells; the packets themselves pass through `worker`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quell_link::units::{format_rate, note_on_rate, parse_rate, parse_time};
use quell_link::{Error, Queue};
use serde::Deserialize;

use super::af_packet::PacketSocket;
use super::af_xdp;
use super::backend::{Copies, InterfaceBackend, PacketQueue};
use super::firewall::Changes;
use super::host::{self, Signals};
use super::rules::{self, Held};
use super::serve::{Server, State};
use super::shell::random_key;
use super::sys;
use super::worker::{self, Snapshot, Worker};
use crate::header::Parser;
use crate::link::{self, Params};

/// How often the interface is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Where the numbers of packet queues begin: two per interface.
const FIRST_QUEUE: u32 = 29_000;
/// Most bytes that count with a packet.
const MOST_OVERHEAD: u32 = 1000;

/// What a configuration file may hold; its keys are the options' names.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)] // docs/live.md has them.
pub struct Settings {
    pub dev: Option<String>,
    pub rate: Option<String>,
    pub aqm: Option<String>,
    pub ingress: Option<String>,
    pub ingress_aqm: Option<String>,
    pub overhead: Option<u32>,
    pub status: Option<String>,
    pub metrics: Option<u16>,
    pub to: Option<String>,
    #[serde(alias = "door")]
    pub backend: Option<String>,
    pub no_fail_open: Option<bool>,
    pub tunnels: Option<bool>,
}

/// What is asked for at the command line.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Overrides the file.
    pub given: Settings,
    /// The file.
    pub config: Option<PathBuf>,
    /// Only look at copies.
    pub dry_run: bool,
    /// Stop after this time.
    pub duration: Option<String>,
    /// Say nothing but errors.
    pub quiet: bool,
}

/// A direction that is managed, as asked for.
#[derive(Clone, Debug, PartialEq)]
struct Direction {
    name: &'static str,
    rate: String,
    aqm: String,
    overhead: u32,
}

impl Settings {
    fn dev(&self) -> &str {
        self.dev.as_deref().unwrap_or_default()
    }

    fn over(self, file: Self) -> Self {
        Self {
            dev: self.dev.or(file.dev),
            rate: self.rate.or(file.rate),
            aqm: self.aqm.or(file.aqm),
            ingress: self.ingress.or(file.ingress),
            ingress_aqm: self.ingress_aqm.or(file.ingress_aqm),
            overhead: self.overhead.or(file.overhead),
            status: self.status.or(file.status),
            metrics: self.metrics.or(file.metrics),
            to: self.to.or(file.to),
            backend: self.backend.or(file.backend),
            no_fail_open: self.no_fail_open.or(file.no_fail_open),
            tunnels: self.tunnels.or(file.tunnels),
        }
    }

    fn xdp(&self) -> bool {
        self.backend.as_deref() == Some("af_xdp")
    }

    fn parser(&self) -> Parser {
        Parser {
            key: random_key(),
            tunnels: self.tunnels == Some(true),
        }
    }

    fn directions(&self) -> Vec<Direction> {
        let aqm = self.aqm.as_deref().unwrap_or("fq_codel");
        let of = |name, rate: &Option<String>, aqm: &str| {
            rate.clone().map(|rate| Direction {
                name,
                rate,
                aqm: aqm.to_owned(),
                overhead: self.overhead.unwrap_or(link::ETHERNET),
            })
        };
        let egress = of("egress", &self.rate, aqm);
        let arriving = self.ingress_aqm.as_deref().unwrap_or(aqm);
        let ingress = of("ingress", &self.ingress, arriving);
        egress.into_iter().chain(ingress).collect()
    }

    fn announce(&self, dry: bool) -> String {
        let each = self.directions();
        let each = each.iter().map(|d| {
            let way = if d.name == "egress" {
                "leaves"
            } else {
                "arrives"
            };
            format!("what {way}: {}, {}", d.understood(), d.aqm)
        });
        let dry = if dry {
            " (dry run: nothing is touched)"
        } else {
            ""
        };
        format!(
            "{}: {}{dry}",
            self.dev(),
            each.collect::<Vec<_>>().join("; ")
        )
    }

    /// What to say about rates that are probably not what was meant.
    fn notes(&self) -> Vec<String> {
        let each = self.directions().into_iter();
        each.filter_map(|d| note_on_rate(&d.rate)).collect()
    }
}

impl Direction {
    /// Its rate as it was understood.
    fn understood(&self) -> String {
        parse_rate(&self.rate).map_or_else(|_| self.rate.clone(), format_rate)
    }

    /// The link; an error's key is `rate` or `aqm`.
    fn params(&self) -> Result<Params, Error> {
        let bps = parse_rate(&self.rate).map_err(|e| e.key("rate"))?;
        // On a real link no learned controller is without a guard. Other queues do not know the word.
        let guarded = Queue::parse(&format!("{} guard", self.aqm));
        let queue = guarded.or_else(|_| Queue::parse(&self.aqm));
        let queue = queue.map_err(|e| e.key("aqm"))?;
        queue.check(bps).map_err(|e| e.key("aqm"))?;
        Ok(Params {
            overhead: self.overhead,
            ..Params::line(bps, queue)
        })
    }
}

// What is asked for. ------------------------------------------------------------------------------------------------------------

/// Reads the file, puts the options over it, and checks all of it.
fn settings(options: &Options) -> Result<Settings, Error> {
    let given = &options.given;
    let config = options.config.as_deref();
    let file = config.map_or_else(|| Ok(Settings::default()), read)?;
    // An option is to blame where it was given, or where there is no file.
    let blame = |error: Error, key: &str, option: bool| match config {
        Some(path) if !option => Error { key: None, ..error }
            .key(key)
            .at(&path.display().to_string(), None),
        _ => Error { key: None, ..error }.key(format!("--{}", key.replace('_', "-"))),
    };
    let all = given.clone().over(file);
    if all.dev().is_empty() {
        let error = Error::new("there is no interface").remedy("give one, as in --dev eth0");
        return Err(blame(error, "dev", given.dev.is_some()));
    }
    match (&all.to, all.backend.as_deref()) {
        (None, None) | (Some(_), None | Some("af_packet" | "af_xdp")) => {}
        (to, _) => {
            let what = "is af_packet or af_xdp, each with --to";
            let remedy = if to.is_some() {
                "write one of them"
            } else {
                "give --to"
            };
            let error = Error::new(what).remedy(remedy);
            return Err(blame(error, "backend", given.backend.is_some()));
        }
    }
    if let (Some(to), false) = (&all.to, all.no_fail_open == Some(true))
        && !(all.xdp() && host::bridged(all.dev(), to))
    {
        let (what, remedy) = match all.xdp() {
            true => (
                "the two are not in one bridge, which would forward without quell: no failing open",
                "put both into one, or add --no-fail-open if traffic may stop",
            ),
            false => (
                "frames from interface to interface stop with quell: no failing open",
                "add --no-fail-open if they may, or leave --to out",
            ),
        };
        let error = Error::new(format!("{to}: {what}")).remedy(remedy);
        return Err(blame(error, "to", given.to.is_some()));
    }
    let directions = all.directions();
    if directions.is_empty() {
        let remedy = "give --rate for what leaves, --ingress for what arrives";
        let error = Error::new("there is no rate").remedy(remedy);
        return Err(blame(error, "rate", false));
    }
    for direction in &directions {
        direction.params().map_err(|error| {
            let inner = error.key.clone().unwrap_or_default();
            let aqm = inner.starts_with("aqm");
            let (key, option) = match (direction.name, aqm) {
                ("egress", false) => ("rate", given.rate.is_some()),
                (_, false) => ("ingress", given.ingress.is_some()),
                ("ingress", true) if all.ingress_aqm.is_some() => {
                    ("ingress_aqm", given.ingress_aqm.is_some())
                }
                _ => ("aqm", given.aqm.is_some()),
            };
            blame(error, key, option)
        })?;
        if direction.overhead > MOST_OVERHEAD {
            let what = format!("{} is more than {MOST_OVERHEAD} bytes", direction.overhead);
            return Err(blame(
                Error::new(what),
                "overhead",
                given.overhead.is_some(),
            ));
        }
    }
    Ok(all)
}

fn read(path: &Path) -> Result<Settings, Error> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::new(host::reason(&e)).key(format!("--config {name}")))?;
    toml::from_str(&text).map_err(|e| {
        let line = e.span().map(|s| 1 + text[..s.start].matches('\n').count());
        Error::new(e.message().replace('\n', "; ")).at(&name, line)
    })
}

fn need(bit: u32) -> Result<(), Error> {
    if sys::capable(&[bit]) {
        return Ok(());
    }
    let name = match bit {
        host::NET_ADMIN => "CAP_NET_ADMIN",
        _ => "CAP_NET_RAW",
    };
    Err(Error::new(format!("quell live needs root ({name})")).remedy("write sudo before it"))
}

/// Undoes what killed processes left behind, on one interface or on all, and says so.
pub fn restore(options: &Options) -> Result<(), Error> {
    need(host::NET_ADMIN)?;
    let done = rules::restore(options.given.dev.as_deref())?;
    if options.quiet {
        return Ok(());
    }
    for (dev, count) in &done {
        tell(&format!("{dev}: {count} rules removed"));
    }
    if done.is_empty() {
        tell("nothing to restore");
    }
    Ok(())
}

// Running. ----------------------------------------------------------------------------------------------------------------------

/// Runs until SIGTERM, Ctrl-C or the end of its time; then everything goes on that is held, and what was is restored.
pub fn run(options: &Options) -> Result<(), Error> {
    need(if options.dry_run {
        host::NET_RAW
    } else {
        host::NET_ADMIN
    })?;
    let mut settings = settings(options)?;
    let end = match &options.duration {
        None => None,
        Some(text) => {
            let time = parse_time(text).map_err(|e| e.key("--duration"))?;
            Instant::now().checked_add(Duration::from_nanos(time))
        }
    };
    // Waited for, not caught: from here on they come in `watch` only.
    let signals = Signals::hold();
    // Before the interface is taken: a port that is taken must not cost a packet.
    let mut server = Server::bind(settings.status.as_deref(), settings.metrics)?;
    let running = Running::start(&settings, options.dry_run)?;
    let watches = running
        .workers
        .iter()
        .map(|(name, worker)| (*name, worker.watch()));
    server.start(State {
        dev: settings.dev().to_owned(),
        directions: watches.collect(),
    });
    let say = |line: &str| {
        if !options.quiet {
            tell(line);
        }
    };
    say(&settings.announce(options.dry_run));
    settings.notes().iter().for_each(|note| say(note));
    let over = running.watch(&signals, &mut settings, options, end, &say);
    drop(server);
    let looks = running.end()?;
    over?;
    if !options.quiet {
        print(&table(&settings, &looks));
    }
    Ok(())
}

/// The directions of an interface that is taken.
struct Running {
    held: Vec<Held>,
    workers: Vec<(&'static str, Worker)>,
    /// The interfaces, and their numbers.
    interfaces: Vec<(String, u32)>,
    /// What hands frames over.
    hooks: Vec<af_xdp::Hook>,
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
    fn start(settings: &Settings, dry: bool) -> Result<Self, Error> {
        let dev = settings.dev();
        let (index, mtu) = interface("--dev", dev)?;
        let mut running = Self {
            held: Vec::new(),
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
            let worker = Worker::start(backend, direction.params()?, settings.parser(), false)?;
            self.workers.push((direction.name, worker));
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
            let worker = Worker::start(backend, params, settings.parser(), false)?;
            self.workers.push((direction.name, worker));
        }
        self.held[0].insert(Changes::new(settings.dev(), egress, ingress)?)
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
            let ([ingress, egress], hooks) = af_xdp::open(dev.0, other.0, mtu)?;
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
        let worker = Worker::start(backend, params, settings.parser(), managed.is_none())?;
        self.workers.push((name, worker));
        Ok(())
    }

    /// Lets everything go on that is held, then removes the rules: no packet is lost. The last looks.
    fn end(self) -> Result<Vec<(&'static str, Snapshot)>, Error> {
        for (_, worker) in &self.workers {
            worker.open();
        }
        // What comes now takes the kernel's way.
        drop(self.hooks);
        let undone: Result<Vec<_>, _> = self.held.iter().map(Held::undo).collect();
        let looks = self
            .workers
            .into_iter()
            .map(|(n, worker)| (n, worker.finish()));
        let looks = looks.collect();
        undone.map(|_| looks)
    }

    /// Waits for a signal, the end of the time or of the interface, which is an error.
    fn watch(
        &self,
        signals: &Signals,
        settings: &mut Settings,
        options: &Options,
        end: Option<Instant>,
        say: &dyn Fn(&str),
    ) -> Result<(), Error> {
        loop {
            let left = end.map_or(LOOK, |end| {
                LOOK.min(end.saturating_duration_since(Instant::now()))
            });
            match signals.wait(left) {
                Some(libc::SIGHUP) => self.reload(settings, options, say),
                Some(_) => return Ok(()),
                None => {}
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return Ok(());
            }
            let gone = |(name, index): &&(String, u32)| host::index(name) != Some(*index);
            if let Some((name, _)) = self.interfaces.iter().find(gone) {
                let what = format!("{name} has vanished");
                return Err(Error::new(what).remedy("start again when it is back"));
            }
            if !self.workers.iter().all(|(_, worker)| worker.alive()) {
                let what = "the loop of a direction has ended";
                return Err(Error::new(what).remedy("traffic flows unmanaged"));
            }
        }
    }

    /// Reads the configuration again; one that is wrong changes nothing.
    fn reload(&self, old: &mut Settings, options: &Options, say: &dyn Fn(&str)) {
        let Some(path) = &options.config else {
            return say("SIGHUP: there is no --config to read again");
        };
        let new = settings(options).and_then(|new| changeable(old, new, path));
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

/// The new settings, if they change only what can change.
fn changeable(old: &Settings, new: Settings, path: &Path) -> Result<Settings, Error> {
    let fixed = [
        ("dev", old.dev == new.dev),
        ("status", old.status == new.status),
        ("metrics", old.metrics == new.metrics),
        ("to", old.to == new.to),
        ("backend", old.backend == new.backend),
        ("tunnels", old.tunnels == new.tunnels),
        ("rate", old.rate.is_some() == new.rate.is_some()),
        ("ingress", old.ingress.is_some() == new.ingress.is_some()),
    ];
    match fixed.iter().find(|(_, same)| !same) {
        None => Ok(new),
        Some((key, _)) => {
            let what = match *key {
                "rate" | "ingress" => "a direction cannot come or go while quell live runs",
                _ => "cannot change while quell live runs",
            };
            let error = Error::new(what).key(*key).remedy("start it again");
            Err(error.at(&path.display().to_string(), None))
        }
    }
}

// What is told. -----------------------------------------------------------------------------------------------------------------

/// A line for the user; a full disk behind standard error is no reason to stop.
fn tell(line: &str) {
    print(&format!("quell: {line}\n"));
}

fn print(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

fn table(settings: &Settings, looks: &[(&'static str, Snapshot)]) -> String {
    let titles = ["", "rate", "packets", "went on", "drops", "marks", "missed"];
    let mut rows = vec![titles.map(str::to_owned)];
    let directions = settings.directions();
    for direction in &directions {
        let Some((name, look)) = looks.iter().find(|(name, _)| *name == direction.name) else {
            continue;
        };
        let counts = [
            look.read,
            look.sent,
            look.dropped,
            look.marked,
            look.link.missed,
        ];
        let [read, sent, dropped, marked, missed] = counts.map(|count| count.to_string());
        rows.push([
            (*name).to_owned(),
            direction.understood(),
            read,
            sent,
            dropped,
            marked,
            missed,
        ]);
    }
    let queues = std::iter::once("queue").chain(directions.iter().map(|d| d.aqm.as_str()));
    let mut text = String::new();
    for (row, queue) in rows.iter().zip(queues) {
        let _ = write!(text, "{:8}", row[0]);
        for cell in &row[1..] {
            let _ = write!(text, " {cell:>9}");
        }
        let _ = writeln!(text, "  {queue}");
    }
    text
}
