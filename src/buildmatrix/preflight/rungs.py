"""Rungs that run one probe each: `import`, `compute`, `memory` and `collective`.

A framework that would fall back to the CPU has failed: it works, and is a hundred times slower. If
a machine has no device of the backend at all, the image is neither checked nor run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import library
from buildmatrix.engines.model import Run
from buildmatrix.facts.elf.notes import level_number
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.loader import resolve
from buildmatrix.matrix.model import NodeClass
from buildmatrix.preflight.protocol import (
    list_frameworks,
    list_hosts,
    list_variables,
    make_missing_checks,
    read_texts,
    run_probe,
)
from buildmatrix.reports.preflight import Check, Value

# Rung `import`: failed imports, their causes, and agreement with static verdicts


#: Seconds for one import, and for all of them.
IMPORT_EACH_S, IMPORT_ALL_S = 120, 1_800


def run_imports(run: Run, catalogue: Catalogue, backend: str) -> tuple[Check, ...]:
    """Import everything in the image of a backend, each name in its own process.

    Imports that need a missing optional module, or the driver of a node, are `not-run`.
    """
    options = {"seconds": IMPORT_EACH_S}
    seen, names = run_probe(run, "imports", options, IMPORT_ALL_S, "modules")
    explained = tuple(_explain(check, catalogue, backend) for check in seen)
    return (*explained, *make_missing_checks(names or (), seen))


def waits_for_driver(check: Check) -> bool:
    """True if an import was not completed, since the host's driver is missing here."""
    return check.state == "not-run" and "missing_library" in check.values


def _explain(check: Check, catalogue: Catalogue, backend: str) -> Check:
    """Describe a failed import by its cause: the missing library, or the package that broke it."""
    if check.state != "failed":
        return check
    name = check.values.get("missing_library")
    if isinstance(name, str) and name:
        vendor = catalogue.vendor_of(backend)
        if any(
            match.owned.entry.where == "host" and match.owned.vendor == vendor
            for match in library(name, None, catalogue)
        ):
            message = f"it needs {name}, which the driver of a node brings"
            return replace(check, state="not-run", message=message)
        return replace(check, message=f"{name} is missing, which importing it needs")
    raised, own = check.values.get("raised_in"), check.values.get("distribution")
    if isinstance(raised, str) and isinstance(own, str) and "site-packages/" in raised:
        package = PurePosixPath(raised.rpartition("site-packages/")[2]).parts[0]
        if package not in (check.subject.partition(".")[0], own.replace("-", "_")):
            return replace(check, message=f"{check.message} (raised in {package})")
    return check


def find_disagreements(failed: Collection[Check], inventory: Inventory) -> tuple[Check, ...]:
    """Return differences between the loader and our model of it: defects of buildmatrix."""
    libraries = {
        name
        for check in failed
        if isinstance(name := check.values.get("missing_library"), str) and name
    }
    if not libraries:
        return ()
    missing = {needed.name for needed in resolve(inventory).missing}
    return tuple(
        Check(
            f"buildmatrix: {name}",
            "undecided",
            f"the loader in the image did not find {name}, and buildmatrix's model of it did "
            "not expect that; please report it with this image",
        )
        for name in sorted(libraries - missing)
    )


# Rung `compute`: correctness and speed of matrix products on each device


#: Seconds to time one product or copy, for one framework, and for all of them.
TIMED_S, COMPUTE_EACH_S, COMPUTE_ALL_S = 2, 300, 1_800
#: Bytes of the largest copy on a device with host memory.
HOST_COPY = 256 << 20


def run_compute(
    run: Run, backend: str, catalogue: Catalogue, devices: Sequence[str] = ()
) -> tuple[tuple[Check, ...], str]:
    """Compute with each framework on the devices of a backend; also return why there is none.

    `devices` were seen before (`torch cuda:0`); a missing one has failed.

    Values of a product: `tflops`, `median_seconds`, `cold_seconds` (the first call, including
    compilation), `size`, `max_error`; of a copy: `gbps`, `bytes`.
    """
    options = {
        "frameworks": list_frameworks(backend, catalogue),
        "seconds": COMPUTE_EACH_S,
        "each": TIMED_S,
        "copy": HOST_COPY,
    }
    measured, names = run_probe(run, "compute", options, COMPUTE_ALL_S, "frameworks")
    if names is None:
        return measured, ""
    measured += make_missing_checks(names, measured)
    measured += tuple(_find_gone(devices, measured))
    if all(check.state == "not-run" for check in measured):
        return measured, f"no framework here computes on a device of {backend}"
    return measured, ""


