//! What `quell steer` has open to make changes and to take them back, whatever ends it.

use std::io::{self, Write};
use std::os::fd::AsFd;

use quell_link::Error;
use quell_link::units::counted;

use super::Plan;
use super::dropper::{DropPoint, Dropper};
use super::saved::{STEER, Saved, undo, undo_left};
use super::steered::Steered;
use crate::rtnetlink::clsact::{ClsactState, Hook};
use crate::rtnetlink::dump::{self, Dump};
use crate::rtnetlink::message::Handle;
use crate::rtnetlink::options::{Knob, Values};
use crate::rtnetlink::request::{QdiscState, RtnlWriter, change, unanswered};
use crate::system::exclusive::Exclusive;
use crate::system::host;
use crate::system::notice::Notices;
use crate::system::state::StateFile;
use crate::system::watchdog::{Heartbeat, Watchdog};

/// Applies changes to the kernel and undoes them.
pub struct Actuator {
    /// The socket for changes.
    pub rtnl: RtnlWriter,
    /// What others have changed.
    pub notices: Notices,
    /// The second process.
    pub watchdog: Watchdog,
    /// One per queue whose options are changed.
    pub heartbeats: Vec<Heartbeat>,
    /// What was before.
    pub file: StateFile,
    saved: Saved,
    exclusive: Option<Exclusive>,
    /// Where packets are dropped before the queue.
    pub dropping: Option<Dropping>,
}

/// Where packets are dropped, and the hook of quell's program there.
pub struct Dropping {
    /// The program, or an attached queue.
    pub point: DropPoint,
    hook: Option<Hook>,
    heartbeat: Option<Heartbeat>,
    /// Other programs have filters there.
    others: bool,
}

impl Actuator {
    /// Opens what is needed, and takes back what a killed process left.
    ///
    /// # Errors
    /// If another process steers here, the kernel refuses something, or what was left cannot be
    /// taken back.
    pub fn new(plan: &Plan) -> Result<Self, Error> {
        let no = |e: io::Error| Error::new(format!("rtnetlink: {}", host::reason(&e)));
        let place = Handle(plan.place.0).to_string();
        let name = match place.as_str() {
            "root" => plan.dev.clone(),
            place => format!("{}@{place}", plan.dev),
        };
        let Some(file) = STEER.hold(&name)? else {
            let error = Error::new("another quell steer has it").key(name);
            return Err(error.remedy("stop that one first"));
        };
        // Before anything is changed: it may be refused.
        let dropping = Dropping::load(plan)?;
        let left = undo(&file)? + undo_left(host::existing(&plan.dev)?);
        if left > 0 {
            plan.say(&format!(
                "{name}: {} restored that a killed quell steer left",
                counted(left as u64, "queue")
            ));
        }
        let rtnl = RtnlWriter::new().map_err(no)?;
        Ok(Self {
            // Before anything is changed: what others change from then on is heard of.
            notices: Notices::of_queues(rtnl.port())?,
            rtnl,
            watchdog: Watchdog::restoring(&file.path())?,
            heartbeats: Vec::new(),
            file,
            saved: Saved::default(),
            exclusive: None,
            dropping,
        })
    }

    /// Writes down what there is, prepares what restores it, and attaches the program if there is
    /// one.
    ///
    /// # Errors
    /// If the file cannot be written, or the kernel refuses.
    pub fn keep(
        &mut self,
        device: u32,
        plan: &Plan,
        queues: &[Steered],
        rows: &[QdiscState],
        dump: &mut Dump,
    ) -> Result<(), Error> {
        self.watchdog.dismiss();
        self.heartbeats.clear();
        let page = self
            .dropping
            .as_ref()
            .and_then(|dropping| dropping.point.page());
        if page.is_some_and(|page| !page.slots().any(|slot| slot.is_present())) {
            let error = Error::new("the queue was attached again").key(&plan.dev);
            return Err(error.remedy("start quell steer again"));
        }
        let changed = || queues.iter().filter(|queue| queue.has_options());
        let found = changed().map(|queue| &queue.found);
        let mut saved = Saved::new(device, &plan.knobs, found);
        // What it has set would be taken for what was there before.
        self.exclusive = None;
        self.exclusive = saved.take();
        if self.exclusive.is_none() || saved.is_shared(&self.file)? {
            let error = Error::new("another quell steer has changed it").key(&plan.dev);
            return Err(error.remedy("stop that one first, or: quell steer --restore"));
        }
        if let Some(dropping) = &mut self.dropping
            && let Some(dropper) = dropping.point.program()
        {
            let hook = Hook::plan(dump, rows, device, dropper.id);
            let mut hook = hook.map_err(|e| e.key(&plan.dev))?;
            hook.continues(dropping.hook.as_ref());
            saved.hook = Some(hook);
        }
        self.file.write(&saved)?;
        for queue in changed() {
            let heartbeat = self.watchdog.heartbeat();
            let mut bytes = unanswered([change(&queue.found, &queue.before())]);
            // In place of these the watchdog writes a word, which the kernel does not read: no
            // message begins there.
            bytes.extend([0; 4]);
            self.watchdog.guard(&heartbeat, self.rtnl.as_fd(), bytes)?;
            self.heartbeats.push(heartbeat);
        }
        let hook = saved.hook;
        self.saved = saved;
        let (Some(hook), Some(dropping)) = (hook, &mut self.dropping) else {
            return Ok(());
        };
        dropping.hook = Some(hook);
        dropping.heartbeat = Some(self.watchdog.heartbeat());
        let attached = self.guard_hook(true).and_then(|()| self.attach());
        if let Err(error) = attached {
            let _ = self.unhook(dump);
            self.watchdog.dismiss();
            let _ = self.file.remove();
            return Err(error.key(&plan.dev));
        }
        let seen = self.look_at_hook(dump, Hook::look)?;
        if seen.is_some_and(|seen| seen.before) {
            plan.say(&format!(
                "{}: filters of others at clsact come before quell's: packets that they accept for good are not dropped",
                plan.dev
            ));
        }
        Ok(())
    }

