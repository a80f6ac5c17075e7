"""Rules about wheels and files that could not be read: BM107 and BM902."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.text import count, listing, size
from buildmatrix.catalogue.lookup import library
from buildmatrix.facts.inventory.conda import CONDA_PREFIX
from buildmatrix.facts.inventory.model import Unread
from buildmatrix.judge.certainty import Unopened, hidden_bytes
from buildmatrix.judge.findings import finding
from buildmatrix.judge.fixes import accept
from buildmatrix.judge.locks import Wheels
from buildmatrix.judge.model import Finding, Fix, Verdict
from buildmatrix.judge.subject import ImageSubject
from buildmatrix.locks.model import CondaPackage, Package, SourceFacts

# BM107: a distribution has no usable wheel.
#
# As a warning it leaves the run undecided (`judge.acceptance.leaves_open`). A source is read and
# never built. It is clean if its metadata are static, nothing in it is prebuilt, and its build
# files name no accelerator.


#: How the address of a repository or an archive looks, as against that of a folder.
_FOREIGN = re.compile(r"[a-z]+\+|.*://|.*\.(?:zip|tar(?:\.\w+)?|tgz|tbz2?)(?:$|#)", re.IGNORECASE)


def check_source_only(wheels: Wheels) -> Iterator[Finding]:
    """One finding per distribution.

    A note where a build is what was asked for: by the specification, or by naming a folder of the
    user's own; and where the source says that it is clean.
    """
    judged = {verdict.name: verdict for verdict in source_verdicts(wheels)}
    for name, why in sorted(wheels.without_wheel.items()):
        package = wheels.packages[name]
        is_own = bool(package.source) and _FOREIGN.match(package.source) is None
        is_built = not package.unknown and bool(package.source or package.source_only)
        holds = "its contents are not known"
        advice = f"ask for a version and a file of {name} that the index has"
        if is_built:
            holds = "its contents are known only after it is built"
            advice = (
                f"ask for a version of {name} that has a wheel for this target, or look at the "
                "image with `buildmatrix scan`"
            )
        source = wheels.sources.get(name)
        is_told = _is_told(wheels, name) or (is_own and _is_read(package, wheels.askers))
        verdict = judged.get(name)
        if verdict is not None:
            holds = verdict.reason
        elif isinstance(source, str):
            holds += f"; its source was not read: {source}"
        requires = "" if is_told else "; what it requires is not known yet, and is not judged here"
        is_clean = verdict is not None and verdict.certain and is_told
        is_meant = is_own or name in wheels.target.no_binary
        label = f"{name} {package.version}".rstrip()
        yield finding(
            "BM107",
            wheels,
            f"{label}: {why}; {holds}{requires}",
            severity="note" if is_meant or is_clean else "warning",
            owner=f"{name}=={package.version}",
            fix=Fix("pin", advice, accept("BM107", distribution=name)),
        )


def source_verdicts(wheels: Wheels) -> Iterator[Verdict]:
    """Yield the verdicts about distributions by their sources, if those were read."""
    for name in sorted(wheels.without_wheel):
        source = wheels.sources.get(name)
        if isinstance(source, SourceFacts):
            yield _source_verdict(wheels, wheels.packages[name], source)


def _source_verdict(wheels: Wheels, package: Package, source: SourceFacts) -> Verdict:
    verdict = Verdict(package.name, package.version, wheels.backend, "ok", "")
    if source.built:
        reason = f"its source holds {listing(source.built)}, which was built elsewhere"
        return replace(verdict, reason=reason, certain=False, may_be="broken")
    own = (None, wheels.own_vendor)
    traces = list(_traces(wheels, source))
    foreign = [trace for trace in traces if wheels.catalogue.vendor_of(trace[0]) not in own]
    if foreign:
        names = listing(dict.fromkeys(wheels.catalogue.title(backend) for backend, _ in foreign))
        places = listing(dict.fromkeys(place for _, place in foreign))
        reason = f"its source is built for {names} where that is at hand ({places})"
        return replace(verdict, verdict="optional", reason=reason, certain=False, may_be="bloat")
    opened = [
        f"{library_name} ({path})"
        for library_name, path in source.libraries
        for match in library(library_name, None, wheels.catalogue)
        if match.weight == "strong" and match.owned.vendor not in own
    ]
    if opened:
        reason = f"its source names {listing(opened)}"
        return replace(verdict, verdict="optional", reason=reason, certain=False, may_be="broken")
    if not _is_told(wheels, package.name):
        reason = "its build decides what it requires"
        return replace(verdict, reason=reason, certain=False, may_be="bloat")
    names = listing(dict.fromkeys(wheels.catalogue.title(backend) for backend, _ in traces))
    files = f"are for {names}" if traces else "name no accelerator"
    reason = f"by its source: nothing in it is built already, and its build files {files}"
    return replace(verdict, reason=reason)


def _traces(wheels: Wheels, source: SourceFacts) -> Iterator[tuple[str, str]]:
    """Backends that a source is built for, with the files that say so."""
    suffixes = dict(source.suffixes)
    for owned in wheels.catalogue.source_traces:
        for suffix in owned.entry.suffixes:
            if suffix in suffixes:
                yield owned.backend, suffixes[suffix]
        for pattern in owned.entry.patterns:
            search = re.compile(pattern, re.IGNORECASE).search
            for path, text in source.build_files:
                if search(text):
                    yield owned.backend, path


def _is_told(wheels: Wheels, name: str) -> bool:
    """Return True if the requirements of a source are known, and so judged."""
    source, lock = wheels.sources.get(name), wheels.lock
    if name in wheels.askers or not isinstance(source, SourceFacts):
        return name in wheels.askers
    is_locked = lock is not None and not lock.inputs and not lock.is_completed
    return is_locked or source.requires is not None


def _is_read(package: Package, askers: Collection[str]) -> bool:
    """Return True if a folder's requirements are known: lines of its project required something."""
    lines = posixpath.join(posixpath.normpath(package.source), "pyproject.toml:")
    return any(asker.startswith(lines) for asker in askers)


