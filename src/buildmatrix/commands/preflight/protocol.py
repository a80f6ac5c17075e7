"""What probes print, read with suspicion: an image's own code runs beside them.

A probe is one file of Python, together with those beside it that it imports, handed to the
interpreter of the image as `python -c SOURCE OPTIONS`, with OPTIONS as JSON. It prints one line per
check: a mark of this run, and JSON with the fields of `reports.preflight.model.Check`. What else
appears is noise of libraries. The mark is made anew for every run, so that no line which a library
prints by chance counts; an image that wants to deceive its own owner can, as with any test.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

import msgspec

from buildmatrix.engines.model import RunResult
from buildmatrix.reports.preflight.model import Check
from buildmatrix.text import printable, shown
from buildmatrix.threads import prepare_type

#: Characters of one line, checks of one probe, characters of a message.
LONGEST, MOST, MESSAGE = 64 << 10, 2_000, 2_000
#: Where probes are, and how one imports another.
_PROBES = "buildmatrix.commands.preflight.probes"
_PART = re.compile(rf"^from {re.escape(_PROBES)}\.(\w+) import", re.MULTILINE)
#: A probe with its parts: a module that is there already is imported without its package.
_JOINED = """\
import sys, types
for _name, _text in {parts!r}:
    sys.modules[_name] = types.ModuleType(_name)
    exec(compile(_text, _name, "exec"), sys.modules[_name].__dict__)
exec(compile({source!r}, "probe", "exec"))
"""


@dataclass(frozen=True, slots=True)
class ProbeCall:
    """A command line that runs a probe, and the mark of its answers."""

    command: tuple[str, ...]
    mark: str


def call(name: str, options: Mapping[str, object], python: str = "python") -> ProbeCall:
    """How the probe of that name (a file in `probes`) is run by the image's `python`."""
    mark = f"@@buildmatrix-{secrets.token_hex(8)}@@"
    text = json.dumps({**options, "mark": mark}, separators=(",", ":"))
    return ProbeCall((python, "-c", _program(name), text), mark)


def _program(name: str) -> str:
    """The source of a probe as one file, in which the parts that it imports become modules."""
    parts: dict[str, str] = {}
    source = _collected(name, parts)
    if not parts:
        return source
    return _JOINED.format(parts=list(parts.items()), source=source)


def _collected(name: str, parts: dict[str, str]) -> str:
    """The source of a file; adds what it imports to `parts`, each behind what it needs itself."""
    source = files(_PROBES).joinpath(f"{name}.py").read_text()
    for part in _PART.findall(source):
        if f"{_PROBES}.{part}" not in parts:
            text = _collected(part, parts)
            parts[f"{_PROBES}.{part}"] = text
    return source


def checks(output: str, mark: str) -> tuple[Check, ...]:
    """The checks in what a probe printed.

    A line with the mark that is no check counts as one that is undecided: nothing is lost.
    """
    read: list[Check] = []
    for line in output.splitlines():
        _, begins, text = line.partition(mark)
        if not begins:
            continue
        if len(read) == MOST:
            read.append(Check("more", "undecided", f"the probe reported more than {MOST} checks"))
            break
        read.append(_check(text))
    return tuple(read)


def _check(text: str) -> Check:
    if len(text) > LONGEST:
        return Check("a line", "undecided", f"the probe printed {len(text)} characters on one line")
    try:
        check = msgspec.json.decode(text, type=prepare_type(Check))
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        return Check("a line", "undecided", f"the probe printed what is no check: {error}")
    return Check(
        _safe(check.subject, 200),
        check.state,
        _safe(check.message, MESSAGE),
        check.seconds,
        {_safe(key, 100): value for key, value in list(check.values.items())[:100]},
    )


def _safe(text: str, length: int) -> str:
    return printable(shown(text[:length]))


def no_word(subject: str, result: RunResult, seconds: float) -> Check:
    """For a probe that ended before it said anything."""
    why = (
        f"the probe did not end within {seconds:g} s"
        if result.timed_out
        else f"the probe ended with exit code {result.exit_code} before it began: "
        + " ".join(result.output.split())[-300:]
    )
    return Check(subject, "undecided", why)


def unfinished(expected: Sequence[str], seen: Sequence[Check], why: str) -> tuple[Check, ...]:
    """Checks for what a probe was to look at and did not report: it is undecided, and not lost."""
    subjects = {check.subject for check in seen}
    return tuple(Check(name, "undecided", why) for name in expected if name not in subjects)
