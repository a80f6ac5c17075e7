"""The rung `device`: which devices are here, and whether each framework sees those of the backend.

A framework that would go on with the CPU has failed: it works, and is a hundred times slower. Where
a machine has no device of the backend at all, nothing is known of the image, and nothing was run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import library
from buildmatrix.commands.preflight.protocol import call, checks, no_word, unfinished
from buildmatrix.commands.preflight.questions import environment, frameworks, hosts
from buildmatrix.elf.isa import level_number
from buildmatrix.engines.model import Run, RunResult
from buildmatrix.reports.preflight.model import Check, Value
from buildmatrix.spec.model import NodeClass

#: Seconds for one framework, and for all of them.
EACH_S, ALL_S = 120, 900
#: Flags of /proc/cpuinfo that each level of x86-64 adds (psABI of x86-64, 1.0, table 3.1).
_LEVELS: Mapping[str, frozenset[str]] = {
    "x86-64-v2": frozenset(["cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"]),
    "x86-64-v3": frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"]),
    "x86-64-v4": frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
}


@dataclass(frozen=True, slots=True)
class _Sight:
    """What a machine lets a container see of a backend's devices."""

    backend: str
    catalogue: Catalogue
    node: NodeClass | None
    #: Device nodes; None where the catalogue does not say what they are called.
    nodes: tuple[str, ...] | None
    #: Variables that may hide devices, with their values.
    hidden_by: tuple[str, ...]

    @property
    def has_vendor(self) -> bool:
        """Whether the backend is more than the CPU."""
        return self.catalogue.vendor_of(self.backend) is not None


def run_devices(
    run: Run, backend: str, catalogue: Catalogue, node: NodeClass | None, python: str = "python"
) -> tuple[tuple[Check, ...], str]:
    """Ask the container and each framework in it; the checks, and why nothing is known."""
    options: dict[str, object] = {
        "hosts": hosts(backend, catalogue),
        "environment": environment(backend, catalogue),
        "frameworks": frameworks(backend, catalogue),
        "seconds": EACH_S,
    }
    probe = call("device", options, python)
    result = run(probe.command, ALL_S)
    return judged(checks(result.output, probe.mark), result, backend, catalogue, node)


def seen_devices(checks: Sequence[Check]) -> tuple[str, ...]:
    """The devices of frameworks that passed: `torch cuda:0`."""
    return tuple(c.subject for c in checks if c.state == "passed" and " " in c.subject)


def judged(
    seen: Sequence[Check],
    result: RunResult,
    backend: str,
    catalogue: Catalogue,
    node: NodeClass | None,
) -> tuple[tuple[Check, ...], str]:
    """What a probe saw, judged for a backend."""
    named = {check.subject: check for check in seen}
    listing, machine = named.get("frameworks"), named.get("machine")
    if listing is None or machine is None:
        return (no_word("devices", result, ALL_S),), ""
    describes_host = any(owned.backend == backend for owned in catalogue.hosts)
    hidden = [item for item in texts(machine, "environment") if "VISIBLE" in item.split("=")[0]]
    sight = _Sight(
        backend,
        catalogue,
        node,
        tuple(texts(machine, "nodes")) if describes_host else None,
        tuple(hidden),
    )
    questions = frameworks(backend, catalogue)
    verdicts = [_machine(machine, sight)]
    for check in seen:
        if check is not listing and check is not machine:
            wanted = questions[check.subject]["wanted"] if check.subject in questions else []
            verdicts += _framework(check, wanted, sight)
    if seen_devices(verdicts):
        cpu_builds = {check.subject for check in seen if _is_cpu_build(check, sight)}
        verdicts = [_excused(c, backend) if c.subject in cpu_builds else c for c in verdicts]
    verdicts += unfinished(texts(listing, "names"), seen, "the probe ended before it got there")
    if sight.nodes is None and any(check.state == "passed" for check in verdicts):
        verdicts[0] = replace(verdicts[0], state="passed")
    if not sight.has_vendor or sight.nodes or any(check.state == "passed" for check in verdicts):
        return tuple(verdicts), ""
    # What frameworks say where there is no device is no verdict about the image.
    why = (
        f"no framework here sees a device of {backend}"
        if sight.nodes is None
        else f"no device of {backend} is visible here ({', '.join(_patterns(sight))})"
    )
    return tuple(replace(check, state="not-run") for check in verdicts), why


def _machine(check: Check, sight: _Sight) -> Check:
    """The devices and drivers of the container; for the CPU its instruction level."""
    if not sight.has_vendor:
        return _cpu(check, sight.node)
    values = {name: value for name, value in check.values.items() if name != "cpu_flags"}
    check = replace(check, values=values)
    if sight.nodes is None:
        why = f"the catalogue does not say which nodes devices of {sight.backend} have"
        return replace(check, state="not-run", message=why)
    if not sight.nodes:
        return replace(check, state="not-run", message=f"none of {', '.join(_patterns(sight))}")
    for name, what in (
        ("missing_nodes", "missing beside the devices: start the container with it"),
        ("unusable_nodes", "neither readable nor writable for the image's user: add its group"),
    ):
        if nodes := texts(check, name):
            return replace(check, state="failed", message=f"{', '.join(nodes)}: {what}")
    drivers = ", ".join(texts(check, "drivers")) or "unknown"
    return replace(check, message=f"{', '.join(sight.nodes)}; driver {drivers}")


