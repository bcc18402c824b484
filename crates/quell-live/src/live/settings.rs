//! What `quell live` is asked for: the options, the configuration file, what of them can change while it runs.

use std::net::IpAddr;
use std::path::Path;

use quell_link::units::{format_rate, note_on_rate, parse_rate};
use quell_link::{Error, Queue, words};
use quell_qdisc::cake;
use quell_qdisc::discipline::Wants;

pub use crate::options::live::Options;
use crate::options::{Scope, Table};
use crate::packet::header::{Parser, random_key};
use crate::plane::backend;
use crate::plane::link::{self, Params};
use crate::plane::prober;
use crate::system::host;
use crate::system::sys;

/// Most bytes of a configuration file.
const MOST_BYTES: u64 = 1 << 20;
/// Most loops of a direction.
const MOST_LOOPS: usize = 32;
/// The rate of a line that is no limit, bit/s: loops set rates below it.
const NO_LIMIT: u64 = 100_000_000_000;
/// Most bytes that count with a packet.
const MOST_OVERHEAD: u32 = 1000;

/// A direction that is managed, as asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// egress or ingress.
    pub name: &'static str,
    /// None: a loop sets it.
    rate: Option<String>,
    /// Its queue words.
    pub aqm: String,
    overhead: u32,
    talkers: bool,
}

impl Options {
    /// The interface.
    pub fn dev(&self) -> &str {
        self.dev.as_deref().unwrap_or_default()
    }

    /// Whether frames go from interface to interface with AF_XDP.
    pub fn xdp(&self) -> bool {
        self.backend.as_deref() == Some("af_xdp")
    }

    /// The processor of each loop of a direction; without `--cpu` there is one loop, on any.
    pub fn loops(&self) -> Vec<Option<usize>> {
        let named = self.cpu.as_deref().and_then(|text| processors(text).ok());
        named.map_or_else(|| vec![None], |cpus| cpus.into_iter().map(Some).collect())
    }

    /// What reads packets' headers, with a new key.
    pub fn parser(&self) -> Parser {
        Parser {
            key: random_key(),
            tunnels: self.tunnels,
            stamps: false,
            wants: Wants::default(),
        }
    }

    /// Whether loops over the shapers' rates run.
    pub fn moves(&self) -> bool {
        self.autorate
    }

    /// Whether the loops over the rates can do without reflectors, by the timestamps of the TCP traffic.
    pub fn reads_traffic(&self) -> bool {
        let words = self.aqm.as_deref().unwrap_or("pace");
        words.split_whitespace().next() == Some("pace") && !words.contains("nopassive")
    }

    /// The reflectors' addresses.
    ///
    /// # Errors
    /// If one cannot be asked.
    pub fn reflectors(&self) -> Result<Vec<IpAddr>, Error> {
        prober::addresses(&self.reflector)
    }

    /// What is managed where loops set the rates: both directions, each on a line that is no limit itself.
    fn moved(&self) -> Vec<Direction> {
        let aqm = self.aqm.as_deref().unwrap_or("pace");
        let first = |aqm: &str, rate: &Option<String>| match rate {
            Some(rate) => format!("{aqm} start {rate}"),
            None => aqm.to_owned(),
        };
        let arriving = match (
            &self.ingress_aqm,
            aqm.split_whitespace().any(|w| w == "ingress"),
        ) {
            (Some(own), _) => own.clone(),
            (None, true) => aqm.to_owned(),
            (None, false) => format!("{aqm} ingress"),
        };
        let of = |name, aqm| Direction {
            name,
            rate: None,
            aqm,
            overhead: self.overhead.unwrap_or(link::ETHERNET),
            talkers: self.dashboard.is_some(),
        };
        vec![
            of("egress", first(aqm, &self.rate)),
            of("ingress", first(&arriving, &self.ingress)),
        ]
    }

    /// What is managed.
    pub fn directions(&self) -> Vec<Direction> {
        if self.moves() {
            return self.moved();
        }
        let aqm = self.aqm.as_deref().unwrap_or("fq_codel");
        let of = |name, rate: &Option<String>, aqm: &str| {
            rate.clone().map(|rate| Direction {
                name,
                rate: Some(rate),
                aqm: aqm.to_owned(),
                overhead: self.overhead.unwrap_or(link::ETHERNET),
                talkers: self.dashboard.is_some(),
            })
        };
        let egress = of("egress", &self.rate, aqm);
        let arriving = self.ingress_aqm.as_deref().unwrap_or(aqm);
        let ingress = of("ingress", &self.ingress, arriving);
        egress.into_iter().chain(ingress).collect()
    }

