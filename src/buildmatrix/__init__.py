"""Prove that a container image contains only what its accelerator backend can use.

The names of `buildmatrix.api.functions` are loaded when first used: the scan core travels into
builders without them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from buildmatrix.api.functions import (
        BuildmatrixError,
        CommandResult,
        Workspace,
        audit,
        build,
        diff,
        doctor,
        drift,
        fleet_audit,
        fleet_scan,
        lock,
        promote,
        run_preflight,
        scan,
        verify,
        why,
    )

__version__ = "0.1.0"
__all__ = [
    "BuildmatrixError",
    "CommandResult",
    "Workspace",
    "__version__",
    "audit",
    "build",
    "diff",
    "doctor",
    "drift",
    "fleet_audit",
    "fleet_scan",
    "lock",
    "promote",
    "run_preflight",
    "scan",
    "verify",
    "why",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from buildmatrix.api import functions

    return getattr(functions, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
