"""Scores buildmatrix against what independent tools say about real wheels.

    python tests/corpus/check_corpus.py                 # the whole corpus, 5.8 GB of downloads
    python tests/corpus/check_corpus.py xgboost triton  # these wheels
    python tests/corpus/check_corpus.py --held-out      # those that the rules were not written with

Wheels are kept in a folder (`--wheels`, default `~/.cache/buildmatrix/corpus`) and their SHA-256 is
checked. Prints every miss and every false alarm, and totals per field; exit code 1 when there are
any that `settled.toml` does not explain.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from corpus_agreement import contradictions, judgement
from corpus_fetch import fetch, wheel_folder
from corpus_scan import evidence_of, facts, inventory_of, judged
from corpus_settled import Settled, read_settled, settled_by
from corpus_truth import BACKENDS, TRUTH, Facts, TrueWheel, read_truth

from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.model import demangle
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.judge.model import Verdict

SETTLED = read_settled()
#: One wheel in so many is held out, chosen by the hash of its name.
HELD_OUT = 3


@dataclass(frozen=True, slots=True)
class Score:
    """How one wheel came out."""

    wheel: TrueWheel
    right: Mapping[str, int]
    missed: Mapping[str, Facts]
    false: Mapping[str, Facts]
    verdicts: Mapping[str, Verdict]
    #: Where findings do not agree with a verdict.
    contradictions: tuple[str, ...]
    unread: tuple[str, ...]
    #: Differences that are neither missed nor false, by field: how many, and what explains them.
    settled: Mapping[str, int]
    explained: frozenset[Settled]

    @property
    def wrong_verdicts(self) -> tuple[str, ...]:
        """Backends that are judged differently."""
        return tuple(
            one for one in BACKENDS if self.verdicts[one].verdict != self.wheel.verdicts[one]
        )


def is_held_out(wheel: TrueWheel) -> bool:
    """Whether the rules were written without looking at this wheel."""
    return int(hashlib.sha256(wheel.name.encode()).hexdigest(), 16) % HELD_OUT == 0


def score(wheel: TrueWheel, inventory: Inventory) -> Score:
    """Compare what is true with what is said."""
    seen = evidence_of(inventory)
    said = facts(inventory, seen, load())
    true = dict(wheel.facts)
    true["dlopen"] = _asked_of_others(true["dlopen"], inventory)
    plugins = {path.rpartition("/")[2] for path in wheel.plugins}
    said["bundled"] = frozenset(one for one in said["bundled"] if one[0] not in wheel.plugins)
    for field in ("needed", "dlopen"):
        said[field] = frozenset(
            one for one in said[field] if one[1] not in plugins or one in true[field]
        )
    # Code outside of the sections made for it is not in the truth.
    with_sections = {path for path, _ in true["sections"]}
    said["gpu"] = frozenset(one for one in said["gpu"] if one[0] in with_sections)
    missed = {field: true[field] - said[field] for field in said}
    false = {field: said[field] - true[field] for field in said}
    settled = Counter[str]()
    explained: set[Settled] = set()
    for how, differences in (("missed", missed), ("false", false)):
        for field, found in differences.items():
            known = dict(settled_by(SETTLED, wheel.name, how, field, found))
            differences[field] = found - known.keys()
            settled[field] += len(known)
            explained.update(known.values())
    return Score(
        wheel,
        {field: len(true[field] & said[field]) for field in said},
        missed,
        false,
        judged(inventory, seen, installed=wheel.transitive),
        tuple(
            one
            for backend in BACKENDS
            for one in contradictions(judgement(backend, inventory), backend)
        ),
        tuple(f"{one.path}: {one.why}" for one in inventory.unread),
        settled,
        frozenset(explained),
    )


def _asked_of_others(names: Facts, inventory: Inventory) -> Facts:
    """Without names that a file needs anyway or has itself: those are no evidence of dlopen."""
    own = {
        binary.path: {
            demangle(name)
            for name in (
                *binary.elf.needed,
                binary.elf.soname or "",
                binary.path.rpartition("/")[2],
            )
        }
        for binary in inventory.binaries
    }
    return frozenset(one for one in names if demangle(one[1]) not in own.get(one[0], ()))


def show(scores: Sequence[Score], title: str) -> bool:
    """Print the misses, the false alarms and the totals; whether all is right."""
    right, missed, false, settled = (Counter[str]() for _ in range(4))
    verdicts = 0
    for one in scores:
        lines = []
        for field in one.right:
            right[field] += one.right[field]
            settled[field] += one.settled.get(field, 0)
            missed[field] += len(one.missed[field])
            false[field] += len(one.false[field])
            lines += [f"  missed {field}: {'  '.join(fact)}" for fact in sorted(one.missed[field])]
            lines += [f"  false {field}: {'  '.join(fact)}" for fact in sorted(one.false[field])]
        verdicts += len(BACKENDS) - len(one.wrong_verdicts)
        for backend in one.wrong_verdicts:
            said = one.verdicts[backend]
            lines.append(
                f"  verdict on {backend}: {said.verdict} ({said.reason}); "
                f"true is {one.wheel.verdicts[backend]} ({one.wheel.reasons[backend]})"
            )
        lines += [f"  contradiction: {text}" for text in one.contradictions]
        lines += [f"  unread: {text}" for text in one.unread]
        if lines:
            print(one.wheel, *lines, sep="\n")
    print(f"\n{title}: {len(scores)} wheels")
    print(f"{'field':10} {'right':>6} {'missed':>6} {'false':>6} {'settled':>7}")
    for field in right:
        print(f"{field:10} {right[field]:6} {missed[field]:6} {false[field]:6} {settled[field]:7}")
    print(f"{'verdicts':10} {verdicts:6} {len(scores) * len(BACKENDS) - verdicts:6}\n")
    agree = not any(one.contradictions for one in scores)
    right_verdicts = verdicts == len(scores) * len(BACKENDS)
    return agree and right_verdicts and not (missed.total() or false.total())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check; 0 when everything is right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="distributions; default: all")
    parser.add_argument("--truth", type=Path, default=TRUTH)
    parser.add_argument("--wheels", type=Path, default=wheel_folder())
    parser.add_argument("--inventories", type=Path, help="folder to keep what was read in")
    parser.add_argument("--held-out", action="store_true", help="only the wheels held out")
    parser.add_argument("--not-held-out", action="store_true", help="only the others")
    options = parser.parse_args(arguments)
    truth = read_truth(options.truth)
    if unknown := set(options.names) - {wheel.name for wheel in truth}:
        parser.error(f"the corpus has no {', '.join(sorted(unknown))}")
    wheels = [
        wheel
        for wheel in truth
        if (not options.names or wheel.name in options.names)
        and (not options.held_out or is_held_out(wheel))
        and (not options.not_held_out or not is_held_out(wheel))
    ]
    scores = []
    for wheel in wheels:
        path = fetch(wheel, options.wheels)
        scores.append(score(wheel, inventory_of(path, options.inventories)))
        print(f"{len(scores)}/{len(wheels)} {wheel}", file=sys.stderr)
    groups = {
        "known": [one for one in scores if not is_held_out(one.wheel)],
        "held out": [one for one in scores if is_held_out(one.wheel)],
    }
    results = [show(group, title) for title, group in groups.items() if group]
    if len(wheels) == len(read_truth(options.truth)):
        explained = frozenset[Settled]().union(*(one.explained for one in scores))
        stale = [one for one in SETTLED if one not in explained]
        for one in stale:
            print(f"settled, and no difference any more: {one.wheel} {one.how} {one.field}")
        results.append(not stale)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
