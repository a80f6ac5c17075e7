"""Images of a Docker daemon go into a registry as they were scanned, whatever its builder forgot.

Each daemon is a real one of the tests' own, with its data: one with containerd's image store, one
with Docker's older store. So a test may empty the builder's cache.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from components import missing
from docker_project import HERE, Project, docker_project
from scripts.stack import engine as stack_engine
from scripts.stack.layout import Layout

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildError, UndecidedError
from buildmatrix.base.progress import Silent
from buildmatrix.engines.docker_engine import DockerEngine
from buildmatrix.engines.model import BuildJob, BuildOutcome, Pushed

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("engine")]


@dataclass
class Daemon:
    """A daemon, and the docker command that leads to it."""

    environment: dict[str, str]
    has_containerd_store: bool

    def docker(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", *arguments], env=self.environment, capture_output=True, text=True
        )

    def lose_the_cache(self) -> None:
        """Empty the builder's cache, as its garbage collection may at any time."""
        assert self.docker("buildx", "prune", "--all", "--force").returncode == 0


@pytest.fixture(
    scope="module",
    params=[
        # test_two_daemons.py and test_builders_real.py publish from this store in every test run.
        pytest.param(True, id="containerd", marks=pytest.mark.weekly),
        pytest.param(False, id="older store"),
    ],
)
def daemon(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Daemon]:
    layout = Layout.of_environment()
    if os.geteuid() != 0 or not (layout.prefix / "usr/sbin/dockerd").is_file():
        missing("a second Docker daemon", "run `python3 -m scripts.stack up` as root on Debian")
    data = tmp_path_factory.mktemp("daemon")
    try:
        with stack_engine.beside(layout, data, containerd_store=request.param) as started:
            host = {"DOCKER_HOST": started.docker_host}
            yield Daemon({**os.environ, **host}, has_containerd_store=request.param)
    finally:
        shutil.rmtree(data, ignore_errors=True)


@pytest.fixture
def project(tmp_path: Path, registry_tag: str, small_base: str) -> Iterator[Project]:
    with docker_project(tmp_path / "project", small_base) as project:
        project.tag = registry_tag
        # What a scan finds is nothing to these tests, and each builder would fetch a Python for it.
        scan, nothing = project.folder / "scan", tmp_path / "nothing"
        nothing.mkdir()
        scanner = [sys.executable, "-I", scan / "scan.pyz", nothing, scan / "inventory.json"]
        subprocess.run(scanner, check=True)
        (scan / "Dockerfile").write_text(
            "FROM rootfs AS of-target\nFROM scratch\n"
            "COPY --from=of-target /made /\nCOPY inventory.json /\n"
        )
        yield project


def scanned(engine: DockerEngine, project: Project, steps: str = "") -> tuple[BuildJob, str]:
    """A new image that the daemon has: its job, as `build` hands it over, and its configuration."""
    # What it writes is another number in each build: only this one was scanned.
    job = project.job("a", f"RUN date +%N >/made; echo {uuid.uuid4()} >/x\n{steps}")
    outcome: BuildOutcome = engine.build(job, HERE, Silent())
    assert outcome.config is not None
    return replace(job, config=outcome.config, digest=outcome.digest), outcome.config


def published(daemon: Daemon, name: str) -> str | None:
    """The digest of the configuration of what a registry has under a name."""
    answer = daemon.docker("buildx", "imagetools", "inspect", "--raw", name)
    if answer.returncode != 0:
        return None
    configuration: str = json.loads(answer.stdout)["config"]["digest"]
    return configuration


