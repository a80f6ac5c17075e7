"""Building, scanning and running with a real Docker engine, and breaking it on the way."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from docker_project import HERE, MIRROR, NETWORK, PYTHON, Project, docker_project

from buildmatrix.base.data import replace
from buildmatrix.base.errors import (
    BuildError,
    ComponentError,
    Interrupted,
    UndecidedError,
    UsageError,
)
from buildmatrix.base.progress import Silent
from buildmatrix.engines.docker_engine import DockerEngine
from buildmatrix.engines.dockerfile import staged_name
from buildmatrix.images import store

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("engine")]

UV = "ghcr.io/astral-sh/uv:0.13.8"
#: The base of an image that runs Python, or is a whole Debian.
WHOLE = "${MIRROR}" + PYTHON


@pytest.fixture
def project(tmp_path: Path, small_base: str) -> Iterator[Project]:
    with docker_project(tmp_path / "project", small_base) as project:
        yield project


class Steps(Silent):
    """A progress that lets a test wait for a step or a line."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.changed = threading.Condition()

    def step(self, target: str, text: str) -> None:
        with self.changed:
            self.seen.append(text)
            self.changed.notify_all()

    output = step

    def wait_for(self, text: str, seconds: float = 300) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: any(text in s for s in self.seen), seconds)


def bakes_of(folder: Path) -> list[int]:
    """Processes that bake something of this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.fsencode(folder) in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def until(condition: Callable[[], bool], seconds: float = 300) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class Door:
    """What a step of a build waits for: a port on loopback on which somebody listens at last."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        knock = "</dev/tcp/{}/{}".format(*self._socket.getsockname())
        #: A command that waits, and prints while it does. Half a minute is long enough for another
        #: target on a machine that is busy; without the host's network it takes all of that.
        self.wait = (
            f'for i in $(seq 30); do echo $i; bash -c "{knock}" 2>/dev/null && break; sleep 1; done'
        )

    def open(self) -> None:
        self._socket.listen()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def door() -> Iterator[Door]:
    with contextlib.closing(Door()) as door:
        yield door


# What works


def test_the_engine_tells_its_versions() -> None:
    assert "buildx" in DockerEngine().check()


def test_a_base_has_the_digest_that_its_registry_gives_it(project: Project) -> None:
    base = MIRROR + PYTHON
    # Docker's older store has a digest of its own for an image that it had already.
    subprocess.run(["docker", "pull", "--quiet", base], check=True, capture_output=True)
    outcome = DockerEngine().build(project.job("base", "RUN true", WHOLE), HERE, Silent())

    ask = [
        "docker",
        "buildx",
        "imagetools",
        "inspect",
        base,
        "--format",
        "{{json .Manifest.Digest}}",
    ]
    answer = subprocess.run(ask, check=True, capture_output=True, text=True)
    assert outcome.bases[base] == json.loads(answer.stdout)


