"""`cache-key`: stable, fit for a path and for a label, and never guessed."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest
from rulecases import lock, pin, target

from buildmatrix.base.data import replace
from buildmatrix.base.errors import SpecError, UsageError
from buildmatrix.catalogue.load import load
from buildmatrix.commands.cache_key import (
    LONGEST,
    CacheKey,
    find_node_class,
    make_cache_key,
    require_single_key,
)
from buildmatrix.locks.model import Lock
from buildmatrix.matrix.model import NodeClass, Position, Target

#: Kubernetes, "Labels and Selectors".
LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
PLACE = Position("buildmatrix.toml", 40)
H100 = NodeClass("h100", "cuda", "570.26", ("sm_90",), {}, (), PLACE)
PLAIN = NodeClass("plain", "cpu", "", (), {}, (), PLACE, cpu="x86-64-v3")
CUDA = target("cuda", "12.8")


def key(node: NodeClass = H100, where: Target = CUDA, locked: Lock | None = None) -> CacheKey:
    return make_cache_key(node, where, locked, load())


def refused(node: NodeClass = H100, where: Target = CUDA) -> str:
    with pytest.raises(SpecError) as caught:
        key(node, where)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("node", "where", "locked", "text"),
    [
        (H100, CUDA, None, "cuda12.8-sm_90-driver570"),
        (H100, CUDA, lock(pin("numpy 2.3.0")), "cuda12.8-sm_90-driver570"),
        (
            H100,
            CUDA,
            lock(pin("torch 2.9.0+cu128"), pin("tensorrt-llm 1.0")),
            "cuda12.8-sm_90-driver570-torch_2.9.0_cu128",
        ),
        (
            H100,
            CUDA,
            lock(pin("onnxruntime-gpu 1.20.1"), pin("tensorrt 10.8.0.43")),
            "cuda12.8-sm_90-driver570-onnxruntime-gpu_1.20.1-tensor-a366b519",
        ),
        (
            replace(H100, archs=(), products=("NVIDIA-H100-80GB-HBM3",)),
            CUDA,
            None,
            "cuda12.8-sm_90-driver570",
        ),
        (replace(H100, archs=("sm_90", "sm_80")), CUDA, None, "cuda12.8-sm_80.sm_90-driver570"),
        (replace(H100, partition="1g.10gb"), CUDA, None, "cuda12.8-sm_90-driver570-1g.10gb"),
        (
            NodeClass("mi", "rocm", "6.10.5", ("gfx942",), {}, (), PLACE),
            target("rocm", "6.4"),
            None,
            "rocm6.4-gfx942-driver6",
        ),
        (PLAIN, target("cpu"), None, "cpu-x86-64-v3"),
        (
            H100,
            target("cuda", "12.8", platform="linux/arm64"),
            None,
            "cuda12.8-sm_90-driver570-arm64",
        ),
    ],
)
def test_a_key_has_what_compiled_files_depend_on(
    node: NodeClass, where: Target, locked: Lock | None, text: str
) -> None:
    made = key(node, where, locked).text
    assert made == text
    assert LABEL.fullmatch(made)
    assert made == key(node, where, locked).text


def test_what_is_left_out_or_too_long_is_told_apart_by_a_digest() -> None:
    many = [pin(f"{name} 1.0+{'x' * 30}") for name in ("torch", "tensorrt", "openvino")]
    keys = [
        key(replace(H100, partition=partition), locked=locked).text
        for partition in ("CPX/NPS4", "CPX+NPS4", "CPX_NPS4", "CPX.NPS4", "a-", "a.")
        for locked in (None, lock(*many), lock(*many[1:]))
    ]
    assert all(LABEL.fullmatch(text) for text in keys)
    assert all(one != other for one, other in combinations(keys, 2))
    assert max(map(len, keys)) <= LONGEST


def test_minor_releases_of_a_driver_and_of_the_runtime_share_a_key() -> None:
    full = replace(target("cuda", "12"), runtime_values={"full": "12.8.1"})
    assert key(replace(H100, driver="570.133.07"), full).text == key().text
    assert key(replace(H100, driver="580.65"), full).text != key().text


@pytest.mark.parametrize(
    ("driver", "major"),
    [
        ("570", 570),
        (">=570.26,<571", 570),
        ("==570.*", 570),
        ("~=570.26", 570),
        (">=550,>=570,<571", 570),
        (">=570", None),
        (">=550,<571", None),
        (">=570,!=571.*", None),
        ("<571", None),
        ("", None),
    ],
)
def test_a_range_counts_where_it_has_one_major_version(driver: str, major: int | None) -> None:
    node = replace(H100, driver=driver)
    if major is not None:
        assert key(node).driver == major
    else:
        assert "driver" in refused(node)


@pytest.mark.parametrize(
    ("node", "where", "words"),
    [
        (replace(H100, archs=()), CUDA, "`archs` or `products`"),
        (H100, target("cuda"), "runtime 'any'"),
        (H100, target("cuda", "12"), "runtime '12'"),
        (replace(PLAIN, cpu=""), target("cpu"), "`cpu`"),
    ],
)
def test_what_is_not_known_is_an_error_and_no_guess(
    node: NodeClass, where: Target, words: str
) -> None:
    assert words in refused(node, where)


def test_everything_that_is_missing_is_said_at_once_with_its_line() -> None:
    text = refused(replace(H100, archs=(), driver=""), target("cuda"))
    assert text.count("\n") >= 2
    assert "buildmatrix.toml:40" in text


def test_a_class_that_there_is_not_has_a_hint() -> None:
    with pytest.raises(UsageError, match="did you mean `h100`"):
        find_node_class("h10", [H100, PLAIN])
    with pytest.raises(UsageError, match="no node class 'x'"):
        find_node_class("x", [])


def test_targets_with_different_keys_are_no_single_one() -> None:
    first, other = key(), key(where=target("cuda", "13.0"))
    assert require_single_key("h100", [first, replace(first, target="another")]) == first.text
    with pytest.raises(UsageError, match="--select"):
        require_single_key("h100", [first, other])


def test_a_key_is_the_name_of_a_folder(tmp_path: Path) -> None:
    node = replace(H100, partition="../../etc")
    (tmp_path / key(node).text).mkdir()
    assert [item.name for item in tmp_path.iterdir()] == [key(node).text]
