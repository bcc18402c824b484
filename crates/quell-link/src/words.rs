//! Queue words: a queue written as in `tc`, the kind first, then options with `tc`'s names, units
//! and defaults, as in `codel target 5ms interval 100ms ecn`. The parser, the canonical spelling
//! and the catalogue use one table (`KINDS`).

mod a3c;
mod autorate;
mod bands;
mod cake;
mod cebinae;
mod choke;
pub mod class;
mod cobalt;
mod codel;
mod controlled;
mod drr;
mod dualpi2;
mod fifo;
mod fq;
mod fq_codel;
mod fq_pie;
mod guard;
mod hashed;
mod htb;
mod hush;
mod l4s;
mod learnqueue;
mod lfq;
mod model;
mod option;
mod outside;
mod pie;
mod red;
mod rlaqm;
mod rows;
mod sfq;
mod spec;
mod table;

use std::fmt;
use std::str::FromStr;

use quell_qdisc::control::Control;
use quell_qdisc::control::LearnedState;
use quell_qdisc::disciplines;
use quell_qdisc::policy::Policy;
use quell_qdisc::rate::Rate;
use serde::Serialize;

use crate::error::Error;
use crate::field::Field;

pub use guard::classic;
pub use learnqueue::Words as LearnQueueWords;
pub use lfq::Words as LfqWords;
use option::Opt;
pub use spec::Spec;
use spec::{AnySpec, downcast};
use table::{AnyKind, Kind};

/// Every kind, in the order of the catalogue.
static KINDS: &[&[&dyn AnyKind]] = &[
    &[
        &fifo::PFIFO,
        &fifo::BFIFO,
        &fifo::FIFO,
        &codel::CODEL,
        &cobalt::COBALT,
    ],
    bands::KINDS,
    &[&red::RED, &choke::CHOKE, &pie::PIE, &sfq::SFQ],
    hashed::KINDS,
    &[&cebinae::CEBINAE, &drr::DRR, &htb::HTB],
    &[
        &fq::FQ,
        &fq_codel::FQ_CODEL,
        &fq_pie::FQ_PIE,
        &cake::CAKE,
        &l4s::L4S,
    ],
    &[&dualpi2::DUALPI2, &a3c::A3C_L4S],
    controlled::KINDS,
    autorate::KINDS,
    &[
        &learnqueue::LEARNQUEUE,
        &rlaqm::RLAQM,
        &lfq::LFQ,
        &hush::HUSH,
    ],
];

/// Variants of kinds that use other code paths than the bare kinds, for tests.
const VARIANTS: &[&str] = &[
    "pie ns3-2018",
    "pie bytemode dq_rate_estimator",
    "red adaptive gentle",
    "red harddrop",
    "sfq perturb 1 depth 20 limit 60 headdrop",
    "sfq limit 1000 redflowlimit 100000 min 8000 max 60000 ecn headdrop",
    "choke limit 120 ecn",
    "sfb rehash 1000 db 500",
    "hhf limit 100 admit_bytes 20000",
    "cebinae limit 60 dt 20ms p 2 pool count_drops",
    "prio bands 4 priomap 2 2 3 3 1 1 0 0 2 limit 50",
    "ets strict 1 quanta 4500 3000 priomap 2 2 1 2 1 2 0 0",
    "prio class 1:1 fwmark 1 queue codel class 1:3 queue fq_codel limit 50",
    "ets quanta 3000 1500 class 1:1 dscp EF queue pie",
    "drr class 1:1 fwmark 1 queue fq_codel class 1:2 quantum 3000 dscp CS0,EF",
    "htb default 20 class 1:1 rate 8mbit class 1:10 parent 1:1 rate 1mbit ceil 8mbit prio 1 queue fq_codel class 1:20 parent 1:1 rate 4mbit ceil 6mbit",
    "fifo limit 40 drop 0.01",
    "fixed limit 30",
    "codel ce_threshold 2ms ecn",
    "fq_codel drop_batch 1 limit 100",
    "cake bandwidth 5mbit",
    "cake bandwidth 5mbit diffserv8 flows ingress pppoe-ptm ack-filter",
    "cake unlimited dual-dsthost",
    "dualpi2 any_ect drop_enqueue",
    "l4s as_published",
    "a3c_l4s as_published",
    "learnqueue as_published",
    "learnqueue published_reward",
    "learnqueue initial 40 max 80",
    "rlaqm as_published",
    "wqm selective",
    "lfq alpha 10",
    "lfq limit 20",
    "lfq ceiling 20ms",
    "rlaqm guard",
    "learnqueue guard",
    "a3c_l4s guard",
    "rlaqm dry_run",
    "a3c_l4s dry_run",
    "hush single noecn",
    "hush in_order flows 4 limit 40",
];

