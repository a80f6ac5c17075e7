"""Parts of specifications in documents are what `buildmatrix.toml` takes, and data files theirs.

Each part is put into a specification that has what all of them need, and is read as the tool does.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from document_blocks import BLOCKS, ROOT, DocumentBlock, blocks_of

from buildmatrix.base.errors import SpecError
from buildmatrix.catalogue.load import load
from buildmatrix.matrix.load import load_spec

PARTS = [block for block in BLOCKS if block.language == "toml" and not block.marker]
HEAD = {
    "project": 'name = "inferno"\nversion = "1.4.0"\n',
    "defaults": (
        'python = ["3.11", "3.12"]\nvariant = ["server"]\nrequirements = ["requirements/base.in"]\n'
    ),
}
BACKENDS = {
    "cuda": {"runtime": '["12.8", "13.0"]', "base": '"nvidia/cuda:12.8.1-base-ubuntu22.04"'},
    "rocm": {"runtime": '["6.4", "7.2"]', "base": '"rocm/dev-ubuntu-22.04:6.4.1"'},
    "oneapi": {"runtime": '"2025.0"', "base": '"debian:12"', "python": '["3.12", "3.13"]'},
    "cpu": {"runtime": '"any"', "base": '"python:{python}-slim-bookworm"'},
}
#: Files that parts name, where no block of a document is it.
DATA_FILE = """\
schema = 1
backend = "acme"
title = "Acme"
checked = 2026-11-20
[sources]
manual = "Acme's manual, page 3"
[[libraries]]
names = ["libacme.so.*"]
role = "runtime"
source = ["manual"]
basis = "documented"
"""


FILES = {
    "images/ours.Dockerfile.j2": "",
    "requirements/base.in": "",
    "pyproject.toml": '[project]\nname = "acme"\n',
    "uv.lock": "version = 1\n",
    "pixi.lock": "version: 6\n",
}


def whole(part: str) -> str:
    """A specification with this part, which may be the keys of a backend or whole tables."""
    lines = part.splitlines()
    if lines and not any(line.startswith("[") for line in lines):
        lines.insert(0, "[backend.cpu]")
    text = "\n".join(lines) + "\n"
    for name, keys in HEAD.items():
        if "lock = " in text:  # It says what is installed.
            keys = keys.replace('requirements = ["requirements/base.in"]\n', "")
        if f"[{name}]" not in text:
            text += f"[{name}]\n{keys}"
    for name, needed in BACKENDS.items():
        header = f"[backend.{name}]\n"
        before, found, own = text.partition(header)
        section = own.partition("\n[")[0]
        missing = "".join(
            f"{key} = {value}\n"
            for key, value in needed.items()
            if not re.search(rf"^{key}\b", section, re.MULTILINE)
        )
        text = f"{before}{header}{missing}{own}" if found else f"{text}{header}{missing}"
    return text


def alternatives(block: DocumentBlock) -> list[str]:
    """What a block shows; one key that is there several times is as many parts."""
    try:
        tomllib.loads(block.text)
        return [block.text]
    except tomllib.TOMLDecodeError:
        return re.split(r"\n\n(?=\w+ = )", block.text)


def read(text: str, folder: Path) -> None:
    """Read it as the tool does; placeholders for digests are digests."""
    for name in ("catalogue/acme.toml", "catalogue/wave.toml"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(DATA_FILE.replace("acme", Path(name).stem))
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    path = folder / "buildmatrix.toml"
    path.write_text(text.replace("@sha256:...", "@sha256:" + "0" * 64))
    load_spec(path, backends=lambda files: load(files).backends)


def test_every_part_of_a_specification_is_one(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for block in PARTS:
        with subtests.test(block.place):
            for part in alternatives(block):
                read(whole(part), tmp_path)


def test_each_rule_that_can_be_waived_is_waived_by_its_own_page() -> None:
    pages = {Path(block.document).stem: block.text for block in PARTS if "[[waive]]" in block.text}
    rules = {name: tomllib.loads(text) for name, text in pages.items() if name.startswith("BM")}
    assert len(rules) > 45
    assert all(part["waive"][0]["rule"] == name for name, part in rules.items())


@pytest.mark.parametrize(
    "part",
    [
        '[[waive]]\nrule = "BM101"\nselect = ["npu-*"]\nreason = "r"\nowner = "o"\n'
        "expires = 2027-01-31\n",
        'bsae = "debian:12"\n',
        "[policy]\nmax-sizes = { cpu = '3GB' }\n",
    ],
)
def test_a_mistake_would_be_seen(part: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        read(whole(part), tmp_path)


#: Data files of the catalogue: docs/catalogue.md has a whole one, docs/doctor.md a table.
DATA = [
    block
    for name in ("catalogue.md", "doctor.md")
    for block in blocks_of(ROOT / "docs" / name)
    if block.language == "toml" and block.marker
]
DATA_HEAD = DATA_FILE.partition("[[libraries]]")[0].replace("manual", "handbook")


def test_every_data_file_is_one(tmp_path: Path, subtests: pytest.Subtests) -> None:
    path, other = tmp_path / "own.toml", tmp_path / "other.toml"
    for block in DATA:
        with subtests.test(block.place):
            path.write_text(block.text if "schema =" in block.text else DATA_HEAD + block.text)
            (backend,) = load([path]).backends.keys() - load().backends.keys()
            assert backend in ("wave", "acme")
            other.write_text(path.read_text().replace('basis = "', 'basis = "un'))
            with pytest.raises(SpecError, match="basis"):
                load([other])
