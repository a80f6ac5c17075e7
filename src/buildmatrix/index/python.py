"""The Python files of a wheel, as far as an import runs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from buildmatrix.index.amounts import FEW_PYTHON
from buildmatrix.index.members import LARGEST_PACKED, facts_of_bytes, is_source
from buildmatrix.index.parts import WheelParts
from buildmatrix.inventory.file_facts import FileFacts
from buildmatrix.inventory.mattering import may_matter
from buildmatrix.python_imports.stages import ImportStages
from buildmatrix.trees.base import Unreadable

#: Bytes of the Python files in one folder that are brought where an import runs some of them.
LARGEST_FOLDER = 512 << 10


def python(parts: WheelParts) -> None:
    """The Python files: all of them where they are few, else those that an import runs."""
    costs = {
        member.path: member.compressed
        for member in parts.members.values()
        if is_source(member.path)
        and (may_matter(member.path, member.size) or not member.path.endswith(".py"))
        and member.compressed <= LARGEST_PACKED
    }
    total = sum(costs.values())
    available = parts.available
    if total <= max(FEW_PYTHON, 0 if available is None else available // 4):
        if parts.affords(total):
            _read(parts, costs)
        return
    stages = ImportStages(path for path in parts.members if is_source(path))
    reached = dict.fromkeys(stages.first_files())
    ahead = list(reached)
    folders = _Folders(costs)
    while ahead:
        stage = {path: costs[path] for path in ahead if path in costs}
        if not parts.affords(sum(stage.values())):
            return
        parts.bring(stage | folders.beside(stage))
        imported = (
            path
            for read, source in _read(parts, stage)
            for path in stages.files_after(read, source)
        )
        ahead = [path for path in dict.fromkeys(imported) if path not in reached]
        reached.update(dict.fromkeys(ahead))
    parts.lazy = costs.keys() - reached.keys()


class _Folders:
    """The Python files of each folder of a wheel that were not brought yet, with their bytes.

    What an import reaches in one stage, files beside that are reached in later ones, most often.
    Who brings them at the same time sends a third of the requests, for hardly more bytes.
    """

    def __init__(self, costs: Mapping[str, int]) -> None:
        self._files: dict[str, dict[str, int]] = {}
        for path, cost in costs.items():
            self._files.setdefault(path.rpartition("/")[0], {})[path] = cost

    def beside(self, paths: Iterable[str]) -> dict[str, int]:
        """What lies beside `paths`, in folders with few bytes; each only once."""
        costs: dict[str, int] = {}
        for folder in {path.rpartition("/")[0]: None for path in paths}:
            files = self._files.pop(folder, {})
            if sum(files.values()) <= LARGEST_FOLDER:
                costs |= files
        return costs


def _read(parts: WheelParts, costs: dict[str, int]) -> list[tuple[str, bytes]]:
    """Look into Python files; those that could be read, with their bytes."""
    parts.hold(costs)
    read: list[tuple[str, bytes]] = []
    for path in costs:
        if path not in parts.held:
            continue
        parts.opened.add(path)
        try:
            source = parts.held[path].unpack()
        except Unreadable as error:
            parts.facts[path] = FileFacts(unread=str(error))
            continue
        parts.facts[path] = facts_of_bytes(path, source)
        read.append((path, source))
    return read
