//! `guard` and `dry_run`: options of every kind with a learned controller, as in `rlaqm guard`.

use quell_qdisc::control::Control;
use quell_qdisc::control::guard::{Guard, Params};
use quell_qdisc::control::law::Law;
use quell_qdisc::control::pie::Pie;
use quell_qdisc::control::wqm::{Params as Limits, Wqm};
use quell_qdisc::rate::Rate;
use quell_qdisc::time::MS;
use quell_qdisc::{ControlledKnobs, MTU};

use super::{OptionInfo, note};
use crate::error::Error;

/// The kinds with a learned controller.
const LEARNED: [&str; 4] = ["a3c_l4s", "learnqueue", "lfq", "rlaqm"];

/// The parsed words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Words {
    dry_run: bool,
}

impl Words {
    /// The words, with a leading space.
    pub(super) fn words(self) -> &'static str {
        match self.dry_run {
            true => " dry_run",
            false => " guard",
        }
    }

    /// The controller under guard. The fallback is a classic controller that sets the same knob:
    /// [`classic`] for a whole queue's drop probability or limit, [`flow_limits`] for limits of
    /// single flows, the queue's own law for a base probability.
    pub(super) fn around(self, learned: Box<dyn Control>, rate: Rate) -> Box<dyn Control> {
        let ControlledKnobs { queue, sub_queues } = learned.knobs();
        let classic: Box<dyn Control> = if queue.drop || queue.limit {
            classic(queue.drop, rate)
        } else if sub_queues.limit {
            Box::new(flow_limits(rate))
        } else {
            Box::new(Law)
        };
        let params = Params {
            dry_run: self.dry_run,
            ..Params::default()
        };
        Box::new(Guard::new(params, learned, classic))
    }
}

/// The classic controller that a guard falls back to: PIE for a queue's drop probability, WQM for
/// its limit.
pub fn classic(sets_drop: bool, rate: Rate) -> Box<dyn Control> {
    if sets_drop {
        note("pie");
        Box::new(Pie::new(Default::default()))
    } else {
        Box::new(Wqm::new(Default::default(), rate))
    }
}

/// Controller of each flow's limit during a fallback: the limit is at most [`flow_limit`], and
/// smaller while all flows together hold more than that.
fn flow_limits(rate: Rate) -> Wqm {
    let most = flow_limit(rate);
    let bytes = u64::from(most) * u64::from(MTU);
    let lasts = rate.max(Rate::from_bps(1)).transmission_time(bytes);
    let params = Limits {
        interval: 15 * MS,
        target: lasts,
        arrt: lasts,
        no_aggregation: true,
        max: most,
        step: Some(most.div_ceil(8)),
        ..Limits::default()
    };
    Wqm::new(params, rate)
}

/// Largest limit of a flow during a fallback: the packets that the link sends in 50 ms, 10 to 1000.
fn flow_limit(rate: Rate) -> u32 {
    let packets = rate.bps() / (8 * u64::from(MTU)) * 50 / 1000;
    packets.clamp(10, 1000) as u32
}

/// Separates the guard's words from a kind's options.
pub(super) fn split<'a>(
    kind: &str,
    options: &[&'a str],
) -> Result<(Option<Words>, Vec<&'a str>), Error> {
    let mut guard: Option<Words> = None;
    let mut others = Vec::new();
    for &word in options {
        match word {
            "guard" | "dry_run" if LEARNED.contains(&kind) => {
                if guard.is_some() {
                    return Err(Error::new("given twice")
                        .remedy("write guard or dry_run, once")
                        .key("guard"));
                }
                guard = Some(Words {
                    dry_run: word == "dry_run",
                });
            }
            _ => others.push(word),
        }
    }
    Ok((guard, others))
}

/// The guard's options for the catalogue.
pub(super) fn options(kind: &str) -> Vec<OptionInfo> {
    let info = |name: &str, meaning| OptionInfo {
        name: name.to_owned(),
        value: "",
        default: "off".to_owned(),
        meaning,
    };
    match LEARNED.contains(&kind) {
        true => vec![
            info(
                "guard",
                "a classic controller takes over while readings or decisions are invalid",
            ),
            info(
                "dry_run",
                "the classic controller decides; the learned one's decisions are only recorded",
            ),
        ],
        false => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use crate::words::Queue;
    use crate::words::tests::is;
    use quell_qdisc::control::guard::Guard;
    use quell_qdisc::rate::Rate;

    #[test]
    fn a_learned_kind_can_be_guarded() {
        for words in [
            "rlaqm guard",
            "learnqueue initial 20 dry_run",
            "rlaqm noheuristics guard",
            "lfq guard",
            "lfq alpha 10 dry_run",
        ] {
            let queue = Queue::parse(words).unwrap();
            assert!(is::<Guard>(&queue.build(Rate::from_mbit(10))), "{words}");
            assert_eq!(queue.canonical(), words);
        }
        let both = Queue::parse("rlaqm guard dry_run").unwrap_err().to_string();
        assert_eq!(
            both,
            "rlaqm: guard: given twice; write guard or dry_run, once"
        );
        let none = Queue::parse("lfq limit 20 guard").unwrap_err().to_string();
        assert_eq!(
            none,
            "lfq: guard: no controller to guard; leave guard out, or what replaces the controller"
        );
        assert!(
            Queue::parse("pie guard")
                .unwrap_err()
                .to_string()
                .contains("unknown option `guard`")
        );
    }
}
