"""Learning curves of the shipped networks: their trainings' `curve.parquet`, in the package as `trained/NAME`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING, Any

from quell.papers.claim import Claim, estimate
from quell.papers.study import Study
from quell.views.figures import Axis, Figure, Line, Panel

if TYPE_CHECKING:
    import polars as pl

Curve = Mapping[str, Sequence[Any]]


def find(model: str) -> Curve:
    """Read a shipped network's curve as a dictionary of columns."""
    return table(f"{model}.curve").to_dict(as_series=False)


def table(name: str) -> pl.DataFrame:
    """Read a table that a training has written."""
    import polars as pl

    return pl.read_parquet(BytesIO((files(__package__) / "trained" / f"{name}.parquet").read_bytes()))


def _settled(steps: Sequence[float], values: Sequence[float]) -> float | None:
    """Return the step from which means of five points stay within 10 % of the last; None if it is in the last third."""
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
              flows, -1, digits=0, kind="printed" if flows else "beyond", source=figure.replace("F", "Figure ")),
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
