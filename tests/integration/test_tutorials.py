"""The tutorials and the README's example, played in a container with Python and buildmatrix.

What a comment above a block says to vary, sizes and versions that others publish, may be others of
the same shape (review.md, README.md).
"""

from __future__ import annotations

import os
import re
import subprocess
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from document_blocks import DocumentBlock, blocks_of, with_figures

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs/tutorials").glob("*.md")), ROOT / "README.md"]
#: What tells programs in the container of this machine's index, mirror and certificates.
PASSED = re.compile(r"(PIP|UV|SSL|BUILDMATRIX)_\w+|(https?|no)_proxy", re.IGNORECASE)

pytestmark = [pytest.mark.engine, pytest.mark.network]


@dataclass
class Step:
    """A command of a tutorial, and what it has to print."""

    command: str
    varying: tuple[str, ...] = ()
    expected: list[str] = field(default_factory=list)
    exit_code: int = 0


def steps(blocks: Iterable[DocumentBlock]) -> list[Step]:
    """The commands in the console blocks of a page, in order."""
    found: list[Step] = []
    for block in blocks:
        for line in block.text.splitlines() if block.language == "console" else ():
            if line.startswith("$ "):
                found.append(Step(line[2:], block.varying))
            elif match := re.fullmatch(r"\[exit code (\d+)\]", line):
                found[-1].exit_code = int(match[1])
            else:
                found[-1].expected.append(line)
    return found


def pattern(lines: list[str], varying: tuple[str, ...] = ()) -> re.Pattern[str]:
    """`...` alone stands for any lines, and in a line for any text."""
    parts = []
    for line in lines:
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(r"[^\n]*".join(map(re.escape, line.rstrip().split("..."))) + r" *\n")
    return re.compile(with_figures("".join(parts), varying))


def script_of(played: Sequence[Step]) -> str:
    """The commands for a shell, which prints `@@` and an exit code after each."""
    lines = [f'{step.command}\necho "@@{number}:$?"\n' for number, step in enumerate(played)]
    return "".join(["exec 2>&1\n", *lines])


def compare(played: Sequence[Step], printed: str) -> None:
    """Hold what the script printed against the page."""
    # A terminal shows progress in one place; without one it is plain lines.
    shown = re.sub(r"^ +\d+\.\d .*\n", "", printed, flags=re.MULTILINE)
    parts = re.split(r"@@\d+:(\d+)\n", shown)
    assert len(parts) == 2 * len(played) + 1, printed
    for step, output, code in zip(played, parts[::2], parts[1::2], strict=False):
        said = f"$ {step.command}\n{output}[exit code {code}]"
        assert int(code) == step.exit_code, said
        assert not step.expected or pattern(step.expected, step.varying).fullmatch(output), said


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A container with the wheel of this tree installed, and a virtual environment's command."""
    folder = tmp_path_factory.mktemp("tutorials")
    subprocess.run(
        ["uv", "build", "-q", "--wheel", "-o", folder / "dist", ROOT], check=True, cwd=ROOT
    )
    (wheel,) = (folder / "dist").glob("*.whl")
    subprocess.run(
        ["uv", "pip", "install", "-q", "--target", folder / "site", "--python-version", "3.11",
         "--only-binary", ":all:", wheel], check=True)  # fmt: skip
    name = f"tutorials-{uuid.uuid4().hex[:12]}"
    passed = [f"-e{key}={value}" for key, value in os.environ.items() if PASSED.fullmatch(key)]
    # Advisories are of a day, and no part of what the tutorials show.
    passed += ["-eBUILDMATRIX_NO_VULNERABILITIES=1", "-eBUILDMATRIX_CACHE=/cache"]
    passed += ["-ePYTHONPYCACHEPREFIX=/bytecode", "-eLANG=C.UTF-8"]
    certificates = Path("/etc/ssl/certs")
    # Settings of clients, and the files that variables name.
    named = [value for key, value in os.environ.items() if PASSED.fullmatch(key)]
    paths = {
        path
        for path in map(Path, ("/etc/pip.conf", "/etc/xdg/pip", *named))
        if path.is_absolute() and path.exists() and not path.is_relative_to(certificates)
    }
    mounts = [f"-v{folder / 'site'}:/site:ro"]
    mounts += [f"-v{path}:{path}:ro" for path in sorted({certificates, *paths})]
    image = f"{os.environ.get('BUILDMATRIX_MIRROR', '')}python:3.11-slim-bookworm"
    subprocess.run(
        ["docker", "run", "-d", "--rm", "--name", name, "--network", "host", *passed, *mounts,
         image, "sleep", "1800"], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    # An environment that has what was installed above, as `pip install buildmatrix` makes one.
    packages = "/venv/lib/python3.11/site-packages"
    made = f"python3 -m venv --without-pip /venv && echo /site >{packages}/site.pth"
    subprocess.run(["docker", "exec", name, "sh", "-c", made], check=True)
    yield name
    subprocess.run(["docker", "rm", "-f", name], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_does_what_it_says(container: str, page: Path) -> None:
    played = steps(blocks_of(page))
    run = subprocess.run(
        ["docker", "exec", "-i", container, "bash"],
        input='cd $(mktemp -d)\nbuildmatrix() { /venv/bin/python -m buildmatrix "$@"; }\n'
        + script_of(played), capture_output=True, text=True, timeout=600)  # fmt: skip
    compare(played, run.stdout)
