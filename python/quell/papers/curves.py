"""Learning curves of the shipped networks: their trainings' `curve.parquet`, kept in the package as `trained/NAME`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING, Any

from quell.papers.paper import Axis, Claim, Figure, Line, Panel, Study
from quell.results.stats import estimate

if TYPE_CHECKING:
    import polars as pl

Curve = Mapping[str, Sequence[Any]]


def find(model: str) -> Curve:
    """Read a shipped network's curve, column by column."""
    return table(f"{model}.curve").to_dict(as_series=False)


def table(name: str) -> pl.DataFrame:
    """Read a table that a training left."""
    import polars as pl

    return pl.read_parquet(BytesIO((files(__package__) / "trained" / f"{name}.parquet").read_bytes()))


# RL-AQM's Figures 4 and 5. ------------------------------------------------------------------------------------------

RL_CLAIMS = [
    Claim("F4.reward", "training: mean reward per decision from episode 10 on", "", 0.82, +1, 0.05),
    Claim("F4.first_delay", "training: largest delay of the first episode", "ms", 50, -1, 25, 1),
    Claim("F4.last_delay", "training: largest delay, mean of the last ten episodes", "ms", 20, -1, 10, 1),
    Claim("F5.first_epsilon", "training: probability of exploring, first episode", "", 0.9, 0, 0.01),
    Claim("F5.last_epsilon", "training: probability of exploring, last episode", "", 0.01, 0, 0.001, 3),
]


def rl_aqm(study: Study, why: str) -> None:
    """Judge and draw RL-AQM's rewards over episodes; `why` gives other measurements of the reward."""
    curve = find("rl-aqm")
    episodes, reward, most, epsilon = (curve[c] for c in ("step", "reward", "max_delay_ms", "epsilon"))
    marks = [k for k in (0, 9, 19, 49, 99, 199) if k < len(reward)]
    by_episode = ", ".join(f"{k + 1}: {reward[k]:.2f} ({most[k]:.0f} ms)" for k in marks)
    course = f"{why}; reward and largest delay by episode {by_episode}"
    late = reward[10:] or reward
    study.put("F4.reward", estimate([sum(late) / len(late)]), course)
    study.put("F4.first_delay", estimate([most[0]]), course)
    study.put("F4.last_delay", estimate([sum(most[-10:]) / len(most[-10:])]), course)
    study.put("F5.first_epsilon", estimate([epsilon[0]]), course)
    study.put("F5.last_epsilon", estimate([epsilon[-1]]), course)
    x = Axis("episode")

    def line(name: str, values: Sequence[float], group: int) -> Line:
        return Line(name, list(zip(episodes, values, strict=True)), "line", group)

    panels = [
        Panel("Figure 4: reward", x, Axis("reward per decision"), [line("reward", reward, 0)]),
        Panel("Figure 4: largest delay", x, Axis("delay, ms", True), [line("largest delay", most, 1)]),
        Panel("Figure 5: exploring", x, Axis("probability"), [line("probability of exploring", epsilon, 2)]),
    ]
    note = (
        f"The training of the network that quell ships: {len(reward)} episodes of the nine sections, on the bare link."
    )
    study.figures.insert(0, Figure("F4", "Figures 4 and 5: learning", note, panels))


def _settled(steps: Sequence[float], values: Sequence[float]) -> float | None:
    """Find the step from which means of five stay within a tenth of the last; None where that is in the last third."""
    smooth = [sum(values[max(0, k - 4) : k + 1]) / len(values[max(0, k - 4) : k + 1]) for k in range(len(values))]
    off = [k for k, value in enumerate(smooth) if abs(value - smooth[-1]) > 0.1 * abs(smooth[-1])]
    first = off[-1] + 1 if off else 0
    return float(steps[first]) if first < 2 / 3 * len(steps) else None


# LFQ's Figures 4, 9, 11. ---------------------------------------------------------------------------------------------

LFQ_FIGURES = {
    "F4": ("lfq-offline-0.01", "alpha 0.01, offline", 250_000),
    "F9": ("lfq-offline-10", "alpha 10, offline", 20_000),
    "F11": ("lfq-online-10", "alpha 10, online", None),
}
LFQ_CLAIMS = [
    claim
    for figure, (_, name, flows) in LFQ_FIGURES.items()
    for claim in (
        Claim(f"{figure}.settled", f"{name}: flows until the mean prediction stays within a tenth of its last", "flows",
              flows, -1, 0.1 * (flows or 0), 0),
        Claim(f"{figure}.spread", f"{name}: 5th to 95th percentile of the last predictions", "packets", digits=1),
    )
]  # fmt: skip


def lfq(study: Study) -> None:
    """Judge and draw LFQ's predictions over flows."""
    for figure, (model, name, _) in LFQ_FIGURES.items():
        curve = find(model)
        flows, mean = curve["step"], curve["prediction"]
        settled = _settled(flows, mean)
        marks = range(0, len(flows), max(1, len(flows) // 6))
        course = "mean prediction by flows " + ", ".join(f"{flows[k]}: {mean[k]:.1f}" for k in marks)
        if settled is None:
            course = f"had not settled within its {flows[-1]} flows; {course}"
        study.put(f"{figure}.settled", estimate([settled]), course)
        study.put(f"{figure}.spread", estimate([curve["prediction_p95"][-1] - curve["prediction_p5"][-1]]))
        lines = [
            Line(label, list(zip(flows, curve[column], strict=True)), "line", k)
            for k, (column, label) in enumerate(
                (("prediction", "mean"), ("prediction_p5", "5th percentile"), ("prediction_p95", "95th percentile"),
                 ("prediction_newreno", "NewReno"), ("prediction_bic", "BIC"))
            )
        ]  # fmt: skip
        panel = Panel(name, Axis("flows"), Axis("predicted limit, packets"), lines)
        note = f"Predictions while the shipped network learned, from {flows[-1]} flows; means over a thousand."
        study.figures.append(Figure(figure, figure.replace("F", "Figure "), note, [panel]))
