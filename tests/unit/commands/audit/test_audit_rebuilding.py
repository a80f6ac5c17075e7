"""A fix that builds from source is never tried; whether there is a source is looked up."""

from __future__ import annotations

import pytest
from rulecases import lock, pin, target

from buildmatrix.base.errors import UndecidedError
from buildmatrix.commands.fix_trials import look_up
from buildmatrix.judge.model import Finding, Fix, Trial
from buildmatrix.sources.resolved import Resolved

WHERE = target("rocm")
FIX = Fix("rebuild", "build it from source")


def finding(fix: Fix = FIX) -> Finding:
    return Finding(
        rule="BM301",
        name="foreign-needed",
        severity="error",
        target=WHERE.id,
        backend="rocm",
        vendor="nvidia",
        distribution="lmcache",
        version="0.5.6",
        path=None,
        message="",
        evidence=(),
        chain=(),
        fix=fix,
        fingerprint="1",
    )


def trial(*files: str, offline: bool = False, fails: str = "") -> Trial | None:
    def listing(index: str, name: str) -> tuple[str, ...]:
        assert name == "lmcache"
        if fails:
            raise UndecidedError(fails)
        return files

    found = [Resolved(WHERE, lock(pin("lmcache 0.5.6")), None, "")]
    (one,) = look_up([finding()], found, None if offline else listing)
    return one.fix.tried if one.fix is not None else None


def test_a_source_of_the_same_version_is_named_and_said_to_be_untried() -> None:
    found = trial("lmcache-0.5.5.tar.gz", "lmcache-0.5.6.tar.gz", "lmcache-0.5.6-py3-none-any.whl")
    assert found is not None
    assert found.works is None
    assert "lmcache-0.5.6.tar.gz is there" in found.outcome
    assert "building it runs its code" in found.outcome


def test_without_a_source_there_is_no_such_fix() -> None:
    assert trial("lmcache-0.5.5.tar.gz", "lmcache-0.5.6-py3-none-any.whl", "x") == Trial(
        False, "there is no source of lmcache 0.5.6 on its index"
    )


@pytest.mark.parametrize("found", [trial(offline=True), trial(fails="the index answers 503")])
def test_what_cannot_be_asked_is_not_known(found: Trial | None) -> None:
    assert found is not None
    assert found.works is None
    assert "not known" in found.outcome


def test_other_fixes_stay_as_they_are() -> None:
    other = finding(Fix("waive", "accept it"))
    assert look_up([other], (), None) == (other,)
