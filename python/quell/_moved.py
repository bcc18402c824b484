"""Names that modules had in quell 0.2. They work for one more release, with a warning."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

MOVED = {
    "control": "experiments.control",
    "experiment": "experiments.experiment",
    "extras": "common.extras",
    "frontier": "results.frontier",
    "keys": "inputs.keys",
    "notes": "inputs.notes",
    "parallel": "envs.parallel",
    "plot": "views.plot",
    "queue": "experiments.queue",
    "sb3": "envs.sb3",
    "shortcuts": "inputs.shortcuts",
}
"""Documented names of quell 0.2 below `quell`, and the present names of the modules."""


class Moved:
    """Finds and loads a module by its old name, for `sys.meta_path`."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return a specification for an old name, and None for every other name."""
        package, _, old = name.rpartition(".")
        if package != "quell" or old not in MOVED:
            return None
        from importlib.machinery import ModuleSpec

        # This class is not derived from importlib.abc.Loader, because that module loads slowly.
        return ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module itself, not a copy, so that its classes are the same under both names."""
        import warnings
        from importlib import import_module

        new = f"quell.{MOVED[spec.name.removeprefix('quell.')]}"
        warnings.warn(f"{spec.name} is now {new}", DeprecationWarning, stacklevel=2)
        module = import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's specification, which the import under the old name replaced."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Make the old names importable."""
    sys.meta_path.append(Moved())
