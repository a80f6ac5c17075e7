"""Messages for errors of the local disk."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from buildmatrix.errors import BuildError

_FULL = {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Raise `BuildError` for operating system errors while writing to `folder`."""
    try:
        yield
    except BrokenPipeError:
        raise  # The reader of our own output is gone: not this folder's trouble.
    except OSError as error:
        place = error.filename or folder
        if error.errno in _FULL:
            raise BuildError(
                f"the disk of {folder} is full; free space there and run again, what was finished "
                "is kept"
            ) from error
        raise BuildError(
            f"{place} cannot be written: {error.strerror or error}; see that {folder} is a folder "
            "of this user"
        ) from error
