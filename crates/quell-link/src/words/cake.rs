//! CAKE's words, with their meaning in `tc`: of contradicting words the last one counts.

use quell_qdisc::cake::{AckFilter, Bandwidth, Isolation, LONGEST, Params, Tins};
use quell_qdisc::disciplines;
use quell_qdisc::parts::framing::{Cells, Framing};
use quell_qdisc::rate::Rate;
use quell_qdisc::time::{Duration, MS, SEC, US};

use super::rows::opt;
use super::{Built, Field, Kind, Opt, Spec};
use crate::error::Error;
use crate::field;

/// The lowest rate of its shaper.
const MIN_RATE: Rate = Rate::from_bps(512);

impl Spec for Params {
    /// Without a `bandwidth`, CAKE shapes to the link's rate; with `autorate-ingress` it starts
    /// unlimited.
    fn build(&self, rate: Rate) -> Built {
        let mut params = self.clone();
        if let Bandwidth::Link(_) = params.bandwidth {
            params.bandwidth = match params.autorate_ingress {
                true => Bandwidth::Unlimited,
                false => Bandwidth::Link(rate.max(MIN_RATE)),
            };
        }
        Built::queue(disciplines::Params::Cake(params))
    }
}

const TINS: [(&str, Tins); 6] = [
    ("besteffort", Tins::BestEffort),
    ("precedence", Tins::Precedence),
    ("diffserv3", Tins::Diffserv3),
    ("diffserv4", Tins::Diffserv4),
    ("diffserv8", Tins::Diffserv8),
    ("diffserv", Tins::Diffserv4),
];

const ISOLATION: [(&str, Isolation); 8] = [
    ("flowblind", Isolation::Flowblind),
    ("srchost", Isolation::SourceHost),
    ("dsthost", Isolation::DestinationHost),
    ("hosts", Isolation::Hosts),
    ("flows", Isolation::Flows),
    ("dual-srchost", Isolation::DualSource),
    ("dual-dsthost", Isolation::DualDestination),
    ("triple-isolate", Isolation::Triple),
];

const FILTERS: [(&str, AckFilter); 3] = [
    ("ack-filter", AckFilter::Filter),
    ("ack-filter-aggressive", AckFilter::Aggressive),
    ("no-ack-filter", AckFilter::Off),
];

const CELLS: [(&str, Cells); 3] = [
    ("atm", Cells::Atm),
    ("ptm", Cells::Ptm),
    ("noatm", Cells::None),
];

/// Names of round trips, with the round trip and its target (`None`: a twentieth of it).
const ROUND_TRIPS: [(&str, Duration, Option<Duration>); 8] = [
    ("datacentre", Duration::from_micros(100), None),
    ("lan", MS, None),
    ("metro", Duration::from_millis(10), None),
    ("regional", Duration::from_millis(30), None),
    ("internet", Duration::from_millis(100), None),
    ("oceanic", Duration::from_millis(300), None),
    ("satellite", SEC, None),
    ("interplanetary", Duration::from_secs(1000), None),
];

/// The value of a word, if it is in the table.
fn meant<V: Copy>(table: &[(&str, V)], word: &str) -> Option<V> {
    table.iter().find(|(w, _)| *w == word).map(|(_, v)| *v)
}

