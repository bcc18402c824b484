//! What `quell steer` has open to make changes and to take them back, whatever ends it.

use std::io::{self, Write};
use std::os::fd::AsFd;

use quell_link::Error;
use quell_link::units::counted;

use super::Wanted;
use super::dropper::{Dropper, Lever};
use super::saved::{STEER, Saved, undo, undo_left};
use super::steered::Steered;
use crate::rtnetlink::clsact::{Hook, Seen};
use crate::rtnetlink::dump::Dump;
use crate::rtnetlink::message::Handle;
use crate::rtnetlink::options::Knob;
use crate::rtnetlink::request::{Changer, Found, change, unanswered};
use crate::system::host;
use crate::system::notice::Notices;
use crate::system::state::StateFile;
use crate::system::watchdog::{Post, Watchdog};

/// What makes changes and takes them back.
pub struct Hand {
    /// The socket for changes.
    pub changer: Changer,
    /// What others have changed.
    pub notices: Notices,
    /// The second process.
    pub watchdog: Watchdog,
    /// One for each queue whose options are changed.
    pub posts: Vec<Post>,
    /// What was before.
    pub file: StateFile,
    /// Where packets are dropped before the queue.
    pub dropping: Option<Dropping>,
}

/// Who drops packets; of quell's program, where it is attached.
pub struct Dropping {
    /// The program, or an attached queue.
    pub lever: Lever,
    hook: Option<Hook>,
    post: Option<Post>,
    /// There are filters of others beside ours.
    others: bool,
}

impl Hand {
    /// Opens what is needed, and takes back what a killed process left.
    ///
    /// # Errors
    /// If another process steers here, the kernel refuses something, or what was left cannot be taken back.
    pub fn new(wanted: &Wanted) -> Result<Self, Error> {
        let no = |e: io::Error| Error::new(format!("rtnetlink: {}", host::reason(&e)));
        let place = Handle(wanted.place.0).to_string();
        let name = match place.as_str() {
            "root" => wanted.dev.clone(),
            place => format!("{}@{place}", wanted.dev),
        };
        let Some(file) = STEER.hold(&name)? else {
            let error = Error::new("another quell steer has it").key(name);
            return Err(error.remedy("stop that one first"));
        };
        // Before anything is changed: it may be refused.
        let dropping = Dropping::load(wanted)?;
        let left = undo(&file)? + undo_left(host::existing(&wanted.dev)?);
        if left > 0 {
            wanted.say(&format!(
                "{name}: {} restored that a killed quell steer left",
                counted(left as u64, "queue")
            ));
        }
        let changer = Changer::new().map_err(no)?;
        Ok(Self {
            // Before anything is changed: what others change from then on is heard of.
            notices: Notices::of_queues(changer.port())?,
            changer,
            watchdog: Watchdog::restoring(&file.path())?,
            posts: Vec::new(),
            file,
            dropping,
        })
    }

    /// Writes down what there is, prepares what restores it, and attaches the program if there is one.
    ///
    /// # Errors
    /// If the file cannot be written, or the kernel refuses.
    pub fn keep(
        &mut self,
        device: u32,
        wanted: &Wanted,
        queues: &[Steered],
        rows: &[Found],
        dump: &mut Dump,
    ) -> Result<(), Error> {
        self.watchdog.dismiss();
        self.posts.clear();
        let page = self
            .dropping
            .as_ref()
            .and_then(|dropping| dropping.lever.page());
        if page.is_some_and(|page| !page.slots().any(|slot| slot.is_present())) {
            let error = Error::new("the queue was attached again").key(&wanted.dev);
            return Err(error.remedy("start quell steer again"));
        }
        let changed = || queues.iter().filter(|queue| queue.has_options());
        let found = changed().map(|queue| &queue.found);
        let mut saved = Saved::new(device, &wanted.knobs, found);
        // What it has set would be taken for what was there before.
        if saved.is_shared()? {
            let error = Error::new("another quell steer has changed it").key(&wanted.dev);
            return Err(error.remedy("stop that one first, or: quell steer --restore"));
        }
        if let Some(dropping) = &mut self.dropping
            && let Some(dropper) = dropping.lever.program()
        {
            let plan = Hook::plan(dump, rows, device, dropper.id);
            let mut hook = plan.map_err(|e| e.key(&wanted.dev))?;
            hook.continues(dropping.hook.as_ref());
            saved.hook = Some(hook);
        }
        self.file.write(&saved)?;
        for queue in changed() {
            let post = self.watchdog.post();
            let mut bytes = unanswered([change(&queue.found, &queue.before())]);
            // In place of these the watchdog writes a word, which the kernel does not read: no message begins there.
            bytes.extend([0; 4]);
            self.watchdog.guard(&post, self.changer.as_fd(), bytes)?;
            self.posts.push(post);
        }
        let (Some(hook), Some(dropping)) = (saved.hook, &mut self.dropping) else {
            return Ok(());
        };
        dropping.hook = Some(hook);
        dropping.post = Some(self.watchdog.post());
        let attached = self.guard_hook(true).and_then(|()| self.attach());
        if let Err(error) = attached {
            let _ = self.unhook(dump);
            self.watchdog.dismiss();
            let _ = self.file.remove();
            return Err(error.key(&wanted.dev));
        }
        if self.look_at_hook(dump)?.before {
            wanted.say(&format!(
                "{}: filters of others at clsact come before quell's: packets that they accept for good are not dropped",
                wanted.dev
            ));
        }
        Ok(())
    }

