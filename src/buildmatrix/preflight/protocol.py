"""Calls of probes, and their output.

The output is untrusted: an image's own code runs beside them.

A probe is one Python file, together with those beside it that it imports, passed to the interpreter
of the image as `python -c SOURCE OPTIONS`, with OPTIONS as JSON. It prints one line per check: a
mark of this run, and JSON with the fields of `reports.preflight.Check`. Other output is noise
of libraries. Each run has a new mark, so that no line printed by a library counts by chance; an
image can still deceive its own owner, as with any test.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from importlib.resources import files

import msgspec
from msgspec import Struct

from buildmatrix.base.text import printable, shown
from buildmatrix.base.threads import prepare_type
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.engines.model import Run, RunResult
from buildmatrix.reports.preflight import Check

#: Variables that hide devices of any vendor from a program.
_HIDING = "*VISIBLE*"


def list_frameworks(backend: str, catalogue: Catalogue) -> Mapping[str, Mapping[str, list[str]]]:
    """Map framework modules to all device names (`kinds`) and the `wanted` ones.

    `imports` are modules that provide the wanted ones. A framework with only the CPU is omitted for
    other backends, since it is irrelevant to them.
    """
    entries = catalogue.framework_devices
    has_vendor = catalogue.vendor_of(backend) is not None
    questions: dict[str, Mapping[str, list[str]]] = {}
    for name in dict.fromkeys(owned.entry.framework for owned in entries):
        own = [owned for owned in entries if owned.entry.framework == name]
        wanted = [owned.entry for owned in own if owned.backend == backend]
        if has_vendor and all(owned.vendor is None for owned in own):
            continue
        kinds = (kind for owned in own for kind in owned.entry.devices)
        questions[name] = {
            "kinds": list(dict.fromkeys(kinds)),
            "imports": [module for entry in wanted for module in entry.imports],
            "wanted": [kind for entry in wanted for kind in entry.devices],
        }
    return questions


def list_hosts(backend: str, catalogue: Catalogue) -> list[dict[str, object]]:
    """Return the signs of the backend's devices on a machine, for the probe."""
    return [
        {
            "nodes": list(owned.entry.nodes),
            "sysfs": owned.entry.sysfs or "",
            "vendor": owned.entry.pci_vendor or "",
            "needs": list(owned.entry.needs),
            "modules": list(owned.entry.modules),
            "version_files": list(owned.entry.version_files),
            "version": owned.entry.version,
        }
        for owned in catalogue.hosts
        if owned.backend == backend
    ]


def list_variables(backend: str, catalogue: Catalogue) -> list[str]:
    """Return globs of the variables relevant to devices of the backend."""
    files = (file for file in catalogue.files.values() if file.backend == backend)
    # Common variables (PATH) are a backend's only by value.
    entries = (entry for file in files for entry in file.environment if not entry.values)
    names = (name for entry in entries for name in entry.names)
    return list(dict.fromkeys([_HIDING, *names]))


#: Limits: characters of one line, checks of one probe, characters of a message.
LONGEST, MOST, MESSAGE = 64 << 10, 2_000, 2_000
#: Subjects of the checks by which probes announce others: modules, or frameworks.
_LISTINGS = ("modules", "frameworks")
#: Package of the probes, and pattern of imports between them.
_PROBES = "buildmatrix.preflight.probes"
_PART = re.compile(rf"^from {re.escape(_PROBES)}\.(\w+) import", re.MULTILINE)
#: A probe as one file: its parts become modules, which are then imported without their package.
_PROGRAM_WITH_PARTS = """\
import sys, types
for _name, _text in {parts!r}:
    sys.modules[_name] = types.ModuleType(_name)
    exec(compile(_text, _name, "exec"), sys.modules[_name].__dict__)
exec(compile({source!r}, "probe", "exec"))
"""


class ProbeCall(Struct, frozen=True):
    """A command line that runs a probe, and the mark of its answers."""

    command: tuple[str, ...]
    mark: str


