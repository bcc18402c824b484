//! Settings of `quell live`: the options, the configuration file, and which of them can change at
//! run time.

use std::net::IpAddr;
use std::path::Path;

use quell_link::units::{note_on_rate, parse_rate};
use quell_link::{Error, Queue, words};
use quell_qdisc::discipline::Wants;
use quell_qdisc::rate::Rate;

pub use crate::options::live::Options;
use crate::options::{Scope, Table};
use crate::packet::header::{Parser, random_key};
use crate::plane::backend;
use crate::plane::link::{self, Params};
use crate::plane::prober;
use crate::system::host;
use crate::system::sys;

/// Largest configuration file, bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Most CPUs in `--cpu`, hence most loops of a direction.
const MAX_LOOPS: usize = 32;
/// Rate of the line below a shaper whose rate a control loop sets, bit/s: too high to limit
/// anything.
const NO_LIMIT: Rate = Rate::from_mbit(100_000);
/// Largest `--overhead`, bytes per packet.
const MAX_OVERHEAD: u32 = 1000;

/// An error about the option `key`.
fn wrong<T>(key: &str, what: &str, remedy: &str) -> Result<T, Error> {
    Err(Error::new(what.to_owned()).key(key).remedy(remedy))
}

/// Replaces the error's key by the option `key`.
fn with_key(key: &str, error: Error) -> Error {
    Error { key: None, ..error }.key(key)
}

/// A direction that is managed.
#[derive(Clone, Debug)]
pub struct Direction {
    /// `egress` or `ingress`.
    pub name: &'static str,
    /// Rate as it was given; `None`: a control loop sets it.
    rate: Option<String>,
    /// Queue words.
    pub aqm: String,
    /// Parameters of the link.
    pub params: Params,
    /// Error of the queue's model if that cannot be read; another queue then runs in its place.
    broken: Option<Error>,
}

/// The checked settings: the options, completed from the configuration file.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The options, completed with those of the file that were not given.
    pub options: Options,
    /// Managed directions.
    pub directions: Vec<Direction>,
    /// CPU of each loop of a direction; without `--cpu` there is one loop, on any CPU.
    pub loops: Vec<Option<usize>>,
    /// Hosts that get ICMP requests, with `--autorate`.
    pub reflectors: Vec<IpAddr>,
}

impl Plan {
    /// Reads the file, overrides it by the options, and checks the result.
    pub fn new(given: &Options) -> Result<Self, Error> {
        let config = given.config.as_deref();
        let options = with_file(given)?;
        // The error names the option if it was given or there is no file, else the file's key.
        Self::resolve(options).map_err(|error| {
            let key = error.key.clone().unwrap_or_default();
            match config {
                Some(path) if !given.given(&key) => error.at(&path.display().to_string(), None),
                _ => with_key(&format!("--{}", key.replace('_', "-")), error),
            }
        })
    }

    /// Checks options that are completed.
    ///
    /// # Errors
    /// The first fault, with its key in the configuration file.
    pub fn resolve(options: Options) -> Result<Self, Error> {
        if options.dev.as_deref().unwrap_or_default().is_empty() {
            let remedy = "name the interface, as in --dev eth0";
            return wrong("dev", "missing", remedy);
        }
        check_forwarding(&options)?;
        let loops = match &options.cpu {
            None => vec![None],
            Some(text) => {
                let cpus = processors(text).map_err(|error| with_key("cpu", error))?;
                let here = sys::processors();
                if let Some(absent) = cpus.iter().find(|cpu| !here.contains(cpu)) {
                    let list: Vec<_> = here.iter().map(usize::to_string).collect();
                    let what = format!("there is no processor {absent} for it");
                    return wrong("cpu", &what, &format!("it may use {}", list.join(", ")));
                }
                cpus.into_iter().map(Some).collect()
            }
        };
        let reflectors =
            prober::addresses(&options.reflector).map_err(|error| with_key("reflector", error))?;
        let plan = Self {
            directions: Vec::new(),
            options,
            loops,
            reflectors,
        };
        plan.check_autorate()?;
        let directions = match plan.options.autorate {
            true => plan.autorate_directions()?,
            false => plan.fixed_directions()?,
        };
        if directions.is_empty() {
            let remedy = "give --rate for what leaves, --ingress for what arrives";
            return wrong("rate", "there is no rate", remedy);
        }
        Ok(Self { directions, ..plan })
    }

