"""Checks of the catalogue, applied to the files of a machine.

No vendor is named here: the files to read, their correct values and the remedies are data
(`catalogue.tables.HostCheck`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from glob import escape

from msgspec import Struct

from buildmatrix.base.text import listing
from buildmatrix.catalogue.load import Catalogue, Owned
from buildmatrix.catalogue.model import matches_any
from buildmatrix.catalogue.tables import HostCheck
from buildmatrix.preflight.machine import KernelLog, MachineFiles
from buildmatrix.reports.doctor import DoctorLine, Measure, NodeCheck, State

#: Measures in one line, and kinds of log errors recorded.
_SHOWN = 4
_KINDS = 200
#: Prefix of messages in /dev/kmsg: priority, number, microseconds, flags.
_PREFIX = re.compile(r"\d+,\d+,\d+,[^;]*;")
_NOT_MEASURED = "not measured, as --interval is 0"
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class Sample(Struct, frozen=True):
    """Contents of files with counters at one moment, in seconds of a monotonic clock."""

    moment: float
    texts: Mapping[str, str]


class _UnreadError(Exception):
    """An existing value is unreadable or invalid; the text says which."""


@dataclass(frozen=True)
class Node:
    """A machine and its accelerators: backend to folders of its devices in sysfs."""

    machine: MachineFiles
    catalogue: Catalogue
    devices: Mapping[str, Sequence[str]]

    @cached_property
    def log(self) -> KernelLog:
        """The kernel's log, read on first access."""
        return self.machine.kernel_log()

    def take_sample(self, moment: float) -> Sample:
        """Read the files with counters."""
        paths = dict.fromkeys(
            path
            for owned in self.catalogue.checks
            if owned.entry.over != "once" and self._applies(owned)
            for path in self.files(owned)
        )
        texts = {path: self.machine.text(path) for path in paths}
        return Sample(moment, {path: text for path, text in texts.items() if text is not None})

    def run_checks(self, samples: tuple[Sample, Sample] | None) -> Iterator[NodeCheck]:
        """Yield the results of checks that apply to this machine; counters need two `samples`."""
        for owned in self.catalogue.checks:
            if self._applies(owned):
                yield self._run_check(owned, samples)

    def files(self, owned: Owned[HostCheck]) -> list[str]:
        """Return the files that a check reads on this machine."""
        return [
            path for pattern in self._patterns(owned, owned.entry.files)
            for path in self.machine.nodes(pattern)
        ]  # fmt: skip

    def _patterns(self, owned: Owned[HostCheck], paths: Collection[str]) -> Iterator[str]:
        for path in paths:
            if "{device}" not in path:
                yield path
                continue
            for backend, folders in self.devices.items():
                if owned.vendor is None or owned.backend == backend:
                    yield from (path.replace("{device}", escape(folder)) for folder in folders)

    def _applies(self, owned: Owned[HostCheck]) -> bool:
        check = owned.entry
        if owned.vendor is not None and owned.backend not in self.devices:
            return False
        if check.needs_devices and not self.devices:
            return False
        return all(
            any(map(self.machine.matching, self._patterns(owned, [path]))) for path in check.when
        )

    def _run_check(
        self, owned: Owned[HostCheck], samples: tuple[Sample, Sample] | None
    ) -> NodeCheck:
        check = owned.entry
        measures: tuple[Measure, ...] = ()
        try:
            measures = tuple(self._measures(owned, samples))
        except _UnreadError as error:
            state: State = "unknown"
            text = str(error)
        else:
            state, text = self._verdict(owned, measures, samples)
        if check.reads == "log" and state == "ok" and self.log.unread:
            state, text = "unknown", f"{text}; {self.log.unread}"
        file = next(
            file for file in self.catalogue.files.values() if any(c is check for c in file.checks)
        )
        return NodeCheck(
            id=check.id,
            backend=owned.backend if owned.vendor is not None else "",
            title=check.title,
            state=state,
            text=text,
            remedy=check.remedy if state in ("low", "partly") else "",
            unit=check.unit,
            sources=tuple(file.sources[key] for key in check.source),
            checked=(check.checked or file.checked).isoformat(),
            measures=measures,
        )

    def _verdict(
        self,
        owned: Owned[HostCheck],
        measures: Sequence[Measure],
        samples: tuple[Sample, Sample] | None,
    ) -> tuple[State, str]:
        check = owned.entry
        broken = [measure for measure in measures if not measure.holds]
        if broken:
            return check.state, _describe_violations(check, broken)
        if check.reads == "log":
            harmless = f"; {_describe_violations(check, measures)}" if measures else ""
            return "ok", f"no such line in {self.log.path}{harmless}"
        if measures:
            # Each value once.
            values = Counter(measure.value for measure in measures)
            unit = f" {check.unit}" if check.unit else ""
            parts = (
                f"{value}{unit} ({count}×)" if count > 1 else f"{value}{unit}"
                for value, count in values.most_common()
            )
            return "ok", listing(parts, _SHOWN)
        if check.over != "once" and samples is None and self.files(owned):
            return "none", _NOT_MEASURED
        return check.absent, f"none here ({' '.join(check.files)})"

    def _measures(
        self, owned: Owned[HostCheck], samples: tuple[Sample, Sample] | None
    ) -> Iterator[Measure]:
        check = owned.entry
        if check.reads == "log":
            yield from self._read_errors(check)
            return
        if check.over != "once":
            yield from _measure_rates(check, self.files(owned), samples) if samples else ()
            return
        for path in self.files(owned):
            text = path if check.reads == "name" else self.machine.text(path)
            if text is None:
                raise _UnreadError(f"{path} cannot be read by this user")
            for value in dict.fromkeys(_find_values(check.pattern, text)):
                bound = self._find_reference(check, path)
                if bound is not None or not check.against:
                    number = _parse_number(value, check.scale)
                    yield _measure_number(check, path, value, number, bound)

    def _find_reference(self, check: HostCheck, path: str) -> str | None:
        """Return the reference for a value, the least of those in other files; None without any."""
        folder, _, name = path.rpartition("/")
        values = []
        for template in check.against:
            against = template.replace("{folder}", folder)
            text = self.machine.text(against.replace("{stem}", name.rpartition("_")[0])) or ""
            # Files beside it have the same format; a version elsewhere is the whole of its file.
            said = _find_values(check.pattern, text) if "{folder}" in template else [text.strip()]
            values += said[:1]
        return min(
            filter(None, values), key=lambda value: _parse_number(value, 1) or 0, default=None
        )

    def _read_errors(self, check: HostCheck) -> Iterator[Measure]:
        """Yield the errors in the log, each device and value once."""
        if not self.log.path:
            raise _UnreadError(f"the kernel's log cannot be read ({self.log.unread})")
        pattern = re.compile(check.pattern)
        number = next(
            index for index in range(1, pattern.groups + 1)
            if index not in pattern.groupindex.values()
        )  # fmt: skip
        seen: Counter[tuple[str, str]] = Counter()
        for line in self.log.text.splitlines():
            match = pattern.search(_PREFIX.sub("", line[:2000], count=1))
            if match is not None and len(seen) < _KINDS:
                device = match.groupdict().get("device") or self.log.path
                seen[device, match[number]] += 1
        for (device, value), count in seen.items():
            meaning = check.meanings.get(value)
            words = f"{value} ({meaning})" if meaning else value
            yield Measure(
                place=device,
                value=f"{words}, {count}×" if count > 1 else words,
                number=_parse_number(value, 1),
                bound="",
                holds=matches_any(check.good, value),
            )


