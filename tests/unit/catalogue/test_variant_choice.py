"""Which wheel variant a target takes: the order of PEP 825, by what a node class says."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rulecases import target

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.variants import VariantChoice, choose_variant, order_variants, promises
from buildmatrix.facts.inventory.variants import Properties, VariantMetadata
from buildmatrix.matrix.model import NodeClass, Position

CUDA = target("cuda", "12.8")
ROCM = target("rocm", "7.0")
CPU = target("cpu")

#: As torch's experimental variants had them.
TORCH: dict[str, Properties] = {
    "null": {},
    "cu126": {"nvidia": {"cuda_version_lower_bound": ("12.6",), "sm_arch": ("80_real", "90_real")}},
    "cu128": {
        "nvidia": {"cuda_version_lower_bound": ("12.8",), "sm_arch": ("90_real", "120_real")}
    },
    "cu130": {
        "nvidia": {"cuda_version_lower_bound": ("13.0",), "sm_arch": ("90_real", "120_real")}
    },
    "rocm7": {"amd": {"gfx_arch": ("gfx942", "gfx950"), "rocm_version": ("7.0",)}},
    "rocm6": {"amd": {"gfx_arch": ("gfx942",), "rocm_version": ("6.4",)}},
}


def node(backend: str, *archs: str, cpu: str = "", driver: str = "") -> NodeClass:
    return NodeClass(
        "pool", backend, driver, archs, {}, (), Position("buildmatrix.toml", 1), cpu=cpu
    )


def choice(
    variants: Mapping[str, Properties], where=CUDA, on: NodeClass | None = None, **more: object
) -> VariantChoice:
    namespaces = dict.fromkeys(name for item in variants.values() for name in item)
    metadata = VariantMetadata(variants, tuple(namespaces), **more)  # type: ignore[arg-type]
    return choose_variant(metadata, on, where, load())


def test_the_newest_toolkit_that_the_machines_run_is_taken() -> None:
    result = choice(TORCH, CUDA, node("cuda", "sm_90"))
    assert result.label == "cu128"
    assert result.undecided == ("cu130",)
    assert result.reasons == {
        "cu130": "nvidia :: cuda_version_lower_bound :: 13.0: unknown if the driver runs 13.0",
        "cu126": "cu128 is preferred",
        "null": "cu128 is preferred",
        "rocm6": "amd :: gfx_arch :: gfx942 is for the backend rocm",
        "rocm7": "amd :: gfx_arch :: gfx942 is for the backend rocm",
    }


@pytest.mark.parametrize(
    ("driver", "label", "undecided"),
    [
        ("550.54.14", "null", ()),
        ("560.35", "cu126", ()),
        ("570.133.20", "cu128", ()),
        ("580.95.05", "cu130", ()),
        (">=570,<600", "cu128", ()),
        # Newer than every table: what the newest runs is sure.
        ("9999.1", "cu130", ()),
        ("<600", "cu128", ("cu130",)),
    ],
)
def test_the_driver_says_which_toolkits_it_runs(
    driver: str, label: str, undecided: tuple[str, ...]
) -> None:
    result = choice(TORCH, CUDA, node("cuda", "sm_90", driver=driver))
    assert (result.label, result.undecided) == (label, undecided)


@pytest.mark.parametrize(
    ("driver", "label", "undecided"),
    [("570.133.20", "old", ()), ("580.95.05", "null", ()), (">=570", "null", ("old",))],
)
def test_an_upper_bound_leaves_newer_drivers_out(
    driver: str, label: str, undecided: tuple[str, ...]
) -> None:
    variants: dict[str, Properties] = {
        "null": {},
        "old": {"nvidia": {"cuda_version_upper_bound": ("13",)}},
    }
    result = choice(variants, CUDA, node("cuda", driver=driver))
    assert (result.label, result.undecided) == (label, undecided)


def test_a_gpu_without_code_is_not_served() -> None:
    assert choice(TORCH, CUDA, node("cuda", "sm_80")).label == "cu126"
    assert choice(TORCH, CUDA, node("cuda", "sm_120")).label == "cu128"
    assert choice(TORCH, CUDA, node("cuda", "sm_75")).label == "null"
    # Both are in the class: one variant has to serve each machine of it.
    assert choice(TORCH, CUDA, node("cuda", "sm_80", "sm_120")).label == "null"


def test_the_same_metadata_on_other_backends() -> None:
    assert choice(TORCH, ROCM, node("rocm", "gfx942")).label == "rocm7"
    assert choice(TORCH, CPU, node("cpu")).label == "null"


def test_without_a_node_class_the_target_says_what_there_is() -> None:
    assert choice(TORCH, replace(CUDA, archs=("sm_90",))).label == "cu128"
    result = choice(TORCH, CUDA)
    assert (result.label, result.undecided) == ("null", ("cu130", "cu128", "cu126"))


LEVELS: dict[str, Properties] = {
    "null": {},
    **{f"v{level}": {"x86_64": {"level": (f"v{level}",)}} for level in (2, 3, 4)},
}


@pytest.mark.parametrize(
    ("cpu", "label"), [("x86-64-v4", "v4"), ("x86-64-v3", "v3"), ("x86-64", "null"), ("", "null")]
)
def test_the_highest_level_of_the_processor_is_taken(cpu: str, label: str) -> None:
    result = choice(LEVELS, CPU, node("cpu", cpu=cpu))
    assert result.label == label
    assert bool(result.undecided) == (cpu == "")


def test_another_processor_takes_none_of_them() -> None:
    arm = target("cpu", platform="linux/arm64")
    result = choice(LEVELS, arm, node("cpu", cpu="x86-64-v4"))
    assert (result.label, result.undecided) == ("null", ())


def test_priorities_of_a_draft_come_first() -> None:
    values = {"x86_64": {"level": ("v2",)}}
    assert choice(LEVELS, CPU, node("cpu", cpu="x86-64-v4"), values=values).label == "v2"


def test_the_namespace_counts_before_the_value() -> None:
    variants: dict[str, Properties] = {
        "mkl": {"blas_lapack": {"library": ("mkl",)}},
        "openblas_v3": {"blas_lapack": {"library": ("openblas",)}, "x86_64": {"level": ("v3",)}},
        "openblas": {"blas_lapack": {"library": ("openblas",)}},
    }
    result = choice(variants, CPU, node("cpu", cpu="x86-64-v3"))
    assert result.label == "openblas_v3"
    assert list(result.reasons) == ["openblas", "mkl"]


def test_a_tie_is_broken_by_the_label_and_no_variant_may_fit() -> None:
    same = {"blas_lapack": {"library": ("mkl",)}}
    assert choice({"b": same, "a": same}, CPU).label == "a"
    assert choice({"x": TORCH["rocm7"]}, CUDA) == VariantChoice(
        None, {"x": "amd :: gfx_arch :: gfx942 is for the backend rocm"}
    )


def test_what_the_catalogue_does_not_have_is_said_and_not_taken() -> None:
    result = choice({"null": {}, "x": {"quantum": {"foam": ("on",)}}}, CPU)
    assert (result.label, result.undecided) == ("null", ("x",))
    assert result.reasons["x"] == "the catalogue does not have quantum :: foam"


def test_properties_stand_for_what_the_bytes_are_called() -> None:
    lines = [
        "nvidia :: sm_arch :: 90a_real",
        "nvidia :: sm_arch :: 100_virtual",
        "amd :: gfx_arch :: gfx90a",
        "x86_64 :: level :: v1",
        "x86_64 :: avx512f :: on",
        "x86_64 :: level :: v5",
        "nvidia :: cuda_version_lower_bound :: x",
    ]
    assert [item.meaning for item in promises(lines, load())] == [
        *("sm_90a", "compute_100", "gfx90a", "x86-64", "x86-64-v4", None, None)
    ]


NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.lists(st.sampled_from(["1", "2", "3", "4"]), min_size=1, max_size=3, unique=True)
VARIANTS = st.dictionaries(
    st.sampled_from([f"l{number}" for number in range(8)]),
    st.dictionaries(
        NAMES, st.dictionaries(NAMES, VALUES, min_size=1, max_size=2), min_size=1, max_size=2
    ),
    min_size=1,
    max_size=6,
)
SUPPORTED = st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=3), max_size=3)


@given(VARIANTS, SUPPORTED, st.permutations(["a", "b", "c"]))
def test_the_order_is_that_of_variantlib(
    variants: dict[str, dict[str, dict[str, list[str]]]],
    supported: dict[str, dict[str, list[str]]],
    namespaces: Sequence[str],
) -> None:
    """The reference implementation filters and sorts them alike; it has no rule for a tie."""
    models = importlib.import_module("variantlib.models.variant")
    sorting = importlib.import_module("variantlib.resolver.sorting")
    filtering = importlib.import_module("variantlib.resolver.filtering")
    described = {
        label: models.VariantDescription(
            [
                models.VariantProperty(namespace, feature, value)
                for namespace, features in properties.items()
                for feature, values in features.items()
                for value in values
            ]
        )
        for label, properties in sorted(variants.items())
    }
    allowed = [
        models.VariantProperty(namespace, feature, value)
        for namespace in namespaces
        for feature, values in supported.get(namespace, {}).items()
        for value in values
    ]
    fitting = list(filtering.filter_variants_by_property(list(described.values()), allowed))
    expected = sorting.sort_variants_descriptions(fitting, allowed)
    metadata = VariantMetadata(
        {
            label: {
                namespace: {feature: tuple(values) for feature, values in features.items()}
                for namespace, features in properties.items()
            }
            for label, properties in variants.items()
        },
        tuple(namespaces),
    )
    assert [described[label] for label in order_variants(metadata, supported)] == expected