    /// Name of the interface.
    pub fn dev(&self) -> &str {
        self.options.dev.as_deref().unwrap_or_default()
    }

    /// The direction of this name, if it is managed.
    pub fn direction(&self, name: &str) -> Option<&Direction> {
        self.directions.iter().find(|d| d.name == name)
    }

    /// Errors of models that cannot be read, for which substitutes run.
    pub fn broken(&self) -> impl Iterator<Item = Error> {
        let broken = |d: &Direction| Some(d.broken.clone()?.under("aqm"));
        self.directions.iter().filter_map(broken)
    }

    /// Whether AF_XDP forwards frames between two interfaces.
    pub fn xdp(&self) -> bool {
        self.options.xdp()
    }

    /// A parser of packet headers with a new random key.
    pub fn parser(&self) -> Parser {
        Parser {
            key: random_key(),
            tunnels: self.options.tunnels,
            stamps: false,
            wants: Wants::default(),
        }
    }

    /// Whether control loops set the shapers' rates (`--autorate`).
    pub fn moves(&self) -> bool {
        self.options.autorate
    }

    /// Whether the control loops can do without reflectors, by the timestamps of TCP traffic.
    pub fn reads_traffic(&self) -> bool {
        let words = self.options.aqm();
        words.split_whitespace().next() == Some("pace") && !words.contains("nopassive")
    }

    /// Directions with `--autorate`: both, each with a line that limits nothing.
    fn autorate_directions(&self) -> Result<Vec<Direction>, Error> {
        let options = &self.options;
        let aqm = options.aqm();
        let first = |aqm: &str, rate: &Option<String>| match rate {
            Some(rate) => format!("{aqm} start {rate}"),
            None => aqm.to_owned(),
        };
        let arriving = match (
            &options.ingress_aqm,
            aqm.split_whitespace().any(|w| w == "ingress"),
        ) {
            (Some(own), _) => own.clone(),
            (None, true) => aqm.to_owned(),
            (None, false) => format!("{aqm} ingress"),
        };
        Ok(vec![
            Direction::new("egress", None, first(aqm, &options.rate), options)?,
            Direction::new("ingress", None, first(&arriving, &options.ingress), options)?,
        ])
    }

    /// Directions with given rates.
    fn fixed_directions(&self) -> Result<Vec<Direction>, Error> {
        let options = &self.options;
        let aqm = options.aqm();
        let arriving = options.ingress_aqm.as_deref().unwrap_or(aqm);
        let each = [
            ("egress", &options.rate, aqm),
            ("ingress", &options.ingress, arriving),
        ];
        let each = each.into_iter().filter(|(_, rate, _)| rate.is_some());
        each.map(|(name, rate, aqm)| Direction::new(name, rate.clone(), aqm.to_owned(), options))
            .collect()
    }

    /// Checks what `--autorate` needs and excludes.
    fn check_autorate(&self) -> Result<(), Error> {
        let none = self.reflectors.is_empty();
        if !self.moves() {
            return match none {
                true => Ok(()),
                false => wrong("reflector", "is for --autorate", "add --autorate"),
            };
        }
        if none && !self.reads_traffic() {
            return wrong(
                "autorate",
                "needs hosts behind the line that answer timestamp or echo requests for this loop",
                "name some that you may ask, as in --reflector 192.0.2.1",
            );
        }
        if self.options.dry_run {
            let what = "shapes nothing in a dry run";
            return wrong("autorate", what, "leave --dry-run out");
        }
        if self.loops.len() > 1 {
            let what = "needs all traffic of a direction in one loop";
            return wrong("autorate", what, "name one processor in --cpu");
        }
        Ok(())
    }

