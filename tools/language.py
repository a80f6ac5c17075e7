"""Find wording that reads like a translation, and name its cure.

`python tools/language.py [PATH...]` prints `file:line: wording -> cure`, and exits with 1 if it
found any. Without a PATH it checks `src`, `docs` and README.md. No dependencies.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_CHECKED = ("src", "docs", "README.md")
_SUFFIXES = (".py", ".md", ".toml", ".j2", ".html", ".js")

#: Wording in any line, and its cure.
_WORDINGS = {
    r"of no use": "not usable on, unused",
    r"whoever": "the one who; name the role",
    r"nobody": "name the role; use the passive",
    r"that is no ": "that is not a",
    r"are no more\b": "removed, no longer exist",
    r"asks? to be left alone": "rate-limited; retry after",
    r"none of these is clean": "undecided",
    r"nothing is known of what": "the contents are unknown",
}
#: First word of a docstring, and its cure.
_OPENINGS = {
    "What": 'a noun phrase, or "Return ..."',
    "Whether": '"Return True if ..."',
    "Which": "a noun phrase",
    "Whose": "a noun phrase",
    "Of": "a noun phrase",
    "That": "a noun phrase",
    "As": "a verb",
}
#: Names of functions that are participles, and their cure.
_NAMES = dict.fromkeys(
    ("asked", "heeded", "judged", "kept", "named", "of_lock", "said", "told", "took"),
    "a verb, or a noun for a property",
)
_DOCSTRING = re.compile(r'^[ \t]*"""([A-Z][a-z]+)\b', re.MULTILINE)
#: A function, and the line before it, which may be a decorator.
_FUNCTION = re.compile(r"^(?P<before>.*)\n[ \t]*(?:async )?def (?P<name>\w+)\(", re.MULTILINE)
#: Accepted lines: the path, and a part of the line; each with its reason.
_EXCEPTIONS: tuple[tuple[str, str], ...] = (
    # A shape is called by what it reads, as `texts` and `table`.
    ("src/buildmatrix/matrix/shapes.py", "def named("),
)


def find_wordings(path: Path, text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line number, wording and cure."""
    for pattern, cure in _WORDINGS.items():
        for match in re.finditer(pattern, text, re.IGNORECASE):
            yield _line_of(text, match.start()), match[0].strip(), cure
    if path.suffix != ".py":
        return
    for match in _DOCSTRING.finditer(text):
        if match[1] in _OPENINGS:
            yield _line_of(text, match.start(1)), f'docstring "{match[1]} ..."', _OPENINGS[match[1]]
    for match in _FUNCTION.finditer(text):
        if match["name"].lstrip("_") in _NAMES and not match["before"].lstrip().startswith("@"):
            name = match["name"]
            yield _line_of(text, match.start("name")), f"def {name}", _NAMES[name.lstrip("_")]


def _line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _list_files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            files = (file for file in path.rglob("*") if file.suffix in _SUFFIXES)
            # Pages of docs/reference are made from the code by another process.
            yield from sorted(file for file in files if "reference" not in file.parts)
        else:
            yield path


def main(arguments: list[str]) -> int:
    """Check the files below the given paths."""
    found = 0
    for file in _list_files([Path(name).resolve() for name in arguments or map(str, _default())]):
        text = file.read_text(encoding="utf-8")
        name = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else str(file)
        lines = text.splitlines()
        for number, wording, cure in find_wordings(file, text):
            line = lines[number - 1]
            if any(name == path and part in line for path, part in _EXCEPTIONS):
                continue
            print(f"{name}:{number}: {wording} -> {cure}")
            found += 1
    return 1 if found else 0


def _default() -> Iterator[Path]:
    return (ROOT / name for name in _CHECKED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
