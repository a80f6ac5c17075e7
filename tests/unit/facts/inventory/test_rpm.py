"""RPM's databases: the rpm program says what is right, and no bytes harm the reader."""

from __future__ import annotations

import lzma
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from struct import pack, pack_into, unpack_from

import pytest
from components import missing

from buildmatrix import cli
from buildmatrix.facts.inventory import rpm
from buildmatrix.facts.inventory.listing import Listing
from buildmatrix.facts.inventory.model import SystemPackage, Unread
from buildmatrix.facts.inventory.rpm import PackageRecord, read_rpm_files, read_rpm_packages
from buildmatrix.facts.inventory.system import find_packages, read_system_packages
from buildmatrix.facts.trees.archive import DirectoryTree

DATA = Path(__file__).parent / "data"
SQLITE = "var/lib/rpm/rpmdb.sqlite"
NDB = "usr/lib/sysimage/rpm/Packages.db"
BERKELEY = "var/lib/rpm/Packages"

SPEC = r"""
Name: acme
Epoch: 1
Version: 12.8.90
Release: 1%{?dist}
Summary: Acme
License: MIT and Acme EULA
Vendor: Acme Corp
BuildArch: noarch
Requires: /bin/sh, acme-libs-12-8 = 1:%{version}, (acme-tools if acme-doc)
%description
%{summary}
%package libs-12-8
Summary: Libraries
Provides: libacme.so.12()(64bit)
%description libs-12-8
%{summary}
%package tools
Summary: Tools
Requires: libacme.so.12()(64bit), absent
%description tools
%{summary}
%package gone
Summary: Removed again
%description gone
%{summary}
%install
cd %{buildroot}
mkdir -p usr/local/acme/lib64 usr/share/doc/acme usr/bin opt/many lib
echo 1 >usr/local/acme/lib64/libacme.so.12
ln -s libacme.so.12 usr/local/acme/lib64/libacme.so
echo 1 >usr/share/doc/acme/README
echo 1 >usr/bin/acme
echo 1 >lib/libold.so.1
echo 1 >'opt/many/a b'
echo 1 >"opt/many/$(printf 'caf\303\251')"
for i in $(seq 60); do echo 1 >opt/many/file-$i; done
%files
%dir /usr/local/acme
%doc /usr/share/doc/acme/README
%ghost /var/log/acme.log
%files libs-12-8
%dir /usr/local/acme
/usr/local/acme/lib64
/lib/libold.so.1
%files tools
/usr/bin/acme
%files gone
/opt/many
"""


@pytest.fixture(scope="module")
def system() -> Iterator[Path]:
    """A system with a merged /usr, installed by rpm without documentation; one package is gone."""
    if shutil.which("rpmbuild") is None:
        missing("rpm", "install Debian's package rpm")
    # rpm waits for the disk after each file: in memory, where that is possible.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as name:
        top = Path(name)
        (top / "acme.spec").write_text(SPEC)
        run("rpmbuild", "-bb", "--quiet", "--define", f"_topdir {top}", f"{top}/acme.spec")
        packages = sorted(map(str, top.glob("RPMS/noarch/*.rpm")))
        root = top / "root"
        (root / "usr/lib").mkdir(parents=True)
        (root / "lib").symlink_to("usr/lib")
        query(root, "--install", "--nodeps", "--noscripts", "--excludedocs", *packages)
        query(root, "--erase", "--nodeps", "acme-gone")
        yield root


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def query(root: Path, *arguments: str) -> str:
    program = "rpm", "--define", "_dbpath /var/lib/rpm"
    return run(*program, "--root", str(root), *arguments)


def headers(database: Path) -> list[bytes]:
    with closing(sqlite3.connect(f"file:{database}?immutable=1", uri=True)) as opened:
        return [blob for (blob,) in opened.execute("SELECT blob FROM Packages")]


# Writers of databases


def header(*values: tuple[int, int, int, bytes]) -> bytes:
    """A header of tags with their types, counts and bytes."""
    index, data = b"", b""
    for tag, kind, count, value in values:
        data += bytes(-len(data) % 4)
        index += pack(">IIII", tag, kind, len(data), count)
        data += value
    return pack(">II", len(values), len(data)) + index + data


def package(name: str, *more: tuple[int, int, int, bytes]) -> bytes:
    texts = ((1000, name), (1001, "1.0"), (1002, "1"))
    return header(*((tag, 6, 1, f"{text}\0".encode()) for tag, text in texts), *more)