    /// The line that is printed at the start.
    pub fn announce(&self, dry: bool) -> String {
        let each = self.directions.iter();
        let each = each.map(|d| format!("{}: {}, {}", d.name, d.understood(), d.aqm));
        let each = each.collect::<Vec<_>>().join("; ");
        let dry = if dry {
            " (dry run: nothing is touched)"
        } else {
            ""
        };
        format!("{}: {each}{dry}", self.dev())
    }

    /// A note if CAKE needs what its packets lack here: addresses on the inner side of NAT, or
    /// firewall marks.
    fn note_on_cake(&self, direction: &Direction) -> Option<String> {
        // The rate does not matter here.
        let queue = direction.params.queue.build(Rate::from_mbit(1)).queue;
        let (nat, fwmark) = (queue.is_nat(), queue.reads_fwmark());
        if self.options.to.is_some() {
            let word = match (nat, fwmark) {
                (false, false) => return None,
                (true, false) => "nat",
                (false, true) => "fwmark",
                (true, true) => "nat and fwmark",
            };
            return Some(format!(
                "cake {word}: no effect between two interfaces, where packets have no connections or marks"
            ));
        }
        // Outgoing packets are classified before NAT.
        let lacks = nat && direction.name == "ingress" && !backend::tells_connections();
        lacks.then(|| {
            "cake nat: this kernel does not tell the connections of packets (CONFIG_NETFILTER_NETLINK_GLUE_CT); ingress hosts are the addresses in the packets".to_owned()
        })
    }

    /// Notes on rates that are probably not what was meant, on words without effect, and on models
    /// that cannot be read.
    pub fn notes(&self) -> Vec<String> {
        let notes = |d: &Direction| {
            let rate = d.rate.as_deref().and_then(note_on_rate);
            [rate, self.note_on_cake(d), d.note_on_model()]
        };
        let notes = self.directions.iter().flat_map(notes).flatten();
        notes.chain(self.note_on_ingress()).collect()
    }

    /// A note on a queue of arriving traffic that is not managed.
    fn note_on_ingress(&self) -> Option<String> {
        let managed = self.directions.iter().any(|d| d.name == "ingress");
        let lacks = self.options.ingress_aqm.is_some() && !managed;
        lacks.then(|| {
            "--ingress-aqm has no effect without a rate of what arrives; add --ingress".to_owned()
        })
    }

    /// This plan as the successor of `old`; an error if it differs in what cannot change at run
    /// time.
    pub fn after(self, old: &Self, path: &Path) -> Result<Self, Error> {
        let at = |error: Error| error.at(&path.display().to_string(), None);
        // If the model cannot be read, the running queue stays: it is better than the substitute.
        if let Some(error) = self.broken().next() {
            return Err(at(error));
        }
        let changed = old.options.changed(&self.options);
        for row in Options::ROWS {
            let came = old.options.given(row.name) != self.options.given(row.name);
            let what = match row.name {
                "rate" | "ingress" if came && !self.moves() => {
                    "a direction cannot come or go while quell live runs"
                }
                name if row.scope == Scope::Start && changed.contains(&name) => {
                    "cannot change while quell live runs"
                }
                _ => continue,
            };
            let error = Error::new(what).key(row.name).remedy("start it again");
            return Err(at(error));
        }
        Ok(self)
    }
}

impl Options {
    /// Queue words: those of `--aqm`, or its default.
    fn aqm(&self) -> &str {
        self.aqm.as_deref().unwrap_or_else(|| match self.autorate {
            true => "pace",
            false => Self::default_of("aqm"),
        })
    }

    fn xdp(&self) -> bool {
        self.backend.as_deref() == Some("af_xdp")
    }
}

