"""Every way in which a build fails has its own sentence and exit code.

Each stream in `data/` was recorded from the real buildx and daemon while the thing went wrong.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from buildmatrix.base.errors import BuildError, BuildmatrixError
from buildmatrix.base.progress import Silent
from buildmatrix.engines.docker_command import IN_ERRORS, IN_OUTPUT, RESOURCE_EXHAUSTED, explain
from buildmatrix.engines.docker_follow import FailedStep, Follower, messages

DATA = Path(__file__).parent / "data"
LOG = Path("state/cpu/build.log")

#: Recording → exit code, words of the message, exit status of buildx.
RECORDED = {
    "step-fails": (4, ["`echo before; echo oops >&2; exit 7`", "exit code: 7", "| oops"], 1),
    "base-not-found": (4, ["localhost:5000/debian:nope", "does not exist", "`base`"], 1),
    "registry-unknown": (4, ["registry.invalid/debian:nope", "no such host"], 1),
    "registry-down": (4, ["localhost:5999/debian:nope", "connection refused"], 1),
    "registry-401": (4, ["localhost:5401/debian:x", "docker login"], 1),
    "registry-503": (4, ["localhost:5503/debian:x", "503 Service Unavailable"], 1),
    "copy-source-missing": (4, ["missing-folder", "`copy`"], 1),
    "daemon-dies": (5, ["connection to the builder broke off", "run again"], 1),
    "daemon-down": (5, ["does not answer at unix:///nonexistent.sock", "DOCKER_HOST"], 1),
    "builder-silent": (5, ["builder does not answer: context deadline", "DOCKER_HOST"], 1),
    "builder-unknown": (2, ["no builder 'nope'", "docker buildx ls"], 1),
    "entitlement-refused": (5, ["does not allow security.insecure"], 1),
    "builder-disk-full-copy": (4, ["disk is full", "docker buildx prune"], RESOURCE_EXHAUSTED),
    "builder-disk-full-pull": (4, ["disk is full", "libnvvm.so"], 1),
    "step-disk-full": (4, ["disk is full", "No space left on device"], 1),
    "hash-mismatch": (4, ["six==1.16.0", "other bytes", "hashes"], 1),
    "index-503": (4, ["package index answered 503 Service Unavailable", "six-1.16.0"], 1),
    "index-down": (4, ["package index cannot be reached", "127.0.0.1:5999"], 1),
    "python-not-packaged": (4, ["base image has no Python 3.12", "or another `python`"], 1),
    "package-unknown": (4, ["no package no-such-thing", "`system-packages`"], 1),
    "user-exists": (4, ["has a user daemon already", "`uid`"], 1),
    "secret-missing": (4, ["secret 'ca'", "--ca"], 1),
    "scanner-fails": (3, ["scanner failed", "unread", "| MemoryError"], 1),
    "dockerfile-syntax": (4, ["Dockerfile cannot be read", "NONSENSE"], 1),
}


def explained(name: str, exit_status: int) -> BuildmatrixError:
    follower = Follower("cpu", io.StringIO(), Silent())
    with (DATA / f"{name}.jsonl").open("rb") as stream:
        for message in messages(stream):
            follower.feed(message)
    return explain(exit_status, follower.failed, tuple(follower.lines), LOG)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_failure_is_told_for_what_it_is(name: str) -> None:
    code, words, exit_status = RECORDED[name]
    error = explained(name, exit_status)

    assert error.exit_code == code
    assert not [word for word in words if word not in error.message], error.message
    assert error.log == LOG


def test_every_recording_is_looked_at() -> None:
    assert set(RECORDED) | {"build-and-scan"} == {path.stem for path in DATA.glob("*.jsonl")}


@pytest.mark.parametrize("name", RECORDED)
def test_a_message_is_short_and_fits_a_line_or_quotes_output(name: str) -> None:
    first, *rest = explained(name, 1).message.splitlines()

    assert len(first) < 700
    assert all(line.startswith("  | ") for line in rest)


def test_the_words_of_a_command_are_not_taken_for_errors_of_the_engine() -> None:
    command = 'echo "Cannot connect to the Docker daemon at unix:///x. no space left on device"'
    failed = FailedStep(
        f"[build 1/1] RUN {command}",
        f'process "/bin/sh -c {command}" did not complete successfully: exit code: 3',
        (),
    )
    error = explain(1, failed, (f"ERROR: failed to solve: {failed.error}",), LOG)

    assert error.exit_code == 4
    assert "exit code: 3" in error.message


def test_a_killed_step_names_the_likely_reason() -> None:
    failed = FailedStep(
        "[build 1/1] RUN x",
        'process "/bin/sh -c x" did not complete successfully: exit code: 137',
        (),
    )

    assert "out of memory" in explain(1, failed, (), LOG).message


def test_credentials_in_a_url_are_not_repeated() -> None:
    failed = FailedStep(
        "[build 1/1] RUN uv",
        'process "uv" did not complete successfully: exit code: 1',
        (
            "HTTP status client error (403 Forbidden) for url "
            "(https://user:secret@wheels.example.com/a.whl)",
        ),
    )
    message = explain(1, failed, (), LOG).message

    assert "403 Forbidden" in message
    assert "wheels.example.com/a.whl" in message
    assert "secret" not in message


def test_what_nobody_knows_is_quoted_in_full() -> None:
    error = explain(1, None, ("ERROR: failed to solve: something new",), LOG)

    assert error.exit_code == 4
    assert error.message.endswith("something new")


def test_silence_is_told_with_the_exit_status() -> None:
    assert "exit status 9" in explain(9, None, (), LOG).message


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        (
            "permission denied while trying to connect to the Docker daemon socket at "
            "unix:///var/run/docker.sock",
            5,
            "group `docker`",
        ),
        ("failed to push registry.example.com/a:1: 403 Forbidden", 4, "docker login"),
        (
            "failed to connect to the docker API at unix:///var/run/docker.sock; check if the "
            "path is correct and if the daemon is running",
            5,
            "unix:///var/run/docker.sock;",
        ),
    ],
)
def test_wordings_that_were_not_recorded(said: str, code: int, words: str) -> None:
    error = explain(1, None, (f"ERROR: {said}",), LOG)

    assert (error.exit_code, words in error.message) == (code, True), error.message


def test_every_sentence_of_the_table_can_be_filled_in() -> None:
    for symptom in (*IN_ERRORS, *IN_OUTPUT):
        named = dict.fromkeys(re.compile(symptom.pattern).groupindex, "x")
        assert symptom.text.format("whole", **named)


#: What commands printed in Debian 12, dash being its shell; the build step's words are real. dnf is
#: 4.14, microdnf 3.10.1 and zypper 1.14.42.
PRINTED = {
    "no-network": (
        "W: Failed to fetch http://deb.debian.org/debian/dists/bookworm/InRelease  Temporary "
        "failure resolving 'deb.debian.org'\n"
        "W: Some index files failed to download. They have been ignored, or old ones used instead."
        "\nE: Unable to locate package python3.12",
        "package lists of the base image's distribution cannot be fetched",
    ),
    "no-apt": ("/bin/sh: 1: apt-get: not found", "it has no apt-get to install it with"),
    "no-apt-busybox": ("/bin/sh: apt-get: not found", "it has no apt-get to install it with"),
    "python-elsewhere": (
        "/bin/sh: 1: /opt/venv/bin/python: not found",
        "does not have its Python where the build image has it",
    ),
    "no-dnf": ("/bin/sh: 1: microdnf: not found", "name its `package-manager`"),
    "dnf": (
        "No match for argument: python3.13\nError: Unable to find a match: python3.13",
        "the base image has no Python 3.13",
    ),
    "microdnf": (
        "error: No package matches 'none-such'",
        "no package none-such; check `system-packages`",
    ),
    "zypper": (
        "'none-such' not found in package names. Trying capabilities.\n"
        "No provider of 'none-such' found.",
        "no package none-such; check `system-packages`",
    ),
    "unsigned": (
        "Package evil-1.0-1.noarch.rpm is not signed\nError: GPG check FAILED",
        "Package evil-1.0-1.noarch.rpm is not signed",
    ),
    "python-virtual": (
        "E: Package 'python3.13' has no installation candidate",
        "the base image has no Python 3.13",
    ),
}


@pytest.mark.parametrize("case", PRINTED)
def test_packages_that_a_base_cannot_have_are_told_in_our_words(case: str) -> None:
    printed, told = PRINTED[case]
    failed = FailedStep(
        "[final 3/8] RUN set -eu",
        'process "/bin/sh -c set -eu" did not complete successfully: exit code: 127',
        tuple(printed.splitlines()),
    )
    error = explain(1, failed, (), LOG)
    assert isinstance(error, BuildError)
    assert told in error.message
    assert error.log == LOG
