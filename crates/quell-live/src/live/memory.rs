//! Files that keep what queues have learned on an interface across restarts: one for each direction
//! and each of its queue words, which `quell show` reads, too. A file is written only if it was
//! read before or did not exist, so that the file of another process, or one that could not be
//! read, is never replaced.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quell_link::Error;
use quell_qdisc::control::LearnedState;

use super::settings::{Direction, Plan};
use crate::plane::link::Params;
use crate::plane::shared::{Learned, MAX_LEARNED, Watches};
use crate::plane::worker;
use crate::system::host;
use crate::system::messages::tell;
use crate::system::state::{Command, LEARNED, StateFile};

/// Interval at which the files are written. What is learned since the last time is lost if the
/// process is killed.
const PERIOD: Duration = Duration::from_secs(60);
/// Time of the first writing: early, so that a folder without write permission is noticed.
const FIRST: Duration = Duration::from_secs(5);
/// Time from the request to the writing, in which the loops show what they have learned.
const SHOWN: Duration = Duration::from_secs(1);

/// The command that owns these files.
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
    /// Time of the next request to the loops, and, after a request, the time to write their
    /// answers.
    due: (Instant, Option<Instant>),
}

/// Files of a direction.
struct Kept {
    name: &'static str,
    /// Watches of its loops. A file holds what the first loop has learned; all loops start from it.
    watches: Watches,
    /// Present queue words.
    words: String,
    /// Lock of the files; `None` until one of them may be written.
    lock: Option<Arc<StateFile>>,
    /// Queue words whose file may be written, and the state in the file.
    files: Vec<(String, Option<LearnedState>)>,
    /// Thread that writes the files, since a slow disk must not delay the main thread's checks.
    writing: Option<JoinHandle<Result<Vec<Learned>, Error>>>,
    /// Last reported reason why a file could not be written.
    trouble: Option<String>,
    /// Result of reading the file, not yet reported.
    note: Option<String>,
}

impl Memory {
    /// Gives the loops of each direction the state in its file, if its queue learns.
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

    /// Gives the loops of a direction whose queue words may have changed the state in the file of
    /// the new words. Must be called before the loops get the new words.
    pub fn change(&mut self, direction: &Direction) {
        self.each(|kept, dev| match kept.name == direction.name {
            true => kept.change(dev, &direction.params),
            false => Ok(()),
        });
    }

    /// Results of reading the files that have not been reported.
    pub fn notes(&mut self) -> Vec<String> {
        let directions = self.directions.iter_mut();
        directions.filter_map(|kept| kept.note.take()).collect()
    }

    /// Requests what the loops have learned when that is due, and starts to write the answers.
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

    /// Writes what the loops showed when they ended.
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
    /// Origin of a state, as its file's card states it.
    fn origin(&self, dev: &str, words: &str) -> String {
        format!("quell live: {dev}, {}, {words}", self.name)
    }

    /// Takes the files' lock, unless it is held already.
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
            Some(state) if !is_known => self.read(dev, words, &state),
            _ => Ok(()),
        }
    }

    fn read(&mut self, dev: &str, words: String, untrained: &LearnedState) -> Result<(), Error> {
        let origin = self.origin(dev, &words);
        let lock = self.held(dev)?;
        let file = lock.about(&words);
        let path = file.path();
        let shown = path.display();
        let fault = |e: &io::Error| Error::new(format!("{shown}: {}", host::reason(e)));
        let state = match file.bytes() {
            Ok(bytes) => {
                let state = untrained.load(&shown.to_string(), &bytes, &origin);
                Some(state.map_err(Error::from))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) if matches!(e.kind(), ErrorKind::InvalidData | ErrorKind::IsADirectory) => {
                Some(Err(fault(&e)))
            }
            Err(e) => return Err(fault(&e)),
        };
        let state = match state {
            None => None,
            Some(Ok(state)) => {
                self.note = Some(format!("{}: continues from {shown}", self.name));
                let words = words.clone();
                let learned = Learned { words, state };
                let loops = self.watches.0.iter();
                loops.for_each(|watch| watch.start_from(&learned));
                Some(learned.state)
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
        self.files.push((words, state));
        Ok(())
    }

    /// What the first loop has shown that it has learned.
    fn shown(&self) -> Vec<Learned> {
        self.watches.of(0).learned()
    }

    /// The state in the file of these words; an error if the file must not be written. A file that
    /// could not be read is tried again, since it may have been removed.
    fn written(&mut self, dev: &str, words: &str) -> Result<Option<&LearnedState>, Error> {
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

    /// Starts to write what the first loop has shown, unless that is in the files already or a
    /// writing is under way.
    fn write(&mut self, dev: &str) -> Result<(), Error> {
        if self.writing.is_some() {
            return Ok(());
        }
        let shown = self.shown();
        let is_used = |words: &str| self.words == words || shown.iter().any(|it| it.words == words);
        self.files.retain(|(words, _)| is_used(words));
        let (mut due, mut result) = (Vec::new(), Ok(()));
        // The file of the present words is written last.
        for learned in shown.into_iter().rev() {
            match self.written(dev, &learned.words) {
                Ok(state) if state == Some(&learned.state) => {}
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
                let bytes = learned.state.save(&origin)?;
                let file = lock.about(&learned.words);
                file.write_text(&bytes)?;
                lock.prune(&file, MAX_LEARNED);
            }
            Ok(due)
        };
        let thread = host::thread("quell-learned").spawn(write);
        let thread = thread.map_err(|e| Error::new(format!("cannot start a thread: {e}")))?;
        self.writing = Some(thread);
        result
    }

    /// Waits until the files are written.
    fn finish(&mut self) -> Result<(), Error> {
        let Some(writing) = self.writing.take() else {
            return Ok(());
        };
        let failed = || Error::new("the thread that writes it has failed");
        for Learned { words, state } in writing.join().map_err(|_| failed())?? {
            let file = self.files.iter_mut().find(|(known, _)| *known == words);
            if let Some(file) = file {
                file.1 = Some(state);
            }
        }
        let may_write = |words: &str| self.files.iter().any(|(known, _)| known == words);
        if self.shown().iter().all(|it| may_write(&it.words)) {
            self.trouble = None;
        }
        Ok(())
    }

    /// Reports what prevents the writing; the same reason only once.
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
