"""URLs as they may be shown and stored: without user names, passwords and tokens."""

from __future__ import annotations

import re

#: `user:password@` of an http(s) URL. `ssh://git@host` is left alone: that `git` is no secret.
_CREDENTIALS = re.compile(r"\b(https?://)[^/\s\"'`<>]*@")


def redact(text: str) -> str:
    """`text` with the credentials of every http(s) URL in it taken out."""
    return _CREDENTIALS.sub(r"\1", text)
