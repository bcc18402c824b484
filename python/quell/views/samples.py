"""Conversion, summary and figures of sample files of `quell watch`."""

from __future__ import annotations

import glob
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
from rich import box
from rich.table import Table as RichTable

from quell._core import InputError
from quell.common import files
from quell.common.console import err, out
from quell.common.text import counted, one_line
from quell.views.figures import Axis, Figure, Line, Panel, page
from quell.views.targets import Targets, command

_RATES = dict.fromkeys(("rate_bps", "packets_per_s", "drops_per_s", "sojourn_ms"), pl.Float64)
_NAMES = ("device", "type", "handle", "kind")
_MAX_NAME = 256
"""Largest length of a name, bytes; the kernel's have at most 15. A file may store a name once for all samples, but
memory holds a copy per sample."""
_NEEDED = {
    **dict.fromkeys(_NAMES, pl.String),
    "time": pl.Float64,
    **dict.fromkeys(("backlog_packets", "drops"), pl.Int64),
}
"""Fields of every sample."""
_LAW = {"target_ns": "target", "wait_ns": "wait", "hold_ns": "hold", "cap_ns": "cap"}
_SHARES = {"idle": "idle", "probability": "drop probability", "steered_drop": "drop probability, steered"}
"""Gauges of attached queues that the report draws, with their titles (docs/how-to/kernel.md lists all gauges)."""
_POINTS = 1000
"""Number of points of a line of the report."""
_MAX_SAMPLES = 5_000_000
"""Largest number of samples shown. They are held in memory, about 300 bytes each."""
_MAX_QUEUES = 10_000
"""Largest number of queues in a table, which then takes seconds."""
_MAX_VALUE = 1e18
"""Greatest time, rate, sojourn time or gauge: computations with greater ones overflow."""
_MAX_LINE = 1 << 20
"""Limit of a line's length, bytes, since polars holds lines whole. Every line of twice this length is refused."""
_MAX_HEADING, _MAX_NAMES = 1 << 16, 1000
"""Bounds of the bytes of a CSV heading and of the names in JSON lines: polars takes minutes for very many columns."""


_TRIAL = "import sys; from pathlib import Path; from quell.views import samples; samples.trial(Path(sys.argv[1]))"
_TRIAL_MEMORY = 2 << 30
"""Address space of the trial with one thread, bytes: the largest number of samples takes a third of it."""


def to_parquet(lines: Path, target: Path) -> None:
    """Convert JSON lines of samples without loading them into memory. An empty file gives no output."""
    if lines.stat().st_size == 0:
        return
    frame = _json_lines(lines)
    # Parquet does not support structures without fields, which kinds without statistics would have.
    empty = [name for name, kind in frame.collect_schema().items() if kind == pl.Struct([])]
    files.write_whole(target, lambda part: frame.drop(empty).sink_parquet(part))


def _literal(path: Path) -> str:
    """Return a path for polars, which otherwise reads all files that match a name with `*`, `?` or `[`."""
    return glob.escape(str(path.absolute()))


def _json_lines(path: Path) -> pl.LazyFrame:
    return pl.scan_ndjson(_literal(path), infer_schema_length=None, schema_overrides=_RATES)


def load(path: Path) -> pl.DataFrame:
    """Read samples from a file that `quell watch` wrote. Raises InputError."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is not a regular file")
    if path.suffix == ".parquet":
        _try(path)
    return _load(path)


def _try(path: Path) -> None:
    """Read a file in another process first: sizes in a damaged Parquet file can crash polars or exhaust the memory."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _TRIAL, path], env=os.environ | {"POLARS_MAX_THREADS": "1"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode:
        why = os.fsdecode(done.stdout) or f"{path}: not samples of quell watch: damaged, or too large in memory"
        raise InputError(why)


