//! The loop of `quell steer`: samples, decisions, changes, and reactions to changes of the device.

mod changes;
mod scan;

use std::io::{self, Write};
use std::os::fd::AsFd;

use quell_link::Error;
use quell_qdisc::num;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, Instant, SEC};

use super::actuator::{Actuator, Dropping};
use super::source::{Input, Source};
use super::steered::Steered;
use crate::bpf::page::KIND;
use crate::packet::echo::Answer;
use crate::plane::prober::{Reachability, Reflectors};
use crate::rtnetlink;
use crate::rtnetlink::dump::Dump;
use crate::rtnetlink::message::{CLSACT_EGRESS, INGRESS, notices};
use crate::rtnetlink::options::Knob;
use crate::rtnetlink::tree;
use crate::steer::Plan;
use crate::system::bounded_writer::{BoundedWriter, Wait};
use crate::system::command::quoted;
use crate::system::host::{self, Signals};
use crate::system::messages::tell;
use crate::system::watchdog::STUCK_TIMEOUT;
use crate::system::{sandbox, sys};
use scan::ScanResult;

/// Longest time between two turns: less than the watchdog's timeout ([`STUCK_TIMEOUT`]).
const MAX_TURN: Duration = Duration::from_millis(100);
/// Interval of the checks of the watchdog and the reflectors.
const CHECK_INTERVAL: Duration = SEC;
/// Ethernet header, which limits in bytes include, bytes.
const HEADER: u64 = 14;

/// Steers the queues of a place in a device's tree.
pub struct Session {
    plan: Plan,
    dump: Dump,
    /// `None` in a dry run.
    actuator: Option<Actuator>,
    signals: Signals,
    /// Reflectors that measure how long packets wait on the line.
    reflectors: Option<Reflectors>,
    reachability: Reachability,
    /// Whether the queues are behind the line (`ingress`).
    behind: bool,
    device: u32,
    queues: Vec<Steered>,
    /// The message about the vanished device, while it is waited for.
    waiting: Option<String>,
    /// Time until which the last line from standard input is valid.
    valid_until: Option<Instant>,
    changes: u64,
    /// Samples that were skipped because their time had passed.
    left_out: u64,
    /// Times that lines were not written because nothing read standard output.
    unread: u64,
    fallbacks: u64,
    /// Whether another program has changed a steered queue or a filter, so that the queues must be
    /// sampled again.
    again: bool,
    /// Whether filters must be checked, too.
    filters: bool,
}

impl Session {
    /// Unless it is a dry run, restores what a killed process left changed and starts the watchdog.
    /// Then finds the queues and records their settings.
    pub fn new(plan: Plan) -> Result<Self, Error> {
        // Before the watchdog is forked, which must not be ended by signals to this process.
        let signals = Signals::hold(false).map_err(|e| Error::new(host::reason(&e)))?;
        let actuator = match plan.dry_run {
            true => None,
            false => Some(Actuator::new(&plan)?),
        };
        let reflectors = match &plan.reflectors[..] {
            [] => None,
            named => Some(Reflectors::open(named, None, plan.place.discipline())?),
        };
        let mut session = Self {
            reflectors,
            reachability: Reachability::new(false),
            behind: plan.source.is_behind(),
            dump: Dump::new().map_err(rtnetlink::failed)?,
            actuator,
            signals,
            device: 0,
            queues: Vec::new(),
            waiting: None,
            valid_until: None,
            changes: 0,
            left_out: 0,
            unread: 0,
            fallbacks: 0,
            again: false,
            filters: false,
            plan,
        };
        session.take()?;
        Ok(session)
    }

    /// Finds the queues and records their settings.
    fn take(&mut self) -> Result<(), Error> {
        let Plan {
            dev,
            place,
            knobs,
            bounds,
            source,
            rate,
            ..
        } = &self.plan;
        let device = host::existing(dev)?;
        let rows = tree::rows(&mut self.dump, device);
        let rows = rows.map_err(|e| Error::new(host::reason(&e)).key(dev))?;
        let mtu = host::mtu(dev).unwrap_or(1500);
        let header = host::header(dev).unwrap_or(HEADER);
        let mut queues = Vec::new();
        for (found, kind) in tree::choose(&rows, dev, *place, knobs)? {
            let name = format!("{dev} {}", tree::describe(&found));
            // A control loop that sets the rate finds out the line's rate by itself.
            let moves = knobs.contains(&Knob::Rate).then_some(Rate::ZERO);
            let line = moves.or(*rate);
            let line = line.or_else(|| self.actuator.as_ref().and_then(Actuator::shaped));
            let line = line.or_else(|| tree::rate(&rows, &found, dev));
            if self.plan.page && !found.kind.starts_with(KIND) {
                let error = Error::new("is not a queue of quell attach").key(name);
                let dev = quoted(dev);
                return Err(error.remedy(format!("quell attach {dev} fifo attaches one")));
            }
            let packet = u64::from(mtu) + HEADER;
            let queue = Steered::new(found, kind, name, knobs, packet);
            let mut queue = queue.with_header(header).with_place(&rows);
            if source.decides() {
                let missing = || {
                    let error = Error::new("the rate of the line is not known").key(&queue.name);
                    error.remedy("give it, as in --rate 20mbit")
                };
                let line = line.ok_or_else(missing)?;
                if let Some(controller) = source.controller(line, bounds) {
                    queue.set_controller(
                        controller,
                        line,
                        source.starts_from_current_rate(),
                        bounds,
                    );
                }
            }
            if let Source::Constant(setting) = source {
                queue.want(*setting, bounds);
            }
            queues.push(queue);
        }
        if let Some(actuator) = &mut self.actuator {
            actuator.prepare(device, &self.plan, &queues, &rows, &mut self.dump)?;
        }
        (self.device, self.queues) = (device, queues);
        Ok(())
    }

