"""Paths of `copy` that do not exist."""

from __future__ import annotations

import pytest

from buildmatrix.base.errors import SpecError
from buildmatrix.matrix.settings import check_copied


def refused(spec):
    with pytest.raises(SpecError) as caught:
        check_copied(spec, spec.targets)
    return [str(problem).rpartition("/buildmatrix.toml")[2] for problem in caught.value.problems]


def test_a_path_that_is_not_there_is_named_with_its_line_and_what_it_may_be(load, small, project):
    (project / "source").mkdir()
    lines = 'copy = [["sorce", "/app"], ["base.in", "/a"], ["./dist/", "/b"]]\n'
    spec = load(small.replace("[backend.cuda]\n", lines + "[backend.cuda]\n"))
    assert refused(spec) == [
        ":8:10: there is no `sorce` below the specification's folder, but `copy` names it; did "
        "you mean `source`?",
        ":8:48: there is no `dist` below the specification's folder, but `copy` names it; make "
        "it first, or remove it from `copy`",
    ]


def test_a_path_with_placeholders_is_named_as_it_came_out(load, small):
    lines = 'copy = [["{backend}", "/app"]]\n'
    spec = load(small.replace("[backend.cuda]\n", lines + "[backend.cuda]\n"))
    assert [text.split(" below")[0] for text in refused(spec)] == [
        ":8:10: there is no `cuda`",
        ":8:10: there is no `cpu`",
    ]


def test_a_link_that_leads_out_of_the_folder_is_refused(load, small, project):
    (project / "out").symlink_to("/usr")
    lines = 'copy = [["out", "/app"]]\n'
    spec = load(small.replace("[backend.cuda]\n", lines + "[backend.cuda]\n"))
    (line,) = refused(spec)
    assert "a link that leads out" in line


def test_to_plan_or_to_lock_nothing_need_be_there(load, small):
    lines = 'copy = [["dist", "/app"]]\n'
    assert load(small.replace("[backend.cuda]\n", lines + "[backend.cuda]\n")).targets
