"""All generated files of a specification: what they hold, writing them, telling what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from buildmatrix.errors import UndecidedError, UsageError
from buildmatrix.files import keep_out_of_git, write_changed
from buildmatrix.locks.model import Lock
from buildmatrix.render.bake import bake_file
from buildmatrix.render.dockerfile import MARK, dockerfile, dockerignore
from buildmatrix.render.environment import make_environment, render
from buildmatrix.spec.model import DEFAULT_OUTPUT, Spec, Target
from buildmatrix.trees.base import reason

SCAN_TEMPLATE = "scan.Dockerfile.j2"


def generate(
    spec: Spec, targets: Sequence[Target], locks: Mapping[str, Lock]
) -> Mapping[str, bytes]:
    """Path (relative to the specification) → content of every generated file.

    Depends on the specification, the templates, the locks and the project's `.dockerignore`, and
    on nothing of this machine.
    Raises `SpecError` for a template or a value that cannot be used.
    """
    from buildmatrix.inventory.archive import build_scanner_archive

    environment = make_environment(spec.root)
    files: dict[str, bytes] = {}
    for target in targets:
        lock = locks.get(target.id)
        if lock is None:
            raise UsageError(f"{target.id} has no lock; run `buildmatrix lock` first.")
        folder = f"{spec.output}/{target.id}"
        files[f"{folder}/Dockerfile"] = dockerfile(environment, spec, target, lock).encode()
        files[f"{folder}/Dockerfile.dockerignore"] = dockerignore(spec, target).encode()
    scan = render(environment, SCAN_TEMPLATE, {"tools": spec.tools}, subject="scan")
    files[f"{spec.output}/docker-bake.json"] = bake_file(spec).encode()
    files[f"{spec.output}/scan/Dockerfile"] = scan.encode()
    files[f"{spec.output}/scan/scan.pyz"] = build_scanner_archive()
    return {path: files[path] for path in sorted(files)}


def write(spec: Spec, files: Mapping[str, bytes]) -> None:
    """Write `files`, and remove what was generated for removed targets.

    A file that has its content already is left untouched. Raises `UndecidedError` for what cannot
    be written.
    """
    if spec.output == DEFAULT_OUTPUT:
        try:
            keep_out_of_git((spec.root / spec.output).parent)
        except OSError as error:
            raise UndecidedError(f"{spec.output} cannot be written: {reason(error)}") from error
    for path, data in files.items():
        write_changed(spec.root / path, data)
    for leftover in _leftovers(spec, files):
        leftover.unlink()
        if not any(leftover.parent.iterdir()):
            leftover.parent.rmdir()


def differences(spec: Spec, files: Mapping[str, bytes]) -> tuple[str, ...]:
    """One line per file that is missing or differs, or that belongs to no target any more."""
    lines = []
    for path, data in files.items():
        present = spec.root / path
        if not present.is_file():
            lines.append(f"{path} is missing")
        elif present.read_bytes() != data:
            lines.append(f"{path} differs")
    for leftover in _leftovers(spec, files):
        lines.append(f"{_relative(spec, leftover)} belongs to no target of this specification")
    return tuple(lines)


def _leftovers(spec: Spec, files: Mapping[str, bytes]) -> list[Path]:
    """Files that bear the generator's mark and that no target of the specification accounts for."""
    targets = {target.id for target in spec.targets}
    return sorted(
        path
        for path in (spec.root / spec.output).glob("*/Dockerfile*")
        if path.parent.name not in targets
        and _relative(spec, path) not in files
        and path.is_file()
        and _bears_mark(path)
    )


def _bears_mark(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MARK)) == MARK.encode()


def _relative(spec: Spec, path: Path) -> str:
    return f"{spec.output}/{path.relative_to(spec.root / spec.output).as_posix()}"