impl Direction {
    fn new(
        name: &'static str,
        rate: Option<String>,
        aqm: String,
        options: &Options,
    ) -> Result<Self, Error> {
        let line = if name == "egress" { "rate" } else { "ingress" };
        let words = match (name, &options.ingress_aqm) {
            ("ingress", Some(_)) => "ingress_aqm",
            _ => "aqm",
        };
        let parsed = rate.as_deref().map_or(Ok(NO_LIMIT), parse_rate);
        let parsed = parsed.map_err(|error| with_key(line, error))?;
        // The queue's own option moves from the key into the message.
        let of_queue = |mut error: Error| {
            if let Some(option) = error.key.take() {
                error.what = format!("{option}: {}", error.what);
            }
            error.key(words)
        };
        let (queue, broken) = parse(&aqm).map_err(of_queue)?;
        queue.check(parsed).map_err(of_queue)?;
        if rate.is_none() {
            let controller = queue.build(parsed).controller;
            let sets = controller.is_some_and(|controller| controller.knobs().queue.rate);
            if !sets {
                let what = format!("{} sets no rate", queue.kind());
                return wrong(words, &what, "write pace, cake_autorate or sqm_autorate");
            }
        }
        let overhead = options.overhead.unwrap_or(link::ETHERNET);
        if overhead > MAX_OVERHEAD {
            let what = format!("{overhead} is more than {MAX_OVERHEAD} bytes");
            return Err(Error::new(what).key("overhead"));
        }
        let params = Params {
            overhead,
            talkers: options.dashboard.is_some(),
            // Random, so that senders cannot predict drops or the trials of a learned network.
            seed: random_key().0,
            ..Params::line(parsed, queue)
        };
        Ok(Self {
            name,
            rate,
            aqm,
            params,
            broken,
        })
    }

    /// Whether rate, queue words and overhead are the same.
    pub fn same(&self, other: &Self) -> bool {
        let asked = |d: &Self| (d.rate.clone(), d.aqm.clone(), d.params.overhead);
        asked(self) == asked(other)
    }

    /// The rate as parsed, for messages.
    pub fn understood(&self) -> String {
        let Some(rate) = &self.rate else {
            return "autorate".to_owned();
        };
        parse_rate(rate).map_or_else(|_| rate.clone(), |rate| rate.to_string())
    }

    fn note_on_model(&self) -> Option<String> {
        let (error, instead) = (self.broken.as_ref()?, self.params.queue.canonical());
        Some(format!(
            "{}: aqm: {error}; until then `{instead}`, fq_codel's law on the same queues",
            self.name
        ))
    }
}

/// Parses queue words. If the queue's model cannot be read, returns a substitute and the model's
/// error.
fn parse(aqm: &str) -> Result<(Queue, Option<Error>), Error> {
    // On a real link every learned controller gets a guard. Other queues refuse the word.
    let guarded = Queue::parse(&format!("{aqm} guard"));
    match guarded.or_else(|_| Queue::parse(aqm)) {
        Ok(queue) => Ok((queue, None)),
        // A model that cannot be read does not leave the link without a queue.
        Err(error) => match words::hush_without_model(aqm) {
            Some(queue) => Ok((queue, Some(error))),
            None => Err(error),
        },
    }
}

/// Checks what forwarding between two interfaces needs.
fn check_forwarding(options: &Options) -> Result<(), Error> {
    match (&options.to, options.backend.as_deref()) {
        (None, None) | (Some(_), None | Some("af_packet" | "af_xdp")) => {}
        (to, _) => {
            let what = "is af_packet or af_xdp, each with --to";
            let remedy = match to {
                Some(_) => "write one of them",
                None => "give --to",
            };
            return wrong("backend", what, remedy);
        }
    }
    let dev = options.dev.as_deref().unwrap_or_default();
    if let (Some(to), false) = (&options.to, options.no_fail_open)
        && !(options.xdp() && host::bridged(dev, to))
    {
        let (what, remedy) = match options.xdp() {
            true => (
                "the two are not in one bridge, so traffic stops with quell (no fail-open)",
                "put both into one, or add --no-fail-open if traffic may stop",
            ),
            false => (
                "traffic between the two interfaces stops with quell (no fail-open)",
                "add --no-fail-open if they may, or leave --to out",
            ),
        };
        return wrong("to", &format!("{to}: {what}"), remedy);
    }
    Ok(())
}

