"""Components that tests need: on CI one that is missing is a failure, and never a skip."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(what: str, remedy: str) -> NoReturn:
    """End the test: as a failure on CI, as a skip that says what to do on a user's machine."""
    text = f"{what} is missing; {remedy}"
    if os.environ.get("CI"):
        pytest.fail(text)
    pytest.skip(text)
