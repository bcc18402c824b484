//! Sources of the knobs' values: a controller for each queue, lines on standard input, or a
//! constant.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use quell_link::Error;
use quell_link::units::{parse_count, parse_probability, parse_rate, parse_time};
use quell_link::words::{self, Queue};
use quell_qdisc::control::Control;
use quell_qdisc::control::guard::{Guard, Params};
use quell_qdisc::control::pace;
use quell_qdisc::control::pie::Pie;
use quell_qdisc::rate::Rate;
use quell_qdisc::{disciplines, num, time};

use super::dropper::PROBABILITY_ONE;
use crate::rtnetlink::options::Knob;
use crate::system::{host, sys};

/// A knob and its value: packets, ns, bit/s, or a probability in units of 1/[`PROBABILITY_ONE`].
pub type Setting = (Knob, u64);

/// Bounds of a knob's values, in the units of a [`Setting`].
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    knob: Knob,
    least: u64,
    most: u64,
}

impl Bounds {
    /// Parses the bounds of a knob; those that are not given have defaults.
    ///
    /// # Errors
    /// If a bound is not a value of this knob, or the smallest exceeds the largest.
    pub fn new(knob: Knob, min: Option<&str>, max: Option<&str>) -> Result<Self, Error> {
        let (least, most) = match knob {
            // With a limit of one packet the device is idle after each.
            Knob::Limit => (2, 100_000),
            Knob::Target => (100_000, 10_000_000_000),
            Knob::Rate => (64_000, 1_000_000_000_000),
            Knob::Drop => (0, PROBABILITY_ONE),
        };
        let read = |option, text: Option<&str>, default| match text {
            None => Ok(default),
            Some(text) => parse(knob, text).map_err(|e: Error| e.key(option)),
        };
        let (least, most) = (read("--min", min, least)?, read("--max", max, most)?);
        if least > most {
            return Err(Error::new("is more than --max").key("--min"));
        }
        Ok(Self { knob, least, most })
    }

    /// The knob that is bounded.
    pub fn knob(&self) -> Knob {
        self.knob
    }

    /// The nearest value within the bounds.
    pub fn clamp(&self, value: u64) -> u64 {
        value.clamp(self.least, self.most)
    }
}

/// Parses a knob's value.
fn parse(knob: Knob, text: &str) -> Result<u64, Error> {
    match knob {
        Knob::Limit => parse_count(text),
        Knob::Target => parse_time(text).map(time::Duration::as_nanos),
        Knob::Rate => parse_rate(text).map(Rate::bps),
        Knob::Drop => Ok(num::whole_u64(
            parse_probability(text)? * PROBABILITY_ONE as f64,
        )),
    }
}

/// A source of the knobs' values.
#[derive(Debug)]
pub enum Source {
    /// The words of one of quell's controllers; each queue has its own instance.
    Words(Box<Queue>),
    /// The caller's controller; each queue has a clone.
    Own(Box<dyn Control>),
    /// A constant value.
    Constant(Setting),
    /// Lines on standard input.
    Lines(Lines),
}

impl Source {
    /// Parses a controller's words, a value of the only knob, or `-`.
    ///
    /// # Errors
    /// If the words are none of these, or the controller sets other knobs.
    pub fn parse(words: &str, knobs: &[Knob]) -> Result<Self, Error> {
        if words == "-" {
            return Ok(Self::Lines(Lines::new()?));
        }
        let [knob] = knobs else {
            let error =
                Error::new("a controller sets one knob; only lines on standard input set several");
            return Err(error
                .key("--with")
                .remedy("name one knob, or write - in place of the controller"));
        };
        if let Ok(value) = parse(*knob, words) {
            return Ok(Self::Constant((*knob, value)));
        }
        if *knob == Knob::Target {
            let error = Error::new("no controller of quell sets a target").key(words);
            return Err(error.remedy("write a time as in 5ms, or - for lines on standard input"));
        }
        let queue = Queue::parse_without_learner(words)?;
        let controller = built(&queue, Rate::from_mbit(1), *knob);
        check(controller.as_deref(), *knob).map_err(|e| e.under(queue.kind()))?;
        Ok(Self::Words(Box::new(queue)))
    }

    /// Uses the caller's controller.
    ///
    /// # Errors
    /// If it sets other knobs than the steered one.
    pub fn own(controller: Box<dyn Control>, knobs: &[Knob]) -> Result<Self, Error> {
        let knob = knobs.first().copied().unwrap_or(Knob::Limit);
        check(Some(&*controller), knob).map_err(|e| e.under(&controller.name()))?;
        Ok(Self::Own(controller))
    }

    /// Whether controllers decide.
    pub fn decides(&self) -> bool {
        matches!(self, Self::Words(_) | Self::Own(_))
    }