/// The CPUs of a list such as `0,2-3`, in its order.
fn processors(text: &str) -> Result<Vec<usize>, Error> {
    let wrong = |what: String| Error::new(what).remedy("write numbers and ranges, as in 0,2-3");
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let ends = first.trim().parse::<usize>().ok();
        let range = ends.zip(last.trim().parse().ok());
        let Some((first, last)) = range.filter(|(first, last)| first <= last) else {
            return Err(wrong(format!("\"{}\" is not a processor", part.trim())));
        };
        for cpu in first..=last {
            if cpus.contains(&cpu) {
                return Err(wrong(format!("names processor {cpu} twice")));
            }
            if cpus.len() == MAX_LOOPS {
                return Err(wrong(format!("names more than {MAX_LOOPS} processors")));
            }
            cpus.push(cpu);
        }
    }
    Ok(cpus)
}

/// The interfaces that the options or the file name.
pub fn named(given: &Options) -> Result<Vec<String>, Error> {
    let all = with_file(given)?;
    Ok(all.dev.into_iter().chain(all.to).collect())
}

/// Completes the options with those of the file that were not given.
fn with_file(given: &Options) -> Result<Options, Error> {
    let config = given.config.as_deref();
    let file = config.map_or_else(|| Ok(Options::default()), read)?;
    Ok(given.clone().over(file))
}

/// The text of a configuration file, which an option names.
///
/// # Errors
/// If it cannot be read.
pub fn text(path: &Path, option: &str) -> Result<String, Error> {
    host::read_regular(path, MAX_BYTES).map_err(|error| error.key(option))
}

