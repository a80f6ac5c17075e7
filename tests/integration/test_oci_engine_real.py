"""The engine oci, from the command line to what Docker runs: with real wheels and a real base.

Docker is the judge of what was written, and the registry that both take base images from.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from components import missing
from conftest import ROOT, Buildmatrix, copy_of

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.usefixtures("engine")]

TARGET = "cpu-py311-server"
#: An image with an extension module, a console script, and a user of its own.
SPECIFICATION = """\
schema = 1
[project]
name = "rootless"
version = "1.0"
[defaults]
python = ["3.11"]
requirements = ["requirements.in"]
user = { name = "app", uid = 10001, groups = ["video"] }
[backend.cpu]
runtime = "any"
base = "python:{python}-slim-bookworm"
[[smoke]]
name = "import"
level = "import"
command = ["python", "-c", "import msgspec, uvicorn"]
"""
#: Nobody: the account that Debian gives to who may do nothing.
NOBODY = 65534


#: A command as that user.
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user gets to: each session of pytest closes its own folders to others."""
    with tempfile.TemporaryDirectory(prefix="buildmatrix-nobody.") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def environment_of_nobody(place: Path) -> Path:
    """The Python of a virtual environment that nobody may read, in `place`, with what ours has.

    Ours may lie in a folder of root's, and its interpreter, too.
    """
    version = f"python3.{sys.version_info.minor}"
    candidates = (Path(sys.executable).resolve(), Path("/usr/bin") / version)
    check = [*AS_NOBODY, "sh", "-c", 'test -x "$1"', "sh"]
    readable = [path for path in candidates if subprocess.run([*check, path]).returncode == 0]
    if not readable:
        missing(f"a {version} that every user may run", f"install Debian's {version}")

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:  # another disk
            shutil.copy(source, target)

    subprocess.run([readable[0], "-m", "venv", "--without-pip", place / "venv"], check=True)
    packages = place / "venv/lib" / version / "site-packages"
    shutil.copytree(
        sysconfig.get_path("purelib"),
        packages,
        # With their bytecode: each process of a build would compile all modules.
        ignore=shutil.ignore_patterns("*.pth", "buildmatrix", "mypy*", "*hypothesis*"),
        copy_function=link,
        dirs_exist_ok=True,
    )
    shutil.copytree(ROOT / "src/buildmatrix", packages / "buildmatrix")
    shutil.copytree(ROOT / "templates", packages / "buildmatrix/engines/templates")
    uv = shutil.which("uv")
    assert uv is not None
    shutil.copy(uv, place / "venv/bin/uv")
    return place / "venv/bin/python"


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def nowhere(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A machine on which no Docker answers."""
    return {"DOCKER_HOST": f"unix://{tmp_path_factory.mktemp('nowhere')}/no.sock"}


@pytest.fixture(scope="module")
def repository() -> str:
    """A repository of this file's own on the loopback registry."""
    mirror = os.environ.get("BUILDMATRIX_MIRROR")
    if not mirror:
        missing("a registry on loopback", "run scripts/test, which starts one")
    return f"{mirror}tests/oci-{os.getpid()}"


@pytest.fixture(scope="module")
def good(repository: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example matrix whose images go to `repository`."""
    folder = copy_of(["buildmatrix.toml", "images"], tmp_path_factory.mktemp("good"))
    specification = folder / "buildmatrix.toml"
    text = specification.read_text()
    specification.write_text(text.replace("registry.example.com/buildmatrix/{project}", repository))
    return folder


def test_the_example_is_built_and_pushed_where_no_docker_answers(
    good: Path, repository: str, buildmatrix: Buildmatrix, nowhere: dict[str, str]
) -> None:
    arguments = ("build", "--select", "cpu*", "--push", "--format", "json")
    run = buildmatrix(good, *arguments, env=nowhere, timeout=1800)

    assert run.code == 0, run.err
    assert "engine oci, without Docker: " in run.err
    (target,) = run.report()["targets"]
    states = dict.fromkeys(("lock", "build", "scan", "smoke"), "passed")
    assert (target["gates"], target["push"]) == (states, "passed")
    assert target["image"] == f"{repository}:0.1.0-{TARGET}"
    assert not [f for f in run.report()["findings"] if f["severity"] == "error"]

    # Done is done, and its chains lead to a layer and its line.
    again = buildmatrix(good, "build", "--select", "cpu*", "--format", "json", env=nowhere)
    assert again.report()["targets"][0]["cached"] is True
    answer = buildmatrix(good, "why", TARGET, "libonnxruntime", "--format", "json", env=nowhere)
    (told,) = json.loads(answer.out)["answers"]
    assert told["layer"]["instruction"].startswith("COPY /opt/venv /opt/venv # buildmatrix onnxr")
    dockerfile, _, line = told["layer"]["place"].partition(":")
    written = (good / dockerfile).read_text().splitlines()[int(line) - 1]
    assert written == "COPY --from=build /opt/venv /opt/venv"
    smoke = buildmatrix(good, "smoke", "cpu*", env=nowhere)
    assert (smoke.code, smoke.out.strip()) == (0, f"{TARGET}: passed")


def test_docker_runs_the_image(good: Path, repository: str) -> None:
    record = json.loads((good / ".buildmatrix/state" / TARGET / "record.json").read_text())
    image = f"{repository}@{record['digest']}"
    docker("pull", "--quiet", image)
    try:
        script = "id -u; id -G; python -m inferno.warmup --batch 4"
        output = docker("run", "--rm", "--network=none", "--read-only", image, "sh", "-c", script)
    finally:
        docker("image", "rm", "--force", image)
    uid, groups, answer = output.splitlines()
    assert (uid, "44" in groups.split()) == ("10001", True)
    assert "answers == expected=True" in answer


def test_a_user_without_rights_builds_and_runs_the_same_image(
    buildmatrix: Buildmatrix, nowhere: dict[str, str], place: Path, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("this user has no more rights than another one")
    if shutil.which("bwrap") is None:
        missing("bubblewrap", "install the package")
    (tmp_path / "buildmatrix.toml").write_text(SPECIFICATION)
    (tmp_path / "requirements.in").write_text("msgspec\nuvicorn\n")
    run = buildmatrix(tmp_path, "build", "--format", "json", env=nowhere)
    assert run.code == 0, run.err
    (mine,) = run.report()["targets"]
    python = environment_of_nobody(place)
    # Which index a lock names follows from pip's settings, which each user has of its own.
    ignore = shutil.ignore_patterns(".buildmatrix")
    shutil.copytree(tmp_path, place / "project", ignore=ignore)
    for path in (place, *(place / "project").rglob("*"), place / "project"):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    own = {
        "HOME": str(place),
        "BUILDMATRIX_CACHE": str(place / "cache"),
        "BUILDMATRIX_NO_VULNERABILITIES": "1",
        "DOCKER_CONFIG": str(place / "docker"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [*AS_NOBODY, python, "-m", "buildmatrix", "build", "--format", "json"],
        cwd=place / "project",
        env={**os.environ, **nowhere, **own},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1800,
    )

    assert done.returncode == 0, done.stderr
    (target,) = json.loads(done.stdout)["targets"]
    assert target["gates"]["smoke"] == "passed"
    assert target["digest"] == mine["digest"]
