"""User names and passwords in the URLs of inputs.

They are stored in this process, and nowhere else, so that files of the same server can be read; all
other modules get URLs without them (`buildmatrix.base.text.without_login`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

#: The public package index.
PYPI = "https://pypi.org/simple/"
#: `user:password@` of an http(s) URL, with the server.
_CREDENTIALS = re.compile(r"\bhttps?://[^/\s\"'`<>]*@[^/\s\"'`<>#?]+", re.IGNORECASE)
#: An environment variable in a requirements file, as pip and uv read it.
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")

_remembered: dict[str, None] = {}


def remember(text: str) -> None:
    """Store the credentials of the http(s) URLs in `text`, which the user provided."""
    for url in _CREDENTIALS.findall(text):
        expanded = _VARIABLE.sub(lambda match: os.environ.get(match[1], match[0]), url)
        _remembered.setdefault(expanded)


def recall_urls() -> Sequence[str]:
    """Return server URLs with credentials, in the order of the inputs."""
    return tuple(_remembered)


def path_in(url: str) -> str:
    """Return the decoded path of a URL, or the part of other text that looks like a path."""
    try:
        return unquote(urlsplit(url).path)
    except ValueError:  # `http://[`
        return unquote(re.split("[?#]", url, maxsplit=1)[0])