fn read(path: &Path) -> Result<Options, Error> {
    let name = path.display().to_string();
    let text = text(path, &format!("--config {name}"))?;
    toml::from_str(&text).map_err(|e| {
        let line = e.span().map(|s| 1 + text[..s.start].matches('\n').count());
        Error::new(e.message().replace('\n', "; ")).at(&name, line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_differ_from_start_to_start() {
        let options = Options {
            dev: Some("eth0".into()),
            rate: Some("10mbit".into()),
            ..Options::default()
        };
        let seed = || {
            Plan::new(&options).expect("a plan").directions[0]
                .params
                .seed
        };
        assert_ne!(seed(), seed());
    }

    #[test]
    fn a_model_that_cannot_be_read_leaves_the_stand_in_at_the_start_and_is_refused_later() {
        let with = |aqm: &str| Options {
            dev: Some("eth0".into()),
            rate: Some("10mbit".into()),
            aqm: Some(aqm.to_owned()),
            ..Options::default()
        };
        let file = std::env::temp_dir().join(format!("quell-truncated-{}", std::process::id()));
        std::fs::write(&file, "hush 3\ntarget 1 2 3").expect("room");
        let words = format!("hush limit 500 model {}", file.display());
        let plan = |aqm: &str| Plan::new(&with(aqm));
        let broken = plan(&words).expect("a queue");
        let queue = &broken.directions[0].params.queue;
        assert_eq!(queue.canonical(), "hush limit 500 dry_run");
        let [note] = &broken.notes()[..] else {
            panic!("{:?}", broken.notes());
        };
        assert!(
            note.contains("target has 3 numbers") && !note.contains('\n'),
            "{note}"
        );
        let path = Path::new("live.toml");
        let old = plan("hush").expect("a queue");
        let refused = broken.after(&old, path).expect_err("the old queue stays");
        assert!(refused.to_string().starts_with("live.toml: "), "{refused}");
        assert!(
            plan("hush limit 9")
                .expect("a queue")
                .after(&old, path)
                .is_ok()
        );
        // Other mistakes are refused at the start, too.
        let words = words.replace("500", "0");
        assert!(plan(&words).is_err());
        std::fs::remove_file(file).expect("written above");
    }

    #[test]
    fn a_queue_of_arriving_traffic_without_its_rate_is_noted() {
        let notes = |ingress: Option<&str>| {
            let given = Options {
                dev: Some("eth0".into()),
                rate: Some("10mbit".into()),
                ingress: ingress.map(str::to_owned),
                ingress_aqm: Some("codel".into()),
                ..Options::default()
            };
            Plan::new(&given).expect("a plan").notes()
        };
        let note = "--ingress-aqm has no effect without a rate of what arrives; add --ingress";
        assert_eq!(notes(None), [note]);
        assert!(notes(Some("50mbit")).is_empty());
    }

    #[test]
    fn keys_of_the_file_and_defaults_are_those_of_the_table() {
        for row in Options::ROWS {
            let name = row.name;
            let each = ["true", "7", "\"x\"", "[\"x\"]"].map(|value| format!("{name} = {value}"));
            let read = |text: &String| toml::from_str::<Options>(text).is_ok_and(|o| o.given(name));
            let known = each.iter().any(read);
            assert_eq!(known, row.scope != Scope::Command, "{name}");
        }
        let given = Options {
            dev: Some("eth0".into()),
            rate: Some("1mbit".into()),
            ..Options::default()
        };
        let direction = &Plan::new(&given).expect("a plan").directions[0];
        assert_eq!(direction.aqm, Options::default_of("aqm"));
        let overhead = direction.params.overhead.to_string();
        assert_eq!(overhead, Options::default_of("overhead"));
        let autorate = Options {
            autorate: true,
            ..given
        };
        let autorate = Plan::new(&autorate).expect("a loop that needs no reflectors");
        let mut rows = Options::ROWS.iter();
        let help = rows.find(|row| row.name == "autorate").expect("a row").help;
        let default = format!("{} (default)", autorate.options.aqm());
        assert!(help.contains(&default), "{help}");
    }

    #[test]
    fn autorate_manages_both_directions_with_pace_unless_another_loop_is_named() {
        let words = |given: Options| {
            let given = Options {
                dev: Some("eth0".into()),
                autorate: true,
                reflector: vec!["192.0.2.1".into()],
                ..given
            };
            let each = Plan::new(&given).expect("a plan").directions.into_iter();
            each.map(|d| d.aqm).collect::<Vec<_>>()
        };
        assert_eq!(words(Options::default()), ["pace", "pace ingress"]);
        let started = Options {
            rate: Some("5mbit".into()),
            ingress: Some("20mbit".into()),
            ..Options::default()
        };
        let started = words(started);
        assert_eq!(started, ["pace start 5mbit", "pace ingress start 20mbit"]);
        let other = Options {
            aqm: Some("sqm_autorate base 8mbit".into()),
            ..Options::default()
        };
        assert_eq!(words(other)[1], "sqm_autorate base 8mbit ingress");
    }

    #[test]
    fn a_list_of_processors_has_numbers_and_ranges_and_each_once() {
        assert_eq!(processors("0").unwrap(), [0]);
        assert_eq!(processors("3, 0-1,5").unwrap(), [3, 0, 1, 5]);
        for wrong in [
            "",
            "0,",
            "a",
            "-1",
            "2-1",
            "0,0",
            "0-2,1",
            "0-99",
            "0-99999999999",
        ] {
            let error = processors(wrong).unwrap_err().to_string();
            assert!(error.contains("0,2-3"), "{wrong}: {error}");
        }
    }
}