    /// Steers until the end.
    pub fn run(mut self) -> Result<(), Error> {
        for queue in &self.queues {
            let Plan { by, every, .. } = &self.plan;
            let by = if by == "-" { "standard input" } else { by };
            let dry = if self.plan.dry_run { "dry run, " } else { "" };
            let (name, has, every) = (&queue.name, queue.present(), every);
            let line = format!("{name}: {has}; {dry}steered by {by} every {every}");
            self.plan.say(&line);
            self.say_bound(queue);
        }
        // Without real-time priority, decisions come late on a busy machine, and the watchdog acts.
        sys::be_punctual(1);
        if self.actuator.is_some() {
            sandbox::steering();
        }
        let over = self.turns();
        let restored = self.restore();
        if let Ok(count) = &restored {
            let (changes, late) = (self.changes, self.left_out);
            let mut line = format!("changes: {changes}");
            if let Some(actuator) = &self.actuator {
                line += &match &actuator.dropping {
                    None => format!(", queues restored: {count}"),
                    Some(dropping) => dropping.describe(),
                };
            }
            if late > 0 {
                line += &format!(", samples skipped as late: {late}");
            }
            if self.unread > 0 {
                let unread = self.unread;
                line +=
                    &format!(", samples skipped because nothing read standard output: {unread}");
            }
            if self.fallbacks > 0 {
                line += &format!(", times that the guard took over: {}", self.fallbacks);
            }
            self.plan.say(&line);
        }
        over.and(restored.map(drop))
    }

    fn say_bound(&self, queue: &Steered) {
        if let Some(bound) = queue.bound() {
            self.plan.say(&format!("{}: {bound}", queue.name));
        }
    }

    /// The loop: waits for events and handles them, until one of them ends it.
    fn turns(&mut self) -> Result<(), Error> {
        let begin = sys::monotonic();
        let end = self
            .plan
            .duration
            .map(|duration| begin.saturating_add(duration));
        let (mut next, mut upkeep) = (begin, begin + CHECK_INTERVAL);
        let mut ready = [false; 4];
        let mut answers = Vec::new();
        loop {
            let now = sys::monotonic();
            let [signal, noticed, line, ..] = ready;
            // The signal is also read: a pending one would end the process when signals are
            // unblocked.
            if end.is_some_and(|end| now >= end) || signal && self.signals.next().is_some() {
                return Ok(());
            }
            self.turn();
            if noticed {
                self.notice();
            }
            let woken = std::mem::take(&mut self.again);
            if self.lines(now, line) {
                return Ok(());
            }
            answers.clear();
            if let Some(reflectors) = &mut self.reflectors {
                reflectors.turn(|answer| answers.push(answer));
            }
            let due = now >= next;
            let over = match due || woken || !answers.is_empty() {
                true => self.step(now, due, &answers)?,
                false => None,
            };
            if let Some(over) = over {
                self.plan.say(&over);
                return Ok(());
            }
            if due {
                next += self.plan.every;
                let now = sys::monotonic();
                if now > next {
                    let late = (now - next) / self.plan.every + 1;
                    self.left_out += late;
                    next += late * self.plan.every;
                }
            }
            if now >= upkeep {
                upkeep = now + CHECK_INTERVAL;
                if let Some(actuator) = &mut self.actuator
                    && actuator.watchdog.revive()
                {
                    tell("the watchdog had ended and was started again");
                }
                if let Some(asked) = &self.reflectors
                    && let Some(line) = self
                        .reachability
                        .message(asked.answered(), std::time::Instant::now())
                {
                    tell(line);
                }
            }
            let now = sys::monotonic();
            let until = match self.again {
                true => now,
                false => end.map_or(next, |end| end.min(next)),
            };
            let reflectors = self.reflectors.as_ref();
            let until = reflectors.map_or(until, |reflectors| until.min(reflectors.due()));
            let wait = until.saturating_since(now).min(MAX_TURN);
            let fds = [
                Some(self.signals.as_fd()),
                self.actuator
                    .as_ref()
                    .map(|actuator| actuator.notices.as_fd()),
                self.plan.source.fd(),
                reflectors.and_then(Reflectors::fd),
            ];
            ready = sys::which_readable(fds, std::time::Duration::from_nanos(wait.as_nanos()));
        }
    }

