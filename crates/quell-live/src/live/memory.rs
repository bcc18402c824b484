//! What LearnQueue has learned on an interface outlives a restart: a file for each direction and
//! each of its words, which `quell show` reads, too. A file is only written after it has been read,
//! or was not there: the table of another process, or one that could not be read, is never
//! replaced.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quell_link::Error;
use quell_qdisc::control::learnqueue::Table;

use super::settings::{Direction, Plan};
use crate::plane::link::Params;
use crate::plane::shared::{Learned, MAX_TABLES, Watches};
use crate::plane::worker;
use crate::system::host;
use crate::system::messages::tell;
use crate::system::state::{Command, LEARNED, StateFile};

/// Interval at which the files are written: what is learned in that time is lost if the process is
/// killed.
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

/// The files of a direction.
struct Kept {
    name: &'static str,
    /// Looks at its loops: a file has what the first has learned, from which all start.
    watches: Watches,
    /// The words of its queue.
    words: String,
    /// The files' lock; None until one of them may be written.
    lock: Option<Arc<StateFile>>,
    /// The words whose file may be written, and what is in it.
    files: Vec<(String, Option<Table>)>,
    /// Writes the files: a slow disk must not keep the main thread from its checks.
    writing: Option<JoinHandle<Result<Vec<Learned>, Error>>>,
    /// Why one could not be written.
    trouble: Option<String>,
    /// What became of the file when it was read.
    note: Option<String>,
}

