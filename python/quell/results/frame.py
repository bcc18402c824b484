"""Result records as polars data frames, Parquet and CSV."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from quell.common import files
from quell.results.stats import FRONT, MEASURES, row_name, summarise

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # polars warns, and fails later, if its library does not fit into memory
    import polars as pl
try:
    pl.DataFrame()
except NameError:
    raise MemoryError from None

_SUMMARY = pl.Struct(dict.fromkeys(("mean", "p50", "p95", "p99", "max"), pl.Float64))
_FLOAT = pl.Float64()
_COUNT = pl.UInt64()
_FLOATS = pl.List(pl.Float64)
_COUNTS = pl.List(pl.UInt64)

_FLOW = pl.Struct(
    {
        "kind": pl.String(),
        "name": pl.String(),
        "cc": pl.String(),
        "direction": pl.String(),
        "base_rtt_ms": _FLOAT,
        "goodput_mbps": _FLOAT,
        "delivered_in_order_mbps": _FLOAT,
        "retransmits": _COUNT,
        "cwnd_packets": _FLOAT,
        "rtt_ms": _SUMMARY,
        "fct_ms": _SUMMARY,
        "completed": _COUNT,
        "refused": _COUNT,
        "delay_ms": _SUMMARY,
        "jitter_ms": _FLOAT,
        "loss_rate": _FLOAT,
        "host": pl.String(),
    }
)
_HOST = pl.Struct(
    {
        "host": pl.String(),
        "direction": pl.String(),
        "flows": pl.UInt32(),
        "goodput_mbps": _FLOAT,
        "share": _FLOAT,
    }
)
_TIN = pl.Struct(
    {
        "name": pl.String(),
        "threshold_mbps": _FLOAT,
        "target_ms": _FLOAT,
        "interval_ms": _FLOAT,
        "throughput_mbps": _FLOAT,
        "share": _FLOAT,
        "peak_delay_ms": _FLOAT,
        "average_delay_ms": _FLOAT,
        "base_delay_ms": _FLOAT,
        "packets": _COUNT,
        "drops": _COUNT,
        "marks": _COUNT,
        "ack_drops": _COUNT,
        "indirect_hits": _COUNT,
        "misses": _COUNT,
        "collisions": _COUNT,
        "sparse_flows": pl.UInt32(),
        "bulk_flows": pl.UInt32(),
        "unresponsive_flows": pl.UInt32(),
        "max_len": pl.UInt32(),
        "quantum": pl.UInt32(),
    }
)
_CALL: dict[str, pl.DataType] = {
    "mos": _FLOAT,
    "mouth_to_ear_ms": _SUMMARY,
    "late_loss": _FLOAT,
    "frame_delay_ms": _SUMMARY,
    "freezes_per_minute": _FLOAT,
    "below_24fps": _FLOAT,
}
_END = pl.Struct(
    {
        "direction": pl.String(),
        **_CALL,
        "rate_mbps": _FLOAT,
    }
)
_APPLICATION = pl.Struct(
    {
        "kind": pl.String(),
        "name": pl.String(),
        "host": pl.String(),
        **_CALL,
        "round_trip_ms": _SUMMARY,
        "within_50ms": _FLOAT,
        "page_load_ms": _SUMMARY,
        "pages": _COUNT,
        "given_up": _COUNT,
        "startup_ms": _SUMMARY,
        "rebuffer_ratio": _FLOAT,
        "switches": _COUNT,
        "rate_mbps": _FLOAT,
        "rpm": _FLOAT,
        "ends": pl.List(_END),
    }
)
_AIM = pl.Struct(dict.fromkeys(("streaming", "gaming", "rtc"), pl.Struct({"points": _FLOAT, "score": pl.String()})))
_QOO = pl.Struct(dict.fromkeys(("game", "video_call", "streaming"), _FLOAT))
_GUARD = pl.Struct(
    dict.fromkeys(
        (
            "decisions",
            "learned",
            "clipped",
            "not_a_number",
            "late",
            "stale",
            "out_of_range",
            "stuck",
            "fallbacks",
            "handed_back",
        ),
        _COUNT,
    )
    | dict.fromkeys(("proposed", "set"), _FLOAT)
)
_HOP = pl.Struct(
    {
        "hop": pl.UInt32(),
        "queue": pl.String(),
        "throughput_mbps": _FLOAT,
        "sojourn_ms": _SUMMARY,
        "drops": _COUNT,
        "marks": _COUNT,
    }
)
_CAUSES = pl.Struct(dict.fromkeys(("overflow", "early", "forced", "link"), _COUNT))
_MODEM = pl.Struct(
    {
        "throughput_mbps": _FLOAT,
        "capacity_mbps": _FLOAT,
        "utilisation": _FLOAT,
        "sojourn_ms": _SUMMARY,
        "drops": _COUNT,
        "loss_rate": _FLOAT,
    }
)
_QUEUE: dict[str, pl.DataType] = {
    "throughput_mbps": _FLOAT,
    "capacity_mbps": _FLOAT,
    "utilisation": _FLOAT,
    "sojourn_ms": _SUMMARY,
    "sojourn_cdf": pl.List(_FLOATS),
    "backlog_packets": _SUMMARY,
    "backlog_ms": _SUMMARY,
    "limit_packets": _FLOAT,
    "packets": _COUNT,
    "drops": _COUNT,
    "marks": _COUNT,
    "loss_rate": _FLOAT,
    "mark_rate": _FLOAT,
    "drops_by_cause": _CAUSES,
}
"""Fields of a run's bottleneck and of the queue of the other direction."""
_UP = pl.Struct(
    {
        "queue": pl.String(),
        "goodput_mbps": _FLOAT,
        **_QUEUE,
        "tins": pl.List(_TIN),
        "modem": _MODEM,
    }
)
_WIFI = pl.Struct(
    {
        "busy": _FLOAT,
        "collisions": _COUNT,
        "queues": pl.List(
            pl.Struct(
                {
                    "from": pl.String(),
                    "to": pl.String(),
                    "ac": pl.String(),
                    "queue": pl.String(),
                    "throughput_mbps": _FLOAT,
                    "sojourn_ms": _SUMMARY,
                    "delay_ms": _FLOAT,
                    "backlog_packets": _FLOAT,
                    "limit_packets": _FLOAT,
                    "drops": _COUNT,
                    "marks": _COUNT,
                    "airtime": _FLOAT,
                    "aggregate": _FLOAT,
                    "retries": _FLOAT,
                    "failures": _FLOAT,
                    "given_up": _COUNT,
                }
            )
        ),
    }
)
_POLICY_SERIES = pl.Struct(
    {
        **dict.fromkeys(("target_ms", "wait_ms", "hold_ms", "cap_ms", "idle", "rtt_ms"), _FLOATS),
        "flows": _COUNTS,
        "trusted": pl.List(pl.Boolean()),
    }
)
_SERIES = pl.Struct(
    {
        "bin_s": _FLOAT,
        "backlog_ms": _FLOATS,
        "throughput_mbps": _FLOATS,
        "capacity_mbps": _FLOATS,
        "sojourn_ms": _FLOATS,
        "drops": _COUNTS,
        "marks": _COUNTS,
        "limit_packets": _FLOATS,
        "probability": _FLOATS,
        "policy": _POLICY_SERIES,
        "goodput_mbps": pl.List(_FLOATS),
        "delivered_in_order_mbps": pl.List(_FLOATS),
        "rtt_ms": pl.List(_FLOATS),
        "cwnd_packets": pl.List(_FLOATS),
    }
)