    /// Tells the watchdog that the loop runs.
    fn turn(&mut self) {
        let Some(actuator) = &self.actuator else {
            return;
        };
        for (heartbeat, queue) in actuator.heartbeats.iter().zip(&mut self.queues) {
            if heartbeat.turn(0) {
                queue.was_restored();
            }
        }
        if let Some(dropping) = &actuator.dropping {
            dropping.turn();
        }
    }

    /// Reads notifications of changes that other programs made to the steered queues.
    fn notice(&mut self) {
        let Some(actuator) = &self.actuator else {
            return;
        };
        let (device, queues) = (self.device, &self.queues);
        // If notifications were lost, any of them may have been about these queues.
        let changed = actuator.notices.drain_matching(|bytes| {
            notices(bytes).any(|key| {
                let clsact = || {
                    actuator.dropping.is_some() && (INGRESS..=CLSACT_EGRESS).contains(&key.parent)
                };
                let ours = |queue: &Steered| queue.found.key == key;
                key.device == device && (clsact() || queues.iter().any(ours))
            })
        });
        self.again |= changed;
        self.filters |= changed;
    }

    /// Reads standard input if it is the source and is readable; returns whether it has ended.
    fn lines(&mut self, now: Instant, readable: bool) -> bool {
        let Plan {
            source: Source::Lines(lines),
            knobs,
            bounds,
            valid,
            quiet,
            ..
        } = &mut self.plan
        else {
            return false;
        };
        let input = match readable {
            true => lines.read(knobs),
            false => Input::default(),
        };
        if let Some(wrong) = input.wrong {
            tell(&wrong.to_string());
        }
        if !input.settings.is_empty() {
            self.valid_until = Some(now.saturating_add(*valid));
            for queue in &mut self.queues {
                let each = input.settings.iter();
                each.for_each(|setting| queue.want(*setting, bounds));
            }
        } else if self.valid_until.is_some_and(|until| now >= until) {
            self.valid_until = None;
            self.queues.iter_mut().for_each(Steered::want_original);
            if !*quiet {
                tell(&format!(
                    "no line on standard input for {}: the original settings apply until the next line",
                    valid
                ));
            }
        }
        lines.ended
    }

    /// Samples the queues, takes decisions if they are `due`, passes on the reflectors' answers,
    /// and makes changes. Returns a reason to end, if there is one.
    fn step(
        &mut self,
        now: Instant,
        due: bool,
        answers: &[Answer],
    ) -> Result<Option<String>, Error> {
        if self.waiting.is_some() {
            self.find_again();
            return Ok(None);
        }
        match self.look(now)? {
            ScanResult::All => {}
            ScanResult::Changed(what) if self.plan.insist => {
                self.plan.say(&format!("{what}; it is put back"));
            }
            ScanResult::Changed(what) => {
                return Ok(Some(format!(
                    "{what}: steering has ended, and the change stays (--insist undoes it)"
                )));
            }
            ScanResult::Gone(what) => {
                self.forget();
                self.plan.say(&format!("{what}; waiting until it is back"));
                self.waiting = Some(what);
                return Ok(None);
            }
        }
        if due {
            let bounds = &self.plan.bounds;
            self.queues
                .iter_mut()
                .for_each(|queue| queue.decide(bounds));
        }
        let (bounds, back) = (&self.plan.bounds, self.behind);
        for queue in &mut self.queues {
            answers
                .iter()
                .for_each(|answer| queue.on_answer(answer, back, bounds));
        }
        self.change(now)?;
        if let Some(dropping) = self.dropping().filter(|_| due) {
            // If the loop is late by more than the watchdog's timeout, packets pass.
            let late = Duration::from_nanos(num::low_u64(STUCK_TIMEOUT.as_nanos()));
            let until = now.saturating_add(self.plan.every).saturating_add(late);
            dropping.point.valid_until(until);
        }
        Ok(None)
    }

    fn dropping(&self) -> Option<&Dropping> {
        self.actuator
            .as_ref()
            .and_then(|actuator| actuator.dropping.as_ref())
    }

    /// Writes lines to standard output. Steering does not wait for their reader: lines that it does
    /// not accept are skipped and counted. In a dry run it waits until a signal.
    fn write(&mut self, lines: &[u8]) -> Result<(), Error> {
        let out = io::stdout().lock();
        let wait = match self.actuator {
            Some(_) => Wait::No,
            None => Wait::Until(self.signals.as_fd()),
        };
        match BoundedWriter::new(out.as_fd(), wait).write_all(lines) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                self.unread += 1;
                Ok(())
            }
            Err(_) => Err(Error::new("standard output: cannot be written")),
        }
    }
}
