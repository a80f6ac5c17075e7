"""The text of a release: the section of its version in CHANGELOG.md.

`python tools/release_notes.py v0.2.0` prints it, and fails where the tag, the version of the
package and the changelog do not agree. No dependencies: it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
#: Heading of a version's section (https://keepachangelog.com/en/1.1.0/).
_HEADING = re.compile(r"^## \[(?P<version>[^]]+)\](?: - (?P<date>\d{4}-\d{2}-\d{2}))?[ \t]*$", re.M)
#: Targets of the links in the text, which stand at the end of a changelog.
_LINK = re.compile(r"^\[[^]]+\]: \S+$", re.MULTILINE)


def package_version(source: str) -> str:
    """The version that `__init__.py` sets. Raises ValueError where it sets none."""
    match = _VERSION.search(source)
    if match is None:
        raise ValueError("src/buildmatrix/__init__.py sets no `__version__`")
    return match[1]


def section(changelog: str, version: str) -> str:
    """The text below the heading of a version.

    Raises ValueError for a version that has no section, no date, or nothing in its section.
    """
    headings = list(_HEADING.finditer(changelog))
    for position, heading in enumerate(headings):
        if heading["version"] != version:
            continue
        if heading["date"] is None:
            raise ValueError(
                f"CHANGELOG.md: the section of {version} has no date: `## [{version}] - YYYY-MM-DD`"
            )
        following = headings[position + 1 :]
        end = following[0].start() if following else len(changelog)
        text = _LINK.sub("", changelog[heading.end() : end]).strip()
        if not text:
            raise ValueError(f"CHANGELOG.md: the section of {version} is empty")
        return f"{text}\n"
    raise ValueError(f"CHANGELOG.md has no section `## [{version}] - YYYY-MM-DD`")


def release_text(tag: str, root: Path = ROOT) -> str:
    """The text of the release `tag`. Raises ValueError where the tree does not agree with it."""
    version = package_version((root / "src/buildmatrix/__init__.py").read_text(encoding="utf-8"))
    if tag != f"v{version}":
        raise ValueError(f"the tag is {tag}, and the version of the package is {version}")
    return section((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)


def main() -> int:
    """Print the text; the exit code is 1 where there is none."""
    parser = argparse.ArgumentParser(description="Print the text of a release.")
    parser.add_argument("tag", help="name of the tag, for example v0.2.0")
    try:
        sys.stdout.write(release_text(parser.parse_args().tag))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
