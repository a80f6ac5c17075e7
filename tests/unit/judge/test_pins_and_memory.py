"""What is asked about, and why nothing was answered; without asking anybody."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from buildmatrix.base.progress import Silent
from buildmatrix.images.store.cache import Cache
from buildmatrix.judge.advisories import (
    FRESH,
    STALE,
    AdvisoryMemory,
    AdvisoryOptions,
    Remembered,
    ask,
    check,
)
from buildmatrix.judge.model import Advisory, Unchecked
from buildmatrix.judge.pip_audit import Pin, batches, last_complaint, pin, pins_of
from buildmatrix.locks.model import Lock, Package
from buildmatrix.matrix.model import Policy

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_names_are_normalised_before_they_are_asked() -> None:
    pins, _ = pins_of([("Ruamel.YAML", "0.18"), ("ruamel-yaml", "0.18.0")])
    assert {str(one) for one in pins.values()} == {"ruamel-yaml==0.18", "ruamel-yaml==0.18.0"}


@pytest.mark.parametrize(
    ("source", "is_asked"),
    [
        ("", True),
        ("https://example.com/engine-1.tar.gz", True),
        ("git+git@example.com:acme/engine.git@0123", True),
        ("engine", False),
        ("../engine", False),
        ("file:///home/acme/engine", False),
        ("this workspace", False),
    ],
)
def test_nobody_hears_the_names_of_the_users_own_projects(source: str, is_asked: bool) -> None:
    package = Package("engine", "1", None, (), bool(source), (), source=source)
    lock = Lock(Path("uv.lock"), (package,), "", "")
    answer = ask([lock], Policy(), AdvisoryOptions(offline=True), Silent())
    assert [name for name, _ in answer.unchecked] == (["engine"] if is_asked else [])


def test_batches_hold_no_name_twice_and_every_pin_once() -> None:
    pins = [pin(f"demo{number % 30}", f"{number}") for number in range(90)]
    parts = [list(part) for part in batches(filter(None, pins), parts=4, few=5, most=10)]
    assert sorted(one for part in parts for one in part) == sorted(filter(None, pins))
    for part in parts:
        assert len({one.name for one in part}) == len(part) <= 10


def test_the_reason_is_the_innermost_one_without_credentials() -> None:
    trace = (
        "Traceback (most recent call last):\n"
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='osv.example.com', port=443)"
        ": Max retries exceeded with url: /v1/query (Caused by NameResolutionError("
        "\"HTTPSConnection(host='osv.example.com', port=443): Failed to resolve 'osv.example.com' "
        '([Errno -2] Name or service not known)"))\n'
    )
    assert (
        last_complaint(trace, 1)
        == "Failed to resolve 'osv.example.com' ([Errno -2] Name or service not known)"
    )
    secret = "requests.exceptions.HTTPError: 500 for url: https://me:secret@osv.example.com/v1"
    assert last_complaint(secret, 1) == "500 for url: https://osv.example.com/v1"
    assert last_complaint("", 139) == "pip-audit ended with exit code 139"


def test_a_request_cannot_smuggle_options_into_a_requirements_file() -> None:
    strange = [("-r /etc/passwd", "1"), ("a\nb", "1"), ("demo", "1 --hash=x"), ("demo", "1\n-e .")]
    assert pins_of(strange) == ({}, tuple(strange))


def test_offline_nothing_is_asked_and_nothing_is_called_clean() -> None:
    found = check([("demo", "1")], offline=True)
    assert not found.answers
    assert found.unchecked[("demo", "1")].cause == "service"


def test_what_a_service_does_not_know_is_remembered_as_such(tmp_path: Path) -> None:
    unknown = {Pin(name, "1"): Remembered(NOW, unknown="no such package") for name in ("a", "b")}
    known = {Pin("c", "1"): Remembered(NOW)}
    AdvisoryMemory(Cache(tmp_path), "PyPI", NOW).keep(unknown | known)

    some = check([("a", "1"), ("c", "1")], offline=True, cache=Cache(tmp_path), now=NOW)
    assert some.unchecked == {("a", "1"): Unchecked("no such package", "package")}

    none = check([("a", "1"), ("b", "1")], offline=True, cache=Cache(tmp_path), now=NOW)
    assert {one.cause for one in none.unchecked.values()} == {"service"}
    assert none.unchecked[("a", "1")].reason == "it knows none of 2 packages: no such package"


def test_answers_are_remembered_until_they_are_too_old(tmp_path: Path) -> None:
    asked = Pin("demo", "1")
    AdvisoryMemory(Cache(tmp_path), "OSV", NOW).keep(
        {asked: Remembered(NOW, (Advisory("CVE-2026-1"),))}
    )

    for age, limit, is_known in (
        (timedelta(minutes=1), FRESH, True),
        (timedelta(hours=1), FRESH, False),
        (timedelta(days=6), STALE, True),
        (timedelta(days=8), STALE, False),
        (timedelta(days=-1), STALE, False),
    ):
        known = AdvisoryMemory(Cache(tmp_path), "OSV", NOW + age).recall(asked, limit)
        assert (known is not None) == is_known, age
    assert AdvisoryMemory(Cache(tmp_path), "PyPI", NOW).recall(asked, STALE) is None


def test_a_folder_that_cannot_be_written_remembers_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    memory = AdvisoryMemory(Cache(tmp_path / "file"), "OSV", NOW)
    memory.keep({Pin("demo", "1"): Remembered(NOW)})
    assert memory.recall(Pin("demo", "1"), STALE) is None