def sqlite(*blobs: object, columns: str = "blob BLOB NOT NULL", rest: str = "") -> bytes:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(
            f"CREATE TABLE 'Packages' (hnum INTEGER PRIMARY KEY AUTOINCREMENT,{columns})"
        )
        for blob in blobs:
            database.execute("INSERT INTO Packages (blob) VALUES (?)", (blob,))
        database.executescript(rest)
        database.commit()
        return database.serialize()


def ndb(*blobs: bytes) -> bytes:
    slots, body = b"", b""
    for number, blob in enumerate(blobs, 1):
        block = (4096 + len(body)) // 16
        whole = pack("<4sIII", b"BlbS", number, 0, len(blob)) + blob
        body += whole + bytes(-len(whole) % 16)
        slots += pack("<4sIII", b"Slot", number, block, 0)
    free = pack("<4sIII", b"Slot", 0, 0, 0) * (254 - len(blobs))
    return pack("<4sIII16x", b"RpmP", 0, 1, 1) + slots + free + body


def berkeley(*blobs: bytes, order: str = "<", size: int = 4096, inline: bool = False) -> bytes:
    """A hash with one bucket; long values lie in chains of pages."""
    chains: list[bytes] = []
    items: list[bytes] = []
    for number, blob in enumerate(blobs, 1):
        items.append(b"\1" + pack(f"{order}I", number))
        if inline:
            items.append(b"\1" + blob)
            continue
        items.append(pack(f"{order}B3xII", 3, 2 + len(chains), len(blob)))
        parts = [blob[at : at + size - 26] for at in range(0, len(blob), size - 26)]
        for index, part in enumerate(parts):
            following = 3 + len(chains) if index + 1 < len(parts) else 0
            head = pack(f"{order}8xIIIHHBB", 2 + len(chains), 0, following, 1, len(part), 0, 7)
            chains.append((head + part).ljust(size, b"\0"))
    bucket = bytearray(size)
    pack_into(f"{order}8xIIIHHBB", bucket, 0, 1, 0, 0, len(items), 0, 0, 13)
    end = size
    for index, item in enumerate(items):
        end -= len(item)
        bucket[end : end + len(item)] = item
        pack_into(f"{order}H", bucket, 26 + 2 * index, end)
    meta = bytearray(size)
    pack_into(
        f"{order}8xIIIIBBBxIIIIII", meta, 0, 0, 0x61561, 9, size, 0, 8, 0, 0, 1 + len(chains),
        0, len(blobs), len(blobs), 0,
    )  # fmt: skip
    # max_bucket, high_mask, low_mask, ffactor, nelem, charkey, and the bucket's page.
    pack_into(f"{order}IIIIII", meta, 72, 0, 0, 0, 0, len(blobs), 0)
    pack_into(f"{order}I", meta, 96, 1)
    return bytes(meta) + bytes(bucket) + b"".join(chains)


# Readers


def read(
    root: Path, names: Sequence[str] = ()
) -> tuple[list[PackageRecord], list[tuple[str, str]], list[Unread]]:
    with DirectoryTree(root) as tree:
        listing = Listing(tree)
        found = list(read_rpm_packages(listing)), list(read_rpm_files(listing, names))
        return *found, sorted(set(listing.unread), key=str)


def write(root: Path, path: str, data: bytes) -> Path:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    return root


def test_packages_are_those_of_rpm(system: Path, tmp_path: Path) -> None:
    form = "%{NAME}|%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}|%{ARCH}|%{VENDOR}|%{LICENSE}"
    form += "|[%{REQUIRENAME},]|[%{PROVIDENAME},]\n"
    expected = sorted(query(system, "-qa", "--qf", form).splitlines())
    assert [line.partition("|")[0] for line in expected] == ["acme-libs-12-8", "acme-tools", "acme"]
    blobs = headers(system / SQLITE)
    trees = {
        system: SQLITE,
        write(tmp_path / "ndb", NDB, ndb(*blobs)): NDB,
        write(tmp_path / "little", BERKELEY, berkeley(*blobs)): BERKELEY,
        write(tmp_path / "big", BERKELEY, berkeley(*blobs, order=">", size=512)): BERKELEY,
        write(tmp_path / "inline", BERKELEY, berkeley(*blobs, size=65536, inline=True)): BERKELEY,
    }
    for tree in trees:
        packages, _, unread = read(tree)
        assert unread == []
        # rpm repeats what several flags require.
        assert sorted(
            "|".join([*fields(item.package), unique(item.requires), unique(item.provides)])
            for item in packages
        ) == [
            "|".join([*line.split("|")[:5], *(unique(part.split(",")[:-1])
                                               for part in line.split("|")[5:])])
            for line in expected
        ]  # fmt: skip
    # rpm reads the databases of Berkeley DB that the test writes.
    for name in ("little", "big"):
        again = query(tmp_path / name, "--define", "_db_backend bdb_ro", "-qa", "--qf", form)
        assert sorted(again.splitlines()) == expected