    /// Whether a control loop starts from the queue's present rate: always, unless its words give a
    /// start rate.
    pub fn starts_from_current_rate(&self) -> bool {
        match self {
            Self::Words(queue) => queue
                .spec::<pace::Params>()
                .is_none_or(|params| params.start.is_none()),
            _ => true,
        }
    }

    /// Whether the queue is behind the line, in the direction of the reflectors' answers: the
    /// control loop's words include `ingress`.
    pub fn is_behind(&self) -> bool {
        let Self::Words(queue) = self else {
            return false;
        };
        // The rate does not matter here.
        queue.build(Rate::from_mbit(1)).queue.is_behind()
    }

    /// Checks that reflectors are given exactly if a controller sets a rate.
    ///
    /// # Errors
    /// If reflectors are missing, or given without such a controller.
    pub fn needs_reflectors(&self, knobs: &[Knob], named: bool) -> Result<(), Error> {
        let needs = self.decides() && knobs.contains(&Knob::Rate);
        let error = match (needs, named) {
            (true, false) => {
                Error::new("needs hosts behind the line that answer timestamp or echo requests")
                    .remedy("name some that you may ask, as in --reflector 192.0.2.1")
            }
            (false, true) => Error::new("is only for a controller that sets a rate")
                .remedy("write pace --with rate, or leave --reflector out"),
            _ => return Ok(()),
        };
        Err(error.key("--reflector"))
    }

    /// The controller of one queue on a line of this rate, with a guard.
    pub fn controller(&self, rate: Rate, bounds: &[Bounds]) -> Option<Box<dyn Control>> {
        let knob = bounds.first().map_or(Knob::Limit, Bounds::knob);
        let (mut controller, guarded) = match self {
            Self::Words(queue) => (built(queue, rate, knob)?, queue.is_guarded()),
            Self::Own(controller) => (controller.clone(), false),
            _ => return None,
        };
        // A controller that never decides again needs no guard, and for a rate there is no classic
        // controller.
        if !guarded && controller.period() != time::Duration::MAX && knob != Knob::Rate {
            let mut params = Params::default();
            for Bounds { knob, least, most } in bounds {
                match knob {
                    Knob::Limit => params.limit = (num::low_u32(*least), num::low_u32(*most)),
                    Knob::Drop => params.drop = (share(*least), share(*most)),
                    Knob::Target | Knob::Rate => {}
                }
            }
            let classic = words::classic(knob == Knob::Drop, rate);
            controller = Box::new(Guard::new(params, controller, classic));
        }
        controller.time_decisions(Arc::new(sys::monotonic));
        Some(controller)
    }

    /// Descriptor that wakes the loop: standard input, if it is the source.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Lines(lines) if !lines.ended => Some(lines.fd.as_fd()),
            _ => None,
        }
    }
}

fn share(value: u64) -> f64 {
    value as f64 / PROBABILITY_ONE as f64
}

/// The controller that the words name. PIE is a discipline, but its law can set a drop probability,
/// too.
fn built(queue: &Queue, rate: Rate, knob: Knob) -> Option<Box<dyn Control>> {
    let built = queue.build(rate);
    match (built.controller, built.queue) {
        (None, disciplines::Params::Pie(params)) if knob == Knob::Drop => {
            words::note("pie");
            Some(Box::new(Pie::new(params)))
        }
        (controller, _) => controller,
    }
}

/// Checks that a controller sets `knob`, and that the kernel has what it reads and sets.
fn check(controller: Option<&dyn Control>, knob: Knob) -> Result<(), Error> {
    let those = match knob {
        Knob::Drop => "rlaqm, pie and fixed set a drop probability",
        Knob::Rate => {
            "pace, cake_autorate and sqm_autorate set a rate; or write a rate as in 18mbit, or - for lines on standard input"
        }
        _ => "learnqueue, wqm and fixed set a limit",
    };
    let Some(controller) = controller else {
        let error = Error::new("is a queue discipline, not a controller");
        return Err(error.remedy(those));
    };
    let sets = controller.knobs();
    if sets.queue.drop && knob != Knob::Drop {
        let error = Error::new("sets a drop probability, for which no discipline has an option");
        return Err(error.remedy("give --with clsact"));
    }
    if sets.queue.base_probability {
        let what = "sets a base probability, for which no discipline here has an option";
        return Err(Error::new(what).remedy(those));
    }
    if sets.sub_queues.names().next().is_some()
        || controller.watches_packets()
        || controller.reads_sub_queues()
    {
        let error =
            Error::new("decides on single flows or packets, which the kernel does not show");
        return Err(error.remedy(those));
    }
    if knob == Knob::Drop && !sets.queue.drop {
        return Err(Error::new("sets no drop probability").remedy(those));
    }
    if knob == Knob::Rate && !sets.queue.rate {
        return Err(Error::new("sets no rate").remedy(those));
    }
    if knob == Knob::Limit && !sets.queue.limit {
        return Err(Error::new("sets no limit").remedy("write fixed limit 100"));
    }
    Ok(())
}

