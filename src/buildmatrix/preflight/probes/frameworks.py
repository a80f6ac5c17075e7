"""Interface to frameworks: list devices, and compute on one of them.

Part of probes: runs inside an image, by the image's Python, 3.8 or newer. Nothing is imported
before a framework is instantiated. The catalogue judges the kinds of devices
(`[[framework-devices]]`); nothing here knows their vendors.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

#: Numbers of the matrices are multiples of 1/32 between -30/32 and 30/32, so that all types hold
#: them exactly, and sums of products are exact in 24 bits up to 16,384 rows.
UNIT = 32


class Device:
    """A device as its framework describes it."""

    def __init__(
        self,
        id: str,
        kind: str,
        name: str = "",
        memory: int = 0,
        handle: Any = None,
        is_host: bool = False,
    ) -> None:
        self.id, self.kind, self.name = id, kind, name
        #: Bytes, 0 if unknown; True if they are host memory.
        self.memory, self.is_host = memory, is_host
        self.handle = handle


class Product:
    """A repeatable matrix product."""

    def __init__(
        self,
        run: Callable[[], Any],
        where: Callable[[Any], str],
        read: Callable[[Any, int, int], float] = lambda c, i, j: float(c[i, j]),
    ) -> None:
        #: Computes, waits for the end, and returns the result.
        self.run = run
        #: Returns the id of the device that computed a result.
        self.where = where
        #: Returns one number of a result.
        self.read = read


class Framework:
    """Base class; a framework without arrays does not implement the methods that need them."""

    module = ""
    #: Description of its build.
    build = ""
    #: Reason for a missing device.
    reason = ""
    #: Variables to set before the import.
    ENVIRONMENT: Mapping[str, str] = {}
    #: Matrix element types, if they do not depend on the device.
    TYPES: Iterable[str] = ()

    def __init__(self, kinds: Sequence[str], imports: Sequence[str] = ()) -> None:
        """Import the framework; `kinds` are device names in the catalogue, `imports` plugins."""
        self.kinds = kinds
        os.environ.update(self.ENVIRONMENT)
        self.api: Any = importlib.import_module(self.module)
        for name in imports:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)

    @property
    def version(self) -> str:
        """Version according to the framework."""
        return str(getattr(self.api, "__version__", "?"))

    def devices(self) -> list[Device]:
        """Return all devices, including the CPU if it computes on it."""
        raise NotImplementedError

    def types(self, device: Device) -> Sequence[str]:
        """Return the matrix element types supported on the device."""
        return tuple(self.TYPES)

    def product(self, device: Device, type: str, size: int) -> Product:
        """Return a product of two square matrices with `size` rows, filled with `pattern`."""
        raise NotImplementedError

    def copy(self, device: Device, count: int) -> Callable[[], Any] | None:
        """Return a copy of `count` bytes on the device; None if unsupported."""
        return None

    def fill(self, device: Device, count: int) -> Any:
        """Allocate and write `count` bytes on the device; None if unsupported."""
        return None

    def release(self, device: Device) -> None:
        """Return unused memory to the device."""

    def free(self, device: Device) -> int | None:
        """Return the free bytes of the device; None if unknown."""
        return None


def make_pattern(row: Any, column: Any) -> Any:
    """Return a number of the left matrix, times `UNIT`; also for arrays."""
    return (row * 131 + column * 71 + row * column) % 61 - 30


def compute_exact(row: int, column: int, size: int) -> int:
    """Return a number of the product, times `UNIT` squared."""
    return sum(make_pattern(row, k) * make_pattern(k + 17, column + 5) for k in range(size))


def make_numpy_matrices(type: str, size: int, dtype: Any) -> tuple[Any, Any]:
    """Return both matrices as numpy arrays; integers are not divided by `UNIT`."""
    numpy = importlib.import_module("numpy")
    rows, columns = numpy.arange(size)[:, None], numpy.arange(size)[None, :]
    unit = 1 if type == "int8" else UNIT
    left, right = make_pattern(rows, columns), make_pattern(rows + 17, columns + 5)
    return (left / unit).astype(dtype), (right / unit).astype(dtype)


def first_line(error: BaseException) -> str:
    """Format an exception as one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:500]}" if lines else type(error).__name__


def select_devices(devices: Iterable[Device], wanted: Sequence[str]) -> list[Device]:
    """Return the devices whose kind matches one of these globs."""
    from fnmatch import fnmatchcase

    return [d for d in devices if any(fnmatchcase(d.kind, glob) for glob in wanted)]