# BM902: something in the image could not be read


#: Unread bytes that could change a verdict are at most one in so many bytes of an audit.
_MOST_HIDDEN = 10
_WHEEL = ".whl"
#: Line of a file that requires something that is not audited.
_PLACE = re.compile(r":\d+$")


def check_unread_file(image: ImageSubject) -> Iterator[Finding]:
    """One finding per path, and one for all wheels that one cause keeps unread.

    The run ends with exit code 3 as long as it is not waived.
    """
    limit = image.policy.budget(image.policy.max_layers, image.target)
    if limit is not None and not image.inventory.layers and not isinstance(image, Wheels):
        yield finding(
            "BM902",
            image,
            "layers could not be read: the budget `max-layers` under [policy] is not checked",
            path="layers",
            fix=Fix("waive", "see that the layers of the image can be read, or accept it"),
            by_path=True,
        )
    owners = {binary.path: binary.owner for binary in image.inventory.binaries}
    unread = (*image.inventory.unread, *image.resolution.unread)
    paths = {item.path for item in unread}
    for item in merge_causes(unread) if isinstance(image, Wheels) else unread:
        # The cause is independent of the wheels and their number.
        is_one = item.path in paths
        advice = _unread_advice(item.path if is_one else "several.whl")
        yield finding(
            "BM902",
            image,
            f"{item.path} could not be read: {item.why}",
            owner=owners.get(item.path),
            path=item.path,
            chain=(item.path,),
            fix=Fix("waive", advice, accept("BM902", path=item.path) if is_one else None),
            by_path=True,
            identity="" if is_one else item.why,
        )


def unread_rests(
    wheels: Wheels, verdicts: Iterable[Verdict], left_open: Mapping[str, Unopened], download: int
) -> Iterator[Finding]:
    """Yield a finding if unread files could hide more bytes than a clean run may leave unread."""
    hidden = {
        verdict.owner: min(amount, verdict.download or 0)
        for verdict in verdicts
        if (amount := hidden_bytes(verdict, left_open.get(verdict.owner)))
    }
    total = sum(hidden.values())
    if total * _MOST_HIDDEN > download:
        names = listing(owner.replace("==", " ") for owner in hidden)
        owner = max(hidden, key=lambda owner: hidden[owner])
        yield finding(
            "BM902",
            wheels,
            f"{names} could hide {size(total)} of {size(download)}, which was not read: "
            "`audit --deep` reads the rest",
            owner=owner,
            fix=Fix("waive", "audit again with `--deep`, or look at the image with `scan`"),
        )


def merge_causes(unread: Iterable[Unread]) -> Iterator[Unread]:
    """Merge entries of wheels that are unread for the same cause; keep the rest."""
    paths: dict[tuple[str, str], list[str]] = {}
    for item in unread:
        paths.setdefault((item.why, "" if _is_wheel(item.path) else item.path), []).append(
            item.path
        )
    for (why, own), alike in paths.items():
        number = len(set(alike))
        noun = "wheel" if alike[0].endswith(_WHEEL) else "package"
        wheels = f"{count(number, noun)} ({listing(alike, 2)})" if number > 1 else alike[0]
        yield Unread(own or wheels, why)


def _is_wheel(path: str) -> bool:
    return path.endswith((_WHEEL, ".conda", ".tar.bz2")) and "/" not in path


def _unread_advice(path: str) -> str:
    if _is_wheel(path):
        # A wheel of a lock: the reason is with the index, and not with the file.
        return "remove the cause and audit again: its contents are unknown"
    if _PLACE.search(path):
        return "look at what that line requires; if it is harmless, accept it with a [[waive]]"
    return "find out what the file is; if it is harmless, accept it with a [[waive]]"


# BM902: packages of conda on a channel that did not answer


#: Packages that a sentence names.
_NAMED = 5


class Unanswered(Struct, frozen=True):
    """Packages of conda, of one channel, of which nothing could be read."""

    #: Empty for an address that is not one of a channel.
    channel: str
    #: Why the first of them could not be read.
    why: str
    packages: tuple[CondaPackage, ...]
    #: True if each shows in name, build or requirements whose it is.
    is_named: bool

    @property
    def names(self) -> str:
        """Return the first of them, for a sentence."""
        return listing((item.name.removeprefix(CONDA_PREFIX) for item in self.packages), _NAMED)


def list_unknown(unanswered: Iterable[Unanswered]) -> Iterator[Unread]:
    """Yield the channels with packages whose names do not show whose they are."""
    for group in unanswered:
        if not group.is_named:
            yield Unread(
                group.packages[0].place,
                f"{group.names} come from {group.channel or 'an unknown channel'}, and nothing of "
                f"them was read ({group.why}); create the environment and run "
                "`buildmatrix scan dir:PREFIX`",
            )


def note_unanswered(wheels: Wheels, unanswered: Iterable[Unanswered]) -> Iterator[Finding]:
    """Yield a note for each channel whose packages are judged without their files."""
    for group in unanswered:
        if group.is_named:
            verb = "is" if len(group.packages) == 1 else "are"
            yield finding(
                "BM902",
                wheels,
                f"{group.names} of {group.channel or 'an unknown channel'} {verb} judged by name "
                f"and build alone, as nothing was read ({group.why})",
                severity="note",
                path=group.channel,
                by_path=True,
            )
