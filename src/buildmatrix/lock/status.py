"""Whether a lock still fits its inputs."""

from __future__ import annotations

from buildmatrix.errors import SpecError
from buildmatrix.lock.inputs import difference, input_values
from buildmatrix.lock.read import read_lock_and_record
from buildmatrix.lock.requirements import read_asked
from buildmatrix.spec.model import Spec, Target


def staleness(spec: Spec, target: Target) -> str | None:
    """Why the lock of `target` does not fit its inputs, or None when it does.

    Compares recorded inputs with present ones: needs no network. Raises `SpecError` for a
    requirement file that cannot be read; a lock that cannot be read is a reason, no error.
    """
    path = spec.root / target.lock
    if not path.exists():
        return f"there is no {target.lock} yet"
    asked = read_asked(spec.root, target)
    try:
        _, record = read_lock_and_record(path)
    except SpecError as error:
        return str(error.problems[0].message)
    if not record.inputs:
        return f"{target.lock} does not say what it was made from"
    if record.target != target.id:
        return f"{target.lock} was made for {record.target}"
    return difference(record.inputs, input_values(spec.root, target, asked))
