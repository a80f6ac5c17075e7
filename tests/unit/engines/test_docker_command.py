"""A machine without a usable engine. The docker command in here is a stand-in: a script of the
test's own, because engines that are missing or too old cannot be had for real."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from buildmatrix.base.errors import BuildError, ComponentError, UndecidedError, UsageError
from buildmatrix.base.progress import Silent
from buildmatrix.engines import docker_bake as bake
from buildmatrix.engines.docker_command import DockerCommand
from buildmatrix.engines.docker_engine import DockerEngine
from buildmatrix.engines.model import BuildJob, Pushed, Surroundings

DATA = Path(__file__).parent / "data"
BUILDX = 'case "$*" in "buildx version") echo "github.com/docker/buildx v0.29.1 a";;'


def engine_with(folder: Path, script: str) -> DockerEngine:
    docker = folder / "docker"
    docker.write_text(f"#!/bin/sh\n{script}\n")
    docker.chmod(0o755)
    return DockerEngine({"PATH": f"{folder}:/usr/bin:/bin"})


def test_no_docker_command(tmp_path: Path) -> None:
    with pytest.raises(ComponentError, match=r"no docker command; install Docker 23\.0"):
        DockerEngine({"PATH": str(tmp_path)}).check()


def test_no_buildx_plugin(tmp_path: Path) -> None:
    engine = engine_with(tmp_path, "echo 'docker: unknown command: docker buildx' >&2; exit 1")
    with pytest.raises(ComponentError, match=r"no buildx plugin; install .* 0\.19 or newer"):
        engine.check()


def test_podman_behind_the_name_docker_is_no_buildx(tmp_path: Path) -> None:
    with pytest.raises(ComponentError, match="no buildx plugin"):
        engine_with(tmp_path, "echo 'buildah 1.33.7'").check()


def test_buildx_too_old(tmp_path: Path) -> None:
    engine = engine_with(tmp_path, "echo 'github.com/docker/buildx v0.12.1 30feaa1'")
    with pytest.raises(ComponentError, match=r"buildx v0\.12\.1 is too old; install 0\.19"):
        engine.check()


def test_daemon_down(tmp_path: Path) -> None:
    down = "Cannot connect to the Docker daemon at unix:///x.sock. Is the docker daemon running?"
    engine = engine_with(
        tmp_path, f"{BUILDX} *inspect*) echo 'Name: default\nDriver:\nError: {down}';; esac"
    )
    with pytest.raises(ComponentError, match=r"daemon does not answer at unix:///x\.sock"):
        engine.check()


def test_daemon_too_old(tmp_path: Path) -> None:
    engine = engine_with(
        tmp_path, f"{BUILDX} *inspect*) echo 'Driver: docker';; version*) echo 20.10.24;; esac"
    )
    with pytest.raises(ComponentError, match=r"version 20\.10\.24; 23\.0 or newer"):
        engine.check()


def test_socket_of_another_user(tmp_path: Path) -> None:
    denied = "permission denied while trying to connect to the Docker daemon socket at unix:///x"
    engine = engine_with(
        tmp_path,
        f"{BUILDX} *inspect*) echo 'Driver: docker';; *) echo '{denied}' >&2; exit 1;; esac",
    )
    with pytest.raises(ComponentError, match="group `docker`"):
        engine.check()


def test_unknown_builder(tmp_path: Path) -> None:
    engine = engine_with(
        tmp_path, f"{BUILDX} *) echo 'ERROR: no builder \"nope\" found' >&2; exit 1;; esac"
    )
    with pytest.raises(UsageError, match="no builder 'nope'"):
        engine.check("nope")


def test_a_damaged_cache_of_the_builder_is_mended_by_building_without_it(tmp_path: Path) -> None:
    lost = (
        "ERROR: target scan-a: failed to solve: failed to commit 77w to 3f9 during finalize: "
        "failed to stat active key during commit: snapshot 77w does not exist: not found"
    )
    engine = engine_with(
        tmp_path,
        f"""
        for word in "$@"; do case "$word" in
            --metadata-file=*) metadata=${{word#*=}};;
            --no-cache) whole=1;;
            inspect) echo 'Driver: docker'; exit;;
        esac; done
        [ -n "$whole" ] || {{ echo '{lost}' >&2; exit 1; }}
        cp '{DATA}/metadata.json' "$metadata"
        echo '{{}}' >'{tmp_path}/scan/inventory.json'
        """,
    )
    name = "cpu-py311-v2"
    job = BuildJob(
        name, tmp_path / "bake.json", name, f"scan-{name}", tmp_path, (), tmp_path / "log",
        tmp_path / "scan",
    )  # fmt: skip

    assert engine.build(job, Surroundings(), Silent()).digest.startswith("sha256:")
    assert "--no-cache" in job.log.read_text()
    pushed = engine.push([job], Surroundings(), Silent())
    assert pushed.stopped_at == name
    assert isinstance(pushed.error, BuildError)
    assert "does not exist" in pushed.error.message


def pushing(folder: Path, *digests: str) -> tuple[DockerEngine, BuildJob]:
    """An engine whose builder has the image `digests[n]` when it is asked for the nth time.

    It names no configuration, as BuildKit does of an image that containerd's store took.
    """
    for number, digest in enumerate(digests):
        said = {"cpu": {"containerimage.digest": digest}}
        (folder / f"{number}.json").write_text(json.dumps(said))
    engine = engine_with(
        folder,
        f"""
        for word in "$@"; do case "$word" in
            --metadata-file=*) metadata=${{word#*=}};;
            --file=*overlay*) overlay=${{word#*=}};;
            inspect) echo 'Driver: docker-container'; exit;;
        esac; done
        asked=$(ls '{folder}' | grep -c sent)
        cp "$overlay" "{folder}/sent-$asked"
        cp "{folder}/$asked.json" "$metadata"
        """,
    )
    job = BuildJob(
        "cpu", folder / "bake.json", "cpu", "scan-cpu", folder, (), folder / "log", folder / "scan",
        digest="sha256:scanned",
    )  # fmt: skip
    return engine, job


def test_an_image_whose_configuration_nobody_said_is_known_by_its_manifest(tmp_path: Path) -> None:
    engine, job = pushing(tmp_path, "sha256:scanned", "sha256:scanned")
    pushed = engine.push([job], Surroundings(), Silent())
    assert (pushed.digests, pushed.error) == ({"cpu": "sha256:scanned"}, None)
    assert "push=true" in (tmp_path / "sent-1").read_text()


def test_a_builder_that_lost_its_cache_publishes_nothing_that_was_not_scanned(
    tmp_path: Path,
) -> None:
    engine, job = pushing(tmp_path, "sha256:another")
    pushed = engine.push([job], Surroundings(), Silent())
    assert (pushed.digests, pushed.stopped_at) == ({}, "cpu")
    assert isinstance(pushed.error, UndecidedError)
    assert "no longer has the image that was scanned; nothing was pushed" in pushed.error.message
    assert "push=false" in (tmp_path / "sent-0").read_text()
    assert not (tmp_path / "sent-1").exists()


def test_an_image_that_its_builder_lost_while_it_was_pushed_is_said_to_be_another(
    tmp_path: Path,
) -> None:
    engine, job = pushing(tmp_path, "sha256:scanned", "sha256:another")
    pushed = engine.push([job], Surroundings(), Silent())
    assert (pushed.digests, pushed.stopped_at) == ({}, "cpu")
    assert isinstance(pushed.error, UndecidedError)
    assert "made another one, sha256:another, which was not scanned" in pushed.error.message


PUSHED = "sha256:" + "5" * 64


def keeping(folder: Path, push: str, *, then: str = "") -> tuple[DockerEngine, BuildJob]:
    """An engine whose daemon has the image that was scanned, until `push` writes `moved`."""
    engine = engine_with(
        folder,
        f"""
        case "$*" in
            *inspect*) echo 'Driver: docker';;
            "image ls"*) if [ -e '{folder}/moved' ]; then echo 'sha256:another x/a:1'
                else echo 'sha256:scanned x/a:1'; fi;;
            "image push x/a:1") {push};;
            version*) {then or "true"};;
        esac
        """,
    )
    job = BuildJob(
        "cpu", folder / "bake.json", "cpu", "scan-cpu", folder, ("x/a:1",), folder / "log",
        folder / "scan", digest="sha256:scanned", config="sha256:configuration",
    )  # fmt: skip
    return engine, job


def test_what_a_daemon_has_is_pushed_without_its_builder(tmp_path: Path) -> None:
    sent = f"echo '4f: Pushed'; echo '1: digest: {PUSHED} size: 12'"
    engine, job = keeping(tmp_path, sent)
    assert engine.push([job], Surroundings(), Silent()) == Pushed({"cpu": PUSHED})
    assert "4f: Pushed" in job.log.read_text()


def test_a_tag_that_was_moved_while_it_was_pushed_is_undecided(tmp_path: Path) -> None:
    moved = f"touch '{tmp_path}/moved'; echo '1: digest: {PUSHED} size: 12'"
    engine, job = keeping(tmp_path, moved)
    pushed = engine.push([job], Surroundings(), Silent())
    assert (pushed.digests, pushed.stopped_at) == ({}, "cpu")
    assert isinstance(pushed.error, UndecidedError)
    assert f"may lead to images that were not scanned ({PUSHED})" in pushed.error.message


def test_a_push_that_a_registry_refuses_is_told_with_its_reason(tmp_path: Path) -> None:
    engine, job = keeping(tmp_path, "echo 'denied: requested access is denied' >&2; exit 1")
    pushed = engine.push([job], Surroundings(), Silent())
    assert isinstance(pushed.error, BuildError)
    assert "x/a:1 could not be pushed: denied: requested access is denied; check the name" in (
        pushed.error.message
    )


def test_a_push_that_names_no_digest_counts_as_failed(tmp_path: Path) -> None:
    engine, job = keeping(tmp_path, "echo 'The push refers to repository [x/a]'")
    pushed = engine.push([job], Surroundings(), Silent())
    assert (pushed.digests, pushed.stopped_at) == ({}, "cpu")
    assert isinstance(pushed.error, BuildError)


def test_a_daemon_that_dies_while_it_pushes_is_no_refusal(tmp_path: Path) -> None:
    engine, job = keeping(tmp_path, "echo 'unexpected EOF' >&2; exit 1", then="exit 1")
    pushed = engine.push([job], Surroundings(), Silent())
    assert isinstance(pushed.error, ComponentError)
    assert "stopped answering while x/a:1 was pushed" in pushed.error.message


def inspected(**nodes: str) -> str:
    """What `docker buildx inspect` prints of a builder with these nodes."""
    head = "Name: duo\nDriver: docker-container\n\nNodes:\n"
    return head + "\n".join(f"Name: {name}\nEndpoint: x\n{said}\n" for name, said in nodes.items())


RUNS = "Status:                running\nBuildKit version:      v0.32.2"
PAUSED = "Error:          Error response from daemon: Container duo0 is paused"


@pytest.mark.parametrize(
    ("first", "then", "answers"),
    [
        (inspected(duo0=RUNS), inspected(duo0=RUNS), True),
        (inspected(duo0=RUNS), inspected(duo0=PAUSED), False),
        (inspected(duo0=RUNS, duo1=RUNS), inspected(duo0=PAUSED, duo1=RUNS), False),
        (inspected(duo0=PAUSED, duo1=RUNS), inspected(duo0=PAUSED, duo1=RUNS), True),
        (inspected(duo0="Status: inactive"), inspected(duo0="Status: stopped"), False),
    ],
    ids=["runs", "paused", "the node that builds is paused", "never did", "ended"],
)
def test_a_builder_answers_as_long_as_all_its_nodes_do_that_did(
    tmp_path: Path, first: str, then: str, answers: bool
) -> None:
    (tmp_path / "said").write_text(first)
    engine_with(tmp_path, f"cat '{tmp_path}/said'")
    command = DockerCommand({"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert command.driver("duo") == "docker-container"
    (tmp_path / "said").write_text(then)
    assert command.answers("duo", 5) is answers


def test_another_builder_needs_no_daemon(tmp_path: Path) -> None:
    engine = engine_with(
        tmp_path, f"{BUILDX} *inspect*) echo 'Driver: kubernetes';; *) exit 1;; esac"
    )
    assert engine.check("cluster") == "buildx v0.29.1"


def daemons(folder: Path, store: str) -> DockerEngine:
    """An engine with a context of another daemon, `rack`, whose images are kept in `store`."""
    return engine_with(
        folder,
        f"{BUILDX} *}}}}\\ rack) echo unix:///rack.sock;; context*) echo unix:///here.sock;; "
        "*inspect*) echo 'Driver: docker';; *version*) echo 28.5.2;; "
        f"*info*) echo '{store}';; esac",
    )


def test_the_daemon_of_another_context_has_to_hand_its_images_over(tmp_path: Path) -> None:
    engine = daemons(tmp_path, "[[Backing Filesystem extfs]]")
    with pytest.raises(UsageError, match="--builder rack is the daemon of another Docker context"):
        engine.check("rack")
    assert engine.check("default") == "docker 28.5.2, buildx v0.29.1"


def test_the_daemon_of_another_context_with_containerds_store_builds(tmp_path: Path) -> None:
    engine = daemons(tmp_path, "[[driver-type io.containerd.snapshotter.v1]]")
    assert engine.check("rack") == "docker 28.5.2, buildx v0.29.1"


def test_where_a_daemon_listens_is_asked_once_for_each_context(tmp_path: Path) -> None:
    engine_with(tmp_path, f'echo "$5" >>{tmp_path}/asked; echo "unix:///run/${{5:-own}}.sock"')
    command = DockerCommand({"PATH": f"{tmp_path}:/usr/bin:/bin"})
    for _ in range(2):
        assert command.host() == "unix:///run/own.sock"
        assert command.host("rack") == "unix:///run/rack.sock"
    assert (tmp_path / "asked").read_text() == "\nrack\n"


def test_images_are_asked_for_by_name_and_not_all_at_once(tmp_path: Path) -> None:
    engine = engine_with(
        tmp_path,
        f"""
        echo "$*" | wc -w >>'{tmp_path}/asked'
        for word in "$@"; do case "$word" in
            --filter=reference=*) echo "sha256:1 ${{word#*=*=}}";;
        esac; done
        """,
    )
    names = [f"docker.io/library/made:{number}" for number in range(600)]
    assert engine.present([*names, "made:7", "x/y"]) == dict.fromkeys(
        [*names, "made:7", "x/y"], "sha256:1"
    )
    assert (tmp_path / "asked").read_text().split() == ["256", "256", "107"]
    assert engine.present([]) == {}


def test_a_builder_that_hung_is_asked_before_it_gets_another_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bake, "_SECOND_CHANCE", 0.2)
    answers, begun = DockerCommand.answers, tmp_path / "begun"

    def answers_later(self: DockerCommand, builder: str | None, seconds: float) -> bool:
        while not begun.is_file():  # The builder hangs once it began.
            time.sleep(0.01)
        return answers(self, builder, seconds)

    monkeypatch.setattr(DockerCommand, "answers", answers_later)
    engine = engine_with(
        tmp_path,
        f"""
        case "$*" in
            *inspect*) test ! -e '{begun}' || exec sleep 600; echo 'Driver: remote';;
            *bake*) echo "$*" >>'{begun}'; exec sleep 600;;
        esac
        """,
    )
    for name in ("one", "two"):
        job = BuildJob(
            name, tmp_path / "bake.json", name, f"scan-{name}", tmp_path, (), tmp_path / "log",
            tmp_path / "scan", builder="far",
        )  # fmt: skip
        with pytest.raises(ComponentError, match=r"builder hangs: no word from it for 0\.2 s"):
            engine.build(job, Surroundings(builder_patience=0.2), Silent())
    assert len(begun.read_text().splitlines()) == 1