def format_check(checked: NodeCheck) -> DoctorLine:
    """Format a check's result for people."""
    text = f"{checked.text}. {checked.remedy}" if checked.remedy else checked.text
    return DoctorLine(checked.state, f"node {checked.id}", text)


def format_checks(checks: Collection[NodeCheck]) -> Iterator[DoctorLine]:
    """Format results for people; checks with nothing to read here share one line."""
    yield from (format_check(checked) for checked in checks if checked.state != "none")
    silent = [checked for checked in checks if checked.state == "none"]
    unmeasured = [checked.id for checked in silent if checked.text == _NOT_MEASURED]
    absent = [checked.id for checked in silent if checked.text != _NOT_MEASURED]
    if unmeasured:
        yield DoctorLine("none", "node", f"{', '.join(unmeasured)} {_NOT_MEASURED}")
    if absent:
        yield DoctorLine("none", "node", f"nothing to read here for {', '.join(absent)}")


def _find_values(pattern: str, text: str) -> list[str]:
    """Return the first group of each match of a pattern, up to a limit."""
    matches = re.finditer(pattern, text)
    return [match[1] for match, _ in zip(matches, range(_KINDS), strict=False) if match[1]]


def _parse_number(value: str, scale: float) -> float | None:
    if not _NUMBER.fullmatch(value):
        return math.inf if value == "unlimited" else None
    return float(value) * scale


