"""Which distributions differ between the targets of one specification, and for what reason."""

from __future__ import annotations

from comparison_cases import lock, pin, target

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import load
from buildmatrix.commands.drift import exit_code, find_drifts
from buildmatrix.locks.model import Lock
from buildmatrix.matrix.model import Target
from buildmatrix.reports.diff import Drift, Drifts, ExplainedDrift


def found(*locks: tuple[Target, Lock]) -> Drifts:
    return find_drifts(locks, load())


def only(*locks: tuple[Target, Lock]) -> Drift:
    drift = found(*locks)
    (one,) = (*drift.drift, *drift.explained)
    return one


def reason(drift: Drift) -> str | None:
    return drift.reason if isinstance(drift, ExplainedDrift) else None


CUDA, CPU = target("cuda12.8-a"), target("cpu-a")


def test_a_neutral_distribution_in_two_versions_is_drift_with_the_chain_of_each() -> None:
    one = only(
        (CUDA, lock(pin("torch 2.9.0", "cuda.in:1"), pin("numpy 2.1.3", "torch"))),
        (CPU, lock(pin("torch 2.9.0", "cpu.in:4"), pin("numpy 2.3.0", "cpu.in:7,torch"))),
    )
    assert (one.name, reason(one)) == ("numpy", None)
    assert [(it.version, it.targets, it.chain) for it in one.pinned] == [
        ("2.1.3", ("cuda12.8-a",), ("cuda.in:1", "torch 2.9.0", "numpy 2.1.3")),
        ("2.3.0", ("cpu-a",), ("cpu.in:7", "numpy 2.3.0")),
    ]


def test_the_chain_goes_by_way_of_who_asks_on_this_target_only() -> None:
    by_line = only(
        (CUDA, lock(pin("attrs 24.3.0", "base.in:2,cuda.in:1"))),
        (CPU, lock(pin("attrs 26.1.0", "base.in:2"))),
    )
    assert [it.chain[0] for it in by_line.pinned] == ["cuda.in:1", "base.in:2"]
    by_version = only(
        (
            CUDA,
            lock(
                pin("app 1.0"), pin("torch 2.9.0+cu128", "x.in:1"), pin("sympy 1.14", "app,torch")
            ),
        ),
        (CPU, lock(pin("app 1.0"), pin("torch 2.9.0+cu128", "x.in:1"), pin("sympy 1.13", "app"))),
    )
    assert by_version.pinned[-1].chain == ("x.in:1", "torch 2.9.0+cu128", "sympy 1.14")


def test_the_version_that_most_targets_have_comes_first() -> None:
    one = only(
        (CPU, lock(pin("numpy 2.1.3"))),
        (CUDA, lock(pin("numpy 2.3.0"))),
        (target("rocm7-a"), lock(pin("numpy 2.3.0"))),
    )
    assert [it.version for it in one.pinned] == ["2.3.0", "2.1.3"]


def test_the_same_version_everywhere_is_no_difference() -> None:
    drift = found((CPU, lock(pin("numpy 2.1.3"))), (CUDA, lock(pin("numpy 2.1.3"))))
    assert (drift.drift, drift.explained, drift.same) == ((), (), 1)


def test_a_distribution_that_only_one_target_has_is_no_drift() -> None:
    assert found((CPU, lock()), (CUDA, lock(pin("nvidia-nccl-cu12 2.27.3")))).drift == ()


def test_builds_of_one_version_for_two_backends_have_a_reason() -> None:
    one = only((CPU, lock(pin("torch 2.9.0+cpu"))), (CUDA, lock(pin("torch 2.9.0+cu128"))))
    assert reason(one) == "builds of one version for several backends"


def test_an_index_of_the_backends_own_is_a_reason() -> None:
    rocm = target("rocm6.4-a", torch="rocm6.4")
    one = only(
        (rocm, lock(pin("torch 2.8.0+rocm6.4", index="https://wheels.example.com/rocm6.4"))),
        (
            target("cuda12.8-a", torch="cu128"),
            lock(pin("torch 2.9.0+cu128", index="https://wheels.example.com/cu128")),
        ),
    )
    assert reason(one) is not None and "an index of each backend's own" in reason(one)


def test_a_mirror_on_one_machine_is_no_reason_for_another_version() -> None:
    def of(version: str, index: str) -> Lock:
        others = (pin(f"d{n} 1.0", index=index) for n in range(3))
        return lock(pin(f"numpy {version}", index=index), *others)

    one = only(
        (target("cuda12.8-a", torch="cu128"), of("2.1.3", "https://mirror.example.com")),
        (CPU, of("2.3.0", "https://pypi.org/simple")),
    )
    assert (one.name, reason(one)) == ("numpy", None)


def test_an_index_that_the_specification_routes_a_family_to_is_a_reason() -> None:
    torch = "https://wheels.example.com/cu128"
    routed = replace(target("cuda12.8-a"), index={"torch": torch})
    one = only(
        (routed, lock(pin("torch 2.9.0", index=torch))),
        (CPU, lock(pin("torch 2.8.0", index="https://pypi.org/simple"))),
    )
    assert reason(one) is not None and "an index of each backend's own" in reason(one)


def test_two_versions_of_the_default_build_from_one_index_are_drift() -> None:
    pypi = "https://pypi.org/simple"
    one = only(
        (CPU, lock(pin("torch 2.8.0", index=pypi))), (CUDA, lock(pin("torch 2.9.0", index=pypi)))
    )
    assert reason(one) is None


def test_what_belongs_to_a_vendor_follows_its_runtime() -> None:
    one = only(
        (CUDA, lock(pin("nvidia-cublas-cu12 12.8.4.1"))),
        (target("cuda12.6-a"), lock(pin("nvidia-cublas-cu12 12.6.4.1"))),
    )
    assert reason(one) == "it belongs to NVIDIA CUDA"


def test_another_python_is_a_reason_as_long_as_each_python_has_one_version() -> None:
    old = target("cpu-py39", python="3.9")
    one = only((CPU, lock(pin("numpy 2.3.0"))), (old, lock(pin("numpy 2.0.2"))))
    assert reason(one) == "another Python (3.11, 3.9)"
    torn = only(
        (CPU, lock(pin("numpy 2.3.0"))),
        (CUDA, lock(pin("numpy 2.1.3"))),
        (old, lock(pin("numpy 2.0.2"))),
    )
    assert reason(torn) is None


def test_a_twin_in_another_version_has_a_reason() -> None:
    cpu = target("cpu-a", replace="xgboost=xgboost-cpu>=3")
    one = only((CUDA, lock(pin("xgboost 3.4.1"))), (cpu, lock(pin("xgboost-cpu 3.2.0"))))
    assert (one.name, reason(one)) == (
        "xgboost / xgboost-cpu",
        "xgboost-cpu stands for xgboost there (`replace`)",
    )


def test_drift_comes_before_what_has_a_reason_and_fails_as_a_warning() -> None:
    drift = found(
        (CPU, lock(pin("attrs 1.0"), pin("a 2.0+cpu"))),
        (CUDA, lock(pin("attrs 1.1"), pin("a 2.0+cu128"))),
    )
    assert [one.name for one in (*drift.drift, *drift.explained)] == ["attrs", "a"]
    codes = [exit_code(drift, (), kind) for kind in ("error", "warning", "note", "never")]
    assert codes == [0, 1, 1, 0]
