//! What LearnQueue has learned on an interface outlives a restart: a file for each direction, which `quell show` reads, too.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quell_link::Error;
use quell_qdisc::control::learnqueue::Table;

use super::settings::{Direction, Plan};
use crate::plane::shared::{Learned, Watches};
use crate::plane::worker;
use crate::system::host;
use crate::system::messages::tell;
use crate::system::state::{Command, LEARNED, StateFile};

/// Interval at which the files are written: what is learned in that time is lost if the process is killed.
const PERIOD: Duration = Duration::from_secs(60);
/// When they are written first: early, so that a folder that cannot be written to is noticed.
const FIRST: Duration = Duration::from_secs(5);
/// Loops show what they have learned within this time.
const SHOWN: Duration = Duration::from_secs(1);

/// Whose files these are.
const LIVE: Command = Command {
    name: "live",
    look: "quell show",
    service: Some("/var/lib/quell-live"),
    location: LEARNED,
};

/// What has been learned on an interface.
pub struct Memory {
    dev: String,
    directions: Vec<Kept>,
    /// When the loops are asked next, and when what they show is written.
    due: (Instant, Option<Instant>),
}

/// The file of a direction.
struct Kept {
    name: &'static str,
    /// Looks at its loops: the file has what the first has learned, from which all start.
    watches: Watches,
    file: Option<Arc<StateFile>>,
    written: Option<Learned>,
    /// Writes the file: a slow disk must not keep the main thread from its checks.
    writing: Option<JoinHandle<Result<Learned, Error>>>,
    /// Why it could not be written.
    trouble: Option<String>,
    /// What became of the file when it was read.
    note: Option<String>,
}

impl Memory {
    /// Gives the loops of each direction what its file has, if its queue learns and had the same words.
    pub fn new(plan: &Plan, watches: &[(&'static str, Watches)]) -> Self {
        let kept = |direction: &Direction| {
            let (_, watches) = watches.iter().find(|(name, _)| *name == direction.name)?;
            let mut kept = Kept {
                name: direction.name,
                watches: watches.clone(),
                file: None,
                written: None,
                writing: None,
                trouble: None,
                note: None,
            };
            if let Some(table) = worker::untrained(&direction.params) {
                let words = direction.params.queue.canonical();
                let read = kept.read(plan.dev(), words, &table.limits());
                kept.tell(plan.dev(), read);
            }
            Some(kept)
        };
        Self {
            dev: plan.dev().to_owned(),
            directions: plan.directions.iter().filter_map(kept).collect(),
            due: (Instant::now() + FIRST, None),
        }
    }

    /// What became of the files when they were read.
    pub fn notes(&self) -> impl Iterator<Item = &String> {
        self.directions.iter().filter_map(|kept| kept.note.as_ref())
    }

    /// Asks the loops when that is due, and starts to write what they have shown.
    pub fn look(&mut self) {
        let now = Instant::now();
        if self.due.1.is_some_and(|shown| now >= shown) {
            self.due = (now + PERIOD, None);
            self.each(Kept::write);
        } else if self.due.1.is_none() && now >= self.due.0 {
            self.due.1 = Some(now + SHOWN);
            let loops = self.directions.iter().map(|kept| kept.watches.of(0));
            loops.for_each(|first| first.want_learned());
        }
        self.each(|kept, _| match &kept.writing {
            Some(writing) if writing.is_finished() => kept.finish(),
            _ => Ok(()),
        });
    }

    /// Writes what the loops have shown last, at their end.
    pub fn end(&mut self) {
        self.each(|kept, _| kept.finish());
        self.each(|kept, dev| kept.write(dev).and_then(|()| kept.finish()));
    }

    fn each(&mut self, act: impl Fn(&mut Kept, &str) -> Result<(), Error>) {
        for kept in &mut self.directions {
            let result = act(kept, &self.dev);
            kept.tell(&self.dev, result);
        }
    }
}

impl Kept {
    /// What the card of a table says of where it was learned.
    fn origin(&self, dev: &str, words: &str) -> String {
        format!("quell live: {dev}, {}, {words}", self.name)
    }

    fn held(&mut self, dev: &str) -> Result<Arc<StateFile>, Error> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let held = LIVE.hold(&format!("{dev}-{}", self.name))?;
                let taken = "another quell live has the file in which it would be kept";
                Arc::new(held.ok_or_else(|| Error::new(taken))?)
            }
        };
        Ok(self.file.insert(file).clone())
    }

    fn read(&mut self, dev: &str, words: String, limits: &[u32]) -> Result<(), Error> {
        let origin = self.origin(dev, &words);
        let file = self.held(dev)?;
        let path = file.path();
        let shown = path.display();
        let fault = |e: &io::Error| Error::new(format!("{shown}: {}", host::reason(e)));
        let table = match file.bytes() {
            Ok(bytes) => Table::load(&shown.to_string(), &bytes).map_err(Error::from),
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) if matches!(e.kind(), ErrorKind::InvalidData | ErrorKind::IsADirectory) => {
                Err(fault(&e))
            }
            Err(e) => return Err(fault(&e)),
        };
        let table = table.and_then(|table| {
            let from = &table.card().trained_on;
            // Another release may have other limits for the same words.
            match *from == origin && table.limits() == limits {
                true => Ok(table),
                false => Err(Error::new(format!("{shown}: is of {from:?}"))),
            }
        });
        let table = match table {
            Ok(table) => table,
            Err(error) => {
                let aside = file.set_aside();
                let aside = aside.map(|to| format!("it is now {}", to.display()));
                let aside = aside.unwrap_or_else(|e| host::reason(&e));
                self.note = Some(format!("{error}; {aside}, and {} starts over", self.name));
                return Ok(());
            }
        };
        self.note = Some(format!("{}: continues from {shown}", self.name));
        let learned = Learned { words, table };
        let loops = self.watches.0.iter();
        loops.for_each(|watch| watch.start_from(learned.clone()));
        self.written = Some(learned);
        Ok(())
    }

    /// Starts to write what the first loop has shown, unless it is written, or being written.
    fn write(&mut self, dev: &str) -> Result<(), Error> {
        let shown = self.watches.of(0).learned();
        let Some(learned) = shown.filter(|shown| self.written.as_ref() != Some(shown)) else {
            return Ok(());
        };
        if self.writing.is_some() {
            return Ok(());
        }
        let origin = self.origin(dev, &learned.words);
        let bytes = learned.table.clone().from(&origin, 0).save()?;
        let file = self.held(dev)?;
        let write = move || file.write_text(&bytes).map(|()| learned);
        let thread = host::thread("quell-learned").spawn(write);
        let thread = thread.map_err(|e| Error::new(format!("cannot start a thread: {e}")))?;
        self.writing = Some(thread);
        Ok(())
    }

    /// Waits for the file that is being written.
    fn finish(&mut self) -> Result<(), Error> {
        if let Some(writing) = self.writing.take() {
            let failed = || Error::new("the thread that writes it has failed");
            self.written = Some(writing.join().map_err(|_| failed())??);
            self.trouble = None;
        }
        Ok(())
    }

    /// Says what prevents it, once until that has changed.
    fn tell(&mut self, dev: &str, result: Result<(), Error>) {
        let Err(error) = result else {
            return;
        };
        let why = error.to_string();
        if self.trouble.as_ref() != Some(&why) {
            let name = self.name;
            tell(&format!("{dev}, {name}: what it learns is not kept: {why}"));
        }
        self.trouble = Some(why);
    }
}
