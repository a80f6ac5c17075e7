"""Which records of the journal save a build, whoever built."""

from __future__ import annotations

import pytest

from buildmatrix.commands.build import _BuildRun
from buildmatrix.commands.build_work import Options
from buildmatrix.sources.state_folder import BuildRecord


@pytest.mark.parametrize(
    ("builder", "loaded", "options", "counts"),
    [
        ("a", False, Options(builders=("a", "b")), True),
        ("c", False, Options(builders=("a", "b")), False),
        ("c", True, Options(builders=("a", "b")), True),
        (None, True, Options(builders=("a",)), True),
        ("a", True, Options(), True),
        ("a", False, Options(), False),
        ("a", True, Options(push=True), False),
        ("a", True, Options(stage=True), False),
        ("a", True, Options(builders=("a",), push=True), True),
        (None, True, Options(rebuild=True), False),
    ],
)
def test_an_image_counts_where_it_is_here_or_where_its_builder_takes_part(
    builder: str | None, loaded: bool, options: Options, counts: bool
) -> None:
    record = BuildRecord(
        key="k", builder=builder, digest="d", config=None, loaded=loaded, tags=(), inventory="",
        seconds=1.0,
    )  # fmt: skip
    run = _BuildRun(None, options, None, None, None, [], ())
    assert run.counts(record) is counts
