"""How a framework is asked for its devices, and made to compute on one of them.

Part of probes: runs inside an image, by the image's Python, 3.8 or newer. Nothing is imported
before a framework is made. What a device is called (`kind`) is for the catalogue to judge
(`[[framework-devices]]`); nothing here says what belongs to whom.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

#: One number of each matrix is a multiple of 1/32 between -30/32 and 30/32, so that all types hold
#: it exactly, and sums of products are exact in 24 bits up to 16,384 rows.
UNIT = 32


class Device:
    """A device as its framework has it."""

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
        #: Bytes, 0 where it does not say; whether they are memory of the host.
        self.memory, self.is_host = memory, is_host
        self.handle = handle


class Product:
    """A matrix product that can be computed again and again."""

    def __init__(
        self,
        run: Callable[[], Any],
        read: Callable[[Any, int, int], float],
        where: Callable[[Any], str],
    ) -> None:
        #: Computes, waits for the end of it, and returns the result.
        self.run = run
        #: One number of a result.
        self.read = read
        #: The id of the device that has computed a result.
        self.where = where


class Framework:
    """What all have; a framework without arrays of its own leaves out what needs them."""

    module = ""
    #: What it was built for, as it says it.
    build = ""
    #: Why a device that might be there is not.
    reason = ""

    def __init__(self, kinds: Sequence[str], imports: Sequence[str] = ()) -> None:
        """`kinds`: names of devices that the catalogue knows; `imports`: plugins for some."""
        self.kinds = kinds
        self.import_first()
        self.api: Any = importlib.import_module(self.module)
        for name in imports:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)

    def import_first(self) -> None:
        """What has to be set before the import."""

    @property
    def version(self) -> str:
        """The version, as it says it itself."""
        return str(getattr(self.api, "__version__", "?"))

    def devices(self) -> list[Device]:
        """All that it sees, the CPU included where it computes on it."""
        raise NotImplementedError

    def types(self, device: Device) -> Sequence[str]:
        """Types of which it multiplies matrices there."""
        return ()

    def product(self, device: Device, type: str, size: int) -> Product:
        """A product of two square matrices, each with `size` rows, of `pattern`."""
        raise NotImplementedError

    def copy(self, device: Device, count: int) -> Callable[[], Any] | None:
        """Reads `count` bytes of the device and writes as many; None where it has no way to."""
        return None

    def fill(self, device: Device, count: int) -> Any:
        """`count` bytes of the device, written; None where it has no way to do that."""
        return None

    def release(self, device: Device) -> None:
        """Give back to the device what is not used any more."""

    def free(self, device: Device) -> int | None:
        """Bytes of the device that are free; None where it does not say."""
        return None


def pattern(row: Any, column: Any) -> Any:
    """A number of the left matrix, times `UNIT`; for numbers and for arrays of them."""
    return (row * 131 + column * 71 + row * column) % 61 - 30


def exact(row: int, column: int, size: int) -> int:
    """A number of the product, times `UNIT` squared."""
    return sum(pattern(row, k) * pattern(k + 17, column + 5) for k in range(size))


def numpy_matrices(type: str, size: int, dtype: Any) -> tuple[Any, Any]:
    """Both matrices as arrays of numpy; whole numbers are not divided by `UNIT`."""
    numpy = importlib.import_module("numpy")
    rows, columns = numpy.arange(size)[:, None], numpy.arange(size)[None, :]
    unit = 1 if type == "int8" else UNIT
    left, right = pattern(rows, columns), pattern(rows + 17, columns + 5)
    return (left / unit).astype(dtype), (right / unit).astype(dtype)


def first_line(error: BaseException) -> str:
    """An exception as one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:500]}" if lines else type(error).__name__


def chosen(devices: Iterable[Device], wanted: Sequence[str]) -> list[Device]:
    """The devices of which one of these globs is the kind."""
    from fnmatch import fnmatchcase

    return [d for d in devices if any(fnmatchcase(d.kind, glob) for glob in wanted)]
