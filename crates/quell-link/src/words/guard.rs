//! `guard` and `dry_run`, which any kind with a learned controller takes: `rlaqm guard`.

use quell_qdisc::control::guard::{Guard, Params};
use quell_qdisc::control::pie::Pie;
use quell_qdisc::control::wqm::Wqm;
use quell_qdisc::control::{Control, Controller};

use super::OptionInfo;
use crate::error::Error;

/// The kinds whose controllers learn.
const LEARNED: [&str; 3] = ["a3c_l4s", "learnqueue", "rlaqm"];

/// What the words say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Words {
    dry_run: bool,
}

impl Words {
    /// The words, after a blank.
    pub(super) fn words(self) -> &'static str {
        match self.dry_run {
            true => " dry_run",
            false => " guard",
        }
    }

    /// The controller under guard. A classic one that turns the same knob stands in: PIE for a drop probability, WQM for a
    /// limit, the queue's own law for a base probability.
    pub(super) fn around(self, mut learned: Controller, rate_bps: u64) -> Controller {
        let knobs = learned.initial();
        let classic = if knobs.drop.is_some() {
            Controller::Pie(Pie::new(Default::default()))
        } else if knobs.limit_packets.is_some() {
            Controller::Wqm(Wqm::new(Default::default(), rate_bps))
        } else {
            Controller::Law
        };
        let params = Params {
            dry_run: self.dry_run,
            ..Params::default()
        };
        Controller::Guard(Box::new(Guard::new(params, learned, classic)))
    }
}

/// Takes the guard's words out of a kind's options.
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

/// For the catalogue.
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
                "a classic controller stands in while readings or decisions cannot be trusted",
            ),
            info(
                "dry_run",
                "the classic controller decides; what this one would do is only counted",
            ),
        ],
        false => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use crate::words::Queue;
    use quell_qdisc::control::Controller;
    use quell_qdisc::packet::TestPacket;

    #[test]
    fn a_learned_kind_can_be_guarded() {
        for words in [
            "rlaqm guard",
            "learnqueue initial 20 dry_run",
            "rlaqm noheuristics guard",
        ] {
            let queue = Queue::parse(words).unwrap();
            let (_, controller) = queue.build::<TestPacket>(10_000_000);
            assert!(matches!(controller, Controller::Guard(_)), "{words}");
            assert_eq!(queue.canonical(), words);
        }
        let both = Queue::parse("rlaqm guard dry_run").unwrap_err().to_string();
        assert_eq!(
            both,
            "rlaqm: guard: given twice; write guard or dry_run, once"
        );
        assert!(
            Queue::parse("pie guard")
                .unwrap_err()
                .to_string()
                .contains("unknown option `guard`")
        );
    }
}
