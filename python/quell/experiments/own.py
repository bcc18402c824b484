"""Queues and controllers in a Python file, for the command line: `mine.py:MyQueue`, `fifo limit 100 + mine.py:Aimd`."""

from __future__ import annotations

import functools
import re
import sys
import traceback
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from quell._core import InputError
from quell.experiments.queue import OwnQueue, Parsed, parse_all

_OWN = re.compile(r"(?:(?P<queue>.+?)\s+\+\s+)?(?P<file>.+\.py)(?::(?P<name>\w+))?")
_OF_MODULE = re.compile(r"(\w+):(\w+)")
_METHODS = {"queue": ("enqueue", "dequeue"), "controller": ("decide",)}
_MODULES = "file of --aqm: "
"""Prefix of the names of the modules that are loaded here, which no other module has."""


def parse(texts: Sequence[str], *, ray: str | None = None) -> list[Parsed]:
    """Parse the values of several `--aqm`.

    Each is queue words, a file with a queue, or queue words, ` + ` and a file with a controller.

    Raises InputError, which names the option.
    """
    try:
        queues = parse_all(map(_given, texts))
    except InputError as error:
        raise InputError(f"--aqm: {str(error).removeprefix('aqm: ')}") from None
    except Exception as error:
        if not any(_OWN.fullmatch(text) for text in texts):
            raise
        raise InputError(f"--aqm: {where(error) or ', '.join(texts)}: {type(error).__name__}: {error}") from error
    if ray is not None and (own := next((queue for queue in queues if isinstance(queue, OwnQueue)), None)):
        raise InputError(f"--ray: {own} is written in Python, which runs in this process alone; leave --ray out")
    return queues


def one_queue(words: str, option: str = "") -> None:
    """Raise InputError, which starts with `option`, if words are a list with commas, as other options take."""
    names = words.split(",")
    if len(names) > 1 and all(name.strip().replace("_", "").isalnum() for name in names):
        raise InputError(f"{option}`{words}` is a list; write {' '.join(f'--aqm {name.strip()}' for name in names)}")


def where(error: BaseException) -> str:
    """Return file and line of the last call in a file that was loaded here; empty if there is none."""
    loaded = {str(module.__file__) for name, module in sys.modules.items() if name.startswith(_MODULES)}
    calls = [call for call in traceback.extract_tb(error.__traceback__) if call.filename in loaded]
    return f"{calls[-1].filename}, line {calls[-1].lineno}" if calls else ""


def _given(text: str) -> object:
    """Return the words, or what they name: a queue, or words and a controller. Raises InputError."""
    found = _OWN.fullmatch(text)
    if found is None:
        if of_module := _OF_MODULE.fullmatch(text):
            file, name = of_module.groups()
            raise InputError(f"`{text}` names no queue; name the file of a queue in Python, as in {file}.py:{name}")
        one_queue(text)
        return text
    words, file, name = found.group("queue", "file", "name")
    kind = "queue" if words is None else "controller"
    module = _load(file)
    if name is None:
        names = _defined(module, kind)
        if len(names) != 1:
            raise InputError(f"{file}: {_choice(module, kind, file)}")
        [name] = names
    elif not hasattr(module, name):
        raise InputError(f"{file}: there is no {name} in it; {_choice(module, kind, file)}")
    own = getattr(module, name)
    return own if words is None else (words, own)


def _defined(module: ModuleType, kind: str) -> list[str]:
    """List the names of the queues or controllers in a file: its classes, and objects of them."""

    def defines(own: Any) -> bool:
        home = own.__module__ if isinstance(own, type) else type(own).__module__
        return home == module.__name__ and all(callable(getattr(own, method, None)) for method in _METHODS[kind])

    return [name for name, own in vars(module).items() if not name.startswith("_") and defines(own)]


def _choice(module: ModuleType, kind: str, file: str) -> str:
    """Return a hint for the error: the names to choose from, or what the module needs."""
    if names := _defined(module, kind):
        return f"write {' or '.join(f'{file}:{name}' for name in names)}"
    if kind == "queue" and (names := _defined(module, "controller")):
        return f"a controller needs a queue, as in --aqm 'fifo limit 100 + {file}:{names[0]}'"
    methods = " and ".join(f"{method}()" for method in _METHODS[kind])
    return f"it has no {kind}, which is a class with {methods} (docs/how-to/extending.md)"


@functools.cache
def _load(file: str) -> ModuleType:
    """Run a file of Python as a module. Raises InputError."""
    path = Path(file)
    name = f"{_MODULES}{path.absolute()}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError(f"{file}: there is no such file")
    module = sys.modules[name] = module_from_spec(spec)
    # The file can import modules in its folder, which is searched last.
    if (folder := str(path.absolute().parent)) not in sys.path:
        sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        place = f"{file}, line {line}" if line else where(error) or file
        raise InputError(f"{place}: {type(error).__name__}: {error}") from error
    return module
