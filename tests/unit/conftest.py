"""What all unit tests start from."""

from __future__ import annotations

import pytest

from buildmatrix.lock import urls


@pytest.fixture(autouse=True)
def no_credentials_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one run of the tool was given is remembered in its process; a test is a run."""
    monkeypatch.setattr(urls, "_given", {})
