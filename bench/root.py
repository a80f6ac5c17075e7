"""Makes a root file system to measure with: this machine's own programs among small files.

    python bench/root.py FOLDER [FILES]

Programs, libraries and links of /usr are copied, up to `MOST_COPIED` bytes; the rest up to FILES
(60,000) are generated, the same ones each time: Python modules, headers, texts and data.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
from pathlib import Path

FILES = 60_000
MOST_COPIED = 1 << 30
#: Of the copied ones the links count, too: a root file system is full of them.
SOURCES = ("usr/bin", "usr/sbin", "usr/lib", "usr/libexec")
LINES = {
    "py": "import os\n\n\ndef f{0}(path):\n    return os.path.join(path, '{0}')\n",
    "h": "#define VALUE_{0} {0}\nint function_{0}(int, char *);\n",
    "txt": "Line {0} of a text that nobody reads.\n",
    "json": '{{"key": {0}, "values": [1, 2, 3]}}\n',
}


def make(folder: Path, files: int = FILES) -> None:
    """Fills `folder`, which must not exist yet."""
    folder.mkdir(parents=True)
    made = copy(folder, files // 3)
    generate(folder / "opt/app/lib/python3.11/site-packages", files - made)


def copy(folder: Path, most: int) -> int:
    """Copies programs, libraries and links of this machine; returns how many."""
    count = size = 0
    for top in SOURCES:
        for parent, folders, names in os.walk(f"/{top}"):
            folders.sort()
            target = folder / parent.lstrip("/")
            for name in sorted(names):
                path = Path(parent) / name
                if count >= most or size >= MOST_COPIED:
                    return count
                if not path.is_symlink():
                    if not path.is_file() or not is_elf(path):
                        continue
                    size += path.stat().st_size
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target / name, follow_symlinks=False)
                count += 1
    return count


def is_elf(path: Path) -> bool:
    """Whether the file can be read, and is an ELF file."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def generate(folder: Path, count: int) -> None:
    """Writes `count` small files, fifty to a folder."""
    chance = random.Random(count)
    for number in range(count):
        suffix = chance.choice(list(LINES))
        place = folder / f"package{number // 2500}" / f"part{number // 50 % 50}"
        if number % 50 == 0:
            place.mkdir(parents=True)
        lines = (LINES[suffix].format(line) for line in range(chance.randrange(1, 120)))
        (place / f"file{number}.{suffix}").write_text("".join(lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", type=int, nargs="?", default=FILES)
    options = parser.parse_args()
    make(options.folder, options.files)