    /// What to say at the start.
    pub fn announce(&self, dry: bool) -> String {
        let each = self.directions();
        let each = each.iter().map(|d| {
            let way = if d.name == "egress" {
                "leaves"
            } else {
                "arrives"
            };
            format!("what {way}: {}, {}", d.understood(), d.aqm)
        });
        let dry = if dry {
            " (dry run: nothing is touched)"
        } else {
            ""
        };
        format!(
            "{}: {}{dry}",
            self.dev(),
            each.collect::<Vec<_>>().join("; ")
        )
    }

    /// What to say where CAKE asks for what its packets come without: addresses within translation, or marks.
    fn note_on_cake(&self, direction: &Direction) -> Option<String> {
        let words = Queue::parse(&direction.aqm).ok()?;
        let params = words.spec::<cake::Params>()?;
        let (nat, fwmark) = (params.nat, params.fwmark != 0);
        if self.to.is_some() {
            let word = match (nat, fwmark) {
                (false, false) => return None,
                (true, false) => "nat",
                (false, true) => "fwmark",
                (true, true) => "nat and fwmark",
            };
            return Some(format!(
                "cake {word}: the kernel has no connections and no marks of what passes between two interfaces; without effect"
            ));
        }
        // What leaves is looked at before its addresses are translated.
        let lacks = nat && direction.name == "ingress" && !backend::tells_connections();
        lacks.then(|| {
            "cake nat: this kernel does not tell the connections of packets (CONFIG_NETFILTER_NETLINK_GLUE_CT); of what arrives, hosts are the addresses in the packets".to_owned()
        })
    }

    /// What to say about rates that are probably not what was meant, and about words without effect.
    pub fn notes(&self) -> Vec<String> {
        let each = self.directions().into_iter();
        each.flat_map(|d| {
            [
                d.rate.as_deref().and_then(note_on_rate),
                self.note_on_cake(&d),
                d.note_on_model(),
            ]
        })
        .flatten()
        .collect()
    }
}

impl Direction {
    /// Its rate as it was understood.
    pub fn understood(&self) -> String {
        let Some(rate) = &self.rate else {
            return "autorate".to_owned();
        };
        parse_rate(rate).map_or_else(|_| rate.clone(), format_rate)
    }

    /// What is wrong with its queue's model, and what runs in its place.
    fn broken_model(&self) -> Option<(Error, Queue)> {
        let error = Queue::parse(&self.aqm).err()?;
        Some((error, words::hush::stand_in(&self.aqm)?))
    }

    fn note_on_model(&self) -> Option<String> {
        let (error, instead) = self.broken_model()?;
        Some(format!(
            "{}: aqm: {error}; until then `{instead}`, fq_codel's law on the same queues",
            self.name
        ))
    }

    /// The link; an error's key is `rate` or `aqm`.
    pub fn params(&self) -> Result<Params, Error> {
        let bps = self.rate.as_deref().map_or(Ok(NO_LIMIT), parse_rate);
        let bps = bps.map_err(|e| e.key("rate"))?;
        // On a real link no learned controller is without a guard. Other queues do not know the word.
        let guarded = Queue::parse(&format!("{} guard", self.aqm));
        let queue = guarded.or_else(|_| Queue::parse(&self.aqm));
        // Nor is a link without a queue because of a model that cannot be read.
        let queue = queue.or_else(|e| words::hush::stand_in(&self.aqm).ok_or(e));
        let queue = queue.map_err(|e| e.under("aqm"))?;
        queue.check(bps).map_err(|e| e.under("aqm"))?;
        if self.rate.is_none() {
            let controller = queue.build(bps).controller;
            let sets = controller.is_some_and(|controller| controller.knobs().0.rate);
            if !sets {
                let error = Error::new(format!("{} sets no rate", queue.kind())).key("aqm");
                return Err(error.remedy("write pace, cake_autorate or sqm_autorate"));
            }
        }
        Ok(Params {
            overhead: self.overhead,
            talkers: self.talkers,
            ..Params::line(bps, queue)
        })
    }
}

