"""The rungs `compute` and `memory`: what counts as computed, and what as given back."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from probing import install, runner, torch

from buildmatrix.catalogue.load import load
from buildmatrix.engines.model import RunResult
from buildmatrix.preflight import rungs
from buildmatrix.preflight.probes import bounded, compute
from buildmatrix.preflight.probes.frameworks import (
    UNIT,
    Device,
    Framework,
    Product,
    compute_exact,
    make_pattern,
)
from buildmatrix.preflight.probes.memory import take_twice
from buildmatrix.preflight.probes.runtimes import make_operator_model
from buildmatrix.preflight.rungs import run_compute, run_memory
from buildmatrix.reports.preflight import state_of


class Clock:
    """Time that passes when something is computed."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    perf_counter = monotonic

    def compute(self) -> None:
        self.now += 0.03


class Stub(Framework):
    """Computes one number of a product when it is read, with an error."""

    module = "stub"
    clock: Clock

    def __init__(self, wrong: float = 0.0, where: str = "gpu:0", raises: str = "") -> None:
        self.wrong, self.where, self.raises = wrong, where, raises

    def product(self, device: Device, type: str, size: int) -> Product:
        if self.raises:
            raise RuntimeError(self.raises)
        unit = 1 if type == "int8" else UNIT * UNIT

        def read(_: Any, row: int, column: int) -> float:
            return compute_exact(row, column, size) / unit + self.wrong

        return Product(self.clock.compute, lambda _: self.where, read)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Mapping[str, Any]]:
    monkeypatch.setattr(sys, "argv", ["-c", json.dumps({"mark": "", "each": 0.05})])
    bounded.read_options.cache_clear()
    clock = Clock()
    monkeypatch.setattr(compute, "time", clock)

    def measure(
        framework: Stub, type: str = "float32", *, is_host: bool = False
    ) -> Mapping[str, Any]:
        framework.clock = clock
        answers: list[dict[str, Any]] = []
        device = Device("gpu:0", "gpu", is_host=is_host)
        compute.measure_product(framework, device, type, lambda **answer: answers.append(answer))
        (answer,) = answers
        return answer

    yield measure
    bounded.read_options.cache_clear()


def test_a_right_product_has_its_speed(measured: Callable[..., Mapping[str, Any]]) -> None:
    answer = measured(Stub(), is_host=True)
    assert (answer["state"], answer["subject"]) == ("passed", "stub gpu:0 float32")
    assert answer["tflops"] == pytest.approx(2 * 256**3 / 0.03 / 1e12, abs=1e-6)
    assert answer["message"].endswith("TFLOP/s with 256 rows")
    assert answer["cold_seconds"] == answer["median_seconds"] == 0.03
    assert answer["max_error"] == 0


class Compiling(Stub):
    """Compiles each size on its first call, as jax does, and reaches 50 TFLOP/s."""

    def product(self, device: Device, type: str, size: int) -> Product:
        product = super().product(device, type, size)
        seconds = iter([0.6])

        def run() -> None:
            self.clock.now += next(seconds, 2 * size**3 / 50e12)

        return Product(run, product.where, product.read)


def test_what_each_size_takes_to_compile_is_not_timed(
    measured: Callable[..., Mapping[str, Any]],
) -> None:
    answer = measured(Compiling())
    assert (answer["size"], round(answer["tflops"], 1)) == (8192, 50.0)
    assert answer["cold_seconds"] == 0.6


def test_a_product_that_is_too_small_for_a_device_has_no_speed(
    measured: Callable[..., Mapping[str, Any]],
) -> None:
    answer = measured(Stub())
    assert answer["state"] == "passed" and "tflops" not in answer
    assert answer["message"] == "right; too slow to be timed with 4096 rows"


@pytest.mark.parametrize(
    ("type", "wrong", "state"),
    [
        ("float32", 1e-3, "failed"),
        ("float16", 1e-3, "passed"),
        ("float16", 5.0, "failed"),
        ("int8", 1, "failed"),
        ("float32", float("nan"), "failed"),
        ("float32", float("inf"), "failed"),
    ],
)
def test_a_wrong_product_has_failed(
    measured: Callable[..., Mapping[str, Any]], type: str, wrong: float, state: str
) -> None:
    answer = measured(Stub(wrong), type)
    assert answer["state"] == state
    json.dumps(answer, allow_nan=False)


def test_a_product_of_another_device_has_failed(
    measured: Callable[..., Mapping[str, Any]],
) -> None:
    answer = measured(Stub(where="cpu"))
    assert (answer["state"], answer["message"]) == (
        "failed",
        "was computed on cpu, and not on gpu:0",
    )


@pytest.mark.parametrize(
    ("type", "raises", "state"),
    [
        ("int8", "'_int_mm' not implemented for 'acme'", "not-run"),
        ("float16", "out of memory", "failed"),
        ("float32", "not implemented", "failed"),
    ],
)
def test_a_type_that_is_not_there_is_no_failure(
    measured: Callable[..., Mapping[str, Any]], type: str, raises: str, state: str
) -> None:
    assert measured(Stub(raises=raises), type)["state"] == state