_FORMULA = r"^[=+\-@\t\r]"
"""First characters of text that spreadsheets execute as a formula; a leading apostrophe prevents that."""

_SCENARIO = ("scenario", "scenario_hash")
"""Columns that distinguish scenarios."""

SCHEMA: dict[str, pl.DataType] = {
    "scenario": pl.String(),
    "queue": pl.String(),
    "controller": pl.String(),
    "seed": _COUNT,
    "measured_s": _FLOAT,
    "goodput_mbps": _FLOAT,
    "delivered_in_order_mbps": _FLOAT,
    **_QUEUE,
    "jain": _FLOAT,
    "rtt_ms": _SUMMARY,
    "fct_ms": _SUMMARY,
    "flows": pl.List(_FLOW),
    "applications": pl.List(_APPLICATION),
    "hosts": pl.List(_HOST),
    "tins": pl.List(_TIN),
    "guard": _GUARD,
    "hops": pl.List(_HOP),
    "modem": _MODEM,
    "up": _UP,
    "grade": pl.String(),
    "grade_ms": _FLOAT,
    "grade_down": pl.String(),
    "grade_down_ms": _FLOAT,
    "grade_up": pl.String(),
    "grade_up_ms": _FLOAT,
    "qoo": _QOO,
    "aim": _AIM,
    "rpm": _FLOAT,
    "wifi": _WIFI,
    "series": _SERIES,
    "events": _COUNT,
    "cpu_s": _FLOAT,
    "packets_per_cpu_s": _FLOAT,
    "trace_hash": pl.String(),
    "scenario_hash": pl.String(),
}
"""Columns of a frame of runs: the result record's keys, units as in docs/reference/records.md."""


