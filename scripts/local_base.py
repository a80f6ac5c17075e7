"""`python3 -m scripts.local_base FOLDER`: a base image, made without Docker and without root.

A stand-in for python:3.11-slim-bookworm, of packages that the machine's apt downloads and `dpkg`
unpacks. None of their scripts is run, so what these do of use in an image is done here. FOLDER
becomes an OCI layout, for `buildmatrix build --engine oci --mirror oci:FOLDER`.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from buildmatrix.images.documents import (
    CONFIGURATION,
    MANIFEST,
    Execution,
    HistoryStep,
    ImageConfiguration,
    Manifest,
    RootFileSystem,
    encode,
)
from buildmatrix.images.layers import LayerEntry, layer_writer, sort_key
from buildmatrix.images.layout import OciLayout

from .stack import apt
from .stack.errors import StackError
from .stack.layout import Layout
from .stack.process import exclusive, output
from .stack.progress import counted, say

SUITE, PYTHON = "bookworm", "python3.11"
NAMES = ("python:3.11-slim-bookworm", "python:3.11-slim")
#: All that the example needs: fewer packages are fewer seconds of a new user.
PACKAGES = (
    "base-files",
    "base-passwd",
    "bash",
    "coreutils",
    "dash",
    "libc-bin",
    "libgomp1",
    "libstdc++6",
    "python3",
)
#: Not usable in an image.
LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache")
#: Folders that usrmerge makes links of.
MERGED = ("bin", "lib", "lib64", "sbin")


def main() -> int:
    """Make the base image, unless it is there."""
    folder = Path(sys.argv[1])
    if any(
        entry.annotations.get("org.opencontainers.image.ref.name") == NAMES[0]
        for entry in OciLayout(folder).images()
    ):
        return 0
    layout = Layout.of_environment()
    layout.create()
    with exclusive(layout.lock):
        say(f"bases: making a stand-in for {NAMES[0]} in {folder}")
        with tempfile.TemporaryDirectory(dir=layout.drafts) as name:
            debs, root = Path(name, "debs"), Path(name, "root")
            debs.mkdir()
            root.mkdir()
            archive = apt.archive((SUITE,), layout)
            say("apt: downloading the packages of the base")
            packages = archive.download_with_dependencies(PACKAGES, debs)
            say(f"bases: unpacking {len(packages)} packages")
            _unpack(packages, root)
            _settle(root)
            _write(root, OciLayout(folder))
    return 0


def _unpack(packages: list[Path], root: Path) -> None:
    """Unpack packages, and let dpkg's files say that they are installed."""
    for name in MERGED:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    info = root / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        ended = pool.map(lambda deb: _unpack_one(deb, root, info), packages)
        records = list(counted("bases: unpacking", ended, len(packages)))
    (root / "var/lib/dpkg/status").write_text("\n".join(records))


def _unpack_one(deb: Path, root: Path, info: Path) -> str:
    """Unpack a package and list its files in `info`; return its record for dpkg's status."""
    # tar keeps the links to folders, which `dpkg -x` would replace.
    script = 'dpkg-deb --fsys-tarfile "$1" | tar -xv --keep-directory-symlink -C "$2"'
    paths = output(["/bin/sh", "-c", script, "sh", deb, root], timeout=300)
    control = output(["dpkg-deb", "--field", deb])
    if paths is None or control is None:
        raise StackError(f"{deb.name} cannot be unpacked.")
    fields = dict(
        line.split(": ", 1) for line in control.splitlines() if ": " in line and line[0] != " "
    )
    multi = f":{fields['Architecture']}" if fields.get("Multi-Arch") == "same" else ""
    names = [line[1:].rstrip("/") or "/." for line in paths.splitlines()]
    (info / f"{fields['Package']}{multi}.list").write_text("\n".join(names) + "\n")
    package, _, rest = control.partition("\n")
    return f"{package}\nStatus: install ok installed\n{rest.rstrip()}\n"


def _settle(root: Path) -> None:
    """What the packages' scripts would have done."""
    masters = root / "usr/share/base-passwd"
    shutil.copy(masters / "passwd.master", root / "etc/passwd")
    shutil.copy(masters / "group.master", root / "etc/group")
    (root / "usr/local/bin").mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3", PYTHON):
        (root / "usr/local/bin" / name).symlink_to(f"/usr/bin/{PYTHON}")
    (root / "usr/lib" / PYTHON / "EXTERNALLY-MANAGED").unlink(missing_ok=True)
    for name in LEFT_OUT:
        shutil.rmtree(root / name, ignore_errors=True)


def _write(root: Path, layout: OciLayout) -> None:
    """Write the image, whose files all belong to root."""
    paths = [
        Path(folder, name).relative_to(root).as_posix()
        for folder, folders, files in os.walk(root)
        for name in (*folders, *files)
    ]
    step = "bases: writing the layer"
    say(f"{step}: {len(paths)} files")
    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        layer_writer(layout, pool) as writer,
    ):
        for path in counted(step, sorted(paths, key=sort_key), len(paths)):
            status = (root / path).lstat()
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                writer.add(LayerEntry(path, "symlink", target=str((root / path).readlink())))
            elif stat.S_ISDIR(status.st_mode):
                writer.add(LayerEntry(path, "folder", 0o1777 if path.endswith("tmp") else mode))
            elif stat.S_ISREG(status.st_mode):
                data = (root / path).read_bytes()
                writer.add(LayerEntry(path, "file", mode, len(data)), [data])
    layer = writer.layer
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    made = HistoryStep(created_by=f"ADD {SUITE} /", comment="scripts.local_base")
    configuration = ImageConfiguration(
        architecture=machine,
        os="linux",
        rootfs=RootFileSystem(diff_ids=(layer.diff_id,)),
        config=Execution(
            env=("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",),
            cmd=("python3",),
        ),
        history=(made,),
    )
    manifest = Manifest(
        schema_version=2,
        media_type=MANIFEST,
        config=layout.put(encode(configuration), CONFIGURATION),
        layers=(layer.descriptor,),
    )
    layout.publish(layout.put(encode(manifest), MANIFEST), NAMES)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