    /// Adds a change of a queue to the next batch.
    pub fn add(&mut self, queue: &Steered, values: &Values) {
        let mut options = Vec::new();
        queue.options(values, &mut options);
        self.rtnl.add(&queue.found, &options);
        let [before, after] = queue.around(values);
        self.saved.changes(&queue.found.key, before, after);
    }

    /// Writes down what the batch will set: what else is found later was set by others, and stays.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_down(&self) -> Result<(), Error> {
        self.file.update(&self.saved)
    }

    fn attach(&mut self) -> Result<(), Error> {
        match &self.dropping {
            Some(Dropping {
                point: DropPoint::Program(dropper),
                hook: Some(hook),
                ..
            }) => hook.attach(&mut self.rtnl, &dropper.program),
            _ => Ok(()),
        }
    }

    /// Has the watchdog take the filter away in the end, and clsact if that is ours and there are
    /// no `others`.
    fn guard_hook(&mut self, others: bool) -> Result<(), Error> {
        let Some(dropping) = &mut self.dropping else {
            return Ok(());
        };
        dropping.others = others;
        let (Some(hook), Some(heartbeat)) = (&dropping.hook, &dropping.heartbeat) else {
            return Ok(());
        };
        let removal = hook.removal(others);
        self.watchdog
            .guard_at_end(heartbeat, self.rtnl.as_fd(), removal)
    }

    /// What `look` ([`Hook::look`] or [`Hook::look_once`]) sees at clsact; the watchdog learns
    /// whether others have filters there. `None` if filters may be missing from the kernel's list.
    ///
    /// # Errors
    /// If the kernel cannot be asked.
    pub fn look_at_hook(
        &mut self,
        dump: &mut Dump,
        look: impl FnOnce(&Hook, &mut Dump) -> io::Result<ClsactState>,
    ) -> Result<Option<ClsactState>, Error> {
        let hook = self.dropping.as_ref().and_then(|dropping| {
            let hook = dropping.hook?;
            Some((hook, dropping.others))
        });
        let Some((hook, others)) = hook else {
            return Ok(Some(ClsactState::default()));
        };
        let seen = match look(&hook, dump) {
            Err(e) if dump::is_partial(&e) => return Ok(None),
            seen => seen.map_err(|e| Error::new(format!("rtnetlink: {}", host::reason(&e))))?,
        };
        if others != seen.others {
            self.guard_hook(seen.others)?;
        }
        Ok(Some(seen))
    }

    /// The rate that an attached queue is shaped to, bit/s.
    pub fn shaped(&self) -> Option<u64> {
        let page = self.dropping.as_ref()?.point.page()?;
        let bytes = page.slots().map(|slot| slot.rate()).next()?;
        (bytes > 0).then_some(bytes * 8)
    }

    /// Takes our filter away; an attached queue's own law decides again.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn unhook(&mut self, dump: &mut Dump) -> Result<(), Error> {
        let dropping = self.dropping.as_mut();
        if let Some(dropping) = &dropping {
            dropping.point.valid_until(0);
        }
        if let Some(hook) = dropping.and_then(|dropping| dropping.hook.take()) {
            hook.remove(dump, &mut self.rtnl)?;
        }
        Ok(())
    }
}

impl Dropping {
    fn load(plan: &Plan) -> Result<Option<Self>, Error> {
        if !plan.knobs.contains(&Knob::Drop) {
            return Ok(None);
        }
        let point = match plan.page {
            true => {
                let device = host::existing(&plan.dev)?;
                DropPoint::queue(device).map_err(|e| e.key(&plan.dev))?
            }
            false => DropPoint::Program(Dropper::load(plan.ecn)?),
        };
        Ok(Some(Self {
            point,
            hook: None,
            heartbeat: None,
            others: false,
        }))
    }

    /// Tells the watchdog that what others do at clsact is seen.
    pub fn turn(&self) {
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.turn(0);
        }
    }

    /// What it did, for people.
    pub fn describe(&self) -> String {
        let counts = self.point.counts();
        format!(
            ", packets dropped: {}, marked: {}",
            counts.dropped, counts.marked
        )
    }

    /// A JSON line.
    pub fn sample(&self, out: &mut Vec<u8>, time: u64, dev: &str, probability: f64) {
        // An attached queue has its gauges.
        if self.point.page().is_some() {
            return;
        }
        let counts = self.point.counts();
        let line = serde_json::json!({
            "time": time as f64 / 1e9,
            "device": dev,
            "type": "filter",
            "kind": "quell",
            "drop_probability": probability,
            "drops": counts.dropped,
            "marks": counts.marked,
        });
        let _ = writeln!(out, "{line}");
    }
}
