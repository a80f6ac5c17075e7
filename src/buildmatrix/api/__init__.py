"""The Python API: what `audit`, `scan`, `why`, `diff` and `fleet` do, as typed functions.

`import buildmatrix` has all of these names; the command line calls the same functions.
"""

from buildmatrix.api.auditing import audit
from buildmatrix.api.comparing import diff, drift
from buildmatrix.api.explaining import why
from buildmatrix.api.fleet_auditing import fleet_audit
from buildmatrix.api.fleet_scanning import fleet_scan
from buildmatrix.api.result import CommandResult
from buildmatrix.api.scanning import scan
from buildmatrix.api.workspace import Workspace
from buildmatrix.errors import BuildmatrixError

__all__ = [
    "BuildmatrixError",
    "CommandResult",
    "Workspace",
    "audit",
    "diff",
    "drift",
    "fleet_audit",
    "fleet_scan",
    "scan",
    "why",
]
