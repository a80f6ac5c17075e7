"""Facts about the repository and the date that formats need."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from buildmatrix.base.errors import UsageError

#: Bytes of a file that is read for the columns of its lines.
_LARGEST_TEXT = 4 << 20


def text_below(top: Path, folder: Path, name: str) -> str | None:
    """The text of a file that a report names, as seen from `folder`; None outside of `top`.

    Reports are read from others: what they name may be anything.
    """
    try:
        path = (folder / name).resolve()
        if not path.is_relative_to(top) or not path.is_file():
            return None
        if path.stat().st_size > _LARGEST_TEXT:
            return None
        return path.read_bytes().decode()
    except (OSError, ValueError, RuntimeError):  # The last for links that loop.
        return None


def time_of_writing() -> datetime:
    """Return the time for formats that need one: `SOURCE_DATE_EPOCH`, else now; in UTC, whole
    seconds.

    Raises `UsageError` for a `SOURCE_DATE_EPOCH` that is not a time.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not epoch:
        return datetime.now(UTC).replace(microsecond=0)
    try:
        return datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"SOURCE_DATE_EPOCH is {epoch[:40]!r}; write seconds since 1970-01-01"
        ) from error
