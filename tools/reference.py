"""Reference pages made from the code: record keys, metrics, Python's names. Used by tools/site.py."""

import importlib
import inspect
import pathlib
import re
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORDS = ("crates/quell-link/src/record.rs", "crates/quell-link/src/summary.rs")
METRICS = ("crates/quell-live/src/serve/mod.rs", "crates/quell-live/src/watch/metrics.rs")
MODULES = {
    "quell": None,
    "quell.experiments.queue": None,
    "quell.views.plot": ("front", "sojourn", "flows", "series", "latex", "save"),
    "quell.envs": ("READINGS", "Task", "QueueEnv", "QueueVectorEnv", "RlAqmEnv", "LearnQueueEnv", "LfqEnv"),
    "quell.envs.sb3": ("VectorEnv",),
    "quell.inputs.shortcuts": ("Network", "Shortcuts", "Overrides"),
}
"""Modules and their names; None: the names of `__all__`, or else all public names defined in the module."""


def cell(text):
    """Escape a cell of a table."""
    return str(text).replace("|", "\\|").replace("<", "&lt;") or " "


def table(titles, rows):
    """Format a table in Markdown."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(cell(part) for part in line) + " |" for line in lines) + "\n"


def prose(comments):
    """Join the lines of a doc comment."""
    return " ".join(line.strip().removeprefix("///").strip() for line in comments.splitlines())


def structs(source):
    """Yield the structs that are written as JSON: name, description, and a row for each key."""
    text = (ROOT / source).read_text("utf-8")
    pattern = r"((?:^///.*\n)+)((?:^#\[.*\n)*)^pub struct (\w+) \{\n((?:^ .*\n|^\n)*)^\}"
    for about, attributes, name, body in re.findall(pattern, text, re.MULTILINE):
        if "Serialize" not in attributes:
            continue
        rows = []
        fields = r"((?:^    ///.*\n)+)((?:^    #\[.*\n)*)^    pub (\w+): (.*),$"
        for comments, marks, key, kind in re.findall(fields, body, re.MULTILINE):
            renamed = re.search(r'rename = "(\w+)"', marks)
            rows.append((f"`{renamed[1] if renamed else key}`", f"`{json_type(kind)}`", prose(comments)))
        yield name, prose(about), rows


def json_type(kind):
    """Return the JSON type of a Rust type."""
    if found := re.fullmatch(r"Option<(.*)>", kind):
        return f"{json_type(found[1])} or null"
    if found := re.fullmatch(r"Vec<(.*)>|\[(.*); \d+\]", kind):
        return f"list of {json_type(found[1] or found[2])}"
    if found := re.fullmatch(r"\((.*)\)", kind):
        return f"({', '.join(json_type(part.strip()) for part in found[1].split(','))})"
    if re.fullmatch(r"[ui](8|16|32|64|128|size)", kind):
        return "integer"
    return {"f64": "number", "f32": "number", "String": "text", "bool": "true or false"}.get(kind, kind.split("::")[-1])


def records():
    """The keys of result records."""
    text = "# Every key of result records\n\nRead from `record.rs` and `summary.rs` in `crates/quell-link/src`. [Result records](records.md) says more of each, with units.\n"
    for name, about, rows in (struct for source in RECORDS for struct in structs(source)):
        if name == "Run":  # added by Python (quell/experiments/experiment.py)
            rows.append(
                (
                    "`scenario_hash`",
                    "`text`",
                    "Hash over the scenario without its name, its seeds and the bottleneck's queue.",
                )
            )
        text += f"\n## {name}\n\n{about}\n\n" + table(("key", "type", "meaning"), rows)
    return text


def families(source):
    """Yield the metrics of a file: name, kind, meaning."""
    text = (ROOT / source).read_text("utf-8").split("#[cfg(test)]\nmod tests")[0]
    rows = r'\("[^"]*", "(counter|gauge)", "(\w+)", "([^"]+)"\)|\b(counter|gauge)\("(\w+)", "([^"]+)"\)'
    for a, b, c, d, e, f in re.findall(rows, text):
        yield b or e, a or d, c or f
    for kind, name, about in re.findall(r'kind: "(\w+)",\s*name: "(\w+)",\s*about: "([^"]+)"', text):
        yield name, kind, about


def metrics():
    """The metrics of `--metrics`."""
    text = "# Every metric\n\nWhat `quell live --metrics` and `quell watch --metrics` serve, read from their sources.\n"
    for title, source in zip(("quell live", "quell watch"), METRICS, strict=True):
        rows = [(f"`quell_{name}`", kind, about) for name, kind, about in families(source)]
        text += f"\n## {title}\n\n" + table(("metric", "kind", "meaning"), rows)
    return text


def names(module, wanted):
    """List the names of a module's interface."""
    if wanted is not None:
        return wanted
    if hasattr(module, "__all__"):
        return module.__all__
    found = vars(module).items()
    return [
        name
        for name, value in found
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def signature(name, value):
    """Format a callable's signature, with a parameter per line if it is too long for one line."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    line = f"{name}{found}"
    if len(line) <= 100:
        return unquoted(line)
    parts = [str(parameter) for parameter in found.parameters.values()]
    kinds = [parameter.kind for parameter in found.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    end = "" if found.return_annotation is found.empty else f" -> {found.return_annotation!r}"
    return unquoted(f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){end}")


def unquoted(text):
    """Return a signature with its types as in the source; Python keeps them as strings."""
    return re.sub(r"""(: |-> )(["'])(.*?)\2(?=[,)\n]| =|$)""", r"\1\3", text)


def entry(name, value):
    """Return a name with its signature and its documentation."""
    if isinstance(value, (str, dict, tuple)):
        listed = (
            "\n".join(f"{key}: {about}" for key, about in value.items()) if isinstance(value, dict) else repr(value)
        )
        return f"\n### `{name}`\n\n```text\n{listed}\n```\n"
    text = f"\n### `{name}`\n\n```python\n{signature(name, value).replace('NoneType', 'None')}\n```\n"
    if about := inspect.getdoc(value):
        text += f"\n```text\n{about}\n```\n"
    if inspect.isclass(value):
        for key, hint in (
            vars(value).get("__annotations__", {}).items() if getattr(value, "__total__", None) is not None else ()
        ):
            text += f"\n- `{key}`: `{getattr(hint, '__forward_arg__', hint)}`"
        for method in vars(value):
            member = getattr(value, method, None)
            known = callable(member) or isinstance(member, property) or inspect.isgetsetdescriptor(member)
            if not method.startswith("_") and known:
                shown = signature(method, member) if callable(member) else method
                first = (inspect.getdoc(member) or "").strip()
                text += f"\n```python\n{shown}\n```\n\n{textwrap.indent(first, '    ')}\n"
    return text


def python():
    """Python's names."""
    text = "# Python\n\nEvery public name with its signature and documentation. [The library](../how-to/python.md) shows how they are used.\n"
    for path, wanted in MODULES.items():
        module = importlib.import_module(path)
        text += f"\n## {path}\n\n{(inspect.getdoc(module) or '').splitlines()[0]}\n"
        for name in names(module, wanted):
            text += entry(name, getattr(module, name))
    return text
