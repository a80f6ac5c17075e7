"""BM902: something in the image could not be read, so nothing is known about it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from buildmatrix.rules.findings import finding
from buildmatrix.rules.fixes import accept
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.subject import ImageSubject
from buildmatrix.rules.wheels import Wheels

#: A line of a file that asks for something which nobody looks at.
_PLACE = re.compile(r":\d+$")


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per path. The run ends with exit code 3 as long as it is not waived."""
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
    for item in (*image.inventory.unread, *image.resolution.unread):
        owner = owners.get(item.path)
        yield finding(
            "BM902",
            image,
            f"{item.path} could not be read: {item.why}",
            owner=owner,
            path=item.path,
            chain=(item.path,),
            fix=Fix("waive", _advice(item.path), accept("BM902", path=item.path)),
            by_path=True,
        )


def _advice(path: str) -> str:
    if path.endswith(".whl") and "/" not in path:
        # A wheel of a lock: the reason is with the index, and not with the file.
        return "remove the cause, and audit again: nothing is known of what it holds"
    if _PLACE.search(path):
        return "look at what that line requires; if it is harmless, accept it with a [[waive]]"
    return "find out what the file is; if it is harmless, accept it with a [[waive]]"
