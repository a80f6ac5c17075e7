"""Which backend an image is for, and whose it is."""

from __future__ import annotations

from datetime import date

import pytest

from buildmatrix.base.errors import UsageError
from buildmatrix.fleet.judging import find_backend_words, find_backends, find_owner, parse_pattern
from buildmatrix.fleet.model import Subject, WorkerSettings
from buildmatrix.matrix.model import NodeClass, Position

BACKENDS = ("cuda", "rocm", "oneapi", "cpu", "opencl")
LABEL = {"dev.buildmatrix.backend": "rocm"}


def node_class(name: str, backend: str) -> NodeClass:
    return NodeClass(name, backend, "", (), {}, (), Position("buildmatrix.toml", 1))


def settings(*patterns: str, **more: object) -> WorkerSettings:
    classes = (node_class("h100", "cuda"), node_class("a100", "cuda"), node_class("mi300x", "rocm"))
    return WorkerSettings(
        store="",
        platform="linux/amd64",
        today=date(2026, 1, 1),
        patterns=tuple(map(parse_pattern, patterns)),
        node_classes=classes,
        **more,
    )


def subject(reference: str, *node_classes: str, owner: str = "") -> Subject:
    return Subject(
        reference=f"registry.test/{reference}", places=(), node_classes=node_classes, owner=owner
    )


def test_the_strongest_says_it():
    image = subject("team/app-oneapi:cuda12.8")
    sure = subject("team/app-oneapi:cuda12.8", "mi300x", "h100", "a100", "gone")
    asked = settings("*app*=cpu", backend="opencl")
    assert find_backends(sure, LABEL, asked, BACKENDS) == (
        ("rocm", "node-class"),
        ("cuda", "node-class"),
    )
    assert find_backends(image, LABEL, asked, BACKENDS) == (("rocm", "label"),)
    assert find_backends(image, {}, asked, BACKENDS) == (("cpu", "name"),)
    assert find_backends(image, {}, settings(backend="opencl"), BACKENDS) == (("cuda", "name"),)
    plain = subject("team/app:1.0")
    assert find_backends(plain, {}, settings(backend="opencl"), BACKENDS) == (("opencl", "option"),)
    assert find_backends(plain, {}, settings(), BACKENDS) == ()


@pytest.mark.parametrize(
    ("reference", "backend"),
    [
        ("team/app:cuda12.8-py311-server", "cuda"),
        ("team/app:1.2-rocm6.4", "rocm"),
        ("team/app:v1.CPU", "cpu"),
        ("team/serve-cuda12:1.0", "cuda"),
        ("team/serve_rocm", "rocm"),
        # The tag is nearer to the image than the name.
        ("team/cuda-tools:cpu-3", "cpu"),
        # A folder is not.
        ("cuda/app:1.0", ""),
        # Two are none.
        ("team/app:cpu-cuda", ""),
        ("team/app:cpu-cuda@sha256:" + "0" * 64, ""),
        ("team/barracuda:1.0", ""),
        ("team/cudanot:cudax-1", ""),
    ],
)
def test_backends_by_name(reference: str, backend: str):
    expected = ((backend, "name"),) if backend else ()
    assert find_backends(subject(reference), {}, settings(), BACKENDS) == expected


def test_the_first_pattern_counts():
    asked = settings("team/*:v1*=cuda", "registry.test/team/*=rocm", "*app=cpu")
    of = {
        name: find_backends(subject(name), {}, asked, BACKENDS)
        for name in ("team/app:v1.2", "team/app:v2", "other/app:v2", "other/tool:v2")
    }
    assert of == {
        "team/app:v1.2": (("cuda", "name"),),
        "team/app:v2": (("rocm", "name"),),
        "other/app:v2": (("cpu", "name"),),
        "other/tool:v2": (),
    }


@pytest.mark.parametrize("text", ["", "cuda", "=cuda", "*="])
def test_what_is_no_pattern(text: str):
    with pytest.raises(UsageError, match="is not GLOB=BACKEND"):
        parse_pattern(text)


def test_words_of_file_names():
    assert find_backend_words("requirements-rocm.txt", BACKENDS) == ("rocm",)
    assert find_backend_words("requirements.cuda12.8.txt", BACKENDS) == ("cuda",)
    assert find_backend_words("pylock.cuda12.8-py311.toml", BACKENDS) == ("cuda",)
    assert find_backend_words("requirements.txt", BACKENDS) == ()


def test_owners():
    asked = settings(owner_labels=("org.team", "team"))
    image = subject("a", owner="by-namespace")
    assert find_owner(image, {"team": "b", "org.team": "a"}, asked) == "a"
    assert find_owner(image, {"team": "b", "org.team": ""}, asked) == "b"
    assert find_owner(image, {}, asked) == "by-namespace"