/// Lines such as `limit 30` or `rate 18mbit target 5ms`; the last one applies.
#[derive(Debug)]
pub struct Lines {
    fd: OwnedFd,
    /// Beginning of an incomplete line.
    part: Vec<u8>,
    /// Whether the bytes up to the next line end belong to a line that was too long.
    skips: bool,
    /// Whether standard input has ended.
    pub ended: bool,
}

/// Longest line, bytes.
const LINE: usize = 4096;

/// Result of reading standard input.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// Settings of the last line, and of earlier ones for knobs that it does not mention.
    pub settings: Vec<Setting>,
    /// Error in a line.
    pub wrong: Option<Error>,
}

impl Lines {
    fn new() -> Result<Self, Error> {
        let fd = io::stdin().as_fd().try_clone_to_owned();
        Ok(Self {
            fd: fd.map_err(|e| Error::new(format!("standard input: {}", host::reason(&e))))?,
            part: Vec::new(),
            skips: false,
            ended: false,
        })
    }

    /// Reads and parses available lines, which may set these knobs. To be called when the
    /// descriptor is readable.
    pub fn read(&mut self, knobs: &[Knob]) -> Input {
        let mut buffer = [0; LINE];
        let length = sys::read(self.fd.as_fd(), &mut buffer).unwrap_or(0);
        self.ended = length == 0;
        self.take(&buffer[..length], knobs)
    }

    fn take(&mut self, bytes: &[u8], knobs: &[Knob]) -> Input {
        let mut input = Input::default();
        self.part.extend(bytes);
        while let Some(end) = self.part.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.part.drain(..=end).collect();
            if std::mem::take(&mut self.skips) {
                continue;
            }
            match settings(&String::from_utf8_lossy(&line), knobs) {
                Ok(settings) => {
                    for (knob, value) in settings {
                        input.settings.retain(|(other, _)| *other != knob);
                        input.settings.push((knob, value));
                    }
                }
                Err(error) => input.wrong = Some(error.under("standard input")),
            }
        }
        if self.part.len() > LINE {
            self.part.clear();
            if !std::mem::replace(&mut self.skips, true) {
                input.wrong = Some(Error::new("a line is too long").under("standard input"));
            }
        }
        input
    }
}

/// Parses the settings of a line.
fn settings(line: &str, knobs: &[Knob]) -> Result<Vec<Setting>, Error> {
    let mut found = Vec::new();
    let mut words = line.split_whitespace();
    while let Some(word) = words.next() {
        let names = knobs.iter().map(|knob| knob.name());
        let knob = knobs.iter().find(|knob| knob.name() == word);
        let knob = knob.ok_or_else(|| Error::unknown("knob", word, names))?;
        let value = words
            .next()
            .ok_or_else(|| Error::new("needs a value").key(word))?;
        let value = parse(*knob, value).map_err(|e| e.key(word))?;
        found.push((*knob, value));
    }
    Ok(found)
}

/// Default time between two samples: the controllers' period, within bounds.
pub fn period(source: &Source, knobs: &[Knob]) -> time::Duration {
    const DEFAULT: time::Duration = time::Duration::from_millis(100);
    let controller = match source {
        Source::Words(queue) => knobs
            .first()
            .and_then(|knob| built(queue, Rate::from_mbit(1), *knob)),
        Source::Own(controller) => Some(controller.clone()),
        _ => None,
    };
    match controller.map(|controller| controller.period()) {
        None | Some(time::Duration::MAX) => DEFAULT,
        Some(period) => period.clamp(*super::INTERVALS.start(), *super::INTERVALS.end()),
    }
}

#[cfg(test)]
mod tests {
    use quell_qdisc::control::wqm::Wqm;

    use super::*;

    #[test]
    fn the_last_line_holds_and_a_part_waits_for_its_end() {
        let mut lines = Lines::new().expect("a descriptor");
        let knobs = [Knob::Limit, Knob::Target];
        let input = lines.take(b"limit 30\nlimit 40 target 5ms\nlim", &knobs);
        assert_eq!(
            input.settings,
            [(Knob::Limit, 40), (Knob::Target, 5_000_000)]
        );
        assert_eq!(lines.take(b"it 7\n\n", &knobs).settings, [(Knob::Limit, 7)]);
    }