def _cpu(check: Check, node: NodeClass | None) -> Check:
    flags = str(check.values.get("cpu_flags") or "").split()
    is_x86 = check.values.get("architecture") == "x86_64"
    here = instruction_level(flags) if is_x86 else None
    values = {name: value for name, value in check.values.items() if name != "cpu_flags"}
    if here is not None:
        values["instruction_level"] = here
    message = ", ".join(
        str(part) for part in (check.values.get("cpu"), f"{check.values.get('cpus')} CPUs", here)
        if part
    )  # fmt: skip
    state = check.state
    wanted = level_number(node.cpu) if node is not None and node.cpu else None
    if node and wanted and here and (level_number(here) or 0) < wanted:
        state, message = "failed", f"{message}; {node.name} is said to have {node.cpu}"
    return Check("cpu", state, message, values=values)


def instruction_level(flags: Sequence[str]) -> str:
    """The level of x86-64 that the flags of a processor reach."""
    reached = "x86-64"
    for name, needed in _LEVELS.items():
        if not needed <= set(flags):
            break
        reached = name
    return reached


def _framework(check: Check, wanted: Sequence[str], sight: _Sight) -> Iterator[Check]:
    """The devices of the backend that a framework sees, each a check."""
    if check.state == "failed":
        yield check
        return
    ids, kinds, names = (texts(check, name) for name in ("ids", "kinds", "names"))
    own = [at for at, kind in enumerate(kinds) if any(fnmatchcase(kind, g) for g in wanted)]
    what = " ".join(
        part for part in (check.subject, str(check.values.get("version") or "")) if part
    )
    build = check.values.get("build")
    what = f"{what} ({build})" if build else what
    values = _values(check, sight.catalogue)
    if not wanted:
        yield Check(
            check.subject,
            "not-run",
            f"{what} has no devices of {sight.backend} that the catalogue knows",
            check.seconds,
            values,
        )
    elif own:
        memory = check.values.get("memory_bytes")
        for at in own:
            bytes_ = memory[at] if isinstance(memory, list) and at < len(memory) else 0.0
            described = {**values, "kind": kinds[at], "memory_bytes": bytes_}
            name = names[at] if at < len(names) else ""
            yield Check(f"{check.subject} {ids[at]}", "passed", name, check.seconds, described)
    else:
        answer = f"has {', '.join(dict.fromkeys(kinds))} and" if kinds else "sees"
        because = [str(check.values.get("reason") or ""), ", ".join(sight.hidden_by)]
        reasons = "; ".join(part for part in because if part)
        message = f"{what} {answer} no device of {sight.backend}" + (reasons and f": {reasons}")
        yield Check(check.subject, "failed", message, check.seconds, values)


def _is_cpu_build(check: Check, sight: _Sight) -> bool:
    """Return True if a framework answered, and nothing in it is made for the backend.

    Many distributions require `onnxruntime`, whose builds for devices have names of their own.
    """
    return (
        bool(texts(check, "kinds"))
        and (check.values.get("build") or "CPU") == "CPU"
        and not check.values.get("reason")
        and all(sight.backend not in found for _, found in _libraries(check, sight.catalogue))
    )


def _excused(check: Check, backend: str) -> Check:
    """Do not fail a build for the CPU beside a framework that uses the devices."""
    if check.state != "failed":
        return check
    kinds = ", ".join(texts(check, "kinds"))
    message = f"a build without {backend}, which runs on the CPU here ({kinds})"
    return replace(check, state="not-run", message=message)


def _libraries(check: Check, catalogue: Catalogue) -> Iterator[tuple[str, set[str]]]:
    """Yield the libraries of vendors that a framework loaded, each with its backends."""
    for path in texts(check, "libraries"):
        name = PurePosixPath(path.removesuffix(" (deleted)")).name
        backends = {match.owned.backend for match in library(name, path, catalogue)}
        if backends:
            yield path, backends


def _values(check: Check, catalogue: Catalogue) -> dict[str, Value]:
    """What a framework said, with the libraries of vendors among those that it loaded."""
    values: dict[str, Value] = {
        name: value
        for name, value in check.values.items()
        if name in ("version", "build", "reason", "ids", "kinds") and value
    }
    vendors: list[str | float] = [
        f"{path} ({', '.join(sorted(backends))})" for path, backends in _libraries(check, catalogue)
    ]
    if vendors:
        values["vendor_libraries"] = vendors
    return values


def _patterns(sight: _Sight) -> list[str]:
    entries = (owned.entry for owned in sight.catalogue.hosts if owned.backend == sight.backend)
    return list(dict.fromkeys(node for entry in entries for node in entry.nodes))


def texts(check: Check, name: str) -> list[str]:
    """A list of texts among the values of a check; empty where it is anything else."""
    value = check.values.get(name)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
