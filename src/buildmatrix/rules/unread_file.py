"""BM902: something in the image could not be read, so nothing is known about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from buildmatrix.inventory.model import Unread
from buildmatrix.phrases import count, listing, size
from buildmatrix.rules.certainty import Unopened, hidden_bytes
from buildmatrix.rules.findings import finding
from buildmatrix.rules.fixes import accept
from buildmatrix.rules.model import Finding, Fix, Verdict
from buildmatrix.rules.subject import ImageSubject
from buildmatrix.rules.wheels import Wheels

#: Unread bytes that could change a verdict are at most one in so many bytes of an audit.
_MOST_HIDDEN = 10
#: Line of a file that requires something that is not audited.
_PLACE = re.compile(r":\d+$")


def check(image: ImageSubject) -> Iterator[Finding]:
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
            chain=("layers",),
            fix=Fix("waive", "see that the layers of the image can be read, or accept it"),
            by_path=True,
        )
    owners = {binary.path: binary.owner for binary in image.inventory.binaries}
    unread = (*image.inventory.unread, *image.resolution.unread)
    paths = {item.path for item in unread}
    for item in merge_causes(unread) if isinstance(image, Wheels) else unread:
        # Which wheels they are, and how many, is another matter than the cause.
        is_one = item.path in paths
        advice = _advice(item.path if is_one else "several.whl")
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
    wheels: Wheels,
    verdicts: Iterable[Verdict],
    left_open: Mapping[str, Unopened],
    download: int,
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
            chain=wheels.chain_to(owner.partition("==")[0]) or (owner.replace("==", " "),),
            fix=Fix("waive", "audit again with `--deep`, or look at the image with `scan`"),
        )


def merge_causes(unread: Iterable[Unread]) -> Iterator[Unread]:
    """Several wheels that one cause keeps unread as one entry; the rest as it is."""
    paths: dict[tuple[str, str], list[str]] = {}
    for item in unread:
        paths.setdefault((item.why, "" if _is_wheel(item.path) else item.path), []).append(
            item.path
        )
    for (why, own), alike in paths.items():
        number = len(set(alike))
        wheels = f"{count(number, 'wheel')} ({listing(alike, 2)})" if number > 1 else alike[0]
        yield Unread(own or wheels, why)


def _is_wheel(path: str) -> bool:
    return path.endswith(".whl") and "/" not in path


def _advice(path: str) -> str:
    if _is_wheel(path):
        # A wheel of a lock: the reason is with the index, and not with the file.
        return "remove the cause, and audit again: nothing is known of what it holds"
    if _PLACE.search(path):
        return "look at what that line requires; if it is harmless, accept it with a [[waive]]"
    return "find out what the file is; if it is harmless, accept it with a [[waive]]"