def _find_gone(devices: Sequence[str], measured: Sequence[Check]) -> Iterator[Check]:
    """Yield failed checks for devices that were seen and then gone from their framework."""
    for device in devices:
        framework, _, id = device.partition(" ")
        whole = next((check for check in measured if check.subject == framework), None)
        if any(check.subject.startswith(f"{device} ") for check in measured):
            continue
        # A broken framework has failed by itself; some have devices and no products.
        if whole is None or (whole.state == "not-run" and id not in read_texts(whole, "devices")):
            yield Check(device, "failed", "it was there in the rung `device`, and is gone")


# Rung `memory`: allocation, write and release of a share of the memory


#: Seconds for one framework, and for all of them.
MEMORY_EACH_S, MEMORY_ALL_S = 180, 900
#: Share of the free memory to allocate, and limit for host memory in bytes.
SHARE, MOST = 0.5, 2 << 30


def run_memory(run: Run, backend: str, catalogue: Catalogue) -> tuple[tuple[Check, ...], str]:
    """Allocate memory of the container and a backend's devices; also return why not.

    Values: `taken_bytes`, `total_bytes`, `lost_bytes` (not returned), `touch_gbps`.
    """
    has_vendor = catalogue.vendor_of(backend) is not None
    options = {
        # The memory of a CPU is the container's.
        "frameworks": list_frameworks(backend, catalogue) if has_vendor else {},
        "seconds": MEMORY_EACH_S,
        "share": SHARE,
        "most": MOST,
    }
    measured, names = run_probe(run, "memory", options, MEMORY_ALL_S, "memory")
    if has_vendor and names is not None and all(item.subject == "container" for item in measured):
        return measured, f"no framework here takes memory of a device of {backend}"
    return measured, ""


# Rung `collective`: a reduction over all devices of this machine


#: Seconds for one reduction, and for all frameworks including imports.
COLLECTIVE_EACH_S, COLLECTIVE_ALL_S = 60, 300


def run_collective(run: Run, backend: str, catalogue: Catalogue) -> tuple[tuple[Check, ...], str]:
    """Reduce over all devices of a backend; over two processes for the CPU.

    The second value is the reason if nothing was reduced.
    """
    options = {"frameworks": list_frameworks(backend, catalogue), "seconds": COLLECTIVE_EACH_S}
    measured, names = run_probe(run, "collective", options, COLLECTIVE_ALL_S, "frameworks")
    if names is None:
        return measured, ""
    if not names:
        return (), "no framework that reduces over devices is installed (torch, jax)"
    measured += make_missing_checks(names, measured)
    if all(check.state == "not-run" for check in measured):
        return measured, "; ".join(check.message for check in measured)
    return measured, ""


#: Seconds for one framework, and for all of them.
EACH_S, ALL_S = 120, 900
#: Flags of /proc/cpuinfo added by each level of x86-64 (psABI of x86-64, 1.0, table 3.1).
_LEVELS: Mapping[str, frozenset[str]] = {
    "x86-64-v2": frozenset(["cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"]),
    "x86-64-v3": frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"]),
    "x86-64-v4": frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
}


class _VisibleDevices(Struct, frozen=True):
    """Devices of a backend as seen by a container."""

    backend: str
    catalogue: Catalogue
    node: NodeClass | None
    #: Device nodes; None if the catalogue has no names for them.
    nodes: tuple[str, ...] | None
    #: Variables that may hide devices, with their values.
    hidden_by: tuple[str, ...]

    @property
    def has_vendor(self) -> bool:
        """True if the backend is not the CPU."""
        return self.catalogue.vendor_of(self.backend) is not None