/// A queue, parsed and checked.
///
/// ```
/// use quell_link::Queue;
///
/// let queue: Queue = "fq_codel target 5ms".parse()?;
/// assert_eq!((queue.kind(), queue.canonical().as_str()), ("fq_codel", "fq_codel"));
/// let error = Queue::parse("fq_codel taget 5ms").unwrap_err();
/// assert!(error.to_string().contains("did you mean `target`?"));
/// # Ok::<(), quell_link::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Queue {
    kind: &'static str,
    spec: Box<dyn AnySpec>,
    guard: Option<guard::Words>,
}

/// A queue as built from its words for a link.
#[derive(Clone, Debug)]
pub struct Built {
    /// The discipline's parameters.
    pub queue: disciplines::Params,
    /// The controller that sets its knobs, if any.
    pub controller: Option<Box<dyn Control>>,
}

impl Built {
    /// A queue without a controller.
    fn queue(queue: disciplines::Params) -> Self {
        Self {
            queue,
            controller: None,
        }
    }

    /// A FIFO with default parameters and the controller that sets its knobs.
    fn fifo(controller: Option<Box<dyn Control>>) -> Self {
        Self {
            queue: disciplines::Params::Fifo(quell_qdisc::fifo::Params::default()),
            controller,
        }
    }
}

/// One kind of queue, for `quell queues`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindInfo {
    /// The first word.
    pub name: &'static str,
    /// Description in one line.
    pub summary: &'static str,
    /// The RFC, paper or Linux file that defines it.
    pub source: &'static str,
    /// Its options.
    pub options: Vec<OptionInfo>,
}

/// One option of a kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OptionInfo {
    /// The word; two words that are each other's opposite are joined by `|`.
    pub name: String,
    /// Notation of its value; empty for a word that stands alone.
    pub value: &'static str,
    /// Its default.
    pub default: String,
    /// Description.
    pub meaning: &'static str,
}

impl Queue {
    /// Reads queue words; errors list the known kinds or options.
    ///
    /// # Errors
    /// If there is no such kind or option, or a value is wrong.
    pub fn parse(words: &str) -> Result<Self, Error> {
        let words: Vec<&str> = words.split_whitespace().collect();
        let Some((name, options)) = words.split_first() else {
            return Err(Error::new("the queue has no name").remedy(format!("known: {}", known())));
        };
        let kind = find(name)
            .ok_or_else(|| Error::unknown("queue", name, all_kinds().map(|k| k.name())))?;
        note(kind.name());
        let (guard, options) = guard::split(name, options).map_err(|e| e.under(name))?;
        let queue = Self {
            kind: kind.name(),
            spec: kind.parse(&options).map_err(|e| e.under(name))?,
            guard,
        };
        // Whether there is a controller does not depend on the rate.
        if guard.is_some() && queue.spec.build(Rate::from_mbit(1)).controller.is_none() {
            let error = Error::new("no controller to guard").key("guard");
            let remedy = "leave guard out, or what replaces the controller";
            return Err(error.remedy(remedy).under(name));
        }
        Ok(queue)
    }

    /// Reads words of a queue for a driver that runs no learner beside it.
    ///
    /// # Errors
    /// See [`Queue::parse`]; also if the controller needs a learner beside it.
    pub fn parse_without_learner(words: &str) -> Result<Self, Error> {
        let queue = Self::parse(words)?;
        if queue.has_learner() {
            let error = Error::new("works in simulations and in quell live only").key("learn");
            return Err(error.remedy("leave learn out").under(queue.kind()));
        }
        Ok(queue)
    }

