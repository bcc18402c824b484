"""A new discipline, controller, congestion control or verb needs one file, and a line or two in few others.

The samples are added to a copy of the sources, which must then compile and run. `docs/map.md` names the places.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import quell

ROOT = Path(__file__).parent.parent
QDISC, LINK, SIM = (Path("crates") / name / "src" for name in ("quell-qdisc", "quell-link", "quell-sim"))

DISCIPLINE = """//! A FIFO under another name.

use crate::fifo::{self, Fifo};
use crate::time::Instant;
use crate::{Dequeued, Discipline, Drops, Packet, Rng};

/// Packets that it holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    /// Packets.
    pub limit: u32,
}

/// The queue.
#[derive(Clone, Debug)]
pub struct Sample<P>(Fifo<P>);

impl<P: Packet> Sample<P> {
    /// An empty queue.
    pub fn new(params: Params) -> Self {
        Self(Fifo::new(fifo::Params { limit_packets: params.limit, ..fifo::Params::default() }))
    }
}

impl<P: Packet> Discipline<P> for Sample<P> {
    fn enqueue<D: Drops<P>>(&mut self, now: Instant, packet: P, rng: &mut Rng, drops: &mut D) {
        self.0.enqueue(now, packet, rng, drops);
    }
    fn dequeue<D: Drops<P>>(&mut self, now: Instant, rng: &mut Rng, drops: &mut D) -> Dequeued<P> {
        self.0.dequeue(now, rng, drops)
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}
"""

DISCIPLINE_ROW = """
impl Spec for quell_qdisc::sample::Params {
    fn build(&self, _: Rate) -> Built {
        Built::queue(Params::Sample(self.clone()))
    }
}

static SAMPLE: Kind<quell_qdisc::sample::Params> = Kind {
    name: "sample",
    summary: "an example",
    source: "this test",
    default: || quell_qdisc::sample::Params { limit: 7 },
    options: &[opt("limit", Field::Count(|p| &mut p.limit, 1, MAX_COUNT), LIMIT)],
    check: |_| Ok(()),
};
"""

CONTROLLER = """//! A limit of five packets.

use super::{Control, SubQueue};
use crate::time::{Duration, SEC};
use crate::{ControlledKnobs, Gauges, KnobSet, Knobs, Rng};

/// The controller; its parameters are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Five;

impl Control for Five {
    fn period(&self) -> Duration {
        SEC
    }
    fn decide(&mut self, _gauges: &Gauges, _subs: &mut [SubQueue], _rng: &mut Rng) -> Knobs {
        self.initial()
    }
    fn initial(&mut self) -> Knobs {
        Knobs { limit_packets: Some(5), ..Knobs::KEEP }
    }
    fn knobs(&self) -> ControlledKnobs {
        ControlledKnobs::of_queue(KnobSet::LIMIT)
    }
}
"""

CONTROLLER_ROW = """
impl Spec for quell_qdisc::control::five::Five {
    fn build(&self, _: Rate) -> Built {
        Built::fifo(Some(Box::new(self.clone())))
    }
}

static FIVE: Kind<quell_qdisc::control::five::Five> = Kind {
    name: "five",
    summary: "an example",
    source: "this test",
    default: Default::default,
    options: &[],
    check: |_| Ok(()),
};
"""

CONGESTION = """//! A window that is always ten packets.

use quell_qdisc::time::Instant;

use super::{Ops, Sock};

/// No state.
#[derive(Clone, Debug)]
pub struct Ten;

impl Ops for Ten {
    fn ssthresh(&mut self, _s: &mut Sock, _now: Instant) -> u32 {
        10
    }
}
"""

# Each: most files with insertions; a new file with its text; the insertions: file, anchor, text before the anchor.
SAMPLES = {
    "discipline": (
        3,
        (QDISC / "disciplines/sample.rs", DISCIPLINE),
        [
            (QDISC / "disciplines/mod.rs", "pub mod red;", "pub mod sample;\n"),
            (QDISC / "disciplines/mod.rs", "use sfb::Sfb;", "use sample::Sample;\n"),
            (
                QDISC / "disciplines/mod.rs",
                "    /// `cobalt`.\n",
                "    /// `sample`.\n    Sample(Sample<P>),\n",
            ),
            (
                QDISC / "disciplines/mod.rs",
                "    /// [`Qdisc::Cobalt`].\n",
                "    /// `sample`.\n    Sample(sample::Params),\n",
            ),
            (
                QDISC / "disciplines/mod.rs",
                "            Params::Cobalt(p)",
                "            Params::Sample(p) => Qdisc::Sample(Sample::new(p)),\n",
            ),
            (
                QDISC / "disciplines/mod.rs",
                "            Qdisc::Cobalt($q)",
                "            Qdisc::Sample($q) => $body,\n",
            ),
            (QDISC / "disciplines/mod.rs", "    Bands, Cake, Cebinae,", "    Sample,\n"),
            (QDISC / "lib.rs", "pub use gauges::", "pub use disciplines::sample;\n"),
            (LINK / "words/hashed.rs", "static SFB:", DISCIPLINE_ROW.lstrip() + "\n"),
            (LINK / "words/hashed.rs", "&HHF]", "&SAMPLE, "),
        ],
    ),
    "controller": (
        2,
        (QDISC / "control/five.rs", CONTROLLER),
        [
            (QDISC / "control/mod.rs", "pub mod fixed;", "pub mod five;\n"),
            (LINK / "words/controlled.rs", "static FIXED:", CONTROLLER_ROW.lstrip() + "\n"),
            (LINK / "words/controlled.rs", "&FIXED, ", "&FIVE, "),
        ],
    ),
    "congestion control": (
        2,
        (SIM / "cc/ten.rs", CONGESTION),
        [
            (SIM / "cc/mod.rs", "mod cubic;", "mod ten;\n"),
            (SIM / "cc/mod.rs", "    /// RFC 8257.\n    Dctcp(", "    /// Ten packets.\n    Ten(ten::Ten),\n"),
            (SIM / "cc/mod.rs", "            Cc::Bbr => ", "            Cc::Ten => Self::Ten(ten::Ten),\n"),
            (SIM / "cc/mod.rs", "            Self::Bbr(c) => c.as_mut(),\n", "            Self::Ten(c) => c,\n"),
            (
                SIM / "cc/mod.rs",
                "            Self::Bbr(_) | Self::Bbr3(_) | Self::Prague(_) => {}",
                "            Self::Ten(_) => {}\n",
            ),
            (SIM / "cc/choice.rs", "    /// `dctcp`.\n", "    /// `ten`.\n    Ten,\n"),
            (SIM / "cc/choice.rs", "newreno|reno", "ten|"),
            (SIM / "cc/choice.rs", '            Cc::Bbr => "bbr"', '            Cc::Ten => "ten",\n'),
            (SIM / "cc/choice.rs", '            "bbr" => Cc::Bbr', '            "ten" => Cc::Ten,\n'),
        ],
    ),
}

RUN = """//! Runs the samples.

use std::sync::atomic::AtomicBool;

fn main() {
    let text = "duration = '4s'\\nwarmup = '1s'\\n[link]\\nrate = '5mbit'\\n[[flow]]\\ncc = 'ten'\\ncount = 2\\n";
    let scenario = quell_sim::scenario::Scenario::parse(text, "", &Default::default()).expect("a scenario");
    for queue in ["sample limit 9", "five"] {
        let stop = AtomicBool::new(false);
        let run = quell_sim::run(&scenario, queue, 1, &Default::default(), &stop).expect("a run");
        println!("{} {} {}", run.queue, run.flows[0].cc, run.backlog_packets.max);
    }
}
"""


@pytest.mark.slow
def test_samples_are_entered_in_few_places_compile_and_run(tmp_path: Path) -> None:
    left_out = shutil.ignore_patterns("target", "tests", "benches", "examples", "quell-lab", "quell-live", "quell-py")
    shutil.copytree(ROOT / "crates", tmp_path / "crates", ignore=left_out)
    manifest = (ROOT / "Cargo.toml").read_text("utf-8")
    start, end = manifest.index("members = ["), manifest.index("]", manifest.index("members = ["))
    members = ", ".join(f'"crates/{name}"' for name in ("quell-qdisc", "quell-link", "quell-sim"))
    (tmp_path / "Cargo.toml").write_text(manifest[:start] + "members = [" + members + manifest[end:], "utf-8")
    shutil.copy(ROOT / "Cargo.lock", tmp_path)
    for crate in (tmp_path / "crates").iterdir():
        # The copy has no benchmarks.
        text = (crate / "Cargo.toml").read_text("utf-8")
        (crate / "Cargo.toml").write_text(text.split("[[bench]]")[0], "utf-8")
    for most, (own, text), entries in SAMPLES.values():
        (tmp_path / own).write_text(text, "utf-8")
        assert len({file for file, _, _ in entries}) <= most
        for file, anchor, line in entries:
            source = (tmp_path / file).read_text("utf-8")
            assert source.count(anchor) == 1, f"{file}: {anchor}"
            (tmp_path / file).write_text(source.replace(anchor, line + anchor), "utf-8")
    example = tmp_path / SIM.parent / "examples/samples.rs"
    example.parent.mkdir()
    example.write_text(RUN, "utf-8")
    done = subprocess.run(
        ["cargo", "run", "--quiet", "--offline", "-p", "quell-sim", "--example", "samples"],
        cwd=tmp_path,
        env=os.environ | {"CARGO_TARGET_DIR": str(ROOT / "target/entering"), "CARGO_PROFILE_DEV_DEBUG": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["sample limit 9 ten 9", "five ten 5"]


VERB = '''"""Says hello."""

EXAMPLES = "quell hello"


def hello() -> int:
    """Say hello."""
    print("hello")
    return 0
'''


@pytest.mark.slow
def test_a_verb_is_a_file_and_a_line_of_another(tmp_path: Path) -> None:
    package = Path(quell.__file__).parent
    shutil.copytree(package, tmp_path / "quell", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "quell/cli/hello.py").write_text(VERB, "utf-8")
    usage, after = tmp_path / "quell/cli/usage.py", '    "Simulate": {\n'
    text = usage.read_text("utf-8")
    assert text.count(after) == 1
    usage.write_text(text.replace(after, f'{after}        "hello": "Say hello.",\n'), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "quell", "hello"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