def make_call(name: str, options: Mapping[str, object]) -> ProbeCall:
    """Return the call of the probe of that name (a file in `probes`) with the image's Python."""
    mark = f"@@buildmatrix-{secrets.token_hex(8)}@@"
    text = json.dumps({**options, "mark": mark}, separators=(",", ":"))
    parts: dict[str, str] = {}
    program = _collect_source(name, parts)
    if parts:
        program = _PROGRAM_WITH_PARTS.format(parts=list(parts.items()), source=program)
    return ProbeCall(("python", "-c", program, text), mark)


def _collect_source(name: str, parts: dict[str, str]) -> str:
    """Return the source of a file; add its imports to `parts`, dependencies first."""
    source = files(_PROBES).joinpath(f"{name}.py").read_text()
    for part in _PART.findall(source):
        if f"{_PROBES}.{part}" not in parts:
            text = _collect_source(part, parts)
            parts[f"{_PROBES}.{part}"] = text
    return source


def read_checks(output: str, mark: str) -> tuple[Check, ...]:
    """Return the checks in a probe's output.

    A marked line that is not a check counts as an undecided one, so that nothing is lost.
    """
    read: list[Check] = []
    for line in output.splitlines():
        _, begins, text = line.partition(mark)
        if not begins:
            continue
        if len(read) == MOST:
            read.append(Check("more", "undecided", f"the probe reported more than {MOST} checks"))
            break
        read.append(_parse_check(text))
    return tuple(read)


def _parse_check(text: str) -> Check:
    if len(text) > LONGEST:
        return Check("a line", "undecided", f"the probe printed {len(text)} characters on one line")
    try:
        check = msgspec.json.decode(text, type=prepare_type(Check))
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        return Check("a line", "undecided", f"the probe printed an invalid check: {error}")
    return Check(
        _make_printable(check.subject, 200),
        check.state,
        _make_printable(check.message, MESSAGE),
        check.seconds,
        {_make_printable(key, 100): value for key, value in list(check.values.items())[:100]},
    )


def _make_printable(text: str, length: int) -> str:
    return printable(shown(text[:length]))


def call_probe(
    run: Run, name: str, options: Mapping[str, object], seconds: float
) -> tuple[tuple[Check, ...], RunResult]:
    """Run a probe for at most `seconds`; return its checks, and how it ended."""
    call = make_call(name, options)
    ended = run(call.command, seconds)
    return read_checks(ended.output, call.mark), ended


def run_probe(
    run: Run, name: str, options: Mapping[str, object], seconds: float, subject: str
) -> tuple[tuple[Check, ...], list[str] | None]:
    """Run a probe that announces its checks; return them, and the announced names.

    The names are None if it ended before. Then the last check is undecided; it is about `subject`
    if nothing else was seen.
    """
    seen, ended = call_probe(run, name, options, seconds)
    listing = next((check for check in seen if check.subject in _LISTINGS), None)
    if listing is not None:
        return tuple(c for c in seen if c is not listing), read_texts(listing, "names")
    if seen:
        return (*seen, Check("frameworks", "undecided", "the probe ended before them")), None
    why = (
        f"the probe did not end within {seconds:g} s"
        if ended.timed_out
        else f"the probe ended with exit code {ended.exit_code} before it began: "
        + " ".join(ended.output.split())[-300:]
    )
    return (Check(subject, "undecided", why),), None


def make_missing_checks(
    expected: Sequence[str], seen: Sequence[Check], why: str = "the probe ended before this check"
) -> tuple[Check, ...]:
    """Return undecided checks for expected subjects of which a probe reported nothing.

    A framework, `torch`, may be reported by its parts: `torch cuda:0 float32`.
    """
    subjects = {check.subject for check in seen}
    subjects |= {subject.partition(" ")[0] for subject in subjects}
    return tuple(Check(name, "undecided", why) for name in expected if name not in subjects)


def read_texts(check: Check, name: str) -> list[str]:
    """Return a list of texts among the values of a check; empty for other values."""
    value = check.values.get(name)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
