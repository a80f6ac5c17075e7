"""Commands as functions with their options as arguments: the names of `import buildmatrix`."""

from collections.abc import Callable
from dataclasses import fields
from functools import update_wrapper
from inspect import cleandoc, signature
from typing import Any, ParamSpec, TypeVar, cast

from buildmatrix.api import building, fleets, judging, machines, releases
from buildmatrix.base.errors import BuildmatrixError as BuildmatrixError
from buildmatrix.commands.options import (
    AuditOptions,
    BuildOptions,
    DiffOptions,
    DriftOptions,
    PromoteOptions,
    ScanOptions,
)
from buildmatrix.commands.workspace import CommandResult as CommandResult
from buildmatrix.commands.workspace import Workspace as Workspace

P = ParamSpec("P")
Options = TypeVar("Options")
Result = TypeVar("Result")


def _by_name(kind: Callable[P, Options], run: Callable[[Options], Result]) -> Callable[P, Result]:
    """`run`, called with the fields of its options as arguments."""

    def call(*values: P.args, **named: P.kwargs) -> Result:
        return run(kind(*values, **named))

    update_wrapper(call, run)
    listed = "".join(
        # The flag sets it to False.
        f"    {item.name}: {'if False: ' * (item.default is True)}{item.metadata['help']}\n"
        for item in fields(cast("type[Any]", kind))
    )
    call.__doc__ = f"{cleandoc(run.__doc__ or '')}\n\nArgs:\n{listed}"
    returns = run.__annotations__["return"]
    call.__annotations__ = kind.__init__.__annotations__ | {"return": returns}
    call.__signature__ = signature(kind).replace(return_annotation=returns)  # type: ignore[attr-defined]
    return call


audit = _by_name(AuditOptions, judging.audit)
build = _by_name(BuildOptions, building.build)
diff = _by_name(DiffOptions, judging.diff)
doctor = _by_name(machines.DoctorOptions, machines.doctor)
drift = _by_name(DriftOptions, judging.drift)
fleet_audit = _by_name(fleets.FleetAuditOptions, fleets.fleet_audit)
fleet_scan = _by_name(fleets.FleetScanOptions, fleets.fleet_scan)
lock = _by_name(building.LockOptions, building.lock)
promote = _by_name(PromoteOptions, releases.promote)
#: `buildmatrix.preflight` is a package.
run_preflight = _by_name(machines.PreflightOptions, machines.preflight)
scan = _by_name(ScanOptions, judging.scan)
verify = _by_name(releases.VerifyOptions, releases.verify)
why = _by_name(judging.WhyOptions, judging.why)
