"""The log of a run: requests, cache hits and child processes, with their times.

Each module logs to the logger of its name, at the level DEBUG. Records contain no credentials:
addresses have no logins and no queries, commands are described by `base.child.describe_command`,
and headers are not logged.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from buildmatrix import __version__
from buildmatrix.base.child import describe_command
from buildmatrix.base.errors import UsageError
from buildmatrix.base.text import LINES, safe
from buildmatrix.cli import console

#: Records of what standard error shows; only the file has them.
_MESSAGES = logging.getLogger("buildmatrix.cli.console")


class _ConsoleHandler(logging.Handler):
    """Standard error, with seconds since the start; of this process, not of its workers."""

    def __init__(self) -> None:
        super().__init__()
        self._started, self._process = time.time(), os.getpid()

    def createLock(self) -> None:
        """Share the lock of the console.

        With one of its own, a thread that logs and one that prints would wait for each other.
        """
        self.lock = console.LOCK

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filterer.filter`; asked before the lock is taken."""
        return os.getpid() == self._process and record.name != _MESSAGES.name

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`."""
        room = record.name.removeprefix("buildmatrix.")
        text = f"{record.created - self._started:7.1f} {room}: {record.getMessage()}"
        console.complain(text, is_recorded=False)


class _FileFormatter(logging.Formatter):
    """A line per record, in UTC; a traceback behind the record of an error."""

    def __init__(self) -> None:
        super().__init__(
            "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
        )
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        return safe(super().format(record), LINES)


@contextmanager
def logging_to(file: Path | None, *, verbose: bool) -> Iterator[None]:
    """Log the block to standard error if `verbose`, and append it to `file`.

    Raises `UsageError` if the file cannot be written.
    """
    handlers: list[logging.Handler] = [_ConsoleHandler()] if verbose else []
    if file is not None:
        try:
            written = logging.FileHandler(file, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(
                f"--log-file {file} cannot be written: {error.strerror or error}"
            ) from error
        written.setFormatter(_FileFormatter())
        handlers.append(written)
        console.record = lambda text: _MESSAGES.info("%s", text)
    logger = logging.getLogger("buildmatrix")
    level = logger.level
    logger.setLevel(logging.DEBUG)
    for handler in handlers:
        logger.addHandler(handler)
    try:
        _MESSAGES.debug(
            "buildmatrix %s, Python %s, %s: %s",
            __version__,
            platform.python_version(),
            platform.platform(),
            describe_command(sys.argv[1:]),
        )
        yield
    except click.exceptions.Exit:
        raise
    except BaseException:
        _MESSAGES.debug("the command failed", exc_info=True)
        raise
    finally:
        console.record = console.ignore
        logger.setLevel(level)
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()
