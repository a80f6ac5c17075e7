"""What is known against packages: asked by pip-audit of a service on loopback."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from conftest import Buildmatrix
from osv import OsvServer, osv_server

from buildmatrix.base.progress import Silent
from buildmatrix.images.store.cache import Cache
from buildmatrix.judge.advisories import (
    AdvisoryOptions,
    Limits,
    check,
    pending_advisories,
)
from buildmatrix.judge.model import Advisories
from buildmatrix.locks.model import Lock, Package
from buildmatrix.matrix.model import Policy, VulnerabilityPolicy

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
JINJA = ("jinja2", "3.1.2")
REQUESTS = ("requests", "2.30.0")
NUMPY = ("numpy", "2.1.0")
TORCH = ("torch", "2.5.1+cu124")


@pytest.fixture
def service() -> Iterator[OsvServer]:
    with osv_server() as running:
        yield running


def ask(service: OsvServer, *packages: tuple[str, str], **more) -> Advisories:
    return check(packages, service="osv", url=service.url, **{"now": NOW, **more})


def ids(advisories: Advisories, key: tuple[str, str]) -> list[str]:
    return [one.id for one in advisories.answers[key].advisories]


def test_each_vulnerable_package_gets_its_advisories_and_fixed_versions(service) -> None:
    found = ask(service, JINJA, NUMPY)

    assert ids(found, JINJA) == [
        "CVE-2024-22195",
        "CVE-2024-34064",
        "CVE-2025-27516",
    ]
    last = found.answers[JINJA].advisories[-1]
    assert (last.aliases, last.fixed) == (("GHSA-cpwx-vrp4-4pq7",), ("3.1.6",))
    assert last.description.startswith("Jinja2 vulnerable to sandbox breakout")
    assert ids(found, NUMPY) == []
    assert not found.unchecked


def test_one_flaw_with_two_names_is_one_advisory(service) -> None:
    found = ask(service, REQUESTS).answers[REQUESTS].advisories
    assert [one.id for one in found] == ["CVE-2024-47081", "PYSEC-2023-74"]
    assert found[1].names == {"PYSEC-2023-74", "CVE-2023-32681", "GHSA-j8r2-6x86-q33q"}
    assert found[1].identity == "CVE-2023-32681"


def test_a_local_version_is_asked_under_its_public_one_and_says_so(service) -> None:
    found = ask(service, TORCH, ("torch", "2.5.1+cpu"), ("torch", "2.9.0"))

    assert sorted(service.asked) == [("torch", "2.5.1"), ("torch", "2.9.0")]
    assert found.answers[TORCH].version == "2.5.1"
    assert ids(found, TORCH) == ids(found, ("torch", "2.5.1+cpu"))
    assert ids(found, TORCH) == ["CVE-2025-32434", "CVE-2025-3730"]
    assert ids(found, ("torch", "2.9.0")) == []


def test_what_is_no_version_is_not_asked_and_not_forgotten(service) -> None:
    strange = [("demo", "latest"), ("-r /etc/passwd", "1"), ("a\nb", "1"), ("demo", "1 --hash=x")]
    found = ask(service, *strange)
    assert service.asked == []
    assert set(found.unchecked) == set(strange)
    assert {one.cause for one in found.unchecked.values()} == {"package"}


@pytest.mark.parametrize("trouble", ["cut", "incomplete"])
def test_a_service_that_fails_for_one_package_tells_about_all_others(service, trouble) -> None:
    service.trouble["numpy"] = trouble
    found = ask(service, JINJA, NUMPY, REQUESTS, ("attrs", "25.1"), ("idna", "3.10"))

    assert set(found.unchecked) == {NUMPY}
    assert found.unchecked[NUMPY].cause == "service"
    assert found.unchecked[NUMPY].reason
    assert len(ids(found, JINJA)) == 3 and len(ids(found, REQUESTS)) == 2


@pytest.mark.parametrize("trouble", ["error", "garbage"])
def test_a_service_that_always_fails_is_given_up_with_its_reason(service, trouble) -> None:
    service.trouble["*"] = trouble
    packages = [(f"demo{number}", "1") for number in range(60)]
    found = ask(service, *packages)

    assert set(found.unchecked) == set(packages)
    assert len(service.asked) <= 2 * Limits().failures + Limits().processes
    (why,) = {one.reason for one in found.unchecked.values()}
    assert ("500" if trouble == "error" else "Expecting value") in why


def test_a_service_that_never_answers_is_given_up(service) -> None:
    service.trouble["*"] = "hang"
    found = ask(service, JINJA, NUMPY, limits=Limits(timeout=1))
    assert set(found.unchecked) == {JINJA, NUMPY}
    assert "timed out" in found.unchecked[JINJA].reason


def test_a_check_ends_when_its_time_is_over(service) -> None:
    service.trouble["numpy"] = "hang"
    found = ask(service, NUMPY, limits=Limits(timeout=600, base=2, each=0))
    assert found.unchecked[NUMPY].reason == "there was no time left to ask"


def test_a_service_that_nobody_runs_is_said(tmp_path: Path) -> None:
    with osv_server() as gone:
        url = gone.url
    found = check([JINJA], service="osv", url=url, cache=Cache(tmp_path))
    assert "refused" in found.unchecked[JINJA].reason
    assert "object at 0x" not in found.unchecked[JINJA].reason


# Answers that are remembered


def test_a_second_run_right_after_asks_nothing(service, tmp_path: Path) -> None:
    first = ask(service, JINJA, NUMPY, cache=Cache(tmp_path))
    questions = len(service.asked)
    again = ask(service, JINJA, NUMPY, cache=Cache(tmp_path), now=NOW + timedelta(minutes=5))
    assert len(service.asked) == questions
    assert again == first

    ask(service, JINJA, cache=Cache(tmp_path), now=NOW + timedelta(hours=1))
    assert len(service.asked) == questions + 1


def test_offline_answers_of_this_week_count_and_older_ones_do_not(service, tmp_path: Path) -> None:
    ask(service, JINJA, cache=Cache(tmp_path))
    questions = len(service.asked)

    later = ask(
        service, JINJA, NUMPY, cache=Cache(tmp_path), offline=True, now=NOW + timedelta(days=3)
    )
    assert len(ids(later, JINJA)) == 3 and later.answers[JINJA].at == NOW
    assert "offline" in later.unchecked[NUMPY].reason

    stale = ask(service, JINJA, cache=Cache(tmp_path), offline=True, now=NOW + timedelta(days=8))
    assert "7 days" in stale.unchecked[JINJA].reason
    assert len(service.asked) == questions


def test_failures_are_not_remembered_and_a_damaged_memory_is_asked_again(service, tmp_path) -> None:
    service.trouble["*"] = "error"
    ask(service, JINJA, cache=Cache(tmp_path))
    service.trouble.clear()
    assert len(ids(ask(service, JINJA, cache=Cache(tmp_path)), JINJA)) == 3
    questions = len(service.asked)
    (answer,) = (path for path in (tmp_path / "advisories").iterdir() if path.is_file())
    answer.write_bytes(answer.read_bytes()[:-1])
    assert len(ids(ask(service, JINJA, cache=Cache(tmp_path)), JINJA)) == 3
    assert len(service.asked) == questions + 1


def test_another_service_is_not_answered_from_this_ones_memory(service, tmp_path: Path) -> None:
    ask(service, JINJA, cache=Cache(tmp_path))
    with osv_server() as other:
        ask(other, JINJA, cache=Cache(tmp_path))
        assert other.asked == [JINJA]


def test_settings_of_pip_audit_in_the_environment_change_nothing(service, monkeypatch) -> None:
    monkeypatch.setenv("PIP_AUDIT_OUTPUT", "/nowhere/report.txt")
    monkeypatch.setenv("PIP_AUDIT_FORMAT", "columns")
    monkeypatch.setenv("PIP_AUDIT_VULNERABILITY_SERVICE", "nonsense")
    assert len(ids(ask(service, JINJA), JINJA)) == 3


def test_modules_in_the_current_folder_are_not_imported(service, monkeypatch, tmp_path) -> None:
    (tmp_path / "pip_audit.py").write_text("raise SystemExit('smuggled')")
    (tmp_path / "requests.py").write_text("raise SystemExit('smuggled')")
    monkeypatch.chdir(tmp_path)
    assert len(ids(ask(service, JINJA), JINJA)) == 3


# Beside other work


def test_who_leaves_early_does_not_wait_for_a_service_that_hangs(service) -> None:
    service.trouble["*"] = "hang"
    locks = [lock_of("demo 1", "other 1")]
    policy = Policy(vulnerabilities=VulnerabilityPolicy("osv", service.url))
    with (
        pytest.raises(KeyboardInterrupt),
        pending_advisories(locks, policy, AdvisoryOptions(), Silent()),
    ):
        while not service.asked:
            time.sleep(0.05)
        raise KeyboardInterrupt
    # Left alone it would give up after some seconds, and try each package by itself.
    assert len(service.asked) == 1


def test_all_targets_are_asked_about_at_once_and_nobody_is_asked_twice(service) -> None:
    locks = [lock_of("jinja2 3.1.2", "numpy 2.1.0"), lock_of("numpy 2.1.0", "requests 2.30.0")]
    policy = Policy(vulnerabilities=VulnerabilityPolicy("osv", service.url))
    with pending_advisories(locks, policy, AdvisoryOptions(), Silent()) as answer:
        found = answer()
    assert found is not None and len(found.answers) == 3
    assert sorted(service.asked) == [JINJA, NUMPY, REQUESTS]


def lock_of(*lines: str) -> Lock:
    packages = tuple(
        Package(name, version, None, (), False, ())
        for name, version in (line.split() for line in lines)
    )
    return Lock(Path("pylock.toml"), packages, "", "")


# The command line


SPEC = """
[project]
name = "demo"
version = "1"

