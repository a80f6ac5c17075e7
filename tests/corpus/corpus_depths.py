"""What an audit says of one wheel at every depth, and where a deeper look contradicts a shallower.

    python tests/corpus/corpus_depths.py                 # the whole corpus
    python tests/corpus/corpus_depths.py torchao tilelang

A deeper look may make a finding more certain or more exact, and never take it back: an error stays
an error of the same distribution and vendor, a finding stays a finding, a certain verdict stays
(what is `bloat` by its name may prove to be `broken`), and bytes that are not called a lower bound
stay the same. And at every depth findings and verdicts agree: what is bloat or broken has an error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import corpus_agreement
from corpus_fetch import fetch, wheel_folder
from corpus_truth import BACKENDS, read_truth
from packaging.utils import parse_wheel_filename

from buildmatrix.base.progress import Silent
from buildmatrix.commands.audit import judge_for
from buildmatrix.commands.audit_target import Merger, judge_target, start
from buildmatrix.judge.judging import Judgement
from buildmatrix.judge.model import Finding, Verdict
from buildmatrix.judge.registry import rule_of
from buildmatrix.locks.index.model import Need
from buildmatrix.locks.index.reading import Readings, WheelRequest
from buildmatrix.locks.index.wheels import WheelReader
from buildmatrix.locks.model import Lock, Package, Wheel
from buildmatrix.matrix.model import bare_target
from buildmatrix.sources.resolved import Resolved

#: Bytes of a small share: the first binaries, and not all that a look can use.
SMALL_SHARE = 300_000
#: From what settles nothing to what settles everything.
LOOKS = ("listing", "some", "heads", "whole")


@dataclass(frozen=True, slots=True)
class Said:
    """What one look says of a wheel on one backend."""

    findings: tuple[Finding, ...]
    verdict: Verdict

    def about(self) -> Mapping[tuple[str | None, str | None], bool]:
        """Distribution and vendor of the findings, and whether one of them is an error.

        Without those that say what was not read: a deeper look reads it.
        """
        errors: dict[tuple[str | None, str | None], bool] = {}
        for finding in self.findings:
            if not rule_of(finding.rule).is_open:
                key = finding.distribution, finding.vendor
                errors[key] = errors.get(key, False) or finding.severity == "error"
        return errors


def said(path: Path) -> Mapping[tuple[str, str], Said]:
    """Look and backend -> what is said of the wheel at `path`."""
    name, version, _, _ = parse_wheel_filename(path.name)
    wheel = Wheel(path.name, str(path), "", path.stat().st_size)
    package = Package(name, str(version), None, (wheel,), False, ("requirements.in:1",))
    lock = Lock(Path("pylock.toml"), (package,), "", "")
    judge = judge_for(None, (), "error", date(2026, 11, 21), ())
    most = 0
    result: dict[tuple[str, str], Said] = {}
    for look in LOOKS:
        wanted = {
            "listing": WheelRequest(wheel, "listing"),
            "some": WheelRequest(wheel, "heads", min(most, SMALL_SHARE)),
            "heads": WheelRequest(wheel, "heads", most),
            "whole": WheelRequest(wheel, "whole"),
        }[look]
        readings = Readings(WheelReader(None, None), 1, Silent())
        readings.read([wanted], look)
        assert not readings.failures
        (facts,) = readings.facts.values()
        most = most or Need.of(facts.size, facts.members).most
        merger = Merger(judge)
        for backend in BACKENDS:
            target = bare_target(backend, backend, python="3.11", lock="pylock.toml")
            work = start(Resolved(target, lock, None, "pylock.toml"))
            judge_target(work, readings, merger, judge)
            (verdict,) = work.audited.verdicts
            result[look, backend] = Said(work.audited.findings, verdict)
    return result


def contradictions(known: Mapping[tuple[str, str], Said]) -> Iterator[str]:
    """One line for each thing that a deeper look takes back, or on which one look disagrees."""
    for (look, backend), one in known.items():
        for what in corpus_agreement.contradictions(
            Judgement(one.findings, (one.verdict,)), backend
        ):
            yield f"{look}: {what}"
    for backend in BACKENDS:
        for number, look in enumerate(LOOKS):
            for deeper in LOOKS[number + 1 :]:
                for what in _contradicts(known[look, backend], known[deeper, backend]):
                    yield f"{backend}, {look} and {deeper}: {what}"


def _contradicts(one: Said, other: Said) -> Iterator[str]:
    later = other.about()
    for key, is_error in one.about().items():
        if key not in later:
            yield f"the finding about {key} is gone"
        elif is_error and not later[key]:
            yield f"the error about {key} is none any more"
    was, became = one.verdict, other.verdict
    is_same = was.verdict == became.verdict
    if was.certain and not is_same and (was.verdict, became.verdict) != ("bloat", "broken"):
        yield f"{was.verdict} ({was.reason}) became {became.verdict} ({became.reason})"
    if was.foreign_bytes > became.foreign_bytes:
        yield f"{was.foreign_bytes} bytes became {became.foreign_bytes}"
    if was.foreign_bytes < became.foreign_bytes and not was.foreign_at_least:
        yield f"{was.foreign_bytes} bytes, said to be exact, became {became.foreign_bytes}"


def main() -> int:
    """Print every contradiction; 0 when there is none."""
    failed = 0
    for wheel in read_truth():
        if sys.argv[1:] and wheel.name not in sys.argv[1:]:
            continue
        try:
            path = fetch(wheel, wheel_folder())
        except RuntimeError as error:
            failed += 1
            print(wheel, "was not looked at:", error, flush=True)
            continue
        lines = list(contradictions(said(path)))
        failed += bool(lines)
        print(wheel, "contradicts itself" if lines else "holds", flush=True)
        print(*(f"  {line}\n" for line in lines), sep="", end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
