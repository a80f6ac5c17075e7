"""The log of a run: what it holds, where it goes, and that no credential is in it."""

from __future__ import annotations

import logging
import shlex
import sys
from pathlib import Path

import pytest

from buildmatrix import cli
from buildmatrix.base import child
from buildmatrix.base.child import describe_command
from buildmatrix.base.errors import UndecidedError
from buildmatrix.cli import console, logs

SECRET = "hunter2-sesame"


@pytest.mark.parametrize(
    "command",
    [
        ("uv", "--index-url", f"https://ci:{SECRET}@index.example.com/simple"),
        ("uv", f"--default-index=https://{SECRET}@index.example.com/simple"),
        ("uv", f"https://ci:{SECRET * 99}@index.example.com/simple"),
        ("curl", f"https://example.com/x.whl?X-Amz-Signature={SECRET}"),
        ("docker", "login", "--password", SECRET, "registry.example.com"),
        ("docker", "login", f"--password={SECRET}"),
        ("docker", "build", "--build-arg", f"HF_TOKEN={SECRET}", "."),
        ("bwrap", "--setenv", "AWS_SECRET_ACCESS_KEY", SECRET, "true"),
        ("sh", "-c", f"export API_KEY='{SECRET} x'; pull"),
        ("curl", "-H", f"Authorization: Bearer {SECRET}", "https://example.com"),
        ("curl", "-H", f"authorization:Basic {SECRET}"),
        ("curl", "-H", f"X-Auth-Token: {SECRET}"),
        ("curl", "-u", f"ci:{SECRET}", "https://example.com"),
        ("sh", "-c", f"docker login --password {SECRET} && curl --user ci:{SECRET} example.com"),
        ("sh", "-c", f'curl -H "PRIVATE-TOKEN: {SECRET}" https://example.com'),
    ],
)
def test_no_credential_of_a_command_is_logged(
    command: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    described = describe_command(command)
    assert SECRET not in described
    assert shlex.split(described)[0] == command[0]
    with caplog.at_level(logging.DEBUG, "buildmatrix"):
        child.run(
            [sys.executable, "-c", "", *command],
            Path("/"),
            {"API_TOKEN": SECRET},
            seconds=60,
            memory=1 << 30,
            input=SECRET,
        )
    assert "exit status 0" in caplog.text and SECRET not in caplog.text


def test_other_words_are_logged_as_they_are_and_cut() -> None:
    assert describe_command(["uv", "pip", "compile", "a b"]) == "uv pip compile 'a b'"
    assert len(describe_command(["x" * 10_000] * 10_000)) < 100_000
    assert describe_command([Path("/bin/true"), "--sign-key", "k"]) == "/bin/true --sign-key k"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    return stop.value.code, capsys.readouterr().err


def test_a_file_has_the_log_and_what_standard_error_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a.txt").write_text("a")
    path = tmp_path / "run.log"
    command = ("scan", f"dir:{tmp_path / 'tree'}", "--backend=cpu")
    code, shown = run(capsys, "--log-file", str(path), "--no-progress", *command)
    assert code == 3 and "store.cache" not in shown
    text = path.read_text()
    assert "DEBUG buildmatrix.images.store.cache: facts " in text
    # A second run adds to it, and a failure comes with its place in the code.
    code, shown = run(capsys, "scan", "dir:nowhere", "--backend=cpu", f"--log-file={path}", "-v")
    assert code == 3 and "Traceback" not in shown
    assert path.read_text().startswith(text)
    assert "Traceback" in path.read_text() and "UndecidedError" in path.read_text()
    assert not logging.getLogger("buildmatrix").handlers


def test_verbose_prints_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    code, shown = run(capsys, "-v", "scan", f"dir:{tmp_path}", "--backend=cpu")
    assert code == 3
    assert " images.store.cache: facts " in shown


def test_a_file_that_cannot_be_written_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none" / "run.log"
    code, shown = run(capsys, "rules", f"--log-file={path}")
    assert (code, shown) == (
        2,
        f"buildmatrix: --log-file {path} cannot be written: No such file or directory\n",
    )


def test_messages_and_errors_in_the_file_have_no_credentials(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    url = f"https://ci:{SECRET}@example.com/simple"
    with pytest.raises(UndecidedError), logs.logging_to(path, verbose=False):
        console.complain(f"cannot reach {url}")
        raise UndecidedError(f"no answer from {url}")
    text = path.read_text()
    assert "cannot reach https://example.com/simple" in text and "no answer from" in text
    assert SECRET not in text


def test_a_thread_that_logs_and_one_that_prints_never_wait_for_each_other(tmp_path: Path) -> None:
    """A line of progress is printed and recorded while the console is held."""
    with logs.logging_to(tmp_path / "run.log", verbose=True):
        (shown,) = (
            handler
            for handler in logging.getLogger("buildmatrix").handlers
            if isinstance(handler, logs._ConsoleHandler)
        )
        assert shown.lock is console.LOCK