    #[test]
    fn a_wrong_line_changes_nothing_and_says_why() {
        let mut lines = Lines::new().expect("a descriptor");
        let wrong = |lines: &mut Lines, text: &[u8]| {
            let input = lines.take(text, &[Knob::Rate]);
            assert_eq!(input.settings, []);
            input.wrong.expect("an error").to_string()
        };
        assert!(wrong(&mut lines, b"limit 3\n").contains("unknown knob `limit`"));
        assert!(wrong(&mut lines, b"rate 5\n").contains("has no unit"));
        assert!(wrong(&mut lines, b"rate\n").contains("needs a value"));
        assert!(wrong(&mut lines, b"rate 1mbit rate x\n").contains("rate"));
        assert!(wrong(&mut lines, &[b'x'; 5000]).contains("too long"));
        // The error is reported once, and the end of the line is not a line.
        assert_eq!(lines.take(&[b'x'; 5000], &[Knob::Rate]), Input::default());
        let end = lines.take(b" rate 5mbit\n", &[Knob::Rate]);
        assert_eq!(end, Input::default());
        assert!(wrong(&mut lines, b"\xff\xfe\n").contains("unknown"));
    }

    #[test]
    fn a_loop_starts_from_the_rate_of_its_queue_unless_a_start_rate_is_given() {
        let source = |words| Source::parse(words, &[Knob::Rate]).expect("a source");
        for words in [
            "pace",
            "pace ingress",
            "pace target 5ms",
            "sqm_autorate",
            "18mbit",
        ] {
            assert!(source(words).starts_from_current_rate(), "{words}");
        }
        // Even if that is the default.
        for words in ["pace start 8mbit", "pace ingress start 10mbit"] {
            assert!(!source(words).starts_from_current_rate(), "{words}");
        }
        for words in [
            "pace ingress",
            "pace ingress start 10mbit",
            "sqm_autorate ingress",
        ] {
            assert!(source(words).is_behind(), "{words}");
        }
        for words in ["pace", "cake_autorate", "18mbit"] {
            assert!(!source(words).is_behind(), "{words}");
        }
        let own = Source::own(
            Box::new(Wqm::new(Default::default(), Rate::from_bps(1))),
            &[Knob::Limit],
        );
        assert!(!own.expect("a controller").is_behind());
    }

    #[test]
    fn controllers_of_other_knobs_are_refused_with_a_remedy() {
        let refused = |words: &str| {
            let error = Source::parse(words, &[Knob::Limit]).expect_err("refused");
            error.to_string()
        };
        assert!(refused("rlaqm").contains("give --with clsact"));
        assert!(refused("codel").contains("is a queue discipline"));
        assert!(refused("lfq").contains("single flows"));
        assert!(refused("fixed").contains("sets no limit"));
        assert!(refused("nope").contains("unknown queue"));
        for words in [
            "wqm target 20ms",
            "learnqueue",
            "learnqueue guard",
            "fixed limit 30",
        ] {
            assert!(Source::parse(words, &[Knob::Limit]).is_ok(), "{words}");
        }
        let refused = |words: &str| {
            let error = Source::parse(words, &[Knob::Drop]).expect_err("refused");
            error.to_string()
        };
        assert!(refused("wqm").contains("sets no drop probability; rlaqm, pie and fixed"));
        assert!(refused("codel").contains("is a queue discipline"));
        assert!(refused("a3c_l4s").contains("sets a base probability"));
        assert!(refused("rlaqm learn").contains("works in simulations and in quell live only"));
        assert!(refused("110%").contains("unknown queue"));
        for words in ["rlaqm", "rlaqm guard", "pie target 20ms", "fixed drop 0.1"] {
            assert!(Source::parse(words, &[Knob::Drop]).is_ok(), "{words}");
        }
        assert!(matches!(
            Source::parse("25%", &[Knob::Drop]),
            Ok(Source::Constant((Knob::Drop, 1_073_741_824)))
        ));
        let refused = |words: &str| {
            let error = Source::parse(words, &[Knob::Rate]).expect_err("refused");
            error.to_string()
        };
        assert!(refused("wqm").contains("sets no rate; pace, cake_autorate and sqm_autorate"));
        assert!(refused("cake").contains("is a queue discipline"));
        let pace = Source::parse("pace start 8mbit", &[Knob::Rate]).expect("a loop");
        assert!(pace.needs_reflectors(&[Knob::Rate], true).is_ok());
        let needs = pace.needs_reflectors(&[Knob::Rate], false).unwrap_err();
        assert!(needs.to_string().contains("--reflector 192.0.2.1"));
        let other = Source::parse("wqm", &[Knob::Limit]).expect("a controller");
        assert!(other.needs_reflectors(&[Knob::Limit], true).is_err());
        assert!(matches!(
            Source::parse("18mbit", &[Knob::Rate]),
            Ok(Source::Constant((Knob::Rate, 18_000_000)))
        ));
    }
}
