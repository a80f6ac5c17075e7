"""URLs as they may be shown and stored: without user names, passwords and tokens.

What inputs say of those is remembered in this process, and nowhere else, so that files of the same
server can be read: everything behind this module has URLs without them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

#: `user:password@` of an http(s) URL. `ssh://git@host` is left alone: that `git` is no secret.
_CREDENTIALS = re.compile(r"\b(https?://)[^/\s\"'`<>]*@")
#: The same with the server.
_GIVEN = re.compile(r"\bhttps?://[^/\s\"'`<>]*@[^/\s\"'`<>#?]+")
#: An environment variable in a requirements file, as pip and uv read it.
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")

_given: dict[str, None] = {}


def remember(text: str) -> None:
    """Remember the credentials of the http(s) URLs in `text`, which a user gave."""
    for url in _GIVEN.findall(text):
        expanded = _VARIABLE.sub(lambda found: os.environ.get(found[1], found[0]), url)
        _given.setdefault(expanded)


def remembered() -> Sequence[str]:
    """URLs of servers, with credentials, in the order in which they were given."""
    return tuple(_given)


def redact(text: str) -> str:
    """`text` with the credentials of every http(s) URL in it taken out."""
    return _CREDENTIALS.sub(r"\1", text)


def path_in(url: str) -> str:
    """The path of a URL, with its percent signs resolved; of what is none, what looks like it."""
    try:
        return unquote(urlsplit(url).path)
    except ValueError:  # `http://[`
        return unquote(re.split("[?#]", url, maxsplit=1)[0])
