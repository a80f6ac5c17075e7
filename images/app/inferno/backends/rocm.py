"""ROCm: the same kernel compiled by hipRTC, through AMD's HIP Python."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from hip import hip, hiprtc

from inferno.backends.kernel import BLOCK, DENSE, grid
from inferno.model import Array


def _check(result: tuple[Any, ...]) -> Any:
    error, *values = result
    if int(error) != 0:
        raise RuntimeError(f"HIP: {error}")
    return values[0] if len(values) == 1 else tuple(values)


class HipBackend:
    """Runs on the first HIP device."""

    def __init__(self) -> None:
        self._properties = hip.hipDeviceProp_t()
        _check(hip.hipGetDeviceProperties(self._properties, 0))
        program = _check(hiprtc.hiprtcCreateProgram(DENSE.encode(), b"dense.hip", 0, None, None))
        option = b"--offload-arch=" + self._properties.gcnArchName
        _check(hiprtc.hiprtcCompileProgram(program, 1, [option]))
        code = bytearray(int(_check(hiprtc.hiprtcGetCodeSize(program))))
        _check(hiprtc.hiprtcGetCode(program, code))
        self._module = _check(hip.hipModuleLoadData(code))
        self._kernel = _check(hip.hipModuleGetFunction(self._module, b"dense"))

    def device(self) -> str:
        """Name and gfx target."""
        properties = self._properties
        return f"{properties.name.decode()} ({properties.gcnArchName.decode()})"

    def dense(self, x: Array, weights: Array, bias: Array, *, relu: bool) -> Array:
        """One launch; arrays are copied there and back."""
        n, k = x.shape
        m = weights.shape[1]
        y = np.empty((n, m), np.float32)
        arrays = [np.ascontiguousarray(a) for a in (x, weights, bias)]
        memory = [_check(hip.hipMalloc(a.nbytes)) for a in (*arrays, y)]
        try:
            for pointer, array in zip(memory, arrays, strict=False):
                kind = hip.hipMemcpyKind.hipMemcpyHostToDevice
                _check(hip.hipMemcpy(pointer, array, array.nbytes, kind))
            columns, rows = grid(n, m)
            _check(
                hip.hipModuleLaunchKernel(
                    self._kernel,
                    *(columns, rows, 1),
                    *(BLOCK, BLOCK, 1),
                    sharedMemBytes=0,
                    stream=None,
                    kernelParams=None,
                    extra=(*memory, *(ctypes.c_int(v) for v in (n, k, m, int(relu)))),
                )
            )
            kind = hip.hipMemcpyKind.hipMemcpyDeviceToHost
            _check(hip.hipMemcpy(y, memory[-1], y.nbytes, kind))
        finally:
            for pointer in memory:
                _check(hip.hipFree(pointer))
        return y


def create() -> HipBackend:
    """Compile the kernel for the device that is there."""
    return HipBackend()