    fn attach(&mut self) -> Result<(), Error> {
        match &self.dropping {
            Some(Dropping {
                lever: Lever::Program(dropper),
                hook: Some(hook),
                ..
            }) => hook.attach(&mut self.changer, &dropper.program),
            _ => Ok(()),
        }
    }

    /// Has the watchdog take the filter away in the end, and clsact if that is ours and there are no `others`.
    fn guard_hook(&mut self, others: bool) -> Result<(), Error> {
        let Some(dropping) = &mut self.dropping else {
            return Ok(());
        };
        dropping.others = others;
        let (Some(hook), Some(post)) = (&dropping.hook, &dropping.post) else {
            return Ok(());
        };
        let removal = hook.removal(others);
        self.watchdog
            .guard_at_end(post, self.changer.as_fd(), removal)
    }

    /// What is at clsact; the watchdog is told of it.
    ///
    /// # Errors
    /// If the kernel cannot be asked.
    pub fn look_at_hook(&mut self, dump: &mut Dump) -> Result<Seen, Error> {
        let no = |e: io::Error| Error::new(format!("rtnetlink: {}", host::reason(&e)));
        let hook = self.dropping.as_ref().and_then(|dropping| dropping.hook);
        let Some(hook) = hook else {
            return Ok(Seen::default());
        };
        let seen = hook.look(dump).map_err(no)?;
        if self
            .dropping
            .as_ref()
            .is_some_and(|dropping| dropping.others != seen.others)
        {
            self.guard_hook(seen.others)?;
        }
        Ok(seen)
    }

    /// The rate that an attached queue is shaped to, bit/s.
    pub fn shaped(&self) -> Option<u64> {
        let page = self.dropping.as_ref()?.lever.page()?;
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
            dropping.lever.valid_until(0);
        }
        if let Some(hook) = dropping.and_then(|dropping| dropping.hook.take()) {
            hook.remove(dump, &mut self.changer)?;
        }
        Ok(())
    }
}

impl Dropping {
    fn load(wanted: &Wanted) -> Result<Option<Self>, Error> {
        if !wanted.knobs.contains(&Knob::Drop) {
            return Ok(None);
        }
        let lever = match wanted.page {
            true => {
                let device = host::existing(&wanted.dev)?;
                Lever::queue(device).map_err(|e| e.key(&wanted.dev))?
            }
            false => Lever::Program(Dropper::load(wanted.ecn)?),
        };
        Ok(Some(Self {
            lever,
            hook: None,
            post: None,
            others: false,
        }))
    }

    /// What it did, for people.
    pub fn describe(&self) -> String {
        let counts = self.lever.counts();
        format!(
            ", packets dropped: {}, marked: {}",
            counts.dropped, counts.marked
        )
    }

    /// A JSON line.
    pub fn sample(&self, out: &mut Vec<u8>, time: u64, dev: &str, probability: f64) {
        // An attached queue has its gauges.
        if self.lever.page().is_some() {
            return;
        }
        let counts = self.lever.counts();
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