def fields(package: SystemPackage) -> tuple[str, ...]:
    """The fields of a package that are texts, beside its kind."""
    return (
        package.name, package.version, package.architecture, package.vendor, package.license
    )  # fmt: skip


def unique(names: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(names))


def test_the_owner_of_each_file_is_that_of_rpm(system: Path) -> None:
    paths = [
        str(path.relative_to(system))
        for path in system.rglob("*")
        if "var/lib/rpm" not in str(path) and path.is_file()
    ]
    paths += ["usr/share/doc/acme/README", "var/log/acme.log", "usr/local/acme"]
    form = "%{NAME} %|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}\n"
    expected = {}
    for path in paths:
        asked = subprocess.run(
            ["rpm", "--define", "_dbpath /var/lib/rpm", "--root", system, "-qf", "--qf", form,
             f"/{path}"], capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        if asked.returncode == 0:
            expected[path] = asked.stdout.splitlines()[0]
    assert {"usr/lib/libold.so.1", "usr/local/acme/lib64/libacme.so", "usr/local/acme"} <= {
        *expected
    }
    with DirectoryTree(system) as tree:
        listing = Listing(tree)
        packages = read_system_packages(listing)
        found = find_packages(listing, packages, paths)
        assert listing.unread == []
    # `rpm -qf` needs the file itself; its record of a ghost is an owner, too.
    assert found == {**expected, "var/log/acme.log": "acme 1:12.8.90-1"}
    assert [(item.name, item.requires) for item in packages] == [
        ("acme", ("acme-libs-12-8",)),
        ("acme-libs-12-8", ()),
        ("acme-tools", ("acme-libs-12-8",)),
    ]


#: Real databases, from the tests of github.com/knqyf263/go-rpmdb; the second one is cut behind its
#: first two packages.
@pytest.mark.parametrize(
    ("data", "path", "packages", "file"),
    [
        (
            "libuuid.Packages.xz",
            BERKELEY,
            [("libuuid", "2.32.1-42.el8_8", "x86_64", "Red Hat, Inc.", "BSD")],
            ("libuuid 2.32.1-42.el8_8", "/usr/lib64/libuuid.so.1.3.0"),
        ),
        (
            "sle15.Packages.db.xz",
            NDB,
            [
                ("system-user-root", "20190513-3.3.1", "noarch",
                 "SUSE LLC <https://www.suse.com/>", "MIT"),
                ("filesystem", "15.0-11.3.2", "x86_64",
                 "SUSE LLC <https://www.suse.com/>", "MIT"),
            ],
            ("filesystem 15.0-11.3.2", "/usr/share/fonts"),
        ),
    ],
)  # fmt: skip
def test_databases_of_real_images(
    tmp_path: Path, data: str, path: str, packages: list[object], file: tuple[str, str]
) -> None:
    write(tmp_path, path, lzma.decompress((DATA / data).read_bytes()))
    found, files, unread = read(tmp_path, [file[1].rpartition("/")[2]])
    assert unread == []
    assert [fields(item.package) for item in found] == packages
    assert file in files


def test_one_database_behind_several_names_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, NDB, ndb(package("one")))
    (tmp_path / "var/lib").mkdir(parents=True)
    (tmp_path / "var/lib/rpm").symlink_to("../../usr/lib/sysimage/rpm")
    # A conversion leaves the older one behind, and rpm makes an empty one.
    write(tmp_path, f"{NDB.removesuffix('.db')}", berkeley(package("old")))
    write(tmp_path, NDB.replace("Packages.db", "rpmdb.sqlite"), b"")
    with DirectoryTree(tmp_path) as tree:
        listing = Listing(tree)
        assert read_system_packages(listing) == (SystemPackage("one", "1.0-1", "rpm"),)
        assert listing.unread == []


# Hostile databases


def changed(data: bytes, at: int, form: str, *values: object) -> bytes:
    copy = bytearray(data)
    pack_into(form, copy, at, *values)
    return bytes(copy)


