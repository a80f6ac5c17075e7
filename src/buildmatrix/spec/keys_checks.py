"""Keys that say what is checked and what is accepted: smoke, machines, policy, waivers."""

# ruff: noqa: RUF009 (`key` makes a field, like `dataclasses.field`; ruff knows only the latter)
from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from buildmatrix.spec import kinds
from buildmatrix.spec.containers import Many, Named
from buildmatrix.spec.keys_settings import COMMAND, GLOBS
from buildmatrix.spec.shape import Text
from buildmatrix.spec.tables import Row, Table, key
from buildmatrix.spec.words import Converted, Day, Word

_UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _bytes(text: str) -> int:
    """`3GB`, `1.5 GiB` as bytes."""
    number, unit = _number_and_unit(text)
    units = _BINARY_UNITS if unit.endswith("iB") else _UNITS
    return round(number * units[unit.removesuffix("iB").removesuffix("B")])


def _seconds(text: str) -> float:
    """`180s`, `1.5h` as seconds."""
    number, unit = _number_and_unit(text)
    return number * _SECONDS[unit]


def _number_and_unit(text: str) -> tuple[float, str]:
    unit = text.lstrip("0123456789. ")
    return float(text.removesuffix(unit)), unit


_SIZE = Converted(kinds.SIZE, _bytes, 0)
_DURATION = Converted(kinds.DURATION, _seconds, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeTable(Table):
    """`[[smoke]]`: a command that must succeed inside the image."""

    name: Text = key(Word(kinds.SMOKE), "Name of the check, in reports.")
    level: Text = key(
        Word(kinds.LEVEL),
        "`import` needs no device, `device` needs one, `batch` does real work on it.",
    )
    select: tuple[Text, ...] = key(GLOBS, "Patterns for identifiers. Default: all.", optional=True)
    command: tuple[str, ...] = key(COMMAND, "The command; a string is split without a shell.")
    timeout: float = key(
        _DURATION, "Time after which it has failed. Default: `120s`.", default=120.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClassTable(Table):
    """`[node-class.NAME]`: a kind of machine that targets run on."""

    backend: Text = key(Word(kinds.BACKEND), "The backend of its devices.")
    driver: Text = key(Word(kinds.RANGE), "Range of the driver versions on these machines.")
    archs: tuple[Text, ...] = key(Many(Word(kinds.ARCH)), "GPU architectures.", optional=True)
    labels: dict[str, Text] = key(
        Named(kinds.LABEL, Word(kinds.VALUE)), "Kubernetes labels of the nodes.", optional=True
    )
    runs: tuple[Text, ...] = key(GLOBS, "Patterns for the targets that run there.", optional=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreTable(Table):
    """One entry of `ignore` in `[policy.vulnerabilities]`."""

    id: Text = key(Word(kinds.ADVISORY), "Any of its names: CVE, GHSA or PYSEC.")
    reason: Text = key(Word(kinds.TEXT), "Why it does not matter here.")
    expires: date = key(Day(), "The last day on which that holds.")


@dataclass(frozen=True, slots=True, kw_only=True)
class VulnerabilitiesTable(Table):
    """`[policy.vulnerabilities]`."""

    service: Text | None = key(
        Word(kinds.SERVICE), "Who is asked: `pypi` (the default) or `osv`.", default=None
    )
    url: Text | None = key(
        Word(kinds.SOURCE),
        "An OSV service of your own, `https://osv.example.com/v1/query`; with `osv` only.",
        default=None,
    )
    severity: Text | None = key(
        Word(kinds.SEVERITY),
        "Severity of a known vulnerability. Default: `error`.",
        default=None,
    )
    ignore: tuple[IgnoreTable, ...] = key(
        Many(Row(IgnoreTable, '{ id = "CVE-2024-22195", reason = "...", expires = 2027-01-31 }')),
        "Advisories that are accepted, until a day.",
        optional=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTable(Table):
    """`[policy]`. Keys of its tables are backends, or `*` for all."""

    allow_unresolved: dict[str, tuple[Text, ...]] = key(
        Named(kinds.BACKEND, Many(Word(kinds.SONAME_GLOB)), wildcard=True),
        "Sonames (or patterns) that need not be in the image: the host's driver brings them.",
        optional=True,
    )
    forbid_env: dict[str, tuple[Text, ...]] = key(
        Named(kinds.BACKEND, Many(Word(kinds.VARIABLE_GLOB)), wildcard=True),
        "Patterns of environment variables that an image must not set.",
        optional=True,
    )
    max_size: dict[str, int] = key(
        Named(kinds.BACKEND, _SIZE, wildcard=True),
        "Largest allowed size of the root file system: `3GB` (powers of ten) or `3GiB`.",
        optional=True,
    )
    bloat_threshold: int = key(
        _SIZE,
        "Foreign bytes up to which a distribution is not called bloat. Default: `5MB`.",
        default=5_000_000,
    )
    vulnerabilities: VulnerabilitiesTable = key(
        Row(VulnerabilitiesTable),
        "Who is asked for advisories, and which do not count.",
        optional=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Waive(Table):
    """`[[waive]]`: a finding that somebody accepted."""

    rule: Text = key(Word(kinds.RULE), "Code of the rule.")
    select: tuple[Text, ...] = key(GLOBS, "Patterns for identifiers. Default: all.", optional=True)
    distribution: Text | None = key(
        Word(kinds.DISTRIBUTION_GLOB), "Pattern for distribution names.", default=None
    )
    path: Text | None = key(Word(kinds.FILE_GLOB), "Pattern for paths.", default=None)
    reason: Text = key(Word(kinds.TEXT), "Why the finding is acceptable.")
    owner: Text = key(Word(kinds.OWNER), "Who answers for it.")
    expires: date = key(Day(), "The last day on which it holds.")
