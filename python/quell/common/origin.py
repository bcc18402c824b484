"""Origin of a network: how it was trained, on which machine, and the hash of its weights."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from quell._core import Scenario
from quell.common.text import counted

LIBRARIES = ("numpy", "torch", "stable_baselines3", "ray")
"""Libraries whose versions a card names if the training imported them."""


def of_this_machine(*, threads: int = 0, scenario: Scenario | None = None, chosen_by: str = "") -> dict[str, Any]:
    """Return the origin of a network trained by this process: commit of quell, versions of libraries, processor.

    `threads` and `scenario` are those of the training. `chosen_by` describes how the weights were chosen among those of
    the training. Fields that are not known are empty, or 0.
    """
    versions = {"python": platform.python_version()}
    for library in LIBRARIES:
        if library in sys.modules:
            try:
                versions[library] = version(library)
            except PackageNotFoundError:
                continue
    return {
        "commit": _commit(),
        "versions": versions,
        "processor": _processor(),
        "threads": threads,
        "scenario_sha256": "" if scenario is None else hashlib.sha256(str(scenario).encode()).hexdigest(),
        "weights_sha256": "",
        "chosen_by": chosen_by,
    }


def split(data: bytes) -> tuple[dict[str, Any], memoryview]:
    """Split a model file into the header of safetensors and the bytes of its tensors."""
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), memoryview(data)[8 + size :]


def weights_sha256(data: bytes) -> str:
    """Return the SHA-256 of a model file without its header, in hexadecimal."""
    return hashlib.sha256(split(data)[1]).hexdigest()


def sealed(save: Callable[[Mapping[str, Any]], bytes], card: Mapping[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Save a model twice, the second time with the hash of its weights in the card's origin."""
    whole = {**card, "origin": {**card["origin"], "weights_sha256": weights_sha256(save(card))}}
    return save(whole), whole


def lines(card: Mapping[str, Any]) -> list[str]:
    """Describe the origin in lines of text; none for a card of format 1."""
    origin = card.get("origin")
    if not origin:
        return []
    versions = ", ".join(f"{name} {number}" for name, number in origin["versions"].items())
    made = [
        origin["commit"] and f"quell {card['quell']} at commit {origin['commit'][:12]}",
        versions,
        origin["processor"],
        origin["threads"] and counted(origin["threads"], "thread"),
    ]
    found = [f"made with {'; '.join(part for part in made if part)}"]
    if origin["chosen_by"]:
        found.append(f"weights chosen by {origin['chosen_by']}")
    if origin["scenario_sha256"]:
        found.append(f"scenario SHA-256 {origin['scenario_sha256']}")
    if origin["weights_sha256"]:
        found.append(f"weights SHA-256 {origin['weights_sha256']} (checked)")  # when the file was loaded
    return found


def _commit() -> str:
    """Return the commit of the checkout that contains this package; empty for an installed package."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return ""
    try:
        said = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.strip() if said.returncode == 0 else ""


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