    /// Whether a learner has to train beside its controller ([`Control::learner`]).
    pub fn has_learner(&self) -> bool {
        let controller = self.build(Rate::from_mbit(1)).controller;
        controller.is_some_and(|mut controller| controller.learner().is_some())
    }

    /// Name of the kind; for a queue from another crate, the queue's name.
    pub fn kind(&self) -> &str {
        match self.spec::<outside::Words>() {
            Some(words) => &words.name,
            None => self.kind,
        }
    }

    /// The parameters, if they are of this type.
    pub fn spec<S: Spec>(&self) -> Option<&S> {
        downcast(&*self.spec)
    }

    /// Builds the queue's parameters and its controller. Some kinds derive defaults from
    /// `rate`, the link's mean rate.
    pub fn build(&self, rate: Rate) -> Built {
        let built = self.spec.build(rate);
        match (self.guard, built.controller) {
            (Some(words), Some(learned)) => Built {
                controller: Some(words.around(learned, rate)),
                ..built
            },
            (_, controller) => Built {
                controller,
                ..built
            },
        }
    }

    /// Whether a guard watches its controller.
    pub fn is_guarded(&self) -> bool {
        self.guard.is_some()
    }

    /// The same words, continuing from what a queue of the kind has learned.
    ///
    /// # Errors
    /// If this kind does not learn, or learns something else.
    pub fn with_learned(mut self, state: LearnedState) -> Result<Self, Error> {
        let set = self.spec.start_from(state);
        set.map_err(|e| e.under(self.kind()))?;
        Ok(self)
    }

    /// The same words with the network `policy` in place of the one that they name.
    ///
    /// # Errors
    /// If this kind uses no network, or a network of another shape.
    pub fn with_policy(mut self, policy: Policy) -> Result<Self, Error> {
        let set = self.spec.set_policy(policy);
        set.map_err(|e| e.under(self.kind()))?;
        Ok(self)
    }

    /// Checks the queue on a link of this mean rate.
    ///
    /// # Errors
    /// If its parameters do not work at this rate.
    pub fn check(&self, rate: Rate) -> Result<(), Error> {
        self.spec.check_on(rate).map_err(|e| e.under(self.kind))
    }

    /// The shortest words for this queue: the kind and the options that differ from its defaults,
    /// in the catalogue's order.
    pub fn canonical(&self) -> String {
        let mut words = self.kind().to_owned();
        if let Some(kind) = find(self.kind) {
            for word in kind.differing(&*self.spec) {
                words.push(' ');
                words.push_str(&word);
            }
        }
        words.push_str(self.guard.map_or("", guard::Words::words));
        words
    }
}

impl PartialEq for Queue {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.guard == other.guard && self.spec.equals(&*other.spec)
    }
}

impl FromStr for Queue {
    type Err = Error;

    /// See [`Queue::parse`].
    fn from_str(words: &str) -> Result<Self, Error> {
        Self::parse(words)
    }
}

impl TryFrom<&str> for Queue {
    type Error = Error;

    /// See [`Queue::parse`].
    fn try_from(words: &str) -> Result<Self, Error> {
        Self::parse(words)
    }
}

impl From<&Queue> for Queue {
    fn from(queue: &Queue) -> Self {
        queue.clone()
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.canonical())
    }
}

/// Every kind of queue that needs no more than its name, with its options and defaults.
pub fn catalogue() -> Vec<KindInfo> {
    all_kinds().for_each(|kind| note(kind.name()));
    let alone = all_kinds().filter(|k| k.parse(&[]).is_ok());
    alone.map(|k| k.info()).collect()
}

/// Every kind that needs no more than its name, and variants that use other code paths: the queues
/// for tests of all queues.
pub fn every() -> Vec<String> {
    let bare = catalogue().into_iter().map(|kind| kind.name.to_owned());
    bare.chain(VARIANTS.iter().map(ToString::to_string))
        .collect()
}

/// Replacement for a `hush` whose model cannot be read: the same words without the model, under
/// fq_codel's law. `None` if the words name no model or have another error.
pub fn hush_without_model(words: &str) -> Option<Queue> {
    note("hush");
    hush::without_model(words)
}

