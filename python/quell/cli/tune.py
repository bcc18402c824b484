"""The command `quell tune`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from quell._core import InputError
from quell.cli import complete, options
from quell.cli.options import OUTPUT, File, Html
from quell.common.console import bar, err, out
from quell.common.status import INTERRUPTED
from quell.common.text import counted
from quell.experiments import experiment
from quell.experiments.executor import Executor, executor
from quell.inputs import capture, notes, speedtest
from quell.tune import aims, install, judge, line, now, search, show, space, targets, verify
from quell.tune import ask as questions
from quell.tune import fleet as fleets
from quell.tune.judge import Judged
from quell.tune.search import Bench, Found, Plan
from quell.views.targets import Targets, command

EXAMPLES = (
    "Examples:\n\n  quell tune --rate 50mbit/10mbit --rtt 30ms --framing docsis\n\n"
    "  quell tune --rate 16mbit/1mbit --framing pppoe-llcsnap --for calls,bulk:2 --target openwrt --dev wan\n\n"
    "  speedtest --format=json | quell tune --speedtest -\n\n"
    "  quell tune --rate 50mbit/10mbit --for calls,bulk --html tune.html\n\n"
    "  sudo quell tune --rate 50mbit/10mbit --apply eth0\n\n"
    "  sudo quell tune --undo eth0\n\n"
    "  sudo quell tune --rate 50mbit/10mbit --for calls,bulk --verify\n\n"
    "  tc qdisc show | quell tune --rate 50mbit/10mbit --now -\n\n"
    "  quell tune household --trials 300 --json -\n\n"
    "  quell tune --fleet lines.csv --target openwrt > settings.csv"
)
_TRIALS = 300
_WHAT = "What to set"
_MACHINE = "On this machine"
_SEARCH = "The search"


def tune(
    file: File = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="DOWN/UP", help="The line's rates: 50mbit/10mbit."),
    ] = None,
    rtt: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Round trip of the idle line: 30ms."),
    ] = None,
    speedtest_: Annotated[
        str | None,
        typer.Option(
            "--speedtest",
            metavar="FILE|-",
            help="Take rates and round trip from a speed test: Ookla's JSON, or cfspeedtest's.",
        ),
    ] = None,
    framing: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            help="The line's framing in keywords of tc-cake(8): docsis, 'pppoe-ptm ether-vlan'. Default: Ethernet.",
            autocompletion=complete.framings,
        ),
    ] = None,
    buffer: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="What the modem's FIFOs hold: 250ms."),
    ] = None,
    now_: Annotated[
        list[str] | None,
        typer.Option(
            "--now",
            metavar="LINE|FILE|-",
            help="Lines of tc that run today, or what `tc qdisc show` prints; repeatable. Default: no shaper.",
        ),
    ] = None,
    ask: Annotated[bool, typer.Option("--ask", help="Ask for the line, the aims and the router.")] = False,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="AIM[:WEIGHT],...",
            rich_help_panel=_WHAT,
            help=f"What matters: {', '.join(aims.WORDS)}. Default: {', '.join(aims.DEFAULT.split(','))}.",
            autocompletion=complete.listed(*aims.WORDS),
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            metavar="SYSTEM",
            help=f"The system to configure: {', '.join(targets.TARGETS)}.",
            rich_help_panel=_WHAT,
            autocompletion=complete.one_of(*targets.TARGETS),
        ),
    ] = "tc",
    dev: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The interface to the modem. Default: eth0, with opnsense WAN.",
            rich_help_panel=_WHAT,
            autocompletion=complete.interfaces,
        ),
    ] = None,
    queues: Annotated[
        str | None,
        typer.Option(
            metavar="KIND,KIND",
            help="Search only these disciplines. Default: all of the target's.",
            rich_help_panel=_WHAT,
            autocompletion=complete.listed(*targets.KINDS),
        ),
    ] = None,
    fleet: Annotated[
        str | None,
        typer.Option(
            metavar="CSV",
            help="Many lines: a file with the columns rate, rtt, framing; prints a row of settings for each.",
        ),
    ] = None,
    apply: Annotated[
        str | None,
        typer.Option(
            metavar="DEV",
            rich_help_panel=_MACHINE,
            help="Install the result on this interface; --undo restores what was there (root).",
            autocompletion=complete.interfaces,
        ),
    ] = None,
    undo: Annotated[
        str | None,
        typer.Option(
            metavar="DEV",
            rich_help_panel=_MACHINE,
            help="Restore what was there before --apply; no search (root).",
            autocompletion=complete.interfaces,
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="With --apply or --undo: replace a queue that quell did not install.",
            rich_help_panel=_MACHINE,
        ),
    ] = False,
    verify_: Annotated[
        bool,
        typer.Option(
            "--verify",
            rich_help_panel=_MACHINE,
            help="Replay the compared settings with real Linux TCP, in network namespaces (root).",
        ),
    ] = False,
    trials: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=1_000_000, help="Settings to try.", rich_help_panel=_SEARCH),
    ] = _TRIALS,
    seeds: Annotated[
        int,
        typer.Option(metavar="N", min=2, max=99, help="Random seeds of the final comparison.", rich_help_panel=_SEARCH),
    ] = judge.SEEDS,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="Random seed of traffic and search.", rich_help_panel=_SEARCH)
    ] = 1,
    duration: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Simulated time of a run: 20s.", rich_help_panel=_SEARCH),
    ] = None,
    jobs: Annotated[int, options.jobs(_SEARCH)] = 0,
    ray: Annotated[str | None, options.ray(_SEARCH)] = None,
    json: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|-", help="The result as JSON; - prints it and nothing else.", rich_help_panel=OUTPUT
        ),
    ] = None,
    html: Html = None,
) -> int:
    """Search the queue settings that suit a line, and print lines to paste."""  # fmt: skip
    if undo is not None:
        if refused := _given(FILE=file, __rate=rate, __apply=apply, __fleet=fleet, __json=json):
            raise InputError(f"--undo {undo}: leave out {refused}; it only puts back what was there before")
        out.print(install.undo(undo, replace=replace), soft_wrap=True)
        return 0
    output = Targets(json, html)
    if ask:
        if refused := _given(FILE=file, __rate=rate, __rtt=rtt, __framing=framing, __for=for_, __fleet=fleet):
            raise InputError(f"--ask: leave out {refused}; it is asked for")
        said = questions.ask()
        rate, rtt, framing, for_, target, dev = said.rate, said.rtt, said.framing, said.aims, said.target, said.dev
    if apply is not None:
        if fleet is not None or target != "tc":
            why = "--fleet" if fleet is not None else f"--target {target}"
            raise InputError(f"--apply {apply}: leave out {why}; lines of tc for one line are what is installed")
        dev = apply
        install.check(apply, replace=replace)
    elif replace:
        raise InputError("--replace goes with --apply DEV or --undo DEV")
    if verify_:
        if fleet is not None:
            raise InputError("--verify: leave out --fleet; one line is replayed at a time")
        verify.check()
    if speedtest_ is not None:
        if refused := _given(FILE=file, __ask=ask or None, __fleet=fleet):
            raise InputError(f"--speedtest {speedtest_}: leave out {refused}; the test is the line")
        measured = speedtest.load(speedtest_)
        err.print(f"quell: {measured.summary()}; --rate and --rtt override it", soft_wrap=True)
        rate, rtt = rate or measured.rate, rtt or measured.rtt
    wanted = aims.Aims(for_)
    chosen = targets.target(target)
    to_modem = chosen.interface(dev)
    today = now.read(now_)

    def tuned(on: line.Line, cluster: Executor) -> _Tuned | None:
        kinds = targets.kinds(target, queues, on)
        if apply is not None:
            kinds = _usable(apply, kinds, on)
        plan = Plan(on, kinds, trials, seed, chosen.lacks)
        bench = Bench(wanted, jobs, cluster)
        # A first run finds errors in aims and scenario before the search begins.
        first = search.Run(on, today, 0)
        bench.run([first])
        if for_ is None and (record := bench.record(first)) is not None:
            bench.aims = wanted.measured(record, on)
        result = _tuned(
            bench, plan, today, seeds, lambda ways: chosen.lines(to_modem, on, *ways),
            announce=fleet is None and not output.quiet,
        )  # fmt: skip
        if verify_ and result is not None and result.whole:
            result.verified = _verified(bench, on, to_modem, today, result.judged)
        return result

    if fleet is not None:
        if refused := _given(FILE=file, __rate=rate, __rtt=rtt, __framing=framing, __json=json, __html=html):
            raise InputError(f"--fleet {fleet}: leave out {refused}; each row has its line, and the result is a table")
        columns, rows = fleets.read(fleet)
        lines = []
        for row in rows:
            try:
                on = line.at_home(row.rate, row.rtt, row.framing, buffer, wanted.weights, duration, seed)
                targets.kinds(target, queues, on)
            except InputError as error:
                raise InputError(f"{row.place}: {error}") from None
            notes.warn_of_values(f"{row.place}: rate", row.rate.split("/"))
            lines.append(on)
        with executor(ray) as cluster:
            return _fleet(columns, rows, lines, target, lambda on: tuned(on, cluster))
    if file is not None and capture.is_capture(file):
        seen = capture.Seen.load(file)
        err.print(f"quell: {seen.summary()}; --rate and --rtt correct it", soft_wrap=True)
        shown = experiment.load(seen.scenario(rate, rtt), duration=duration, seed=seed)
        on = line.of_scenario(shown, framing, buffer)
    elif file is not None:
        if refused := _given(__rate=rate, __rtt=rtt):
            raise InputError(f"{refused}: {file} has its own; leave out one of the two")
        on = line.of_scenario(experiment.load(file, duration=duration, seed=seed), framing, buffer)
    elif rate is None:
        raise InputError("name the line: --rate DOWN/UP, as in --rate 50mbit/10mbit, --speedtest FILE, or a scenario")
    else:
        on = line.at_home(rate, rtt, framing, buffer, wanted.weights, duration, seed)
    if rate is not None:
        notes.warn_of_values("--rate", rate.split("/"))
    if apply is not None:
        install.fits(apply, on.rates)
    if verify_:
        verify.traffic(on)
    with executor(ray) as cluster:
        result = tuned(on, cluster)
    if result is None:
        return INTERRUPTED
    to_undo = chosen.filled(chosen.undo, to_modem)
    use = chosen.filled(chosen.use, to_modem)
    if dev is None:
        use = [*chosen.filled(chosen.assumed, to_modem), *use]
    if not output.quiet:
        out.print(show.heading(on, result.aims), soft_wrap=True)
        if result.whole:
            _print(result.judged)
        if result.verified:
            out.print(show.verified(result.verified))
            out.print(verify.agreement(result.verified), soft_wrap=True)
        for text in (f"{chosen.about}: {show.described(result.judged.setting)}", *use):
            out.print(f"# {text}", style="dim", soft_wrap=True)
        for text in result.lines:
            out.print(text, soft_wrap=True)
        for text in to_undo:
            out.print(f"# to undo it: {text}", style="dim", soft_wrap=True)
        err.print(f"{result.evaluations} settings, {result.runs} runs in {result.wall_s:.1f} s", style="dim")
    if result.interrupted or not result.whole:
        output.keep_earlier()

    def made() -> str:
        from quell.tune import page
        from quell.views.figures import Listing

        about = "\n".join([f"The lines are {chosen.about}.", *use])
        return page.page(
            on, result.bench, result.found, result.judged, result.verified,
            listings=[
                Listing(f"Lines to paste: {show.described(result.judged.setting)}", "\n".join(result.lines)),
                Listing("To undo it", "\n".join(to_undo)),
            ],
            about=about, command=command(),
        )  # fmt: skip

    if result.whole:
        output.write_with_page(_plain(target, result, to_undo), made)
    else:
        output.write_json(_plain(target, result, to_undo))
    if apply is not None:
        if result.interrupted or not result.whole:
            err.print(f"quell: interrupted: nothing was installed on {apply}")
        else:
            install.apply(apply, targets.tc_commands(apply, on, *result.ways), replace=replace)
            err.print(f"installed on {apply}; `quell tune --undo {apply}` puts back what was there", soft_wrap=True)
    return 0 if result.whole and not result.interrupted else INTERRUPTED


@dataclass
class _Tuned:
    """Result for a line."""

    judged: Judged
    now: search.Shapes
    default: search.Shapes
    ways: search.Shapes
    lines: list[str]
    aims: str
    evaluations: int
    runs: int
    wall_s: float
    interrupted: bool
    whole: bool
    """Whether judging was completed."""
    bench: Bench
    found: Found
    verified: list[verify.Verified] = field(default_factory=list)


def _given(**arguments: object) -> str:
    """Return the name of the first given argument, with dashes for underscores."""
    return next((name.replace("_", "-") for name, value in arguments.items() if value is not None), "")


def _tuned(
    bench: Bench,
    plan: Plan,
    today: search.Shapes,
    seeds: int,
    lines: Callable[[search.Shapes], list[str]],
    *,
    announce: bool,
) -> _Tuned | None:
    """Search and judge; None if Ctrl-C left no result.

    With `announce` the best default is printed on standard error as soon as it is known.
    """  # fmt: skip
    started = time.monotonic()
    now_ = bench.value(search.Run(plan.line, today, 0))
    assert now_ is not None, "it is what runs first"
    with bar("Searching", plan.trials, "settings") as update:

        def seen(found: Found) -> None:
            nonlocal announce
            if announce:
                announce = False
                best, _ = found.best()
                if text := show.first(found, now_, lines(search.shapes(best, plan.line))):
                    err.print(text, soft_wrap=True)
            update(len(found.scores), show.progress(found, now_))

        found = search.search(bench, plan, seen)
    if found.interrupted:
        err.print("quell: interrupted: judging the best so far; press Ctrl-C again to skip judging")
    if not found.scores:
        return None
    judged, whole = _judged(bench, plan.line, today, seeds, found)
    ways = search.shapes(judged.setting, plan.line)
    default = search.shapes(judged.default, plan.line)
    wall = time.monotonic() - started
    return _Tuned(
        judged, today, default, ways, lines(ways), bench.aims.text, len(found.scores), bench.simulated, wall,
        found.interrupted, whole, bench, found,
    )  # fmt: skip


def _usable(dev: str, kinds: list[str], on: line.Line) -> list[str]:
    """Leave out disciplines that this machine cannot install. Raises InputError if none is left."""
    why = install.refused(dev, kinds, on)
    kept = [kind for kind in kinds if kind not in why]
    if not kept:
        raise InputError(f"--apply {dev}: {why[kinds[0]]}; use a kernel and an iproute2 that have a queue to search, "
                         f"or leave --apply out ({', '.join(kinds)})")  # fmt: skip
    if why:
        err.print(f"quell: this machine cannot install {', '.join(why)}: searching {', '.join(kept)}", soft_wrap=True)
    return kept


def _verified(bench: Bench, on: line.Line, dev: str, today: search.Shapes, judged: Judged) -> list[verify.Verified]:
    """Replay the compared settings with real Linux TCP."""
    settings = [("now", today), ("default", search.shapes(judged.default, on))]
    if judged.tuned:
        settings.append(("tuned", search.shapes(judged.setting, on)))
    with bar("Replaying", 1, "") as update:
        return verify.verify(bench, on, dev, settings, on_run=lambda name: update(0, name))


def _fleet(
    columns: list[str], rows: list[fleets.Row], lines: list[line.Line], target: str,
    tuned: Callable[[line.Line], _Tuned | None],
) -> int:  # fmt: skip
    """Print a row of settings for each line as soon as it is known; Ctrl-C keeps complete rows."""
    started = time.monotonic()
    print(fleets.line(columns), end="", flush=True)
    for number, (row, on) in enumerate(zip(rows, lines, strict=True), 1):
        result = tuned(on)
        if result is None or result.interrupted or not result.whole:
            err.print(f"quell: interrupted: {number - 1} of {len(rows)} lines are done")
            return INTERRUPTED
        judged, (down, up) = result.judged, result.ways
        more = {
            "target": target,
            "down_queue": down.queue,
            "down_rate": "" if down.rate is None else space.rate_text(down.rate),
            "up_queue": up.queue,
            "up_rate": "" if up.rate is None else space.rate_text(up.rate),
            "offered": "tuned" if judged.tuned else "default",
            "grade_now": _grade(judged.now),
            "grade": _grade(judged.of_setting),
            "objective_default": _objective(judged.of_default),
            "objective": _objective(judged.of_setting),
        }
        print(fleets.line(columns, {**row.given, **more}), end="", flush=True)
    wall = time.monotonic() - started
    err.print(f"{counted(len(rows), 'line')} in {wall:.1f} s", style="dim")
    return 0


def _grade(metrics: judge.Metrics | None) -> str:
    return "" if metrics is None else str(metrics.plain()["grade"] or "")


def _objective(metrics: judge.Metrics | None) -> str:
    value = None if metrics is None else metrics.values["objective"]
    return "" if value is None else f"{value.mean:.4f}"


def _judged(bench: Bench, on: line.Line, today: search.Shapes, seeds: int, found: Found) -> tuple[Judged, bool]:
    """Judge the result; return it and whether judging was completed. Ctrl-C leaves the best so far without figures."""
    with bar("Judging", 1, "") as update:
        try:
            return judge.Judge(bench, on, today, seeds).judge(found, lambda step: update(0, step)), True
        except KeyboardInterrupt:
            err.print("quell: interrupted: this is the best so far, on the search's seeds alone")
            setting = found.finalists[0]
            return Judged(setting, space.default(setting.kind), tuned=True), False


def _print(judged: Judged) -> None:
    out.print(show.compared(judged))
    out.print(show.verdict(judged), soft_wrap=True)
    if judged.why:
        out.print(show.brought(judged))


def _plain(target: str, result: _Tuned, undo: list[str]) -> dict[str, Any]:
    def plain(metrics: judge.Metrics | None) -> dict[str, Any] | None:
        return None if metrics is None else metrics.plain()

    judged = result.judged

    def queues(ways: search.Shapes) -> dict[str, Any]:
        rates = [None if way.rate is None else space.rate_text(way.rate) for way in ways]
        return {
            name: {"queue": way.queue, "rate": rate}
            for name, way, rate in zip(("down", "up"), ways, rates, strict=True)
        }

    return {
        "target": target,
        "lines": result.lines,
        "undo": undo,
        **queues(result.ways),
        "now": plain(judged.now),
        "default": plain(judged.of_default),
        "tuned": plain(judged.of_setting),
        "held_out": plain(judged.held_out),
        "default_held_out": plain(judged.default_held_out),
        "offered": "tuned" if judged.tuned else "default",
        "leave": judged.leave,
        "queues": {"now": queues(result.now), "default": queues(result.default)},
        "verified": {one.name: one.plain() for one in result.verified} or None,
        "why": [reason.plain() for reason in judged.why],
        "evaluations": result.evaluations,
        "wall_s": result.wall_s,
    }
