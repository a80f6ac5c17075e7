"""The user's own data files for the catalogue: `[catalogue]` of a specification."""

from __future__ import annotations

from pathlib import Path

from buildmatrix.spec.document import Problems, read
from buildmatrix.spec.keys import CatalogueTable
from buildmatrix.spec.layers import sound
from buildmatrix.spec.shapes import Node
from buildmatrix.spec.tables import row
from buildmatrix.spec.targets import check_exists, tidy


def read_data_files(path: Path) -> tuple[Path, ...]:
    """The data files of the specification `path`, for commands that need nothing else of it.

    Nothing where there is no specification. A mistake elsewhere in it is none here.

    Raises:
        SpecError: the specification is no TOML, or says something wrong about its data files.
    """
    if not path.exists():
        return ()
    problems = Problems(str(path))
    document = read(path, problems)
    names: tuple[str, ...] = ()
    if "catalogue" in document.values:
        entry = Node(document, problems, ("catalogue",))
        table = row(CatalogueTable).read(document.values["catalogue"], entry)
        names = data_files(table, path.parent, problems)
    problems.stop()
    return tuple(path.parent / name for name in names)


def data_files(table: CatalogueTable, root: Path, problems: Problems) -> tuple[str, ...]:
    """The files that exist below `root`, each once and relative to it; the others are problems."""
    names: list[str] = []
    for text in sound(table.files):
        name = tidy(text.value)
        if name in names:
            problems.add(text.at, f"`{name}` is listed twice", "keep one of the two")
        elif check_exists(root, name, text.at, problems):
            if (root / name).resolve().is_relative_to(root.resolve()):
                names.append(name)
            else:
                message = f"`{name}` is a link that leads out of the specification's folder"
                problems.add(text.at, message, "put the file itself there")
    return tuple(names)