/// The first word for a value.
fn word_for<V: PartialEq>(table: &[(&'static str, V)], value: &V) -> &'static str {
    let found = table.iter().find(|(_, v)| v == value);
    found.map_or("", |(word, _)| word)
}

/// An option that may be repeated.
const fn free(name: &'static str, field: Field<Params>, meaning: &'static str) -> Opt<Params> {
    opt(name, field, meaning).repeatable()
}

const fn words(
    words: &'static str,
    set: fn(&mut Params, &str),
    get: fn(&Params) -> &'static str,
    meaning: &'static str,
) -> Opt<Params> {
    free(words, Field::Word { words, set, get }, meaning)
}

const fn flag(
    name: &'static str,
    at: fn(&mut Params) -> &mut bool,
    off: &'static str,
    meaning: &'static str,
) -> Opt<Params> {
    free(name, Field::Flag(at, off), meaning)
}

/// Reads a mask as `tc` does: hexadecimal after `0x`, octal after `0`.
fn mask(text: &str) -> Option<u32> {
    let (digits, radix) = match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (text, 10),
    };
    let plain = digits.bytes().all(|b| b.is_ascii_alphanumeric());
    u32::from_str_radix(digits, radix).ok().filter(|_| plain)
}

pub(super) static CAKE: Kind<Params> = Kind {
    name: "cake",
    summary: "Common Applications Kept Enhanced: shaper, tins by DSCP, fair hosts and flows with cobalt each; of words that contradict each other the last counts, as in tc",
    source: "Linux sch_cake",
    default: Params::default,
    options: &[
        free(
            "bandwidth",
            Field::Other {
                syntax: "RATE",
                set: |p, text| {
                    let zero = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()) == "0";
                    p.bandwidth = match zero {
                        true => Bandwidth::Unlimited,
                        false => {
                            Bandwidth::Shaped(field::rate(text, MIN_RATE, Rate::from_bps(1 << 50))?)
                        }
                    };
                    p.autorate_ingress = false;
                    Ok(())
                },
                get: |p| match p.bandwidth {
                    Bandwidth::Shaped(rate) => rate.to_string(),
                    _ => String::new(),
                },
            },
            "rate of its own shaper; 0 is unlimited (default: the link is its shaper, and its rate tunes what this would)",
        ),
        free(
            "unlimited",
            Field::Switch {
                off: "",
                set: |p, _| (p.bandwidth, p.autorate_ingress) = (Bandwidth::Unlimited, false),
                get: |p| p.bandwidth == Bandwidth::Unlimited,
            },
            "no shaper, and nothing is tuned to a rate",
        ),
        free(
            "autorate-ingress",
            Field::Switch {
                off: "",
                set: |p, _| p.autorate_ingress = true,
                get: |p| p.autorate_ingress,
            },
            "the shaper follows the estimated rate of arrivals, bandwidth being its first rate; bandwidth or unlimited after it ends that",
        ),
        words(
            "besteffort|precedence|diffserv3|diffserv4|diffserv8|diffserv",
            |p, word| p.tins = meant(&TINS, word).unwrap_or_default(),
            |p| word_for(&TINS, &p.tins),
            "tins by DSCP: one, eight by precedence, three, four, eight; diffserv is diffserv4",
        ),
        free(
            "fwmark",
            Field::Other {
                syntax: "MASK",
                set: |p, text| {
                    p.fwmark = mask(text).ok_or_else(|| {
                        Error::new(format!("\"{text}\" is not a mask"))
                            .remedy("write a number up to 4294967295, or a hexadecimal one as 0xff")
                    })?;
                    Ok(())
                },
                get: |p| match p.fwmark {
                    0 => String::new(),
                    mask => format!("0x{mask:x}"),
                },
            },
            "bits of the firewall's mark that name the tin, 1 being the first; without effect with besteffort",
        ),
        words(
            "flowblind|srchost|dsthost|hosts|flows|dual-srchost|dual-dsthost|triple-isolate",
            |p, word| p.isolation = meant(&ISOLATION, word).unwrap_or_default(),
            |p| word_for(&ISOLATION, &p.isolation),
            "fair shares of a tin's bandwidth: none, by host, by flow, or by host and then by flow",
        ),
        flag(
            "nat",
            |p| &mut p.nat,
            "nonat",
            "hosts are those before address translation, on real interfaces; simulated hosts have none",
        ),
        flag(
            "wash",
            |p| &mut p.wash,
            "nowash",
            "clears the DSCP of what leaves",
        ),
        flag(
            "ingress",
            |p| &mut p.ingress,
            "egress",
            "the shaper is behind the bottleneck: it counts what it drops, too",
        ),
        words(
            "ack-filter|ack-filter-aggressive|no-ack-filter",
            |p, word| p.ack_filter = meant(&FILTERS, word).unwrap_or_default(),
            |p| word_for(&FILTERS, &p.ack_filter),
            "drops queued ACKs that later ones make superfluous, all but one or all",
        ),
        flag(
            "split-gso",
            |p| &mut p.split_gso,
            "no-split-gso",
            "packets that the network stack joined are taken apart; quell's links always do that",
        ),
        free(
            "rtt",
            Field::Other {
                syntax: "TIME",
                set: |p, text| {
                    (p.rtt, p.target) = (field::time(text, US, LONGEST)?, None);
                    Ok(())
                },
                get: |p| p.rtt.to_string(),
            },
            "round trip of the paths behind: cobalt's interval",
        ),
        // As in `tc`, a second one of these is refused.
        opt::<Params>(
            "datacentre|lan|metro|regional|internet|oceanic|satellite|interplanetary",
            Field::Word {
                words: "datacentre|lan|metro|regional|internet|oceanic|satellite|interplanetary",
                set: |p, word| {
                    if let Some((_, rtt, target)) = ROUND_TRIPS.iter().find(|r| r.0 == word) {
                        (p.rtt, p.target) = (*rtt, *target);
                    }
                },
                get: |p| match (p.rtt, p.target) {
                    (rtt, None) if rtt == 100 * MS => "internet",
                    _ => "",
                },
            },
            "rtt 100us, 1ms, 10ms, 30ms, 100ms, 300ms, 1s, 1000s; only one of these words, as in tc",
        ),
        free(
            "target",
            Field::MaybeTime(|p| &mut p.target, Duration::ZERO, LONGEST),
            "target delay (default: a twentieth of rtt); tc has no word for it",
        ),
        free(
            "memlimit",
            Field::Bytes(|p| &mut p.memory_limit, 0, u32::MAX as u64),
            "bytes in the whole queue; 0: computed from bandwidth and rtt",
        ),
        free(
            "raw",
            Field::Switch {
                off: "",
                set: |p, _| {
                    (p.framing.overhead, p.framing.cells) = (0, Cells::None);
                    (p.raw, p.of_ip) = (true, false);
                },
                get: |p| p.raw,
            },
            "packets count as long as they are, Ethernet's header included; words after it add to that",
        ),
        words(
            Framing::WORDS,
            |p, word| {
                p.of_ip = !p.raw;
                p.framing.add(word);
            },
            |_| "",
            "the link's framing (tc-cake(8)): overheads add up, with atm, ptm or mpu where it has them; conservative is overhead 48 atm",
        ),
        free(
            "via-ethernet",
            Field::Switch {
                off: "",
                set: |_, _| (),
                get: |_| false,
            },
            "changes nothing; tc prints it",
        ),
        free(
            "overhead",
            Field::Other {
                syntax: "BYTES",
                set: |p, text| {
                    let overhead = text.parse().ok().filter(|o| (-64..=256).contains(o));
                    let error = || {
                        Error::new(format!("\"{text}\" is not an overhead"))
                            .remedy("write -64 to 256")
                    };
                    p.framing.overhead = overhead.ok_or_else(error)?;
                    p.of_ip = !p.raw;
                    Ok(())
                },
                get: |p| match (p.of_ip, p.framing.overhead) {
                    (false, 0) => String::new(),
                    (_, overhead) => overhead.to_string(),
                },
            },
            "bytes that the link adds to an IP packet, in place of what was said before (default: packets count as they are)",
        ),
        free(
            "mpu",
            Field::Count(|p| &mut p.framing.mpu, 0, 256),
            "minimum bytes that a packet counts",
        ),
        words(
            "atm|ptm|noatm",
            |p, word| p.framing.cells = meant(&CELLS, word).unwrap_or_default(),
            |p| word_for(&CELLS, &p.framing.cells),
            "what carries the bytes: cells of 48 in 53, 64 in 65, or frames as they are",
        ),
    ],
    check: Params::check,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Queue;

    fn params(words: &str) -> Params {
        let queue = Queue::parse(words).unwrap_or_else(|e| panic!("{words}: {e}"));
        queue.spec::<Params>().expect("cake").clone()
    }

    fn error(words: &str) -> String {
        Queue::parse(words).expect_err(words).to_string()
    }

    fn canonical(words: &str) -> String {
        Queue::parse(words).expect(words).canonical()
    }

    #[test]
    fn bare_cake_has_tcs_defaults() {
        let p = params("cake");
        assert_eq!((p.tins, p.isolation), (Tins::Diffserv3, Isolation::Triple));
        assert_eq!((p.nat, p.wash, p.ingress), (false, false, false));
        assert_eq!((p.rtt, p.target, p.split_gso), (100 * MS, None, true));
        assert_eq!(
            p,
            params("cake diffserv3 triple-isolate nonat nowash egress internet")
        );
    }

    #[test]
    fn of_words_that_contradict_each_other_the_last_counts_as_in_tc() {
        // Output of "tc qdisc show" in Linux after each of these.
        for (words, same) in [
            ("cake besteffort diffserv4", "cake diffserv4"),
            ("cake diffserv", "cake diffserv4"),
            ("cake nat nonat", "cake"),
            ("cake flows dual-srchost", "cake dual-srchost"),
            ("cake ack-filter no-ack-filter", "cake"),
            ("cake bandwidth 10mbit unlimited", "cake unlimited"),
            ("cake unlimited bandwidth 10mbit", "cake bandwidth 10mbit"),
            ("cake bandwidth 0", "cake unlimited"),
            ("cake bandwidth 0mbit", "cake unlimited"),
            (
                "cake autorate-ingress bandwidth 10mbit",
                "cake bandwidth 10mbit",
            ),
            ("cake rtt 10ms lan", "cake rtt 1ms"),
            ("cake lan rtt 10ms", "cake rtt 10ms"),
            ("cake docsis overhead 4", "cake overhead 4 mpu 64"),
            ("cake overhead 4 docsis", "cake overhead 22 mpu 64"),
            ("cake docsis ethernet", "cake overhead 56 mpu 84"),
            (
                "cake pppoe-ptm ether-vlan ether-vlan",
                "cake overhead 38 ptm",
            ),
            ("cake pppoe-ptm noatm", "cake overhead 30"),
            ("cake atm docsis", "cake overhead 18 mpu 64"),
            ("cake docsis conservative", "cake overhead 48 mpu 64 atm"),
            ("cake docsis raw", "cake raw mpu 64"),
            ("cake raw docsis", "cake raw overhead 18 mpu 64"),
            (
                "cake bandwidth 1mbit bandwidth 2mbit",
                "cake bandwidth 2mbit",
            ),
        ] {
            assert_eq!(canonical(words), same);
            assert_eq!(params(words), params(same), "{words}");
        }
    }

    #[test]
    fn bandwidth_and_autorate_ingress_go_together_in_this_order() {
        let p = params("cake bandwidth 10mbit autorate-ingress");
        assert!(p.autorate_ingress && p.bandwidth == Bandwidth::Shaped(Rate::from_mbit(10)));
        assert_eq!(
            canonical("cake bandwidth 10mbit autorate-ingress"),
            "cake bandwidth 10mbit autorate-ingress"
        );
    }

    #[test]
    fn two_round_trips_by_name_are_refused_as_by_tc() {
        assert_eq!(
            error("cake metro lan"),
            "cake: `metro` and `lan` exclude each other; keep one of them"
        );
        assert_eq!(
            error("cake lan lan"),
            "cake: lan: given twice; give it once"
        );
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_range() {
        assert_eq!(
            error("cake overhead 300"),
            "cake: overhead: \"300\" is not an overhead; write -64 to 256"
        );
        assert_eq!(
            error("cake fwmark tin"),
            "cake: fwmark: \"tin\" is not a mask; write a number up to 4294967295, or a hexadecimal one as 0xff"
        );
        assert!(error("cake mpu 300").starts_with("cake: mpu: \"300\" is too large"));
        assert!(error("cake adsl").contains("unknown option `adsl`"));
    }

    #[test]
    fn the_link_is_the_shaper_unless_a_word_says_otherwise() {
        let bandwidth = |words: &str| {
            let built = Queue::parse(words).expect(words).build(Rate::from_mbit(8));
            match built.queue {
                disciplines::Params::Cake(p) => p.bandwidth,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(bandwidth("cake"), Bandwidth::Link(Rate::from_mbit(8)));
        assert_eq!(bandwidth("cake unlimited"), Bandwidth::Unlimited);
        assert_eq!(bandwidth("cake autorate-ingress"), Bandwidth::Unlimited);
        assert_eq!(
            bandwidth("cake bandwidth 1mbit"),
            Bandwidth::Shaped(Rate::from_mbit(1))
        );
    }

    #[test]
    fn marks_are_read_in_every_notation_of_tc() {
        assert_eq!(params("cake fwmark 0xf0").fwmark, 240);
        assert_eq!(params("cake fwmark 010").fwmark, 8);
        assert_eq!(params("cake fwmark 0").fwmark, 0);
        for text in ["0x", "08", "+1", "0x+1"] {
            assert!(error(&format!("cake fwmark {text}")).contains("is not a mask"));
        }
        assert_eq!(params("cake fwmark 240"), params("cake fwmark 0xf0"));
        assert_eq!(canonical("cake fwmark 240"), "cake fwmark 0xf0");
    }
}
