//! `quell watch`: samples the kernel's own queues over rtnetlink (docs/how-to/kernel.md). It
//! changes nothing, and needs no privileges except for the gauges of attached queues.

mod attached;
pub mod lines;
pub mod meter;
mod metrics;
mod output;
mod sampler;
mod screen;

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, SystemTime};

use quell_link::Error;
use quell_link::units::{counted, parse_time};
use quell_qdisc::{num, time};

pub use self::sampler::Sample;
pub use crate::bpf::page::Gauges;
use crate::options::Table as _;
pub use crate::options::watch::Options;

use super::serve::{Endpoints, Server};
use crate::rtnetlink::{self, dump};
pub use crate::rtnetlink::{message, xstats};
use crate::system::command::quoted;
use crate::system::host::{self, Signals};
use crate::system::messages::tell;
use crate::system::sys;
use lines::Format;
use metrics::LatestSamples;
use output::{Output, Rotate};
use sampler::Sampler;
use screen::Screen;

/// Bounds of the time between samples.
const INTERVALS: std::ops::RangeInclusive<time::Duration> =
    time::MS..=time::Duration::from_secs(60);

/// Shortest time between two updates of dashboard and metrics: the interval at which the
/// dashboard polls.
const BOARD: time::Duration = time::Duration::from_millis(250);

/// Samples until SIGTERM, Ctrl-C or the end of `--duration`. `finished` receives the path of each
/// completed file.
///
/// # Errors
/// If an option is wrong, there is no such device, nothing to sample, or the samples cannot be
/// written.
pub fn run(options: &Options, finished: &mut dyn FnMut(&Path)) -> Result<(), Error> {
    let every = options.every.as_deref();
    let every = every.unwrap_or_else(|| Options::default_of("every"));
    let every = parse_time(every).map_err(|e| e.key("--every"))?;
    if !INTERVALS.contains(&every) {
        return Err(Error::new("must be from 1ms to 60s").key("--every"));
    }
    let duration = time("--duration", options.duration.as_deref())?;
    // Signals are blocked before there is another thread.
    let signals = Signals::hold(false).map_err(|e| Error::new(host::reason(&e)))?;
    // Before a file is opened, so that an error about a port in use overwrites none.
    let mut server = Server::bind(Endpoints {
        metrics: options.metrics,
        dashboard: options.dashboard,
        ..Endpoints::default()
    })?;
    let mut watch = Watch::new(options, &signals, finished)?;
    if options.metrics.or(options.dashboard).is_some() {
        server
            .dashboard
            .iter()
            .for_each(|address| tell(&format!("dashboard: {address}")));
        let board = LatestSamples::default();
        watch.board = Some((board.clone(), time::Instant::ZERO));
        server.start(Box::new(board));
    }
    let begin = sys::monotonic();
    let end = duration.map(|duration| begin.saturating_add(duration));
    let mut next = begin;
    loop {
        match watch.sample(sys::monotonic()) {
            Err(error) if output::is_unread(&error) => return Ok(()),
            Err(error) => return Err(watch.explain(&error)),
            Ok(()) => {}
        }
        next += every;
        let now = sys::monotonic();
        if now > next {
            // A sample took longer than the interval, or the machine was busy. Later samples keep
            // their times.
            let late = (now - next) / every + 1;
            watch.left_out += late;
            next += late * every;
        }
        if end.is_some_and(|end| next > end) {
            break;
        }
        sys::readable(
            signals.as_fd(),
            Duration::from_nanos((next - now).as_nanos()),
        );
        if signals.next().is_some() {
            break;
        }
    }
    watch.end()
}

/// All disciplines of this network namespace: device name, kind, handle and parent, as `tc` writes
/// them.
///
/// # Errors
/// If the kernel refuses the request.
pub fn disciplines() -> Result<Vec<(String, String, String, String)>, Error> {
    let mut dump = dump::Dump::new().map_err(rtnetlink::failed)?;
    dump::whole(|| listed(&mut dump)).map_err(rtnetlink::failed)
}

fn listed(dump: &mut dump::Dump) -> io::Result<Vec<(String, String, String, String)>> {
    let mut found = Vec::new();
    dump.disciplines(0, |queue| {
        let message::Key {
            device,
            handle,
            parent,
            ..
        } = queue.key;
        let name = host::name(device).unwrap_or_default();
        let [handle, parent] = [handle, parent].map(|h| message::Handle(h).to_string());
        found.push((name, queue.kind.to_owned(), handle, parent));
    })?;
    Ok(found)
}

fn time(option: &str, text: Option<&str>) -> Result<Option<time::Duration>, Error> {
    text.map(parse_time).transpose().map_err(|e| e.key(option))
}

struct Watch<'a> {
    sampler: Sampler,
    devices: String,
    output: Option<Output<'a>>,
    screen: Option<Screen>,
    /// Latest samples for the server, and the time of their next update.
    board: Option<(LatestSamples, time::Instant)>,
    quiet: bool,
    /// Number of queues in the last complete sample.
    queues: usize,
    samples: u64,
    /// Samples that were skipped because their time had passed.
    left_out: u64,
    /// Samples of which the kernel could not deliver the whole list.
    partial: u64,
}

