"""Names of images in registries."""

from __future__ import annotations

import pytest

from buildmatrix.base.errors import UndecidedError
from buildmatrix.net.registry_mirrors import Reference

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "host", "repository", "version"),
    [
        # Cases of distribution/reference (normalize_test.go, reference_test.go).
        ("debian", "docker.io", "library/debian", "latest"),
        ("docker/docker", "docker.io", "docker/docker", "latest"),
        ("library/debian", "docker.io", "library/debian", "latest"),
        ("docker.io/debian", "docker.io", "library/debian", "latest"),
        ("index.docker.io/docker/docker", "docker.io", "docker/docker", "latest"),
        ("localhost/library/debian", "localhost", "library/debian", "latest"),
        ("localhost:5000/docker/docker", "localhost:5000", "docker/docker", "latest"),
        ("127.0.0.1:5000/docker/docker", "127.0.0.1:5000", "docker/docker", "latest"),
        ("[2001:db8::1]:5000/repo", "[2001:db8::1]:5000", "repo", "latest"),
        ("[::1]/repo:1", "[::1]", "repo", "1"),
        ("other.com/debian:3", "other.com", "debian", "3"),
        ("Uppercase/debian", "Uppercase", "debian", "latest"),
        ("foo/foo_bar.com:8080", "docker.io", "foo/foo_bar.com", "8080"),
        ("lower--case/a__b:V1.0-x", "docker.io", "lower--case/a__b", "V1.0-x"),
        ("foo_bar.com:8080/x", None, None, None),
        (f"test:5000/repo:tag@{DIGEST}", "test:5000", "repo", DIGEST),
        (f"debian@{DIGEST}", "docker.io", "library/debian", DIGEST),
        ("xn--n3h.com/myimage", "xn--n3h.com", "myimage", "latest"),
        ("a/" * 127 + "a", "docker.io", "a/" * 127 + "a", "latest"),
    ],
)
def test_a_name_is_read_as_docker_reads_it(
    text: str, host: str | None, repository: str | None, version: str
) -> None:
    if host is None:
        with pytest.raises(UndecidedError):
            Reference.parse(text)
        return
    reference = Reference.parse(text)
    assert (reference.host, reference.repository, reference.version) == (host, repository, version)
    assert Reference.parse(str(reference)) == reference


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":justtag",
        "debian:",
        "debian@",
        "repo@sha256:ffff",
        f"validname@invaliddigest:{'f' * 64}",
        "Debian",
        "docker.io/Debian",
        "-test/x:y",
        "a//b",
        "/debian",
        "debian/",
        "test:5000/Uppercase/lowercase:tag",
        "aa/asdf$$^/aa",
        "a..b/../c",
        "docker.io/..",
        "debian:tag:tag",
        "debian:" + "a" * 129,
        "a/" * 128 + "a",
        "debian\n",
        f"debian@{DIGEST}\n",
        "debian:1\n",
        "[fe80::1%25eth0]/repo",
        "0123456789abcdef" * 4,
        "https://docker.io/debian",
        "host.example:port/name",
    ],
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(UndecidedError) as error:
        Reference.parse(text)
    assert "\n" not in error.value.message


@pytest.mark.parametrize(
    "text",
    [
        "user:hunter2@registry.example/team/app",
        "user:hunter2@registry.example:5000/app:1",
        f"user:hunter2@registry.example/app@{DIGEST}",
        "//user:hunter2@registry.example/app",
        "user:hunter2@registry",
    ],
)
def test_a_password_in_a_name_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(UndecidedError, match="docker login") as error:
        Reference.parse(text)
    assert "hunter2" not in error.value.message


def test_a_pinned_name_keeps_its_tag_for_people() -> None:
    pinned = Reference.parse("debian:12").at(DIGEST)
    assert str(pinned) == f"docker.io/library/debian:12@{DIGEST}"
    assert pinned.version == DIGEST
    assert str(pinned.with_tag("13")) == "docker.io/library/debian:13"
    with pytest.raises(UndecidedError, match="is not a valid image tag"):
        pinned.with_tag("a/b")


def test_a_long_name_takes_no_time() -> None:
    with pytest.raises(UndecidedError):
        Reference.parse("a" * 100_000 + "!")
    with pytest.raises(UndecidedError):
        Reference.parse("a-" * 100_000 + "!/x")
