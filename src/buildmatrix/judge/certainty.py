"""Changes of a verdict that reading more of a wheel could cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.text import count, size
from buildmatrix.catalogue.lookup import distribution
from buildmatrix.catalogue.model import WHOLE
from buildmatrix.facts.inventory.model import Inventory, Unparsed
from buildmatrix.judge.evidence import HELD
from buildmatrix.judge.locks import Wheels
from buildmatrix.judge.model import UNFIT, Verdict, VerdictName
from buildmatrix.judge.subject import once
from buildmatrix.judge.tree import may_decide, unread_room

#: `verdict`: whether it is fit for the backend may turn out differently. `amount`: so it may, and
#: only all bytes say it: device code was seen, and not what else there is of it. `trace`: it
#: is fit, and what was not read may hold names of libraries that it reaches for when asked to.
#: `evidence`: the verdict stands, but nothing of what the files hold is known (runtimes that are
#: linked in, device code). `detail`: that is known, and not all of it.
Gain = Literal["verdict", "amount", "trace", "evidence", "detail"]
#: Gains that a verdict depends on.
DECISIVE: tuple[Gain, ...] = ("verdict", "amount")

#: Kinds of evidence that the names of files alone give.
_NAMED = ("bundled", "tool")

#: Kinds of distributions that hold what their name says, and nothing of another vendor's.
_WHOLLY = (*WHOLE, "default-build")


class Unopened(Struct, frozen=True):
    """The files of one distribution that were not opened, or only in part."""

    #: Binaries that were not opened.
    closed: int = 0
    #: Read in part, with data behind that may be device code.
    partial: int = 0
    #: Read until device code showed: what else there is of it is not known.
    coded: int = 0
    #: Read in part in any other way: nothing that weighs much can be left, but names can.
    cut: int = 0
    #: All of its binaries, as far as names show.
    binaries: int = 0
    #: Read in part, and not what they link, where that may well be a foreign library.
    unlinked: int = 0
    #: Bytes of all binaries, and of those that were not opened.
    size: int = 0
    hidden: int = 0
    #: Of those, bytes of files that are larger than what the policy calls much: device code comes
    #: in one large run, and there is none of weight in a thousand tables.
    heavy: int = 0
    #: The most bytes of one binary that may be device code: what was not opened of it, or its data
    #: that was not reached.
    largest: int = 0
    #: The same of those where some device code showed: a look ends there, and only all bytes say.
    behind: int = 0
    #: Python files that were not read and that an import may run: what it loads is not known.
    python: int = 0
    #: Those that no import runs.
    lazy: int = 0

    def may_matter(self, threshold: int) -> bool:
        """Return True if unread bytes can change a verdict that depends on `threshold` bytes.

        Any binary may link a missing library; if one does, most of its distribution do. Device code
        comes in one large run: it is below the threshold if no binary has room for more.
        """
        return self.unlinked > 0 or self.hidden * 2 > self.size or self.largest > threshold

    @property
    def has_more(self) -> bool:
        """Return True if some binary was not read to its end."""
        return bool(self.closed or self.partial or self.coded or self.cut)


@once
def unopened(wheels: Wheels) -> Mapping[str, Unopened]:
    """Return the unread files by distribution (`name==version`), without those known in full."""
    counters: dict[str, Counter[str]] = {}
    unlined = _unlined(wheels)
    traces = {item.path for item in wheels.foreign if item.kind == "needed"}
    strong = {item.distribution for item in wheels.foreign if item.weight == "strong"}
    for file in wheels.inventory.closed:
        counts = counters.setdefault(file.owner or "", Counter())
        if file.by != "bytes" and file.path.endswith((".py", ".pyc")):
            counts["lazy" if file.lazy else "python"] += 1
        elif file.size and may_decide(file):  # Links in archives have no bytes.
            counts["closed"] += 1
            counts["binaries"] += 1
            counts["size"] += file.size
            counts["hidden"] += file.size
            counts["heavy"] += file.size if file.size > wheels.policy.bloat_threshold else 0
            counts["largest"] = max(counts["largest"], file.size)
    for binary in wheels.inventory.binaries:
        counts = counters.setdefault(binary.owner or "", Counter())
        counts["binaries"] += 1
        counts["size"] += binary.size
        if binary.elf.read is None:
            continue
        # A distribution with foreign files may link them if its links are unknown.
        is_traced = not binary.elf.linked_names and binary.owner in strong
        if binary.path in traces or is_traced or binary.owner in unlined:
            counts["unlinked"] += binary.path in wheels.unlinked
        room = unread_room(binary)
        kind, most = ("coded", "behind") if binary.elf.device_code else ("partial", "largest")
        counts[kind if room else "cut"] += 1
        counts[most] = max(counts[most], room)
    left = {owner: Unopened(**counts) for owner, counts in counters.items()}
    return {owner: it for owner, it in left.items() if it.has_more or it.python or it.lazy}


@once
def _unlined(wheels: Wheels) -> frozenset[str | None]:
    """Distributions of this backend that neither their names nor their requirements give a line.

    What they link decides whether they fit the target's toolkit line.
    """
    if wheels.line is None:
        return frozenset()
    lines = {present.name: line for present, _, line in wheels.lined}
    matches = {
        present.owner
        for present, match in wheels.matches
        if match.backend == wheels.backend and match.kind not in ("pure", "meta")
    }
    return frozenset(
        item.owner
        for item in wheels.inventory.distributions
        if item.owner in matches
        and item.name not in lines
        and wheels.line
        not in {
            lines.get(name)
            for required in wheels.tree.required[item.owner]
            if required.active
            for name in required.brings
        }
    )


def gains(wheels: Wheels, verdicts: Mapping[str, Verdict]) -> Mapping[str, Gain]:
    """Distributions (`name==version`) of which a deeper look could still say something new."""
    strong = [item for item in wheels.foreign if item.weight == "strong"]
    held = {item.distribution for item in strong if item.kind in HELD}
    own = {
        item.distribution
        for item in wheels.evidence
        if item.weight == "strong" and item.kind in _NAMED and not wheels.is_foreign(item)
    }
    unlined = _unlined(wheels)

    def gain(owner: str, left: Unopened, verdict: Verdict) -> Gain | None:
        """A name that belongs to one vendor says all; one that may be anything says nothing."""
        match = distribution(verdict.name, owner.partition("==")[2], wheels.catalogue)
        # The file is the public one of its name, or its bytes say the same.
        is_public = wheels.is_public(verdict.name)
        is_sure = is_public or wheels.standings.get(owner) == "held" or owner in own
        # A bad requirement says nothing about its own contents.
        is_unfit = verdict.verdict in UNFIT and not verdict.by_others
        if match is not None and match.vendor is not None and match.kind != "multi-backend":
            is_whole = match.kind in _WHOLLY and (is_sure or match.kind in ("pure", "meta"))
            if not wheels.is_foreign(match) and verdict.may_be is None and is_whole:
                if owner in unlined and (left.closed or left.unlinked):
                    return "verdict"
                return "detail" if left.has_more else None
            if match.weight == "strong" and match.kind in WHOLE and is_unfit:
                return None
        if wheels.is_from_known_channel(verdict.name) and not is_unfit:
            return "evidence" if left.has_more else None
        if verdict.may_be == "broken" and left.python:
            # An import that survives the failure would not be broken by it.
            return "verdict"
        if not is_unfit and left.python and not left.binaries:
            return "verdict"
        if not left.has_more:
            return "trace" if left.python and not is_unfit else None
        threshold = wheels.policy.bloat_threshold
        if not is_unfit and left.may_matter(threshold):
            return "verdict"
        if verdict.may_be is not None or (not is_unfit and left.behind > threshold):
            return "amount"
        if not is_unfit:
            return "trace"
        # Its files, or a name and a version that only one build has, say that it is the wrong one.
        is_known = left.coded or owner in held or (match is not None and match.is_routed)
        return "detail" if is_known else "evidence"

    found = {
        owner: gain(owner, left, verdict)
        for owner, left in unopened(wheels).items()
        if (verdict := verdicts.get(owner.partition("==")[0])) is not None
    }
    return {owner: gained for owner, gained in found.items() if gained is not None}


def may_be(verdict: Verdict, left: Unopened | None, gain: Gain | None) -> VerdictName | None:
    """Return the worst other verdict that unread bytes could cause; None if there is none."""
    if gain == "trace":
        return "optional" if verdict.verdict == "ok" else None
    if gain not in DECISIVE:
        return verdict.may_be
    if verdict.by_others:
        return "broken"
    if verdict.verdict in UNFIT:
        return "optional"
    may_break = left is not None and bool(left.unlinked or left.closed or left.python)
    return "broken" if may_break else "bloat"


def hidden_bytes(verdict: Verdict, left: Unopened | None) -> int:
    """Bytes that could still turn a verdict.

    Those of heavy files that were not opened, and, where something of another vendor was found, the
    data that was not reached: constants of a library that is clean so far are no such sign, nor is
    the name of a library that it may open.
    """
    if left is None or not verdict.is_open:
        return 0
    return left.heavy + (max(left.largest, left.behind) if verdict.foreign_bytes else 0)


def describe_open_rest(left: Unopened, gain: Gain | None, cost: int) -> str | None:
    """The sentence for a report; None where everything was read that could matter.

    `cost` is what reading the rest takes: the bytes of the wheel.
    """
    parts = []
    partial = left.partial + left.coded + left.cut
    if left.closed:
        parts.append(f"{left.closed} of {count(left.binaries, 'binary file')} not opened")
    if partial:
        parts.append(f"{partial} read in part")
    if left.python and gain in ("verdict", "trace"):
        parts.append(f"{count(left.python, 'Python file')} not read")
    elif left.lazy:
        parts.append(f"{count(left.lazy, 'Python file')} that no import runs not read")
    if not parts:
        return None
    consequence = {
        "verdict": ", so the verdict may change",
        "amount": ", so the verdict may change",
        "trace": ", so names of libraries that it loads on demand may be missing",
        "evidence": ", so its contents are not known",
        "detail": ", so architectures may be incomplete",
        None: "",
    }[gain]
    return f"{' and '.join(parts)}{consequence}: `audit --deep` reads the rest ({size(cost)})"


def name_unparsed_python(verdicts: Iterable[Verdict], inventory: Inventory) -> tuple[Verdict, ...]:
    """The verdicts, naming the Python code that an import runs and that could not be read.

    What no import gets to changes nothing about them, and is said all the same.
    """
    files: dict[str, list[Unparsed]] = {}
    for unparsed in inventory.unparsed:
        files.setdefault(unparsed.owner or "", []).append(unparsed)
    return tuple(_with_files(verdict, files.get(verdict.owner, ())) for verdict in verdicts)


def _with_files(verdict: Verdict, files: Sequence[Unparsed]) -> Verdict:
    needed = sum(unparsed.reach == "import" for unparsed in files)
    parts = []
    if needed:
        parts.append(f"{count(needed, 'Python file')} that its import runs not read whole")
    if len(files) > needed:
        parts.append(f"{count(len(files) - needed, 'other Python file')} not read whole")
    if not parts:
        return verdict
    noted = replace(verdict, open="; ".join(filter(None, (verdict.open, " and ".join(parts)))))
    # A distribution unfit for another reason may prove broken as well, and stays unfit.
    if not needed or verdict.verdict in UNFIT:
        return noted
    return replace(noted, certain=False, may_be="broken")
