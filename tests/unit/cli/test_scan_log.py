"""A scan in an engine that failed says what its log said: the log goes with its folder."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from buildmatrix.engines.model import Surroundings
from buildmatrix.errors import UndecidedError
from buildmatrix.sources.docker import DockerImage
from buildmatrix.sources.model import ReadingOptions


class Failing:
    """An engine that has every image, and whose scans fail."""

    def __init__(self, log: str | None) -> None:
        self._log = log

    def image(self, name: str) -> object:
        return SimpleNamespace(digest="sha256:0", labels={}, environment={})

    def scan(self, name: str, output: Path, scanner: str, around: Surroundings) -> Path:
        log = output / "scan.log"
        if self._log is not None:
            log.write_text(self._log)
        raise UndecidedError("the scanner failed", log=log)


def failure(log: str | None) -> UndecidedError:
    engine = Failing(log)
    with pytest.raises(UndecidedError) as caught:
        DockerImage("demo:1").facts(ReadingOptions(lambda: engine))
    return caught.value


def test_the_end_of_the_log_is_shown_and_no_file_is_named_that_is_gone() -> None:
    error = failure("".join(f"line {n}\n" for n in range(30_000)) + "no space left\x1b[0m\n")
    assert error.log is None
    assert error.message.startswith("the scanner failed\nThe log ends with:\n  line 29991\n")
    assert "no space left" in error.message
    assert "\x1b" not in error.message


@pytest.mark.parametrize("log", [None, ""])
def test_a_log_that_says_nothing_is_not_named_either(log: str | None) -> None:
    error = failure(log)
    assert (error.log, error.message) == (None, "the scanner failed")