/// Reads the file, puts the options over it, and checks all of it.
pub fn settings(given: &Options) -> Result<Options, Error> {
    let config = given.config.as_deref();
    let file = config.map_or_else(|| Ok(Options::default()), read)?;
    // An option is to blame where it was given, or where there is no file.
    let blame = |error: Error, key: &str| match config {
        Some(path) if !given.given(key) => Error { key: None, ..error }
            .key(key)
            .at(&path.display().to_string(), None),
        _ => Error { key: None, ..error }.key(format!("--{}", key.replace('_', "-"))),
    };
    let all = given.clone().over(file);
    if all.dev().is_empty() {
        let error = Error::new("there is no interface").remedy("give one, as in --dev eth0");
        return Err(blame(error, "dev"));
    }
    match (&all.to, all.backend.as_deref()) {
        (None, None) | (Some(_), None | Some("af_packet" | "af_xdp")) => {}
        (to, _) => {
            let what = "is af_packet or af_xdp, each with --to";
            let remedy = if to.is_some() {
                "write one of them"
            } else {
                "give --to"
            };
            let error = Error::new(what).remedy(remedy);
            return Err(blame(error, "backend"));
        }
    }
    if let (Some(to), false) = (&all.to, all.no_fail_open)
        && !(all.xdp() && host::bridged(all.dev(), to))
    {
        let (what, remedy) = match all.xdp() {
            true => (
                "the two are not in one bridge, which would forward without quell: no failing open",
                "put both into one, or add --no-fail-open if traffic may stop",
            ),
            false => (
                "frames from interface to interface stop with quell: no failing open",
                "add --no-fail-open if they may, or leave --to out",
            ),
        };
        let error = Error::new(format!("{to}: {what}")).remedy(remedy);
        return Err(blame(error, "to"));
    }
    if let Some(text) = &all.cpu {
        let cpus = processors(text).map_err(|e| blame(e, "cpu"))?;
        let here = sys::processors();
        if let Some(absent) = cpus.iter().find(|cpu| !here.contains(cpu)) {
            let list: Vec<_> = here.iter().map(usize::to_string).collect();
            let error = Error::new(format!("there is no processor {absent} for it"))
                .remedy(format!("it may use {}", list.join(", ")));
            return Err(blame(error, "cpu"));
        }
    }
    let (key, checked) = check_autorate(&all);
    checked.map_err(|error| blame(error, key))?;
    let directions = all.directions();
    if directions.is_empty() {
        let remedy = "give --rate for what leaves, --ingress for what arrives";
        let error = Error::new("there is no rate").remedy(remedy);
        return Err(blame(error, "rate"));
    }
    for direction in &directions {
        direction.params().map_err(|mut error| {
            let inner = error.key.take().unwrap_or_default();
            let aqm = inner.starts_with("aqm");
            // An option of the queue stays named.
            if let Some(option) = inner.strip_prefix("aqm: ") {
                error.what = format!("{option}: {}", error.what);
            }
            let key = match (direction.name, aqm) {
                ("egress", false) => "rate",
                (_, false) => "ingress",
                ("ingress", true) if all.ingress_aqm.is_some() => "ingress_aqm",
                _ => "aqm",
            };
            blame(error, key)
        })?;
        if direction.overhead > MOST_OVERHEAD {
            let what = format!("{} is more than {MOST_OVERHEAD} bytes", direction.overhead);
            return Err(blame(Error::new(what), "overhead"));
        }
    }
    Ok(all)
}

/// What `--autorate` needs and excludes, and the key that is to blame.
fn check_autorate(all: &Options) -> (&'static str, Result<(), Error>) {
    let wrong = |key, what: &str, remedy: &str| (key, Err(Error::new(what).remedy(remedy)));
    let none = match all.reflectors() {
        Ok(addresses) => addresses.is_empty(),
        Err(error) => return ("reflector", Err(error)),
    };
    if !all.moves() {
        return match none {
            true => ("autorate", Ok(())),
            false => wrong("reflector", "is for --autorate", "add --autorate"),
        };
    }
    if none && !all.reads_traffic() {
        return wrong(
            "autorate",
            "needs hosts behind the line that answer echo requests for this loop",
            "name some that you may ask, as in --reflector 192.0.2.1",
        );
    }
    if all.dry_run {
        let what = "shapes nothing in a dry run";
        return wrong("autorate", what, "leave --dry-run out");
    }
    if all.loops().len() > 1 {
        let what = "needs all traffic of a direction in one loop";
        return wrong("autorate", what, "name one processor in --cpu");
    }
    ("autorate", Ok(()))
}