[backend.cpu]
runtime = "any"
python = "3.12"
base = "python:3.12-slim-bookworm"
requirements = ["requirements.in"]

[policy.vulnerabilities]
service = "osv"
url = "{url}"
"""


@pytest.mark.network
def test_a_build_stops_at_the_lock_for_a_known_vulnerability(
    service, tmp_path: Path, buildmatrix: Buildmatrix
) -> None:
    (tmp_path / "requirements.in").write_text("# templates\njinja2==3.1.2\n")
    (tmp_path / "buildmatrix.toml").write_text(SPEC.format(url=service.url))
    cache = {
        "BUILDMATRIX_CACHE": str(tmp_path / "cache"),
        "BUILDMATRIX_NO_VULNERABILITIES": "0",
    }

    done = buildmatrix(tmp_path, "build", "--format", "json", "--no-progress", env=cache)

    assert done.code == 1, done.err
    report = done.report()
    assert report["targets"][0]["gates"] == {
        "lock": "failed",
        "build": "not-run",
        "scan": "not-run",
        "smoke": "not-run",
    }
    base, one = report["findings"]
    assert (one["rule"], one["distribution"]) == ("BM801", "jinja2")
    assert (base["rule"], base["severity"]) == ("BM607", "note")
    assert one["chain"] == ["requirements.in:2", "jinja2 3.1.2"]
    assert one["fix"]["patch"] == "jinja2>=3.1.6"
    assert [item["id"] for item in one["advisories"]] == [
        "CVE-2024-22195",
        "CVE-2024-34064",
        "CVE-2025-27516",
    ]

    # What is remembered answers without a network, and says the same.
    questions = len(service.asked)
    again = buildmatrix(tmp_path, "build", "--offline", "--format", "json", env=cache)
    assert again.report()["findings"] == report["findings"]
    assert len(service.asked) == questions