def trial(path: Path) -> None:
    """Read a file, in bounded memory, and end the process."""
    if sys.platform != "win32":
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        soft = _TRIAL_MEMORY if hard == resource.RLIM_INFINITY else min(_TRIAL_MEMORY, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    try:
        _load(path)
    except InputError as error:
        sys.stdout.buffer.write(os.fsencode(str(error)))
        sys.exit(1)


def _load(path: Path) -> pl.DataFrame:
    try:
        match path.suffix:
            case ".csv":
                with path.open("rb") as file:
                    if len(file.readline(_MAX_HEADING + 1)) > _MAX_HEADING:
                        raise _too_many_columns(path)
                _check_lines(path)
                frame = pl.scan_csv(_literal(path), schema_overrides=_RATES)
            case ".jsonl":
                _check_lines(path)
                lines = pl.scan_csv(
                    _literal(path), has_header=False, separator="\x01", quote_char=None, schema={"line": pl.String},
                    raise_if_empty=False,
                )  # fmt: skip
                names = pl.col("line").str.extract_all(r'"[^"]*"\s*:').explode()
                if lines.select(names.n_unique()).collect().item() > _MAX_NAMES:
                    raise _too_many_columns(path)
                frame = _json_lines(path)
            case _:
                frame = pl.scan_parquet(_literal(path))
        rates = {name: _RATES[name] for name in ("rate_bps", "sojourn_ms")}
        if missing := [name for name in (*_NEEDED, *rates) if name not in frame.collect_schema()]:
            raise InputError(f"{path}: not samples of quell watch: there is no column {missing[0]}")
        if (number := frame.select(pl.len()).collect().item()) > _MAX_SAMPLES:
            raise InputError(
                f"{path}: {number} samples; at most {_MAX_SAMPLES} are shown: take fewer, or split the file"
            )
        lengths = [pl.col(name).cast(pl.String).str.len_bytes().max() for name in _NAMES]
        for name, length in frame.select(*lengths).collect(engine="streaming").row(0, named=True).items():
            if (length or 0) > _MAX_NAME:
                what = f"a sample's {name} is longer than {_MAX_NAME} bytes"
                raise InputError(f"{path}: not samples of quell watch: {what}")
        columns = [pl.col(name).cast(kind) for name, kind in (_NEEDED | rates).items()]
        samples = frame.select(*columns, *_gauges(frame)).collect()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{path}: not samples of quell watch: {one_line(str(error).partition(chr(10))[0])}") from None
    if samples.is_empty():
        raise InputError(f"{path}: has no samples")
    if lacking := [name for name in _NEEDED if samples[name].has_nulls()]:
        raise InputError(f"{path}: not samples of quell watch: a sample has no {lacking[0]}")
    if wrong := [
        name for name in ("time", *rates, *_LAW, *_SHARES) if not (samples[name].drop_nulls().abs() < _MAX_VALUE).all()
    ]:
        raise InputError(f"{path}: not samples of quell watch: a sample's {wrong[0]} is out of range")
    samples = samples.with_columns(
        queue=pl.format(
            "{} {} {}{}",
            "device",
            "handle",
            "kind",
            pl.when(pl.col("type") == "class").then(pl.lit(" class")).otherwise(pl.lit("")),
        )
    )
    if (queues := samples["queue"].n_unique()) > _MAX_QUEUES:
        raise InputError(f"{path}: samples of {queues} queues; at most {_MAX_QUEUES} are shown: split the file")
    return samples


def _check_lines(path: Path) -> None:
    with path.open("rb") as file:
        while len(block := file.read(_MAX_LINE)) == _MAX_LINE:
            if b"\n" not in block:
                raise InputError(f"{path}: not samples of quell watch: a line is longer than {_MAX_LINE >> 20} MiB")


def _too_many_columns(path: Path) -> InputError:
    return InputError(f"{path}: not samples of quell watch: too many columns")


def _gauges(frame: pl.LazyFrame) -> list[pl.Expr]:
    """Return the columns of the drawn gauges. In CSV they are words `name=number`, else fields of a structure."""
    xstats = frame.collect_schema().get("xstats")
    match xstats:
        case pl.Struct():
            there = {field.name for field in xstats.fields if field.dtype.is_numeric()}
            one = {name: pl.col("xstats").struct.field(name) for name in there}
        case pl.String():
            one = {name: pl.col("xstats").str.extract(rf"(?:^| ){name}=(\S+)") for name in (*_LAW, *_SHARES)}
        case _:
            one = {}
    return [
        one[name].cast(pl.Float64, strict=False).alias(name) if name in one else pl.lit(None, pl.Float64).alias(name)
        for name in (*_LAW, *_SHARES)
    ]


def summary(samples: pl.DataFrame) -> list[dict[str, Any]]:
    """Summarise each queue: samples, mean rate, backlog, sojourn time, drops from the first sample to the last."""
    rows = samples.group_by("queue", maintain_order=True).agg(
        pl.len().alias("samples"),
        (pl.col("rate_bps").mean() / 1e6).alias("rate_mbps"),
        pl.col("backlog_packets").max().alias("backlog_packets_max"),
        pl.col("sojourn_ms").mean().alias("sojourn_ms_mean"),
        pl.col("sojourn_ms").quantile(0.5).alias("sojourn_ms_p50"),
        pl.col("sojourn_ms").quantile(0.95).alias("sojourn_ms_p95"),
        (pl.col("drops").last() - pl.col("drops").first()).alias("drops"),
    )
    return rows.to_dicts()


def show(path: Path, targets: Targets) -> int:
    """Show samples: a table with a row per queue, and a page with their series."""
    samples = load(path)
    rows = summary(samples)
    begin, end = _span(samples)
    number = counted(samples["time"].n_unique(), "sample")
    about = f"{number} of {counted(len(rows), 'queue')} in {end - begin:.1f} s"
    if not targets.quiet:
        out.print(one_line(f"{path}: {about}"), soft_wrap=True)
        shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        shown.add_column("queue")
        for title in ("Mbit/s", "packets\nmax", "sojourn\nmean ms", "sojourn\np50 ms", "sojourn\np95 ms", "drops"):
            shown.add_column(title, justify="right", no_wrap=True)
        for row in rows:
            times = [row[f"sojourn_ms_{part}"] for part in ("mean", "p50", "p95")]
            shown.add_row(
                one_line(row["queue"]), _number(row["rate_mbps"], 2), str(row["backlog_packets_max"]),
                *(_number(ms, 1) for ms in times), str(row["drops"]),
            )  # fmt: skip
        out.print(shown)
    targets.write_json(rows)
    if targets.html is not None:
        files.write_text(targets.html, _page(path, about, samples))
        err.print(f"Page: {targets.html}", style="dim", soft_wrap=True)
    return 0


def _span(samples: pl.DataFrame) -> tuple[float, float]:
    """Return the times of the first and the last sample."""
    times = samples["time"].to_list()
    return min(times), max(times)


def _number(value: float | None, decimals: int) -> str:
    return "–" if value is None else f"{value:.{decimals}f}"


def _ms(seconds: float) -> str:
    return f"{float(f'{seconds * 1000:.3g}'):.12g} ms"


def _page(path: Path, about: str, samples: pl.DataFrame) -> str:
    begin, end = _span(samples)
    bin_s = max((end - begin) / _POINTS, 1e-6)
    every_s = (end - begin) / max(samples["time"].n_unique() - 1, 1)
    means = f"Means over {_ms(bin_s)}"
    shown = f"{means}, of the backlog the maximum." if bin_s > every_s else f"A sample each {_ms(every_s)}."
    binned = samples.group_by(
        "queue", ((pl.col("time") - begin) / bin_s).floor().alias("bin"), maintain_order=True
    ).agg(
        pl.col("time").mean() - begin,
        pl.col("rate_bps").mean() / 1e6,
        pl.col("sojourn_ms").mean(),
        pl.col("backlog_packets").max(),
        pl.col(*_LAW).mean() / 1e6,
        pl.col(*_SHARES).mean() * 100,
    )
    parts = [(name, part) for (name,), part in binned.group_by("queue", maintain_order=True)]

    def panel(title: str, unit: str, columns: dict[str, str]) -> Panel:
        drawn = [
            (f"{name} {called}".strip(), tuple(zip(part["time"], part[column], strict=True)))
            for name, part in parts
            for column, called in columns.items()
            if called == "" or part[column].is_not_null().any()
        ]
        # Of equal lines, such as those of htb and its only leaf, the last one would cover the others.
        equal: dict[tuple[Any, ...], list[tuple[int, str]]] = {}
        for k, (name, points) in enumerate(drawn):
            equal.setdefault(points, []).append((k, name))
        lines = [
            Line(", ".join(name for _, name in same), points, "line", same[0][0]) for points, same in equal.items()
        ]
        return Panel(title, Axis("time, s"), Axis(unit), lines)

    figures = [
        Figure(
            "watched",
            "The queues",
            f"{shown} The sojourn time is the backlog divided by the rate that was seen while there was backlog. The "
            "kernel counts a large segment, up to 64 kB, as one packet, so few packets can take long.",
            [
                panel("Sojourn time", "ms", {"sojourn_ms": ""}),
                panel("Backlog", "packets", {"backlog_packets": ""}),
                panel("Rate", "Mbit/s", {"rate_bps": ""}),
            ],
        )
    ]
    attached = [panel("Set by the policy", "ms", _LAW), panel("Idle share, drop probability", "%", _SHARES)]
    if told := [one for one in attached if one.lines]:
        what = means if bin_s > every_s else "Samples"
        about_them = f"{what} of the gauges of queues that quell attach put into the kernel."
        figures.append(Figure("attached", "Attached queues", about_them, told))
    title = f"{path.name}: queues of this kernel"
    return page(title, "quell watch", about, figures, command=command(), tab=path.name)