/// The processors of a list such as `0,2-3`, in its order.
fn processors(text: &str) -> Result<Vec<usize>, Error> {
    let wrong = |what: String| Error::new(what).remedy("write numbers and ranges, as in 0,2-3");
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let ends = first.trim().parse::<usize>().ok();
        let range = ends.zip(last.trim().parse().ok());
        let Some((first, last)) = range.filter(|(first, last)| first <= last) else {
            return Err(wrong(format!("\"{}\" is no processor", part.trim())));
        };
        for cpu in first..=last {
            if cpus.contains(&cpu) {
                return Err(wrong(format!("names processor {cpu} twice")));
            }
            if cpus.len() == MOST_LOOPS {
                return Err(wrong(format!("names more than {MOST_LOOPS} processors")));
            }
            cpus.push(cpu);
        }
    }
    Ok(cpus)
}

/// The interfaces that are named, in the options or in the file.
pub fn named(given: &Options) -> Result<Vec<String>, Error> {
    let config = given.config.as_deref();
    let file = config.map_or_else(|| Ok(Options::default()), read)?;
    let all = given.clone().over(file);
    Ok(all.dev.into_iter().chain(all.to).collect())
}

fn read(path: &Path) -> Result<Options, Error> {
    let name = path.display().to_string();
    let no = |error: Error| error.key(format!("--config {name}"));
    let text = host::read_regular(path, MOST_BYTES).map_err(no)?;
    toml::from_str(&text).map_err(|e| {
        let line = e.span().map(|s| 1 + text[..s.start].matches('\n').count());
        Error::new(e.message().replace('\n', "; ")).at(&name, line)
    })
}

/// The new settings, if they change only what can change.
pub fn changeable(old: &Options, new: Options, path: &Path) -> Result<Options, Error> {
    let at = |error: Error| error.at(&path.display().to_string(), None);
    // What runs is better than what stands in for a model that cannot be read.
    if let Some((error, _)) = new.directions().iter().find_map(Direction::broken_model) {
        return Err(at(error.under("aqm")));
    }
    for row in Options::ROWS {
        let changed = old.changed(&new).contains(&row.name);
        let came = old.given(row.name) != new.given(row.name);
        let what = match row.name {
            "rate" | "ingress" if came && !new.moves() => {
                "a direction cannot come or go while quell live runs"
            }
            _ if changed && row.scope == Scope::Start => "cannot change while quell live runs",
            _ => continue,
        };
        let error = Error::new(what).key(row.name).remedy("start it again");
        return Err(at(error));
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_cannot_be_read_leaves_the_stand_in_at_the_start_and_is_refused_later() {
        let with = |aqm: &str| Options {
            dev: Some("eth0".into()),
            rate: Some("10mbit".into()),
            aqm: Some(aqm.to_owned()),
            ..Options::default()
        };
        let file = std::env::temp_dir().join(format!("quell-truncated-{}", std::process::id()));
        std::fs::write(&file, "hush 1\ntarget 1 2 3").expect("room");
        let words = format!("hush limit 500 model {}", file.display());
        let broken = with(&words);
        let params = broken.directions()[0].params().expect("a queue");
        assert_eq!(params.queue.canonical(), "hush limit 500 dry_run");
        let [note] = &broken.notes()[..] else {
            panic!("{:?}", broken.notes());
        };
        assert!(
            note.contains("target has 3 numbers") && !note.contains('\n'),
            "{note}"
        );
        let path = Path::new("live.toml");
        let refused = changeable(&with("hush"), broken, path).expect_err("the old queue stays");
        assert!(refused.to_string().starts_with("live.toml: "), "{refused}");
        assert!(changeable(&with("hush"), with("hush limit 9"), path).is_ok());
        // Other mistakes are refused at the start, too.
        let words = words.replace("500", "0");
        assert!(with(&words).directions()[0].params().is_err());
        std::fs::remove_file(file).expect("written above");
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
        let default = |name| {
            Options::ROWS
                .iter()
                .find(|row| row.name == name)
                .expect("a row")
                .default
        };
        let given = Options {
            rate: Some("1mbit".into()),
            ..Options::default()
        };
        let direction = &given.directions()[0];
        assert_eq!(direction.aqm, default("aqm"));
        assert_eq!(direction.overhead.to_string(), default("overhead"));
    }

    #[test]
    fn autorate_manages_both_directions_with_pace_unless_another_loop_is_named() {
        let words = |given: Options| {
            let given = Options {
                autorate: true,
                ..given
            };
            let each = given.directions().into_iter();
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