def run_devices(
    run: Run, backend: str, catalogue: Catalogue, node: NodeClass | None
) -> tuple[tuple[Check, ...], str]:
    """Query the container and each framework in it; also return why nothing is known."""
    options = {
        "hosts": list_hosts(backend, catalogue),
        "environment": list_variables(backend, catalogue),
        "frameworks": list_frameworks(backend, catalogue),
        "seconds": EACH_S,
    }
    seen, names = run_probe(run, "device", options, ALL_S, "devices")
    if names is None:
        return seen[-1:], ""
    return judge_devices(seen, names, backend, catalogue, node)


def select_seen_devices(checks: Sequence[Check]) -> tuple[str, ...]:
    """Return the devices of frameworks that passed: `torch cuda:0`."""
    return tuple(c.subject for c in checks if c.state == "passed" and " " in c.subject)


def judge_devices(
    seen: Sequence[Check],
    names: Sequence[str],
    backend: str,
    catalogue: Catalogue,
    node: NodeClass | None,
) -> tuple[tuple[Check, ...], str]:
    """Judge the output of a probe for a backend; `names` are the frameworks that it announced."""
    machine = next((check for check in seen if check.subject == "machine"), None)
    if machine is None:
        return make_missing_checks(["machine"], ()), ""
    describes_host = any(owned.backend == backend for owned in catalogue.hosts)
    hidden = [
        item for item in read_texts(machine, "environment") if "VISIBLE" in item.split("=")[0]
    ]
    sight = _VisibleDevices(
        backend,
        catalogue,
        node,
        tuple(read_texts(machine, "nodes")) if describes_host else None,
        tuple(hidden),
    )
    questions = list_frameworks(backend, catalogue)
    verdicts = [_judge_machine(machine, sight)]
    for check in seen:
        if check is not machine:
            wanted = questions[check.subject]["wanted"] if check.subject in questions else []
            verdicts += _judge_framework(check, wanted, sight)
    if select_seen_devices(verdicts):
        # A framework built for the CPU fails nothing beside one that uses the devices.
        cpu_builds = {check.subject for check in seen if _is_cpu_build(check, sight)}
        for at, check in enumerate(verdicts):
            if check.subject in cpu_builds and check.state == "failed":
                kinds = ", ".join(read_texts(check, "kinds"))
                message = f"a build without {backend}, which runs on the CPU here ({kinds})"
                verdicts[at] = replace(check, state="not-run", message=message)
    verdicts += make_missing_checks(names, seen)
    if sight.nodes is None and any(check.state == "passed" for check in verdicts):
        verdicts[0] = replace(verdicts[0], state="passed")
    if not sight.has_vendor or sight.nodes or any(check.state == "passed" for check in verdicts):
        return tuple(verdicts), ""
    # Answers of frameworks without a device are not verdicts about the image.
    why = (
        f"no framework here sees a device of {backend}"
        if sight.nodes is None
        else f"no device of {backend} is visible here ({', '.join(_node_patterns(sight))})"
    )
    return tuple(replace(check, state="not-run") for check in verdicts), why


def _judge_machine(check: Check, sight: _VisibleDevices) -> Check:
    """Check the devices and drivers of the container; for the CPU its instruction level."""
    flags = str(check.values.get("cpu_flags") or "").split()
    values = {name: value for name, value in check.values.items() if name != "cpu_flags"}
    check = replace(check, values=values)
    if not sight.has_vendor:
        return _judge_cpu(check, flags, sight.node)
    if sight.nodes is None:
        why = f"the catalogue does not say which nodes devices of {sight.backend} have"
        return replace(check, state="not-run", message=why)
    if not sight.nodes:
        return replace(
            check, state="not-run", message=f"none of {', '.join(_node_patterns(sight))}"
        )
    for name, what in (
        ("missing_nodes", "missing beside the devices: start the container with it"),
        ("unusable_nodes", "neither readable nor writable for the image's user: add its group"),
    ):
        if nodes := read_texts(check, name):
            return replace(check, state="failed", message=f"{', '.join(nodes)}: {what}")
    drivers = ", ".join(read_texts(check, "drivers")) or "unknown"
    return replace(check, message=f"{', '.join(sight.nodes)}; driver {drivers}")