/// Text of the default policy of `hush`.
pub fn hush_model() -> &'static str {
    note("hush");
    quell_qdisc::hush::model::TEXT
}

/// With the feature `inputs` (builds in a checkout): records the kind as an input of the running
/// test, in the folder `QUELL_TEST_INPUTS`, as tests/recorder/sitecustomize.py does. It must be
/// called before a discipline of the kind is used; the parser of queue words does so. A file that
/// calls it for a kind may use the kind's discipline without words (tests/kinds.py).
pub fn note(kind: &str) {
    #[cfg(unix)]
    if cfg!(feature = "inputs")
        && let Some(folder) = std::env::var_os("QUELL_TEST_INPUTS")
    {
        let name = format!("kind:{kind}");
        let made = std::os::unix::fs::symlink(&name, std::path::Path::new(&folder).join(&name));
        // Without the note, the test would not be repeated when the kind changes.
        if let Err(e) = made
            && e.kind() != std::io::ErrorKind::AlreadyExists
        {
            panic!("{name} cannot be noted in {}: {e}", folder.display());
        }
    }
    let _ = kind;
}

fn find(name: &str) -> Option<&'static dyn AnyKind> {
    all_kinds().find(|k| k.name() == name)
}

fn all_kinds() -> impl Iterator<Item = &'static dyn AnyKind> + Clone {
    KINDS.iter().copied().flatten().copied()
}

