"""Commands that each write one file."""

from __future__ import annotations

_SHORT = ("--duration", "2s", "--warmup", "0s")
_RUN = ("run", "home", *_SHORT)
WRITERS = {
    "json": (*_RUN, "--json", "out.json"),
    "html": (*_RUN, "--html", "out.html"),
    "parquet": (*_RUN, "--parquet", "out.parquet"),
    "csv": (*_RUN, "--csv", "out.csv"),
    "flent": (*_RUN, "--flent", "out.flent.gz"),
    "pcap": (*_RUN, "--pcap", "out.pcapng"),
    "evaluate": ("evaluate", "--sections", "12", "--seeds", "1", "--aqm", "pfifo", "--state", "out.state"),
    "learnqueue": ("train", "learnqueue", "home", "--episodes", "1", "--duration", "2s", "--out", "out.safetensors"),
    "watch": ("watch", "v0", "--duration", "0.2s", "--every", "20ms", "--quiet", "--out", "out.csv"),
    "watch parquet": ("watch", "v0", "--duration", "0.2s", "--every", "20ms", "--quiet", "--out", "out.parquet"),
}
"""Words of short commands; the last word is the file that the command writes."""