def runs(records: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """One row per run, the record's keys as columns; summaries are structs: `pl.col("sojourn_ms").struct["p95"]`."""
    return pl.DataFrame([dict(r) for r in records], schema=SCHEMA)


def records(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the result records of a frame's rows. Columns of a flat frame become structs again; lists are missing."""
    rows = frame.to_dicts()
    if not is_flat(frame):
        return rows
    found: list[dict[str, Any]] = [{} for _ in rows]
    for column in frame.columns:
        *tables, last = column.split(".")
        for row, record in zip(rows, found, strict=True):
            for table in tables:
                record = record.setdefault(table, {})
            record[last] = row[column]
    return found


def is_flat(frame: pl.DataFrame) -> bool:
    """Return whether a frame of runs has only numbers and texts."""
    return not any(kind.is_nested() for kind in frame.dtypes)


def summary(frame: pl.DataFrame) -> pl.DataFrame:
    """Reduce a frame of runs to one row per scenario, queue and controller.

    Runs belong together if `scenario`, `scenario_hash` (the scenario's content), `queue` and `controller` are equal.
    For each measure there is a column with the mean over runs and `<measure>.ci95`, half the width of its 95 %
    confidence interval (Student's t; null with one run); `front` marks the queues on the scenario's Pareto front of
    goodput and p95 sojourn, `unsure` those of them that may be there by chance.
    """
    scenarios: dict[tuple[str | None, ...], list[dict[str, Any]]] = {}
    for record in records(frame):
        scenarios.setdefault(tuple(record.get(key) for key in _SCENARIO), []).append(record)
    named = {row_name(record): record for records in scenarios.values() for record in records}
    rows: list[dict[str, Any]] = [
        {
            **dict(zip(_SCENARIO, scenario, strict=True)),
            "queue": named[row.queue]["queue"],
            "controller": named[row.queue].get("controller"),
            "runs": row.runs,
            "front": row.on_front,
            "unsure": row.unsure,
            **row.plain(),
        }
        for scenario, records in scenarios.items()
        for row in summarise(records)
    ]
    # Polars prints the first four columns and the last four.
    names = {"scenario": pl.String(), "queue": pl.String()}
    floats = {key: pl.Float64() for key in (*FRONT, *(f"{m.key}{end}" for m in MEASURES for end in ("", ".ci95")))}
    last = {"scenario_hash": pl.String(), "controller": pl.String(), "runs": pl.Int64()}
    last |= {"front": pl.Boolean(), "unsure": pl.Boolean()}
    return pl.DataFrame(rows, schema={**names, **floats, **last})


def flat(frame: pl.DataFrame) -> pl.DataFrame:
    """Convert structs to columns named with a dot (`sojourn_ms.p95`) and leave lists out, as needed for CSV."""
    columns: list[pl.Expr] = []

    def spread(column: pl.Expr, name: str, kind: pl.DataType) -> None:
        if isinstance(kind, pl.Struct):
            for field in kind.fields:
                spread(column.struct.field(field.name), f"{name}.{field.name}", cast(pl.DataType, field.dtype))
        elif not isinstance(kind, pl.List):
            columns.append(column.alias(name))

    for name, kind in frame.schema.items():
        if name != "series":
            spread(pl.col(name), name, kind)
    return frame.select(columns)


def swept(found: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> pl.DataFrame:
    """Return one row per run of a sweep: the values of its keys, then the record's keys."""
    keys = list(found[0][0]) if found else []
    columns = [pl.Series(key, [point[key] for point, _ in found], strict=False) for key in keys]
    return runs([record for _, record in found]).select(*columns, pl.all())


def write_swept(
    parquet: Path | None, csv: Path | None, found: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> None:
    """Write the runs of a sweep atomically."""
    frame = swept(found)
    if parquet is not None:
        held = io.BytesIO()
        frame.write_parquet(held)
        files.write_bytes(parquet, held.getvalue())
    if csv is not None:
        _write_csv(csv, frame)


def each(frame: pl.DataFrame, lists: str) -> pl.DataFrame:
    """Return one row per element of a list of structs (`flows`, `applications`); the run's own columns are repeated."""
    whole = frame.select(pl.exclude(pl.List), pl.col(lists)) if lists in frame.columns else frame
    return flat(whole.explode(lists).filter(pl.col(lists).is_not_null()))


def write_parquet(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write a frame of runs as Parquet, atomically."""
    frame = runs(records)
    # Write to memory first, so that a full disk fails as with other files and not within polars' writer.
    held = io.BytesIO()
    frame.write_parquet(held)
    files.write_bytes(path, held.getvalue())


def write_csv(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write a flat frame of runs as CSV, atomically."""
    _write_csv(path, runs(records))


def _write_csv(path: Path, frame: pl.DataFrame) -> None:
    frame = flat(frame)
    text = pl.col(pl.String)
    frame = frame.with_columns(pl.when(text.str.contains(_FORMULA)).then("'" + text).otherwise(text).name.keep())
    files.write_text(path, frame.write_csv())