fn known() -> String {
    let names: Vec<_> = all_kinds().map(|k| k.name()).collect();
    names.join(", ")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use quell_qdisc::packet::TestPacket;
    use quell_qdisc::time::{Instant, MS};
    use quell_qdisc::{Discipline, Gauges, Qdisc};

    /// A new file with the content `bytes`, at a path that no other user can take: tests also run
    /// as root.
    pub(super) fn file(name: &str, bytes: &[u8]) -> String {
        use std::hash::BuildHasher;
        let random = std::hash::RandomState::new().hash_one(name);
        let path = std::env::temp_dir().join(format!("quell-{random:x}-{name}"));
        let mut file = std::fs::File::create_new(&path).expect("a file");
        std::io::Write::write_all(&mut file, bytes).expect("room");
        path.to_str().expect("a path").to_owned()
    }

    /// Whether a controller of the type `C` sets the knobs.
    pub(super) fn is<C: Control>(built: &Built) -> bool {
        let controller = built.controller.as_deref();
        controller.is_some_and(|c| (c as &dyn std::any::Any).is::<C>())
    }

    /// The queue with its controller's initial knobs.
    fn queue(words: &str, rate: Rate) -> Qdisc<TestPacket> {
        let built = Queue::parse(words).unwrap().build(rate);
        let mut q = Qdisc::new(built.queue);
        if let Some(mut controller) = built.controller {
            q.set_knobs(&controller.initial());
        }
        q
    }

    fn gauges_on(words: &str, rate: Rate) -> Gauges {
        let mut g = Gauges::default();
        queue(words, rate).gauges(Instant::ZERO, &mut g);
        g
    }

    fn error(words: &str) -> String {
        Queue::parse(words).expect_err(words).to_string()
    }

    #[test]
    fn an_unknown_kind_lists_the_known_ones_and_guesses() {
        let e = error("pfifoo limit 3");
        assert!(
            e.starts_with(
                "unknown queue `pfifoo`; did you mean `pfifo`? Known: pfifo, bfifo, fifo"
            ),
            "{e}"
        );
        assert!(
            error("hfsc").contains("; known: pfifo"),
            "{}",
            error("hfsc")
        );
        assert!(error("").contains("known: pfifo"));
    }

    #[test]
    fn an_unknown_option_lists_the_kinds_options() {
        assert_eq!(
            error("fifo limt 3"),
            "fifo: unknown option `limt`; did you mean `limit`? Known: limit, drop"
        );
    }

    #[test]
    fn bad_values_name_the_option_and_the_remedy() {
        assert_eq!(
            error("pfifo limit"),
            "pfifo: `limit` needs a value; write limit N"
        );
        assert!(
            error("pfifo limit 0").starts_with("pfifo: limit: \"0\" is too small; write 1 to ")
        );
        assert!(error("pfifo limit 5000000000").contains("is too large"));
        assert_eq!(
            error("pfifo limit -1"),
            "pfifo: limit: \"-1\" is negative; write a whole number from 1 to 1000000000"
        );
        assert!(error("fifo drop 1.5").contains("fifo: drop: \"1.5\" is not a probability"));
        assert!(error("pfifo limit 3 limit 4").contains("pfifo: limit: given twice"));
    }

    #[test]
    fn words_mean_what_they_mean_to_tc() {
        let gauges = |words: &str| gauges_on(words, Rate::from_mbit(1));
        assert_eq!(gauges("pfifo limit 100").limit_packets, 100);
        assert_eq!(gauges("pfifo").limit_packets, 1000);
        assert_eq!(gauges("fifo limit 7p drop 1%").probability, 0.01);
        let mut q = queue("bfifo limit 3kb", Rate::from_mbit(1));
        let mut drops = Vec::new();
        let mut rng = quell_qdisc::Rng::new(1, "t");
        for id in 0..4 {
            let packet = TestPacket::new(id, 1000, 0, quell_qdisc::Ecn::NotEct);
            q.enqueue(Instant::ZERO, packet, &mut rng, &mut drops);
        }
        assert_eq!(q.bytes(), 3000); // 3072 bytes hold three
    }

    #[test]
    fn red_without_parameters_takes_them_from_the_links_rate() {
        let params = |words: &str, rate| {
            let queue = Queue::parse(words).unwrap();
            queue.spec::<red::Words>().unwrap().params(rate)
        };
        let p = params("red", Rate::from_mbit(8));
        assert_eq!((p.max, p.min, p.limit), (30_000, 10_000, 120_000)); // 30 ms of 1 MB/s; max / 3; 4 max
        assert_eq!(p.burst, 16); // tc-red(8): (2 * min + max) / (3 * avpkt)
        assert_eq!(params("red limit 60000", Rate::from_mbit(8)).max, 15_000); // tc-red(8): limit / 4
        let e = Queue::parse("red burst 5")
            .unwrap()
            .check(Rate::from_mbit(100))
            .unwrap_err();
        assert_eq!(e.to_string(), "red: burst must be at least min / avpkt");
    }

    #[test]
    fn thresholds_for_which_no_burst_fits_are_refused_by_the_option_to_change() {
        for (words, fault) in [
            ("red limit 10kb", "red: min must be at least avpkt"),
            (
                "sfq redflowlimit 10kb max 2kb",
                "sfq: min must be at least avpkt",
            ),
            (
                "choke min 1 max 90",
                "choke: burst must be lower, or min higher",
            ),
            (
                "red min 50kb max 150kb burst 9",
                "red: burst must be at least min / avpkt",
            ),
            (
                "red min 50kb max 150kb burst 1000000000",
                "red: burst must be lower, or min higher",
            ),
            (
                "choke min 50 max 90 burst 1000000000",
                "choke: burst must be lower, or min higher",
            ),
        ] {
            assert_eq!(Queue::parse(words).unwrap_err().to_string(), fault);
        }
        for words in [
            "red min 1000 max 3000",
            "red min 1000 max 3000 burst 1",
            "choke min 1 max 3 burst 1",
        ] {
            assert!(Queue::parse(words).is_ok(), "{words}");
        }
    }

    #[test]
    fn controlled_queues_start_with_their_controllers_knobs() {
        for (words, limit) in [
            ("learnqueue", 1),
            ("learnqueue as_published", 400),
            ("learnqueue initial 20 max 100", 20),
            ("wqm", 62), // 15 Mbit/s times 50 ms in packets of 1500
            ("wqm min 80", 80),
            ("fixed limit 7 drop 0.1", 7),
            ("fixed", 1000),
        ] {
            assert_eq!(
                gauges_on(words, Rate::from_mbit(15)).limit_packets,
                limit,
                "{words}"
            );
        }
        let e = error("learnqueue max 50 initial 60");
        assert_eq!(
            e,
            "learnqueue: initial must be at least 1 packet and at most max"
        );
    }

    #[test]
    fn dualpi2s_round_trips_set_its_gains() {
        let params = |words: &str| {
            let queue = Queue::parse(words).unwrap();
            queue.spec::<dualpi2::Words>().unwrap().params.clone()
        };
        let p = params("dualpi2 max_rtt 100ms typical_rtt 15ms");
        // RFC 9332, appendix A.1: alpha = 0.1 Tupdate / RTT_max^2, beta = 0.3 / RTT_max
        assert!(
            (p.alpha - 0.15).abs() < 1e-9 && (p.beta - 3.0).abs() < 1e-9,
            "{p:?}"
        );
        let q = params("dualpi2 typical_rtt 15ms");
        assert_eq!((q.target, q.beta), (15 * MS, p.beta));
    }

    #[test]
    fn the_canonical_spelling_keeps_only_what_differs() {
        for (words, canonical) in [
            ("pfifo  limit 1000", "pfifo"),
            ("fifo drop 1% limit 5", "fifo limit 5 drop 0.01"),
            ("bfifo limit 1mb", "bfifo limit 1mb"),
            ("cake diffserv3 rtt 100ms", "cake"),
            (
                "dualpi2 l4s_ect drop_dequeue step_thresh 5p",
                "dualpi2 step_thresh 5pkt",
            ),
            ("dualpi2 any_ect overflow", "dualpi2 any_ect overflow"),
            (
                "dualpi2 typical_rtt 20ms max_rtt 100ms target 20ms tupdate 5ms",
                "dualpi2 max_rtt 100ms typical_rtt 20ms tupdate 5ms",
            ),
            ("fq_codel noecn", "fq_codel noecn"),
            (
                "learnqueue eta 0.5 as_published",
                "learnqueue published_reward initial 400 alpha 0.1 current_max_delay literal_update printed_gamma bytes_max_delay fixed_point",
            ),
            ("red limit 60kb ecn gentle", "red limit 60kb ecn gentle"),
            ("pie limit 99 ns3-2018", "pie ns3-2018 limit 99"),
            (
                "pie ns3-2018 target 15ms tupdate 30ms",
                "pie ns3-2018 target 15ms",
            ),
        ] {
            assert_eq!(Queue::parse(words).unwrap().canonical(), canonical);
        }
    }

    #[test]
    fn every_default_in_the_catalogue_is_what_the_bare_kind_means() {
        for kind in catalogue() {
            let bare = Queue::parse(kind.name).unwrap();
            assert_eq!(bare.canonical(), kind.name);
            assert!(!kind.summary.is_empty() && !kind.source.is_empty());
            for o in kind.options {
                if o.value.is_empty() || o.default == "unset" {
                    continue;
                }
                let words = format!("{} {} {}", kind.name, o.name, o.default);
                assert_eq!(Queue::parse(&words), Ok(bare.clone()), "{words}");
            }
        }
    }

    fn words() -> impl Strategy<Value = String> {
        let word = prop_oneof![
            proptest::sample::select(
                catalogue()
                    .iter()
                    .flat_map(|k| k
                        .options
                        .iter()
                        .flat_map(|o| o.name.split('|'))
                        .chain([k.name]))
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            ),
            "[0-9]{1,25}(ms|us|s|kb|%|)",
            "[0-9]\\.[0-9]e?-?[0-9]",
            ".{0,6}",
        ];
        proptest::collection::vec(word, 0..6).prop_map(|w| w.join(" "))
    }

    proptest! {
        #[test]
        fn arbitrary_words_never_panic_and_canonical_words_mean_the_same(text in words()) {
            if let Ok(queue) = Queue::parse(&text) {
                let reread = Queue::parse(&queue.canonical());
                prop_assert_eq!(reread.unwrap(), queue.clone());
                for rate in [1, 15_000_000, 100_000_000_000] {
                    let _ = Qdisc::<TestPacket>::new(queue.build(Rate::from_bps(rate)).queue);
                }
            }
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,60}") {
            let _ = Queue::parse(&text).map_err(|e| prop_assert_line(&e));
        }
    }

    fn prop_assert_line(e: &Error) {
        assert!(!e.to_string().contains('\n'));
    }
}