def ring() -> bytes:
    """SQLite whose root page is its own child."""
    data = sqlite(*[package(f"p{number}", (1047, 8, 1, bytes(900) + b"\0"))
                    for number in range(50)])  # fmt: skip
    size = unpack_from(">H", data, 16)[0]
    (root,) = (number for number in range(1, len(data) // size) if data[number * size] == 5)
    (cell,) = unpack_from(">H", data, root * size + 12)
    return changed(data, root * size + cell, ">I", root + 1)


ONE = package("one")
LONG = package("long", (1047, 8, 1, bytes(9000)))
HOSTILE: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "nothing": (SQLITE, lambda: b"no database".ljust(512), "no database of RPM"),
    "short": (NDB, lambda: ndb(ONE)[:511], "ends inside its first page"),
    "sqlite cut": (SQLITE, lambda: sqlite(LONG, LONG)[:-4000], "pages, which it has not"),
    "sqlite ring": (SQLITE, ring, "SQLite fails with"),
    "sqlite other table": (SQLITE, lambda: sqlite(rest="DROP TABLE Packages"), "no table Packages"),
    "sqlite computed": (
        SQLITE,
        lambda: sqlite(columns="a, blob BLOB AS (zeroblob(1000000000))"),
        "no table Packages",
    ),
    "sqlite view": (
        SQLITE,
        lambda: sqlite(
            rest="DROP TABLE Packages; CREATE VIEW Packages AS WITH RECURSIVE c(blob) AS "
            "(SELECT 1 UNION ALL SELECT blob FROM c) SELECT blob FROM c;"
        ),
        "no table Packages",
    ),
    "sqlite text": (SQLITE, lambda: sqlite("text"), "a row that is not a header"),
    "sqlite 200,000": (
        SQLITE,
        lambda: sqlite(
            ONE,
            rest="INSERT INTO Packages (blob) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT "
            "i + 1 FROM n LIMIT 200000) SELECT blob FROM Packages, n",
        ),
        "more than 20000 packages",
    ),
    "ndb slots": (NDB, lambda: changed(ndb(ONE), 12, "<I", 2**31), "more slots than bytes"),
    "ndb version": (NDB, lambda: changed(ndb(ONE), 4, "<I", 7), "unknown version 7"),
    "ndb outside": (NDB, lambda: changed(ndb(ONE), 40, "<I", 2**32 - 1), "leads outside"),
    "ndb magic": (NDB, lambda: changed(ndb(ONE), 32, "<I", 1), "without its magic"),
    "ndb 100 MB": (NDB, lambda: changed(ndb(ONE), 4108, "<I", 100 << 20), "leads to no header"),
    "ndb shared": (
        NDB,
        lambda: ndb(LONG)[:32] + pack("<4sIII", b"Slot", 1, 256, 0) * 254 + ndb(LONG)[4096:],
        "share bytes",
    ),
    "berkeley ring": (
        BERKELEY,
        lambda: changed(berkeley(LONG), 3 * 4096 + 16, "<I", 2),
        "is a ring",
    ),
    "berkeley end": (BERKELEY, lambda: berkeley(LONG)[:-4096], "which it has not"),
    "berkeley 100 MB": (
        BERKELEY,
        lambda: changed(berkeley(LONG), 2 * 4096 - 5 - 4, "<I", 100 << 20),
        "larger than the limit",
    ),
    "berkeley page": (
        BERKELEY,
        lambda: changed(berkeley(LONG), 2 * 4096 + 25, "B", 5),
        "is no part of a header",
    ),
    "berkeley entries": (
        BERKELEY,
        lambda: changed(berkeley(LONG), 4096 + 20, "<H", 65534),
        "no room for its entries",
    ),
    "berkeley offset": (
        BERKELEY,
        lambda: changed(berkeley(LONG), 4096 + 28, "<H", 3),
        "lies outside of it",
    ),
    "berkeley pages": (BERKELEY, lambda: changed(berkeley(ONE), 20, "<I", 3), "pages of 3 bytes"),
    "header counts": (SQLITE, lambda: sqlite(pack(">II", 2**31, 2**31)), "a header says"),
    "header short": (SQLITE, lambda: sqlite(b"123"), "ends inside its first bytes"),
    "header outside": (
        SQLITE,
        lambda: sqlite(package("p", (1047, 8, 2**32 - 1, b"x\0"))),
        "the tag 1047 of a header leads outside of it",
    ),
    "header no end": (
        SQLITE,
        lambda: sqlite(package("p", (1047, 8, 2, b"x\0y"))),
        "the strings of tag 1047 of a header have no end",
    ),
    "header folders": (
        SQLITE,
        lambda: sqlite(
            package("p", (1116, 4, 1, pack(">I", 9)), (1117, 8, 1, b"x\0"), (1118, 8, 1, b"/\0"))
        ),
        "a file without a folder",
    ),
    "header no name": (SQLITE, lambda: sqlite(header()), "no name"),
    "header blank": (SQLITE, lambda: sqlite(package("a b")), "one with blanks"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_database_is_one_sentence(tmp_path: Path, name: str) -> None:
    path, make, why = HOSTILE[name]
    _, _, unread = read(write(tmp_path, path, make()), ["x"])
    assert [(entry.path, why in entry.why) for entry in unread] == [(path, True)], unread


def test_names_of_all_headers_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpm, "MOST_NAMES", 2000)
    write(tmp_path, SQLITE, sqlite(*[package("p", (1047, 8, 500, bytes(500)))] * 4))
    packages, _, unread = read(tmp_path)
    assert len(packages) == 3
    assert [entry.why for entry in unread] == [
        "not all packages are known: the headers have more than 2000 names"
    ]


@pytest.mark.parametrize(
    ("blobs", "code", "text"),
    [
        ([package("openblas")], 0, "passed"),
        ([package("openblas"), package("cuda-cudart-12-8")], 1, "package cuda-cudart-12-8 1.0-1"),
        # What comes before a broken header is known.
        ([package("cuda-cudart-12-8"), b"123"], 1, "package cuda-cudart-12-8 1.0-1"),
        ([package("openblas"), b"123"], 3, "a header ends inside its first bytes"),
    ],
)
def test_a_scan_judges_rpms(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    blobs: list[bytes],
    code: int,
    text: str,
) -> None:
    write(tmp_path, SQLITE, sqlite(*blobs))
    write(tmp_path, "usr/lib64/libx.so.1", b"\x7fELF\x02\x01\x01" + bytes(57))
    with pytest.raises(SystemExit) as stop:
        cli.main(["scan", f"dir:{tmp_path}", "--backend=cpu"])
    assert stop.value.code == code
    assert text in " ".join(capsys.readouterr().out.split())


def test_a_journal_is_told_and_not_applied(tmp_path: Path) -> None:
    write(tmp_path, SQLITE, sqlite(ONE))
    write(tmp_path, f"{SQLITE}-wal", b"7\x7f\x06\x82" + bytes(28))
    packages, _, unread = read(tmp_path)
    assert [item.package.name for item in packages] == ["one"]
    assert [(entry.path, entry.why[:11]) for entry in unread] == [(f"{SQLITE}-wal", "has changes")]
    assert sorted(path.name for path in (tmp_path / SQLITE).parent.iterdir()) == [
        "rpmdb.sqlite", "rpmdb.sqlite-wal"
    ]  # fmt: skip


def test_a_python_without_sqlite_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, SQLITE, sqlite(ONE))
    monkeypatch.setitem(sys.modules, "sqlite3", None)
    assert [entry.why for entry in read(tmp_path)[2]] == [
        "not all packages are known: this Python has no sqlite3, which the database needs"
    ]


def mutations(data: bytes, count: int) -> Iterator[bytes]:
    draw = random.Random(33)
    for _ in range(count):
        copy = bytearray(data)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(copy))
            form, largest = draw.choice([("B", 255), (">I", 2**32 - 1), ("<I", 2**32 - 1)])
            if at + 4 <= len(copy):
                pack_into(form, copy, at, draw.choice([0, 1, largest, draw.randint(0, largest)]))
        yield bytes(copy[: draw.choice([len(copy), draw.randrange(len(copy))])])


@pytest.mark.parametrize("make", [sqlite, ndb, berkeley])
def test_any_bytes_give_packages_or_a_reason(make: Callable[..., bytes]) -> None:
    data = make(*(package(f"p{number}", (1117, 8, 2, b"x\0y\0"), (1118, 8, 1, b"/\0"),
                          (1116, 4, 2, bytes(8))) for number in range(9)))  # fmt: skip
    refused = 0
    for copy in mutations(data, 300):
        try:
            for item in rpm._parse_headers(copy):
                item.read_package()
                list(item.read_files({"x"}))
        except ValueError as error:
            refused += 1
            assert str(error).count("\n") == 0
    assert refused > 100
