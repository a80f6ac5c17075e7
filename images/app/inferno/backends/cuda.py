"""CUDA: the kernel compiled by NVRTC, launched through the driver API."""

from __future__ import annotations

from typing import Any

import numpy as np
from cuda.bindings import driver, nvrtc

from inferno.backends.kernel import BLOCK, DENSE, grid
from inferno.model import Array


def _check(result: tuple[Any, ...]) -> Any:
    error, *values = result
    if int(error) != 0:
        raise RuntimeError(f"CUDA: {error}")
    return values[0] if len(values) == 1 else tuple(values)


class CudaBackend:
    """Runs on the first CUDA device."""

    def __init__(self) -> None:
        _check(driver.cuInit(0))
        self._device = _check(driver.cuDeviceGet(0))
        self._context = _check(driver.cuDevicePrimaryCtxRetain(self._device))
        _check(driver.cuCtxSetCurrent(self._context))
        attribute = driver.CUdevice_attribute
        major, minor = (
            _check(driver.cuDeviceGetAttribute(name, self._device))
            for name in (
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
        program = _check(nvrtc.nvrtcCreateProgram(DENSE.encode(), b"dense.cu", 0, [], []))
        _check(
            nvrtc.nvrtcCompileProgram(
                program, 1, [f"--gpu-architecture=sm_{major}{minor}".encode()]
            )
        )
        cubin = b" " * int(_check(nvrtc.nvrtcGetCUBINSize(program)))
        _check(nvrtc.nvrtcGetCUBIN(program, cubin))
        self._module = _check(driver.cuModuleLoadData(cubin))
        self._kernel = _check(driver.cuModuleGetFunction(self._module, b"dense"))

    def device(self) -> str:
        """The name that the driver reports."""
        name = _check(driver.cuDeviceGetName(128, self._device))
        return bytes(name).split(b"\0")[0].decode()

    def dense(self, x: Array, weights: Array, bias: Array, *, relu: bool) -> Array:
        """One launch; arrays are copied there and back."""
        n, k = x.shape
        m = weights.shape[1]
        y = np.empty((n, m), np.float32)
        arrays = [np.ascontiguousarray(a) for a in (x, weights, bias)]
        memory = [_check(driver.cuMemAlloc(a.nbytes)) for a in (*arrays, y)]
        try:
            for pointer, array in zip(memory, arrays, strict=False):
                _check(driver.cuMemcpyHtoD(pointer, array.ctypes.data, array.nbytes))
            values = [np.array([int(p)], np.uint64) for p in memory]
            values += [np.array([v], np.int32) for v in (n, k, m, int(relu))]
            arguments = np.array([v.ctypes.data for v in values], np.uint64)
            columns, rows = grid(n, m)
            _check(
                driver.cuLaunchKernel(
                    self._kernel, columns, rows, 1, BLOCK, BLOCK, 1, 0, 0, arguments.ctypes.data, 0
                )
            )
            _check(driver.cuMemcpyDtoH(y.ctypes.data, memory[-1], y.nbytes))
        finally:
            for pointer in memory:
                _check(driver.cuMemFree(pointer))
        return y


def create() -> CudaBackend:
    """Compile the kernel for the device that is there."""
    return CudaBackend()
