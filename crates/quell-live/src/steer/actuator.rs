//! Makes the changes of `quell steer`, and prepares to undo them however the process ends.

use std::io::{self, Write};
use std::os::fd::AsFd;

use quell_link::Error;
use quell_link::units::counted;
use quell_qdisc::rate::Rate;
use quell_qdisc::time::Instant;

use super::Plan;
use super::dropper::{DropPoint, Dropper};
use super::saved::{STEER, Saved, undo, undo_left};
use super::steered::Steered;
use crate::plane::exclusive::Exclusive;
use crate::rtnetlink;
use crate::rtnetlink::clsact::{ClsactState, Hook};
use crate::rtnetlink::dump::{self, Dump};
use crate::rtnetlink::message::Handle;
use crate::rtnetlink::options::{Knob, Values};
use crate::rtnetlink::request::{QdiscState, RtnlWriter, change, unanswered};
use crate::system::host;
use crate::system::notice::Notices;
use crate::system::state::StateFile;
use crate::system::watchdog::{Heartbeat, Watchdog};

/// Sockets, files and the watchdog with which changes are made and undone.
pub struct Actuator {
    /// Socket for changes.
    pub rtnl: RtnlWriter,
    /// Notifications of other programs' changes.
    pub notices: Notices,
    /// A second process, which restores the settings if this one stalls or dies.
    pub watchdog: Watchdog,
    /// One heartbeat per queue whose options are changed.
    pub heartbeats: Vec<Heartbeat>,
    /// State file with the previous settings.
    pub file: StateFile,
    saved: Saved,
    exclusive: Option<Exclusive>,
    /// Where packets are dropped, if the drop probability is steered.
    pub dropping: Option<Dropping>,
}

/// Where packets are dropped, and the filter at clsact for that.
pub struct Dropping {
    /// The program at clsact, or an attached queue.
    pub point: DropPoint,
    hook: Option<Hook>,
    heartbeat: Option<Heartbeat>,
    /// Whether other programs have filters at clsact.
    others: bool,
}

impl Actuator {
    /// Opens what is needed, and restores what a killed process left changed.
    ///
    /// # Errors
    /// If another process steers this queue, the kernel refuses something, or what was left cannot
    /// be restored.
    pub fn new(plan: &Plan) -> Result<Self, Error> {
        let place = Handle(plan.place.0).to_string();
        let name = match place.as_str() {
            "root" => plan.dev.clone(),
            place => format!("{}@{place}", plan.dev),
        };
        let Some(file) = STEER.hold(&name)? else {
            let error = Error::new("another quell steer is running on it").key(name);
            return Err(error.remedy("stop that one first"));
        };
        // Before anything is changed, since the kernel may refuse it.
        let dropping = Dropping::load(plan)?;
        let left = undo(&file)? + undo_left(host::existing(&plan.dev)?);
        if left > 0 {
            plan.say(&format!(
                "{name}: {} restored, which a killed quell steer had changed",
                counted(left as u64, "queue")
            ));
        }
        let rtnl = RtnlWriter::new().map_err(rtnetlink::failed)?;
        Ok(Self {
            // Before anything is changed, so that no change by others is missed.
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

    /// Records the present settings, prepares to restore them, and attaches the BPF program if
    /// there is one.
    ///
    /// # Errors
    /// If the file cannot be written, or the kernel refuses.
    pub fn prepare(
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
        // Otherwise the settings of another quell steer would be recorded as those to restore.
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
            // The watchdog writes a word in place of these bytes. The kernel ignores it: it is
            // shorter than the header of a message.
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
                "{}: other programs' filters at clsact run before quell's: packets that they accept (action ok) are not dropped",
                plan.dev
            ));
        }
        Ok(())
    }

    /// Adds a queue's change to the next batch.
    pub fn add(&mut self, queue: &Steered, values: &Values) {
        let mut options = Vec::new();
        queue.options(values, &mut options);
        self.rtnl.add(&queue.found, &options);
        let [before, after] = queue.around(values);
        self.saved.changes(&queue.found.key, before, after);
    }

    /// Records what the batch will set: any other value found later was set by another program, and
    /// is not undone.
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

    /// Makes the watchdog remove the filter at the end, and clsact if quell made it and other
    /// programs have no filters there (`others`).
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

    /// The state of clsact, read by `look` ([`Hook::look`] or [`Hook::look_once`]). If other
    /// programs' filters have come or gone, the watchdog's message is prepared again. `None` if
    /// filters may be missing from the kernel's list.
    ///
    /// # Errors
    /// If the kernel refuses the request.
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
            seen => seen.map_err(rtnetlink::failed)?,
        };
        if others != seen.others {
            self.guard_hook(seen.others)?;
        }
        Ok(Some(seen))
    }

    /// Rate to which an attached queue is shaped.
    pub fn shaped(&self) -> Option<Rate> {
        let page = self.dropping.as_ref()?.point.page()?;
        let rate = page.slots().map(|slot| slot.rate()).next()?;
        Some(rate).filter(|rate| !rate.is_zero())
    }

    /// Removes quell's filter; in an attached queue its own law decides again.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn unhook(&mut self, dump: &mut Dump) -> Result<(), Error> {
        let dropping = self.dropping.as_mut();
        if let Some(dropping) = &dropping {
            dropping.point.valid_until(Instant::ZERO);
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

    /// Tells the watchdog that the loop runs: only then is it known which filters other programs
    /// have at clsact, and only then does the watchdog remove clsact.
    pub fn turn(&self) {
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.turn(0);
        }
    }

    /// The counts, for the final message.
    pub fn describe(&self) -> String {
        let counts = self.point.counts();
        format!(
            ", packets dropped: {}, marked: {}",
            counts.dropped, counts.marked
        )
    }

    /// Writes a JSON line with the program's counts.
    pub fn sample(&self, out: &mut Vec<u8>, time: u64, dev: &str, probability: f64) {
        // An attached queue's line has its gauges.
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