impl<'a> Watch<'a> {
    fn new(
        options: &Options,
        signals: &'a Signals,
        finished: &'a mut dyn FnMut(&Path),
    ) -> Result<Self, Error> {
        let rotate = options.rotate.as_deref().map(Rotate::parse).transpose();
        let rotate = rotate.map_err(|e| e.key("--rotate"))?;
        let needs = "needs --out FILE";
        match (&options.out, rotate, options.keep) {
            (None, Some(_), _) => return Err(Error::new(needs).key("--rotate")),
            (_, None, Some(_)) => return Err(Error::new("needs --rotate").key("--keep")),
            _ => {}
        }
        if options.json && options.out.is_some() {
            return Err(Error::new("--out has the lines: give one of the two").key("--json"));
        }
        let sampler = Sampler::new(&options.devices, options.flows)?;
        let screen = match options.json || options.quiet {
            true => None,
            false => Screen::new(),
        };
        let mut watch = Self {
            sampler,
            devices: options.devices.join(", "),
            output: None,
            screen,
            board: None,
            quiet: options.quiet,
            queues: 0,
            samples: 0,
            left_out: 0,
            partial: 0,
        };
        watch.check()?;
        watch.say_notes();
        // The file is made last, so that another error does not overwrite an older file.
        watch.output = match &options.out {
            Some(path) => {
                let rotate = rotate.unwrap_or(Rotate::Never);
                let now = sys::monotonic();
                Some(Output::file(path, rotate, options.keep, now, finished)?)
            }
            None if options.json => Some(Output::standard(Format::Json, signals)),
            None if options.quiet || watch.screen.is_some() => None,
            None => Some(Output::standard(Format::Text, signals)),
        };
        Ok(watch)
    }

    /// Checks that there is something to sample, before anything is written.
    fn check(&mut self) -> Result<(), Error> {
        let sampler = &mut self.sampler;
        let found = dump::whole(|| sampler.sample(sys::monotonic(), &mut |_| {}));
        self.sampler.forget();
        match found {
            Ok(0) => {}
            Ok(_) => return Ok(()),
            // A partial list shows that there is something.
            Err(e) if dump::is_partial(&e) => return Ok(()),
            Err(e) => return Err(rtnetlink::failed(e)),
        }
        let what = match self.devices.as_str() {
            "" => "no interface has a queue discipline".to_owned(),
            devices => format!("{devices}: no queue discipline"),
        };
        let dev = match self.devices.split(", ").next() {
            None | Some("") => "eth0",
            Some(first) => first,
        };
        Err(Error::new(what).remedy(format!(
            "tc qdisc replace dev {} root fq_codel makes one",
            quoted(dev)
        )))
    }

    fn sample(&mut self, now: time::Instant) -> io::Result<()> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let time = since.map_or(0, |since| num::low_u64(since.as_nanos()));
        let Self {
            sampler,
            output,
            screen,
            board,
            ..
        } = self;
        let mut board = board.as_mut().filter(|(_, next)| now >= *next);
        let sampled = sampler.sample(now, &mut |sample| {
            if let Some(output) = output {
                let (format, line) = output.line();
                format.write(line, time, sample);
            }
            if let Some(screen) = screen {
                screen.take(sample);
            }
            if let Some((board, _)) = &mut board {
                board.take(sample);
            }
        });
        if let Some((board, next)) = board {
            board.turn();
            *next = now.saturating_add(BOARD);
        }
        self.samples += 1;
        self.say_notes();
        match sampled {
            Ok(queues) => {
                if queues == 0 && self.queues > 0 {
                    self.say("no queues are left; waiting until there are");
                }
                self.queues = queues;
            }
            Err(error) => {
                if self.partial == 0 {
                    let why = host::reason(&error);
                    self.say(&format!("a sample is not whole: {why}; sampling continues"));
                }
                self.partial += 1;
            }
        }
        if let Some(output) = &mut self.output {
            output.turn(now)?;
            if let Some(note) = output.note() {
                self.say(&note);
            }
        }
        if let Some(screen) = &mut self.screen {
            screen.turn(now)?;
        }
        Ok(())
    }

    /// Prints a message, above the table if there is one.
    fn say(&mut self, line: &str) {
        if self.quiet {
            return;
        }
        if let Some(screen) = &mut self.screen {
            screen.clear();
        }
        tell(line);
    }

    fn say_notes(&mut self) {
        for note in self.sampler.notes() {
            self.say(&note);
        }
    }

    fn explain(&self, error: &io::Error) -> Error {
        match &self.output {
            Some(output) => output.explain(error),
            None => Error::new(format!("standard output: {}", host::reason(error))),
        }
    }

    fn end(mut self) -> Result<(), Error> {
        if let Some(output) = self.output.take()
            && let Some(note) = output.end()?
        {
            self.say(&note);
        }
        if !self.quiet {
            let samples = counted(self.samples, "sample");
            let mut line = format!("{samples} of {}", counted(self.queues as u64, "queue"));
            if self.left_out > 0 {
                line += &format!(", {} skipped as late", self.left_out);
            }
            if self.partial > 0 {
                line += &format!(", {} not whole", self.partial);
            }
            tell(&line);
        }
        Ok(())
    }
}