def test_what_is_pushed_is_what_was_scanned_also_when_the_builder_lost_it(
    daemon: Daemon, project: Project
) -> None:
    engine = DockerEngine(daemon.environment)
    job, configuration = scanned(engine, project)
    job = replace(job, tags=(*job.tags, f"{project.tag}:second"))
    assert daemon.docker("image", "tag", *job.tags).returncode == 0
    daemon.lose_the_cache()
    pushed = engine.push([job], HERE, Silent())

    assert pushed.error is None, job.log.read_text()
    assert [published(daemon, tag) for tag in job.tags] == [configuration] * 2
    assert published(daemon, f"{project.tag}@{pushed.digests['a']}") == configuration
    if daemon.has_containerd_store:
        assert pushed == Pushed({"a": job.digest or ""})
    assert engine.push([job], HERE, Silent()) == pushed, "not the same again"


def test_an_image_is_pushed_by_its_digest_alone(daemon: Daemon, project: Project) -> None:
    engine = DockerEngine(daemon.environment)
    job, configuration = scanned(engine, project, "LABEL a=b")
    daemon.lose_the_cache()
    daemon.docker("image", "tag", job.tags[0], "an-image-with-two-names:1")
    pushed = engine.push([job], HERE, Silent(), tagged=False)
    daemon.docker("image", "rm", "an-image-with-two-names:1")

    assert pushed.error is None, job.log.read_text()
    assert list(job.scan_output.glob("buildmatrix.*")) == [], "an export was left"
    assert published(daemon, job.tags[0]) is None, "a tag was set"
    name = f"{project.tag}@{pushed.digests['a']}"
    assert published(daemon, name) == configuration
    assert engine.push([job], HERE, Silent(), tagged=False) == pushed, "not the same again"

    # Its layers come back out of the registry.
    daemon.docker("image", "rm", "--force", job.tags[0])
    run = daemon.docker("run", "--rm", "--network=none", name, "cat", "/x")
    assert len(run.stdout) == 37, run.stderr


@pytest.mark.parametrize("tagged", [True, False], ids=["tagged", "by digest"])
def test_an_image_that_was_removed_here_comes_from_the_builder_or_not_at_all(
    daemon: Daemon, project: Project, tagged: bool
) -> None:
    engine = DockerEngine(daemon.environment)
    job, configuration = scanned(engine, project)
    daemon.docker("image", "rm", "--force", job.tags[0])
    pushed = engine.push([job], HERE, Silent(), tagged=tagged)
    assert pushed.error is None, job.log.read_text()
    assert published(daemon, f"{project.tag}@{pushed.digests['a']}") == configuration

    daemon.docker("image", "rm", "--force", job.tags[0])
    daemon.lose_the_cache()
    job = replace(job, tags=(f"{project.tag}:after",))
    pushed = engine.push([job], HERE, Silent(), tagged=tagged)
    assert isinstance(pushed.error, UndecidedError)
    assert "no longer has the image that was scanned; nothing was pushed" in pushed.error.message
    assert published(daemon, job.tags[0]) is None


@pytest.mark.parametrize("tagged", [True, False], ids=["tagged", "by digest"])
def test_a_registry_that_refuses_is_told_with_the_target_that_it_stopped_at(
    daemon: Daemon, project: Project, tagged: bool
) -> None:
    project.tag = f"localhost:1/buildmatrix-test/{uuid.uuid4().hex[:12]}"
    engine = DockerEngine(daemon.environment)
    job, _ = scanned(engine, project)
    pushed = engine.push([job], HERE, Silent(), tagged=tagged)

    assert (pushed.stopped_at, pushed.digests) == ("a", {})
    assert isinstance(pushed.error, BuildError)
    assert f"{job.tags[0]} could not be pushed" in pushed.error.message
    assert re.search("connection refused|refuses connections", pushed.error.message)


def test_an_image_that_was_not_scanned_is_not_pushed(daemon: Daemon, project: Project) -> None:
    engine = DockerEngine(daemon.environment)
    job, _ = scanned(engine, project)
    nobody = "sha256:" + "0" * 64
    pushed = engine.push([replace(job, config=nobody, digest=nobody)], HERE, Silent())
    assert isinstance(pushed.error, UndecidedError)
    assert "nothing was pushed" in pushed.error.message
    assert published(daemon, job.tags[0]) is None
