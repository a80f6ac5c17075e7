"""Environment markers (PEP 508) as locks have them, held against one target.

Locks ask more than PEP 508 does. uv writes the choice between conflicting extras as further names
of extras (`extra == 'extra-7-inferno-gpu'`, see `uv-resolver/src/universal_marker.rs`), several of
which can hold at once; PEP 751 asks `'gpu' in extras` and `'dev' in dependency_groups`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache

from packaging.markers import InvalidMarker, Marker
from packaging.utils import canonicalize_name

from buildmatrix.parsing import holds as evaluate
from buildmatrix.parsing import parse_marker

_EXTRA = re.compile(
    r"""\bextra\s*(==|!=)\s*(?:'([^']*)'|"([^"]*)")|(?:'([^']*)'|"([^"]*)")\s*(==|!=)\s*extra\b"""
)
_MEMBER = re.compile(r"""(?:'([^']*)'|"([^"]*)")\s+(not\s+in|in)\s+(extras|dependency_groups)\b""")
#: Markers that always and never hold.
_TRUE, _FALSE = "python_version >= '0'", "python_version < '0'"
#: How Poetry writes the marker that never holds: `EmptyMarker` in `poetry/core/version/markers.py`.
_EMPTY = "<empty>"
#: Far above any marker that a tool writes; a longer one is taken for an attack on the parser.
_LONGEST = 100_000


class BrokenMarker(ValueError):
    """A text is not a valid marker; the message says why."""


def holds(
    marker: str | None,
    environment: Mapping[str, str],
    extras: Collection[str] = (),
    groups: Collection[str] = (),
) -> bool:
    """Whether a marker holds where `extras` and `groups` (normalized names) are asked for.

    Raises `BrokenMarker`.
    """
    if not marker:
        return True
    if marker.strip() == _EMPTY:
        return False
    if len(marker) > _LONGEST:
        raise BrokenMarker("it is too long")

    def extra(match: re.Match[str]) -> str:
        name = canonicalize_name(match[2] or match[3] or match[4] or match[5] or "")
        return _TRUE if (name in extras) == ((match[1] or match[6]) == "==") else _FALSE

    def member(match: re.Match[str]) -> str:
        name = canonicalize_name(match[1] or match[2] or "")
        among = extras if match[4] == "extras" else groups
        return _TRUE if (name in among) == (match[3] == "in") else _FALSE

    try:
        return evaluate(_parse(_EXTRA.sub(extra, _MEMBER.sub(member, marker))), environment)
    except InvalidMarker as error:
        raise BrokenMarker(str(error).splitlines()[0]) from error


@lru_cache(maxsize=4096)
def _parse(text: str) -> Marker:
    return parse_marker(text)
