"""`buildmatrix verify`: what its arguments come to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, tzinfo
from pathlib import Path

import pytest

from buildmatrix import cli
from buildmatrix.base.errors import UndecidedError
from buildmatrix.commands import verify
from buildmatrix.commands.verify import AdmissionDemands

KEY = Path(__file__).parents[1] / "signing/vectors/cosign.pub"


class Clock(datetime):
    """Shortly before midnight in UTC."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Clock:
        return cls.fromtimestamp(cls(2026, 11, 22, 23, 30, tzinfo=UTC).timestamp(), tz)


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "XXX-14")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_east")
def test_today_is_the_same_day_on_all_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a waiver has expired is no matter of the time zone of who admits an image."""
    seen: list[AdmissionDemands] = []

    def refuse(
        registry: object, source: object, reference: object, demands: AdmissionDemands
    ) -> None:
        seen.append(demands)
        raise UndecidedError("that is all")

    monkeypatch.setattr(verify, "verify", refuse)
    monkeypatch.setattr("buildmatrix.api.releases.datetime", Clock)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["verify", "registry:localhost/demo", "--backend", "cpu", "--key", str(KEY)])
    assert stopped.value.code == 3
    assert Clock.now().date() == date(2026, 11, 23)
    assert [demands.today for demands in seen] == [date(2026, 11, 22)]