def test_two_targets_side_by_side_are_built_scanned_and_named_by_their_digest(
    project: Project,
) -> None:
    jobs = [
        project.job(name, f"RUN echo {name} >/name\nENV N={name}", WHOLE) for name in ("a", "b")
    ]
    engine, outcomes = DockerEngine(), {}
    threads = [
        threading.Thread(
            target=lambda j=job: outcomes.update({j.id: engine.build(j, HERE, Silent())})
        )
        for job in jobs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    present = engine.present([tag for job in jobs for tag in job.tags])
    assert outcomes["a"].digest != outcomes["b"].digest
    for job in jobs:
        outcome = outcomes[job.id]
        assert present[job.tags[0]] in {outcome.digest, outcome.config}
        assert outcome.environment["N"] == job.id
        assert MIRROR + PYTHON in outcome.bases
        assert store.read(outcome.inventory).stats.binaries > 100
        assert "RUN echo" in job.log.read_text()


def test_building_again_gives_the_same_digest_from_the_cache(project: Project) -> None:
    job = project.job("a", "RUN date >/built")
    engine = DockerEngine()
    first = engine.build(job, HERE, Silent())
    second = engine.build(job, HERE, Silent())

    assert (first.digest, first.config) == (second.digest, second.config)
    assert "cached" in job.log.read_text()


def test_a_secret_reaches_the_step_and_not_the_image(project: Project, tmp_path: Path) -> None:
    secret = tmp_path / "a, b"
    secret.write_text("hush")
    job = project.job("a", "RUN --mount=type=secret,id=ca wc -c </run/secrets/ca >/length")
    DockerEngine().build(job, replace(HERE, secrets={"ca": secret}), Silent())
    engine = DockerEngine()

    run = engine.run(job.tags[0], ["sh", "-c", "cat /length; ls /run/secrets"], 300)
    # Docker puts the lines of two streams in no order.
    assert "4" in run.output.splitlines()
    assert "hush" not in run.output


def test_progress_shows_steps_and_what_they_print(project: Project) -> None:
    progress = Steps()
    mark = uuid.uuid4().hex
    # What it writes is new: the scan of a root file system that was seen before is cached.
    step = f"RUN echo said {mark} | tee /said"
    DockerEngine().build(project.job("a", step), HERE, progress)

    assert f"said {mark}" in progress.seen
    assert "scan" in progress.seen
    assert any(shown.endswith(step) for shown in progress.seen)


def test_facts_of_an_image(project: Project) -> None:
    job = project.job("a", "ENV X=1\nLABEL org.example.k=v\nUSER 10001")
    engine = DockerEngine()
    engine.build(job, HERE, Silent())
    facts = engine.image(job.tags[0])

    assert facts is not None
    assert (facts.environment["X"], facts.labels["org.example.k"], facts.user) == (
        "1",
        "v",
        "10001",
    )
    assert facts.history
    assert engine.image(f"{project.tag}:none") is None
    assert engine.present([f"{project.tag}:none"]) == {}


def test_a_container_has_no_network_no_writes_and_a_time_limit(project: Project) -> None:
    job = project.job("a", 'ENTRYPOINT ["false"]')
    engine = DockerEngine()
    engine.build(job, HERE, Silent())
    image = job.tags[0]

    assert engine.run(image, ["ls", "/sys/class/net"], 300).output.split() == ["lo"]
    assert engine.run(image, ["touch", "/x"], 300).exit_code != 0
    assert engine.run(image, ["sh", "-c", "touch /tmp/x ~/y"], 300).exit_code == 0
    assert engine.run(image, ["no-such-command"], 300).exit_code == 127
    assert engine.run(image, ["printf", "%s|", "a  b", "$HOME"], 300).output == "a  b|$HOME|"
    late = engine.run(image, ["sleep", "60"], 1)
    assert late.timed_out
    left = subprocess.run(
        ["docker", "ps", "--all", "--quiet", "--filter", f"ancestor={image}"], capture_output=True
    )
    assert left.stdout == b""


# What breaks


def test_a_failing_step_is_named_with_its_command_output_and_log(project: Project) -> None:
    job = project.job("a", "RUN echo almost; exit 7")
    with pytest.raises(
        BuildError, match=r"`echo almost; exit 7` failed \(exit code: 7\)"
    ) as caught:
        DockerEngine().build(job, HERE, Silent())

    assert "| almost" in caught.value.message
    assert caught.value.log == job.log
    assert "exit code: 7" in job.log.read_text()


def test_an_unknown_base_is_named(project: Project) -> None:
    job = project.job("a", "RUN true", base=f"{MIRROR or 'docker.io/'}library/no-such-thing:1")
    with pytest.raises(BuildError, match="no-such-thing:1"):
        DockerEngine().build(job, HERE, Silent())


def test_a_registry_that_is_down_is_named(project: Project) -> None:
    job = project.job("a", "RUN true", WHOLE)
    with pytest.raises(BuildError, match=f"localhost:1/{PYTHON}.*registry is down"):
        DockerEngine().build(job, replace(HERE, mirror="localhost:1/"), Silent())


class Unwell(BaseHTTPRequestHandler):
    """A package index that answers 503 to everything."""

    def do_GET(self) -> None:
        self.send_error(503)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.mark.skipif(NETWORK != "host", reason="the index of this test listens on loopback")
def test_an_index_that_answers_503_is_blamed(project: Project) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Unwell) as index:
        threading.Thread(target=index.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{index.server_port}"
        steps = f"""
            RUN python3 -m venv --without-pip /venv
            RUN --mount=type=bind,from=uv,source=/uv,target=/uv \\
                UV_HTTP_RETRIES=0 /uv pip install --no-cache --python /venv \\
                "six @ {url}/six-1.17.0-py2.py3-none-any.whl"
            """
        job = project.job("a", steps, WHOLE)
        project.targets["a"]["contexts"] = {"uv": f"docker-image://{MIRROR}{UV}"}  # type: ignore[index]
        job.bake_file.write_text(json.dumps({"target": project.targets}))
        with pytest.raises(BuildError, match="package index answered 503 Service Unavailable"):
            DockerEngine().build(job, HERE, Silent())
        index.shutdown()


def test_a_scanner_that_fails_leaves_the_image_unread(project: Project) -> None:
    job = project.job("a", "RUN true")
    (project.folder / "scan/scan.pyz").write_bytes(b"no zip file")
    with pytest.raises(UndecidedError, match="scanner failed"):
        DockerEngine().build(job, HERE, Silent())


def test_a_scanner_that_says_nothing_leaves_the_image_unread(project: Project) -> None:
    job = project.job("a", "RUN true")
    job.scan_output.mkdir(parents=True)
    (job.scan_output / "inventory.json").write_text("of an earlier image")
    (project.folder / "scan/Dockerfile").write_text("FROM scratch\nCOPY scan.pyz /\n")
    with pytest.raises(UndecidedError, match=r"left no inventory\.json"):
        DockerEngine().build(job, HERE, Silent())


def test_no_daemon(project: Project, tmp_path: Path) -> None:
    engine = DockerEngine({**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    for ask in (
        engine.check,
        lambda: engine.present(["a:1"]),
        lambda: engine.image("a:1"),
        lambda: engine.run("a:1", ["true"], 1),
        lambda: engine.build(project.job("a", "RUN true"), HERE, Silent()),
    ):
        with pytest.raises(ComponentError, match=r"none\.sock"):
            ask()


def test_an_unknown_builder(project: Project) -> None:
    with pytest.raises(UsageError, match="no builder 'no-such-builder'"):
        DockerEngine().check("no-such-builder")


class Wire(socketserver.ThreadingUnixStreamServer):
    """A socket in front of the daemon's, that can be cut."""

    daemon_threads = True
    open_: list[socket.socket]

    def cut(self) -> None:
        self.shutdown()
        self.server_close()
        for end in self.open_:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Pipe(socketserver.BaseRequestHandler):
    """One connection through a `Wire`."""

    server: Wire

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as daemon:
            daemon.connect(os.environ.get("DOCKER_HOST", "").removeprefix("unix://"))
            self.server.open_ += [self.request, daemon]
            back = threading.Thread(target=self.copy, args=(daemon, self.request), daemon=True)
            back.start()
            self.copy(self.request, daemon)
            back.join()

    @staticmethod
    def copy(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@pytest.mark.skipif(
    not os.environ.get("DOCKER_HOST", "").startswith("unix://"), reason="needs the daemon's socket"
)
def test_a_daemon_that_dies_is_told_and_the_next_run_goes_on(project: Project, door: Door) -> None:
    mark = uuid.uuid4().hex
    job = project.job("a", f"RUN echo {mark}; {door.wait}")
    path = project.folder / "s"
    with Wire(str(path), Pipe) as wire:
        wire.open_ = []
        threading.Thread(target=wire.serve_forever, daemon=True).start()
        engine = DockerEngine({**os.environ, "DOCKER_HOST": f"unix://{path}"})
        progress = Steps()

        def cut() -> None:
            progress.wait_for(mark)
            wire.cut()

        cutter = threading.Thread(target=cut)
        cutter.start()
        with pytest.raises(ComponentError, match="connection to the builder broke off") as caught:
            engine.build(job, HERE, progress)
        cutter.join()

    assert caught.value.log == job.log
    door.open()
    assert DockerEngine().build(job, HERE, Silent()).digest


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_disk_of_our_own_is_named_and_the_next_run_goes_on(project: Project) -> None:
    job = project.job("a", "RUN true")
    job.log.parent.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k,nr_inodes=64", "none", str(job.log.parent)]
    subprocess.run(mount, check=True)
    try:
        with contextlib.suppress(OSError):
            (job.log.parent / "filler").write_bytes(bytes(1 << 20))
        with pytest.raises(BuildError, match=r"disk of .*/state/a is full"):
            DockerEngine().build(job, HERE, Silent())
    finally:
        subprocess.run(["umount", str(job.log.parent)], check=True)

    assert DockerEngine().build(job, HERE, Silent()).digest


def test_cancel_ends_the_build_and_leaves_no_process(project: Project) -> None:
    job = project.job("a", f"RUN echo {uuid.uuid4()}; sleep 120")
    engine, progress, caught = DockerEngine(), Steps(), []

    def build() -> None:
        try:
            engine.build(job, HERE, progress)
        except Interrupted as error:
            caught.append(error)

    thread = threading.Thread(target=build)
    thread.start()
    progress.wait_for("sleep 120")
    engine.cancel()
    thread.join(60)

    assert not thread.is_alive()
    assert len(caught) == 1
    assert until(lambda: not bakes_of(project.folder))


# The whole pipeline, in a process of its own that can be killed

SPEC = """\
schema = 1
[project]
name = "tiny"
version = "1.0"
image = "{image}"
[defaults]
python = ["3.11"]
variant = ["one", "two"]
requirements = ["base.in"]
copy = [["app", "/app"]]
user = {{ name = "app", uid = 10001 }}
[backend.cpu]
runtime = "any"
base = "{base}"
template = "{template}"
[[smoke]]
name = "starts"
level = "import"
command = ["sh", "/app/main"]
timeout = "60s"
[tools]
uv = "{uv}"
scanner = "{python}"
"""

#: Images without a Python, but for one: they are small.
TEMPLATE = """\
{{% extends "cpu.Dockerfile.j2" %}}
{{% block install %}}{{% endblock %}}
{{% block python %}}
{step}
{{% endblock %}}
{{% block account %}}{{% endblock %}}
{{% block app %}}
{{% for source, destination in target.copy %}}
COPY {{{{ source | paths(destination) }}}}
{{% endfor %}}
{{% endblock %}}
"""

DRIVER = """
import signal
# A shell that runs the tests in the background has SIGINT ignored, and so would this process.
signal.signal(signal.SIGINT, signal.default_int_handler)
import json, sys
from pathlib import Path
from msgspec import to_builtins
from buildmatrix.engines.docker_engine import DockerEngine
from buildmatrix.engines.model import Surroundings
from buildmatrix.base.errors import BuildmatrixError
from buildmatrix.commands.build import build
from buildmatrix.commands.build_work import Options
from buildmatrix.matrix.load import load_spec

class Lines:
    def step(self, target, text): print("step", target, text, flush=True)
    def part(self, target, done, total, unit): pass
    def output(self, target, line): print("output", target, line, flush=True)
    def end(self, target): pass
    def done(self, target, outcome, ok): print("done", target, outcome, flush=True)
    def note(self, text): print("note", text, flush=True)

spec = load_spec(Path(sys.argv[1]), backends={"cpu"})
surroundings = Surroundings(mirror=sys.argv[2], network=sys.argv[3])
options = Options(surroundings=surroundings, **json.loads(sys.argv[4]))
try:
    result = build(spec, spec.targets, options, DockerEngine(), Lines())
except BuildmatrixError as error:
    print("raised", error.message)
    sys.exit(error.exit_code)
targets = [to_builtins(target) for target in result.report.targets]
rules = sorted({finding.rule for finding in result.report.findings})
sdk = "docker" in sys.modules
told = {"targets": targets, "rules": rules, "sdk": sdk, "error": result.error}
print("result", json.dumps(told, default=dict))
sys.exit(result.exit_code)
"""


class Matrix:
    """Two targets, and the pipeline over them."""

    ids = ("cpu-py311-one", "cpu-py311-two")
    #: Target → the result of the run before a test.
    built: dict[str, dict]

    def __init__(self, folder: Path, image: str, base: str) -> None:
        self.folder, self.image, self.base = folder, image, base
        (folder / "app").mkdir(parents=True)
        self.main("echo up")
        (folder / "base.in").write_text("")
        (folder / "small.Dockerfile.j2").write_text(TEMPLATE.format(step=""))
        self.spec = folder / "buildmatrix.toml"
        self.write_spec(base, "small.Dockerfile.j2")

    def write_spec(self, base: str, template: str) -> None:
        """Have both targets made from this base, by this template."""
        values = {"image": self.image, "python": PYTHON, "uv": UV}
        self.spec.write_text(SPEC.format(base=base, template=template, **values))

    def tag(self, target: str) -> str:
        """The one tag of a target."""
        return f"{self.image}:1.0-{target}"

    def main(self, text: str) -> None:
        """What the image's program is."""
        (self.folder / "app/main").write_text(text + "\n")

    def start(self, **options: object) -> subprocess.Popen[str]:
        """Begin a run."""
        arguments = [str(self.spec), MIRROR, NETWORK, json.dumps(options)]
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, *arguments],
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, **options: object) -> tuple[int, list[str], dict[str, dict]]:
        """Exit code, lines of the progress, target → result."""
        process = self.start(**options)
        out, _ = process.communicate(timeout=300)
        lines = out.splitlines()
        results = [json.loads(line[7:]) for line in lines if line.startswith("result ")]
        targets = {t["id"]: t for t in results[0]["targets"]} if results else {}
        self.sdk = results[0]["sdk"] if results else None
        self.rules = results[0]["rules"] if results else []
        self.error = results[0]["error"] if results else None
        return process.returncode, lines, targets

    def read_until(self, process: subprocess.Popen[str], text: str) -> None:
        """Read the progress up to a line that holds `text`."""
        assert process.stdout is not None
        assert any(text in line for line in process.stdout)


@contextlib.contextmanager
def new_matrix(folder: Path, base: str) -> Iterator[Matrix]:
    matrix = Matrix(folder, f"buildmatrix-test/{uuid.uuid4().hex[:12]}", base.removeprefix(MIRROR))
    yield matrix
    tags = [matrix.tag(target) for target in matrix.ids]
    staged = [staged_name(target, folder) for target in matrix.ids]
    subprocess.run(["docker", "image", "rm", "--force", *tags, *staged], capture_output=True)


@pytest.fixture
def matrix(tmp_path: Path, small_base: str) -> Iterator[Matrix]:
    """A matrix of which nothing is built."""
    with new_matrix(tmp_path / "matrix", small_base) as matrix:
        yield matrix


@pytest.fixture(scope="module")
def shared_matrix(tmp_path_factory: pytest.TempPathFactory, small_base: str) -> Iterator[Matrix]:
    with new_matrix(tmp_path_factory.mktemp("shared") / "matrix", small_base) as matrix:
        yield matrix


@pytest.fixture
def settled(shared_matrix: Matrix) -> Matrix:
    """A matrix that is built, whatever tests before have done to it."""
    shared_matrix.main("echo up")
    code, lines, shared_matrix.built = shared_matrix.run()
    assert code == 0, lines
    return shared_matrix


GREEN = {"lock": "passed", "build": "passed", "scan": "passed", "smoke": "passed"}


def test_a_second_run_builds_nothing_and_starts_nothing(settled: Matrix) -> None:
    first = settled.built
    assert {name: first[name]["gates"] for name in first} == dict.fromkeys(settled.ids, GREEN)

    code, lines, second = settled.run()

    assert code == 0, lines
    assert not [line for line in lines if line.startswith(("step", "output"))]
    assert all(target["cached"] and target["gates"] == GREEN for target in second.values())
    assert [t["digest"] for t in second.values()] == [t["digest"] for t in first.values()]
    assert not settled.sdk, "a run that has nothing to do imports no Docker SDK"


def test_targets_that_differ_in_nothing_that_is_installed_are_installed_once(
    matrix: Matrix,
) -> None:
    matrix.write_spec(PYTHON, "cpu.Dockerfile.j2")
    code, lines, built = matrix.run(smoke=False)
    assert code == 0, lines

    inspect = ["docker", "image", "inspect", *(matrix.tag(target) for target in matrix.ids)]
    shown = json.loads(subprocess.run(inspect, capture_output=True, check=True).stdout)

    assert len({one["digest"] for one in built.values()}) == 2
    # An environment that is made a second time has other times in it, and so another layer.
    assert len({tuple(image["RootFS"]["Layers"]) for image in shown}) == 1


def test_what_a_later_layer_hides_is_judged_in_a_build(matrix: Matrix) -> None:
    for folder, byte in (("app", b"1"), ("more", b"2")):
        (matrix.folder / folder).mkdir(exist_ok=True)
        (matrix.folder / folder / "model.bin").write_bytes(byte * 6_000_000)
    twice = matrix.spec.read_text().replace('["app", "/app"]', '["app", "/app"], ["more", "/app"]')
    matrix.spec.write_text(twice)
    code, lines, _ = matrix.run(smoke=False)
    assert code == 0, lines
    assert "BM604" in matrix.rules
    again = matrix.run(smoke=False)
    assert "BM604" in matrix.rules
    assert not [line for line in again[1] if "reading the layers" in line]


def test_an_image_with_another_label_is_not_exported_again(matrix: Matrix) -> None:
    _, lines, first = matrix.run(smoke=False)
    assert [line for line in lines if "reading the layers" in line]
    label = '[defaults]\nlabels = { "com.example.revision" = "2" }\n'
    matrix.spec.write_text(matrix.spec.read_text().replace("[defaults]\n", label))
    code, lines, second = matrix.run(smoke=False)

    assert code == 0, lines
    assert {one["cached"] for one in second.values()} == {False}
    assert not {one["digest"] for one in first.values()} & {
        one["digest"] for one in second.values()
    }
    assert not [line for line in lines if "reading the layers" in line or "not judged" in line]


def test_a_user_who_stops_while_layers_are_read_is_not_told_that_they_are_broken(
    settled: Matrix,
) -> None:
    # Also what the rules said of them, for which nobody reads them again.
    kept = [*settled.folder.glob(".buildmatrix/state/*/layers/*")]
    kept += settled.folder.glob(".buildmatrix/state/*/made/*")
    assert {path.parent.name for path in kept} == {"layers", "made"}
    for path in kept:
        path.unlink()
    process = settled.start(smoke=False)
    settled.read_until(process, "reading the layers")
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=300)

    assert process.returncode == 130
    assert "not judged" not in rest
    code, lines, targets = settled.run(smoke=False)
    assert code == 0, lines
    assert all(target["cached"] for target in targets.values())


def test_an_image_deleted_behind_our_back_is_built_again_and_only_that(settled: Matrix) -> None:
    one, two = settled.ids
    remove = ["docker", "image", "rm", "--force", f"{settled.image}:1.0-{one}"]
    subprocess.run(remove, check=True, capture_output=True)
    code, lines, again = settled.run()

    assert code == 0, lines
    assert (again[one]["cached"], again[two]["cached"]) == (False, True)


def test_state_deleted_in_part_costs_only_the_time(settled: Matrix) -> None:
    (settled.folder / ".buildmatrix/state" / settled.ids[0] / "record.json").write_text("{")
    (settled.folder / ".buildmatrix/state" / settled.ids[1] / "inventory.json").unlink()
    code, lines, again = settled.run()

    assert code == 0, lines
    assert not any(target["cached"] for target in again.values())


def test_a_changed_file_builds_again(settled: Matrix) -> None:
    first = settled.built
    settled.main("echo changed")
    code, _, second = settled.run()

    assert code == 0
    assert all(first[name]["digest"] != second[name]["digest"] for name in settled.ids)


def test_a_smoke_command_that_fails_fails_its_gate_until_it_is_mended(settled: Matrix) -> None:
    settled.main("echo 'libcuda.so.1: cannot open shared object file' >&2; exit 1")
    for _ in range(2):
        code, lines, targets = settled.run()
        assert code == 1, lines
        assert targets[settled.ids[0]]["gates"] == {**GREEN, "smoke": "failed"}
        assert "libcuda.so.1" in targets[settled.ids[0]]["error"]
    settled.main("echo up")

    assert settled.run()[0] == 0


def test_tags_stay_where_they_are_until_all_gates_have_passed(settled: Matrix) -> None:
    name = settled.ids[0]
    staged = staged_name(name, settled.folder)
    engine = DockerEngine()
    good = settled.built
    before = engine.present([settled.tag(name), staged])
    assert set(before) == {settled.tag(name)}
    assert good[name]["image"] == settled.tag(name)

    settled.main("exit 1")
    code, _, bad = settled.run()
    during = engine.present([settled.tag(name), staged])
    assert code == 1
    assert during[settled.tag(name)] == before[settled.tag(name)] != during[staged]
    assert (bad[name]["image"], bad[name]["digest"]) == (staged, during[staged])

    # The same image passes where its smoke command is waived: nothing is built for that.
    code, lines, waived = settled.run(smoke=False)
    after = engine.present([settled.tag(name), staged])
    assert code == 0, lines
    assert waived[name]["cached"]
    assert after == {settled.tag(name): during[staged]}


def test_a_registry_that_cannot_be_reached_is_told_before_anything_is_built(
    matrix: Matrix,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    image = f"localhost:{port}/tiny"
    matrix.spec.write_text(matrix.spec.read_text().replace(matrix.image, image))
    code, lines, _ = matrix.run(push=True)

    assert code == 3, lines
    (raised,) = [line for line in lines if line.startswith("raised")]
    assert f"the registry of {image}:1.0-" in raised
    assert "connection refused" in raised
    assert not [line for line in lines if line.startswith(("step", "done"))]


def test_smoke_that_was_not_asked_for_is_not_run(matrix: Matrix) -> None:
    code, _, targets = matrix.run(smoke=False)

    assert code == 0
    assert {t["gates"]["smoke"] for t in targets.values()} == {"not-run"}


def break_one(matrix: Matrix) -> None:
    """Give the first target a base that does not exist."""
    text = matrix.spec.read_text() + (
        '[[override]]\nselect = ["*-one"]\n'
        f'base = {{ build = "{matrix.base}", final = "no-such-thing:1" }}\n'
    )
    matrix.spec.write_text(text)


def test_one_broken_target_costs_no_other_and_nothing_is_pushed(
    matrix: Matrix, registry_tag: str
) -> None:
    break_one(matrix)
    image = registry_tag
    matrix.spec.write_text(matrix.spec.read_text().replace(matrix.image, image))
    matrix.image = image
    code, lines, targets = matrix.run(push=True)
    one, two = (targets[name] for name in matrix.ids)

    assert code == 4, lines
    assert one["gates"] == {**GREEN, "build": "failed", "scan": "not-run", "smoke": "not-run"}
    assert "no-such-thing:1" in one["error"]
    assert two["gates"] == GREEN
    assert any(line.startswith("note nothing was pushed") for line in lines)


def test_fail_fast_stops_what_has_not_begun(matrix: Matrix) -> None:
    break_one(matrix)
    code, lines, targets = matrix.run(fail_fast=True, jobs=1)

    assert code == 4, lines
    assert targets[matrix.ids[1]]["gates"]["build"] == "not-run"


def test_a_lock_that_is_stale_fails_where_locks_are_fixed(matrix: Matrix) -> None:
    code, lines, targets = matrix.run(locked=True)

    assert code == 1, lines
    assert {t["gates"]["lock"] for t in targets.values()} == {"failed"}
    assert "run `buildmatrix lock`" in targets[matrix.ids[0]]["error"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["SIGINT", "SIGKILL"])
def test_a_run_that_was_stopped_goes_on_where_it_was(
    matrix: Matrix, door: Door, number: int
) -> None:
    one, two = matrix.ids
    # The second target does not end before the first, however busy the machine is.
    step = f"RUN echo {uuid.uuid4()}; {door.wait}"
    (matrix.folder / "slow.Dockerfile.j2").write_text(TEMPLATE.format(step=step))
    with matrix.spec.open("a") as spec:
        spec.write('[[override]]\nselect = ["*-two"]\ntemplate = "slow.Dockerfile.j2"\n')

    process = matrix.start()
    matrix.read_until(process, f"done {one}")
    process.send_signal(number)
    rest, _ = process.communicate(timeout=300)

    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    if number == signal.SIGINT:
        (result,) = [json.loads(line[7:]) for line in rest.splitlines() if line[:7] == "result "]
        assert f"finished: {one};" in result["error"]
        states = {target["id"]: target for target in result["targets"]}
        assert states[one]["gates"] == GREEN
        assert states[two]["gates"]["build"] == "not-run"
        assert states[two]["error"] == "stopped before it was done"
    assert until(lambda: not bakes_of(matrix.folder))
    door.open()
    code, lines, targets = matrix.run()
    assert code == 0, lines
    assert (targets[one]["cached"], targets[two]["cached"]) == (True, False)


def test_two_runs_at_once_do_the_work_once(matrix: Matrix) -> None:
    first = matrix.start()
    matrix.read_until(first, "step")
    code, lines, targets = matrix.run()
    first.communicate(timeout=120)

    assert (first.returncode, code) == (0, 0), lines
    assert any(line.startswith(f"note another buildmatrix (process {first.pid})") for line in lines)
    assert all(target["cached"] for target in targets.values())


def test_without_an_engine_nothing_is_reported_as_passed(
    matrix: Matrix, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    code, lines, _ = matrix.run()

    assert code == 5
    assert any("none.sock" in line for line in lines if line.startswith("raised"))