def _format_number(number: float) -> str:
    return f"{number:,.1f}".removesuffix(".0") if math.isfinite(number) else "unlimited"


def _measure_number(
    check: HostCheck, place: str, value: str, number: float | None, bound: str | None
) -> Measure:
    holds, words = True, ""
    if check.good:
        holds, words = matches_any(check.good, value), f"should be {' or '.join(check.good)}"
    elif bound is not None:
        holds, words = _compare(check, value, number, bound)
    elif number is not None:
        if check.least is not None and number < check.least:
            holds, words = False, f"should be {_format_number(check.least)} or more"
        if check.most is not None and number > check.most:
            holds, words = False, f"should be {_format_number(check.most)} or less"
    finite = number is not None and math.isfinite(number)
    return Measure(
        place=place,
        value=_format_number(number) if number is not None else value,
        number=number if finite else None,
        bound=words,
        holds=holds,
    )


def _compare(check: HostCheck, value: str, number: float | None, bound: str) -> tuple[bool, str]:
    if check.relation == "equal":
        return value == bound, f"should be {bound}"
    other = _parse_number(bound, check.scale)
    if number is None or other is None:
        return True, ""
    if check.relation == "below":
        return number < other, f"should be below {_format_number(other)}"
    if check.relation == "at-most":
        return number <= other, f"limited to {_format_number(other)}"
    return number >= other, f"could be {_format_number(other)}"


def _measure_rates(
    check: HostCheck, files: Collection[str], samples: tuple[Sample, Sample]
) -> Iterator[Measure]:
    """Yield the rates of counters between two samples; files not in both are skipped."""
    before, after = samples
    seconds = after.moment - before.moment
    for path in files:
        if path not in before.texts or path not in after.texts:
            continue
        growth = _compute_growth(check.pattern, path, before, after)
        if growth is None:
            continue
        whole = (
            seconds if check.whole is None else _compute_growth(check.whole, path, before, after)
        )
        if whole is None or whole <= 0:
            raise _UnreadError(f"{path} cannot be compared: no time passed between two samples")
        rate = growth / whole * check.scale * (100 if check.whole is not None else 1)
        yield _measure_number(check, path, "", rate, None)


def _compute_growth(pattern: str, path: str, before: Sample, after: Sample) -> float | None:
    """Return the growth of the sum of the numbers in a pattern's first group."""
    sums = []
    for sample in (before, after):
        values = _find_values(pattern, sample.texts[path])
        if not values:
            return None
        sums.append(sum(map(float, _NUMBER.findall(values[0]))))
    if sums[1] < sums[0]:
        raise _UnreadError(f"{path} cannot be compared: its counter went back between two samples")
    return sums[1] - sums[0]


def _describe_violations(check: HostCheck, measures: Sequence[Measure]) -> str:
    """Describe violations, each value once with its places."""
    groups: dict[tuple[str, str], list[str]] = {}
    for measure in measures:
        # Without the folders common to all such files.
        place = re.sub(r"\A/sys/(bus/pci/devices|devices/system|class)/", "", measure.place)
        groups.setdefault((measure.value, measure.bound), []).append(place)
    parts = []
    for (value, bound), places in groups.items():
        more = f" and {len(places) - 2} more" if len(places) > 2 else ""
        held = f" ({bound})" if bound else ""
        unit = f" {check.unit}" if check.unit else ""
        parts.append(f"{' '.join(places[:2])}{more}: {value}{unit}{held}")
    rest = f"; and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
    return "; ".join(parts[:_SHOWN]) + rest