def test_all_types_hold_the_numbers_of_the_matrices() -> None:
    numbers = {make_pattern(row, column) for row in range(300) for column in range(300)}
    # 8 bits with the sign: int8, and the fraction of bfloat16.
    assert numbers == set(range(-30, 31))


def test_the_model_of_a_product_is_what_onnx_proto_says() -> None:
    model = make_operator_model("MatMul", ["a", "b"], (1, 1), [300, 300])
    # ir_version 8; graph (field 7); opset_import (field 8) with version 13.
    assert model[:2] == b"\x08\x08" and model[2] == 0x3A and model[-4:] == b"\x42\x02\x10\x0d"
    assert b"\x22\x06MatMul" in model and b"\x08\xac\x02" in model


def pressed(free: list[int], take: Callable[[int], Any] = bytearray) -> Mapping[str, Any]:
    answers: list[dict[str, Any]] = []
    left = iter(free)
    take_twice(
        "gpu:0", 8 << 20, take, lambda: None, lambda: next(left),
        lambda **answer: answers.append(answer), {"total_bytes": 1 << 30},
    )  # fmt: skip
    (answer,) = answers
    return answer


def test_memory_that_comes_back_passes() -> None:
    answer = pressed([1 << 30, 1 << 30])
    assert (answer["state"], answer["taken_bytes"], answer["lost_bytes"]) == ("passed", 8 << 20, 0)


def test_memory_that_stays_away_fails() -> None:
    answer = pressed([1 << 30, (1 << 30) - (4 << 20)])
    assert (answer["state"], answer["message"]) == ("failed", "4 of 8 MiB did not return")


def test_memory_that_cannot_be_taken_says_how_much_could() -> None:
    taken: list[int] = []

    def take(count: int) -> bytearray:
        taken.append(count)
        if len(taken) > 3:
            raise MemoryError("no more")
        return bytearray(count)

    assert (
        pressed([1 << 30, 1 << 30], take)["message"]
        == "3 of 8 MiB the first time: MemoryError: no more"
    )


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "site-packages").mkdir()
    return tmp_path / "site-packages"


def test_the_memory_of_the_container_is_taken_for_real(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rungs, "MOST", 16 << 20)
    checks, why = run_memory(runner(site), "cpu", load())
    assert [(check.subject, check.state) for check in checks] == [("container", "passed")]
    assert (checks[0].values["taken_bytes"], why) == (16 << 20, "")


def test_a_framework_that_takes_all_memory_is_ended(site: Path) -> None:
    # Bounded from outside, too, so that the test is no danger to the machine should it fail.
    install(site, "torch", "import resource\nkept = []\nwhile True: kept.append(bytes(1 << 20))")
    probe = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (256 << 20, 256 << 20))\n"

    def start(command: Any, timeout_s: float) -> RunResult:
        return runner(site)((command[0], "-c", probe + command[2], command[3]), timeout_s)

    checks, _ = run_compute(start, "cuda", load())
    (check,) = checks
    assert (check.subject, check.state) == ("torch", "failed")
    assert "MiB of memory" in check.message or "MemoryError" in check.message


def test_a_framework_without_a_device_computes_nothing(site: Path) -> None:
    install(site, "torch", torch("12.8", zeros="raise RuntimeError('no driver')"))
    checks, why = run_compute(runner(site), "cuda", load())
    assert (state_of(checks), why) == ("not-run", "no framework here computes on a device of cuda")
    assert checks[0].message == "sees no device for it; RuntimeError: no driver"


def test_a_framework_that_dies_while_it_computes_is_named(site: Path) -> None:
    install(site, "torch", "import os\nos.write(2, b'illegal kernel\\n')\nos.kill(os.getpid(), 6)")
    checks, _ = run_compute(runner(site), "cuda", load())
    assert checks[0].message == "computing with it died by SIGABRT: illegal kernel"


def test_a_device_that_is_gone_has_failed(site: Path) -> None:
    install(site, "torch", torch("12.8"))
    checks, why = run_compute(runner(site), "cuda", load(), ("torch cuda:0",))
    (gone,) = (check for check in checks if check.state == "failed")
    assert (gone.subject, why) == ("torch cuda:0", "")
    assert gone.message == "it was there in the rung `device`, and is gone"


def test_a_framework_that_has_its_devices_and_no_products_has_lost_nothing(site: Path) -> None:
    install(site, "openvino", "class Core:\n    available_devices = ['CPU']\n"
            "    def get_property(self, *_): return ''\n")  # fmt: skip
    checks, _ = run_compute(runner(site), "openvino", load(), ("openvino CPU",))
    assert [(check.subject, check.state) for check in checks] == [("openvino", "not-run")]
