"""`buildmatrix audit` with a password in its inputs: it is used, and shows nowhere."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from audit_index import Locked
from index import IndexServer

from buildmatrix import cli
from buildmatrix.reports.formats import RUN, names

USER, PASSWORD = "ci-robot", "hunter2/Sesame"
ENCODED = "hunter2%2FSesame"
FORMATS = names(RUN)
pytestmark = pytest.mark.usefixtures("a_day")


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Locked]:
    """An index that asks for a password, with a distribution that is foreign on a CPU."""
    for name in os.environ:
        if name.upper().endswith("_PROXY") or name.startswith(("UV_", "BUILDMATRIX_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    folder, project = tmp_path / "packages", tmp_path / "project"
    folder.mkdir()
    project.mkdir()
    monkeypatch.chdir(project)
    with IndexServer(folder, login=(USER, PASSWORD)) as server:
        locked = Locked(folder, server)
        locked.add("embeddings 1.0", requires=["nvidia-nccl-cu12"])
        locked.add(
            "nvidia-nccl-cu12 2.27", "embeddings", {"nvidia/nccl/lib/libnccl.so.2": b"x" * 90_000}
        )
        yield locked


def with_login(url: str, password: str = ENCODED) -> str:
    return url.replace("://", f"://{USER}:{password}@")


def run(capsys: pytest.CaptureFixture[str], *arguments: str, check: str = "") -> tuple[int, str]:
    """Everything that is printed, in every format, and all that stays on disk but the inputs."""
    told = [f"--format={name}=../out.{name}" for name in FORMATS]
    command = ("audit", "--no-vulnerabilities", *arguments, "--backend=cpu", *told)
    with pytest.raises(SystemExit) as stop:
        cli.main((*command, "--format=table", "-v", "--log-file=../run.log"))
    printed = capsys.readouterr()
    text = printed.out + printed.err
    root = Path().absolute().parent
    kept = [path for path in root.rglob("*") if path.is_file() and "project" not in path.parts]
    # What uv keeps in its own cache is uv's.
    mine = [path for path in kept if "uv" not in path.relative_to(root).parts]
    everything = text.encode() + b"".join(path.read_bytes() for path in mine)
    header = b64encode(f"{USER}:{check or PASSWORD}".encode()).decode()
    for secret in (PASSWORD, ENCODED, header, *([check] if check else [])):
        assert secret.encode() not in everything, text
    if not check:
        # It is used, too.
        assert "not read" not in text, text
    return int(stop.value.code or 0), text


def test_a_requirements_file_with_an_index_and_its_password(private: Locked, capsys) -> None:
    url = with_login(private.server.url)
    Path("requirements.txt").write_text(f"--index-url {url}\nembeddings\n")
    code, text = run(capsys, "requirements.txt")
    assert code == 1
    assert "requirements.txt:2 -> embeddings 1.0 -> nvidia-nccl-cu12 2.27" in text


def test_an_index_of_the_environment(private: Locked, capsys, monkeypatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", with_login(private.server.url))
    Path("requirements.txt").write_text("embeddings\n")
    assert run(capsys, "requirements.txt")[0] == 1
    # A warm cache tells no more than a cold one.
    assert run(capsys, "requirements.txt")[0] == 1
    log = Path("../run.log").read_text()
    for line in (
        r"net\.requests: GET http://\S+: 2\d\d, \d+\.\d\d s",
        r"base\.child: run \S+/uv pip compile",
        r"base\.child: uv: exit status 0, \d+\.\d\d s",
        r"store\.cache: \w+ .+: not cached",
        r"store\.cache: \w+ .+: cached, \d+ bytes",
        r"buildmatrix \d\S+, Python 3\.",
    ):
        assert re.search(rf"(?m)^2\d\d\d-\S+Z DEBUG buildmatrix\..*{line}", log), line


def test_an_index_of_the_project(private: Locked, capsys) -> None:
    Path("pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "1"\ndependencies = ["embeddings"]\n'
        f'[[tool.uv.index]]\nname = "corp"\nurl = "{with_login(private.server.url)}"\n'
        "default = true\n"
    )
    assert run(capsys, "pyproject.toml")[0] == 1


def test_a_lock_with_addresses_that_have_a_password(private: Locked, capsys) -> None:
    text = private.text().replace("http://", f"http://{USER}:{ENCODED}@")
    Path("pylock.toml").write_text(text)
    assert run(capsys, "pylock.toml")[0] == 1


def test_a_lock_of_uv_whose_registry_has_a_password(private: Locked, capsys) -> None:
    entries = "".join(
        f'[[package]]\nname = "{one.name}"\nversion = "{one.version}"\n'
        f'source = {{ registry = "{with_login(private.server.url)}" }}\n'
        f'wheels = [{{ url = "{with_login(one.wheels[0].url)}", '
        f'hash = "sha256:{one.wheels[0].sha256}", size = {one.wheels[0].size} }}]\n'
        for one in private.packages
    )
    app = (
        '[[package]]\nname = "app"\nversion = "1"\nsource = { virtual = "." }\n'
        'dependencies = [{ name = "embeddings" }, { name = "nvidia-nccl-cu12" }]\n'
    )
    Path("uv.lock").write_text(f'version = 1\nrequires-python = ">=3.11"\n{entries}{app}')
    assert run(capsys, "uv.lock")[0] == 1


def test_a_wheel_by_its_address(private: Locked, capsys) -> None:
    name = private.packages[1].wheels[0].filename
    assert run(capsys, f"wheel:{with_login(private.server.file_url(name))}")[0] == 1


def test_a_direct_address_in_a_requirements_file(private: Locked, capsys) -> None:
    name = private.packages[1].wheels[0].filename
    url = with_login(private.server.file_url(name))
    Path("requirements.txt").write_text(f"nvidia-nccl-cu12 @ {url}\n")
    assert run(capsys, "requirements.txt")[0] == 1


@pytest.mark.parametrize("line", ["demo @ {url}demo.tar.gz", "git+{url}demo.git#egg=demo"])
def test_what_would_be_built_from_a_private_place(private: Locked, capsys, line: str) -> None:
    Path("requirements.txt").write_text(line.format(url=with_login(private.server.url)) + "\n")
    code, text = run(capsys, "requirements.txt")
    assert (code, "BM107" in text) == (3, True)


def test_a_password_that_is_refused(private: Locked, capsys) -> None:
    url = with_login(private.server.url, "wrong-one")
    Path("requirements.txt").write_text(f"--extra-index-url {url}\n--no-index\nembeddings\n")
    assert run(capsys, "requirements.txt", check="wrong-one")[0] == 3
    Path("requirements.txt").write_text(f"--index-url {url}\nembeddings\n")
    assert run(capsys, "requirements.txt", check="wrong-one")[0] == 3
    Path("pylock.toml").write_text(private.text().replace("http://", f"http://{USER}:wrong-one@"))
    assert run(capsys, "pylock.toml", check="wrong-one")[0] == 1


@pytest.mark.parametrize(
    "line",
    [
        "--index-urls {url}",
        "-r {url}more.txt",
        "demo @ {url}demo-1.whl",
        "demo =@= {url}",
        "--no-index\nembeddings --frobnicate={url}",
        "-e {url}demo.git ; python_version >",
        "{url}demo.git ; python_version >",
    ],
)
def test_a_mistake_beside_a_password(private: Locked, capsys, line: str) -> None:
    url = with_login(private.server.url)
    Path("requirements.txt").write_text(f"{line.format(url=url)}\n")
    assert run(capsys, "requirements.txt")[0] in (0, 2, 3)