impl Memory {
    /// Gives the loops of each direction what its file has, if its queue learns.
    pub fn new(plan: &Plan, watches: &[(&'static str, Watches)]) -> Self {
        let kept = |direction: &Direction| {
            let (_, watches) = watches.iter().find(|(name, _)| *name == direction.name)?;
            Some(Kept {
                name: direction.name,
                watches: watches.clone(),
                words: String::new(),
                lock: None,
                files: Vec::new(),
                writing: None,
                trouble: None,
                note: None,
            })
        };
        let mut memory = Self {
            dev: plan.dev().to_owned(),
            directions: plan.directions.iter().filter_map(kept).collect(),
            due: (Instant::now() + FIRST, None),
        };
        plan.directions.iter().for_each(|it| memory.change(it));
        memory
    }

    /// The same for a direction whose words may change, before its loops are told.
    pub fn change(&mut self, direction: &Direction) {
        self.each(|kept, dev| match kept.name == direction.name {
            true => kept.change(dev, &direction.params),
            false => Ok(()),
        });
    }

    /// What became of the files when they were read, if that has not been told.
    pub fn notes(&mut self) -> Vec<String> {
        let directions = self.directions.iter_mut();
        directions.filter_map(|kept| kept.note.take()).collect()
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

    /// The files' lock.
    fn held(&self, dev: &str) -> Result<Arc<StateFile>, Error> {
        if let Some(lock) = &self.lock {
            return Ok(lock.clone());
        }
        let held = LIVE.hold(&format!("{dev}-{}", self.name))?;
        let taken = "another quell live has the file in which it would be kept";
        held.map(Arc::new).ok_or_else(|| Error::new(taken))
    }

    fn change(&mut self, dev: &str, params: &Params) -> Result<(), Error> {
        let words = params.queue.canonical();
        if words == self.words {
            return Ok(());
        }
        self.words.clone_from(&words);
        let is_known = self.shown().iter().any(|learned| learned.words == words);
        match worker::untrained(params) {
            Some(table) if !is_known => self.read(dev, words, &table.limits()),
            _ => Ok(()),
        }
    }

    fn read(&mut self, dev: &str, words: String, limits: &[u32]) -> Result<(), Error> {
        let origin = self.origin(dev, &words);
        let lock = self.held(dev)?;
        let file = lock.about(&words);
        let path = file.path();
        let shown = path.display();
        let fault = |e: &io::Error| Error::new(format!("{shown}: {}", host::reason(e)));
        let table = match file.bytes() {
            Ok(bytes) => Some(Table::load(&shown.to_string(), &bytes).map_err(Error::from)),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) if matches!(e.kind(), ErrorKind::InvalidData | ErrorKind::IsADirectory) => {
                Some(Err(fault(&e)))
            }
            Err(e) => return Err(fault(&e)),
        };
        let check = |table: Table| {
            let from = &table.card().trained_on;
            // Another release may have other limits for the same words.
            match *from == origin && table.limits() == limits {
                true => Ok(table),
                false => Err(Error::new(format!("{shown}: is of {from:?}"))),
            }
        };
        let table = match table.map(|table| table.and_then(check)) {
            None => None,
            Some(Ok(table)) => {
                self.note = Some(format!("{}: continues from {shown}", self.name));
                let words = words.clone();
                let learned = Learned { words, table };
                let loops = self.watches.0.iter();
                loops.for_each(|watch| watch.start_from(&learned));
                Some(learned.table)
            }
            Some(Err(error)) => {
                let aside = file.set_aside().map_err(|e| fault(&e))?;
                let (name, aside) = (self.name, aside.display());
                self.note = Some(format!(
                    "{error}; it is now {aside}, and {name} starts over"
                ));
                None
            }
        };
        self.lock = Some(lock);
        self.files.retain(|(known, _)| *known != words);
        self.files.push((words, table));
        Ok(())
    }

    /// What the first loop has shown.
    fn shown(&self) -> Vec<Learned> {
        self.watches.of(0).learned()
    }

    /// What is in the file of these words; an error if that must not be written. What could not be
    /// read is tried again: there may be no file.
    fn written(&mut self, dev: &str, words: &str) -> Result<Option<&Table>, Error> {
        let known = self.files.iter().position(|(known, _)| known == words);
        if let Some(known) = known {
            return Ok(self.files[known].1.as_ref());
        }
        let lock = self.held(dev)?;
        let file = lock.about(words);
        let fault = |why: &str| Error::new(format!("{}: {why}", file.path().display()));
        match file.bytes() {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                self.lock = Some(lock);
                self.files.push((words.to_owned(), None));
                Ok(None)
            }
            Err(e) => Err(fault(&host::reason(&e))),
            Ok(_) => Err(fault(
                "could not be read at first; the next start continues from it",
            )),
        }
    }

    /// Starts to write what the first loop has shown, unless it is written, or being written.
    fn write(&mut self, dev: &str) -> Result<(), Error> {
        if self.writing.is_some() {
            return Ok(());
        }
        let shown = self.shown();
        let is_used = |words: &str| self.words == words || shown.iter().any(|it| it.words == words);
        self.files.retain(|(words, _)| is_used(words));
        let (mut due, mut result) = (Vec::new(), Ok(()));
        // Of the files that are written together, that of the present words last.
        for learned in shown.into_iter().rev() {
            match self.written(dev, &learned.words) {
                Ok(table) if table == Some(&learned.table) => {}
                Ok(_) => due.push(learned),
                Err(error) => result = Err(error),
            }
        }
        let Some(lock) = self.lock.clone().filter(|_| !due.is_empty()) else {
            return result;
        };
        let origins: Vec<_> = due.iter().map(|it| self.origin(dev, &it.words)).collect();
        let write = move || {
            for (learned, origin) in due.iter().zip(origins) {
                let bytes = learned.table.clone().from(&origin, 0).save()?;
                let file = lock.about(&learned.words);
                file.write_text(&bytes)?;
                lock.prune(&file, MAX_TABLES);
            }
            Ok(due)
        };
        let thread = host::thread("quell-learned").spawn(write);
        let thread = thread.map_err(|e| Error::new(format!("cannot start a thread: {e}")))?;
        self.writing = Some(thread);
        result
    }

    /// Waits for the files that are being written.
    fn finish(&mut self) -> Result<(), Error> {
        let Some(writing) = self.writing.take() else {
            return Ok(());
        };
        let failed = || Error::new("the thread that writes it has failed");
        for Learned { words, table } in writing.join().map_err(|_| failed())?? {
            let file = self.files.iter_mut().find(|(known, _)| *known == words);
            if let Some(file) = file {
                file.1 = Some(table);
            }
        }
        let may_write = |words: &str| self.files.iter().any(|(known, _)| known == words);
        if self.shown().iter().all(|it| may_write(&it.words)) {
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
