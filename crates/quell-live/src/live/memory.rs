//! What LearnQueue has learned on an interface outlives a restart: a file for each direction, which `quell show` reads, too.

use std::io::{self, ErrorKind};
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
    look: "it",
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
    file: Option<StateFile>,
    written: Option<Learned>,
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

    /// Asks the loops when that is due, and writes what they have shown.
    pub fn look(&mut self) {
        let now = Instant::now();
        if self.due.1.is_some_and(|shown| now >= shown) {
            self.due = (now + PERIOD, None);
            self.write();
        } else if self.due.1.is_none() && now >= self.due.0 {
            self.due.1 = Some(now + SHOWN);
            let loops = self.directions.iter().map(|kept| kept.watches.of(0));
            loops.for_each(|first| first.want_learned());
        }
    }

    /// Writes what the loops have shown last.
    pub fn write(&mut self) {
        for kept in &mut self.directions {
            let written = kept.write(&self.dev);
            kept.tell(&self.dev, written);
        }
    }
}

impl Kept {
    /// What the card of a table says of where it was learned.
    fn origin(&self, dev: &str, words: &str) -> String {
        format!("quell live: {dev}, {}, {words}", self.name)
    }

    fn held(&mut self, dev: &str) -> Result<&StateFile, Error> {
        let file = match self.file.take() {
            Some(file) => file,
            None => LIVE.hold(&format!("{dev}-{}", self.name))?.ok_or_else(|| {
                Error::new("another quell live has the file in which it would be kept")
            })?,
        };
        Ok(self.file.insert(file))
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

    fn write(&mut self, dev: &str) -> Result<(), Error> {
        let Some(learned) = self.watches.of(0).learned() else {
            return Ok(());
        };
        if self.written.as_ref() == Some(&learned) {
            return Ok(());
        }
        let origin = self.origin(dev, &learned.words);
        let bytes = learned.table.clone().from(&origin, 0).save()?;
        self.held(dev)?.write_text(&bytes)?;
        self.written = Some(learned);
        Ok(())
    }

    /// Says once what prevents it.
    fn tell(&mut self, dev: &str, result: Result<(), Error>) {
        let trouble = result.err().map(|error| error.to_string());
        if let Some(why) = trouble
            .as_ref()
            .filter(|why| self.trouble.as_ref() != Some(why))
        {
            tell(&format!(
                "{dev}, {}: what it learns is not kept: {why}",
                self.name
            ));
        }
        self.trouble = trouble;
    }
}