def _judge_cpu(check: Check, flags: Sequence[str], node: NodeClass | None) -> Check:
    is_x86 = check.values.get("architecture") == "x86_64"
    here = find_instruction_level(flags) if is_x86 else None
    values = dict(check.values)
    if here is not None:
        values["instruction_level"] = here
    message = ", ".join(
        str(part) for part in (check.values.get("cpu"), f"{check.values.get('cpus')} CPUs", here)
        if part
    )  # fmt: skip
    state = check.state
    wanted = level_number(node.cpu) if node is not None and node.cpu else None
    if node and wanted and here and (level_number(here) or 0) < wanted:
        state, message = "failed", f"{message}; {node.name} is said to have {node.cpu}"
    return Check("cpu", state, message, values=values)


def find_instruction_level(flags: Sequence[str]) -> str:
    """Return the x86-64 level of a processor with these flags."""
    reached = "x86-64"
    for name, needed in _LEVELS.items():
        if not needed <= set(flags):
            break
        reached = name
    return reached


def _judge_framework(
    check: Check, wanted: Sequence[str], sight: _VisibleDevices
) -> Iterator[Check]:
    """Yield a check for each device of the backend that a framework sees."""
    if check.state == "failed":
        yield check
        return
    ids, kinds, names = (read_texts(check, name) for name in ("ids", "kinds", "names"))
    own = [at for at, kind in enumerate(kinds) if any(fnmatchcase(kind, g) for g in wanted)]
    what = " ".join(
        part for part in (check.subject, str(check.values.get("version") or "")) if part
    )
    build = check.values.get("build")
    what = f"{what} ({build})" if build else what
    values = _select_values(check, sight.catalogue)
    if not wanted:
        yield Check(
            check.subject,
            "not-run",
            f"{what} has no devices of {sight.backend} that the catalogue knows",
            check.seconds,
            values,
        )
    elif own:
        memory = check.values.get("memory_bytes")
        for at in own:
            bytes_ = memory[at] if isinstance(memory, list) and at < len(memory) else 0.0
            described = {**values, "kind": kinds[at], "memory_bytes": bytes_}
            name = names[at] if at < len(names) else ""
            yield Check(f"{check.subject} {ids[at]}", "passed", name, check.seconds, described)
    else:
        answer = f"has {', '.join(dict.fromkeys(kinds))} and" if kinds else "sees"
        because = [str(check.values.get("reason") or ""), ", ".join(sight.hidden_by)]
        reasons = "; ".join(part for part in because if part)
        message = f"{what} {answer} no device of {sight.backend}" + (reasons and f": {reasons}")
        yield Check(check.subject, "failed", message, check.seconds, values)


def _is_cpu_build(check: Check, sight: _VisibleDevices) -> bool:
    """Return True if a framework answered, and nothing in it is made for the backend.

    Many distributions require `onnxruntime`, whose builds for devices have other names.
    """
    return (
        bool(read_texts(check, "kinds"))
        and (check.values.get("build") or "CPU") == "CPU"
        and not check.values.get("reason")
        and all(sight.backend not in found for _, found in _find_libraries(check, sight.catalogue))
    )


def _find_libraries(check: Check, catalogue: Catalogue) -> Iterator[tuple[str, set[str]]]:
    """Yield the libraries of vendors that a framework loaded, each with its backends."""
    for path in read_texts(check, "libraries"):
        name = PurePosixPath(path.removesuffix(" (deleted)")).name
        backends = {match.owned.backend for match in library(name, path, catalogue)}
        if backends:
            yield path, backends


def _select_values(check: Check, catalogue: Catalogue) -> dict[str, Value]:
    """Return a framework's values, with vendor libraries among those that it loaded."""
    values: dict[str, Value] = {
        name: value
        for name, value in check.values.items()
        if name in ("version", "build", "reason", "ids", "kinds") and value
    }
    vendors: list[str | float] = [
        f"{path} ({', '.join(sorted(backends))})"
        for path, backends in _find_libraries(check, catalogue)
    ]
    if vendors:
        values["vendor_libraries"] = vendors
    return values


def _node_patterns(sight: _VisibleDevices) -> list[str]:
    entries = (owned.entry for owned in sight.catalogue.hosts if owned.backend == sight.backend)
    return list(dict.fromkeys(node for entry in entries for node in entry.nodes))
