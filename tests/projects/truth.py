"""What independent tools say about the distributions of the projects in `projects.toml`.

    python tests/projects/truth.py [--cache FOLDER] [--import] [PROJECT...]

Nothing of buildmatrix is imported here. The pins of a file come from the tool that owns its format
(`uv export`, `uv pip compile`, `poetry install --dry-run`; a Pipfile.lock and a pylock.toml are
plain lists, whose markers pip's own copy of `packaging` evaluates; of an environment of conda the
`pip:` section is compiled), the wheels from pip's choice,
and what they hold from `readelf` and the METADATA. Of a wheel above 120 MB only the list of files
and the METADATA are read, with Python's `zipfile` over HTTP ranges. Output: per audit the number of
distributions, those without a wheel, and each distribution that has anything to do with a vendor,
with the evidence; a person writes the verdicts in `projects.toml` from that.

`--import` imports every distribution with evidence of its own in a fresh environment, where CUDA
that this machine may have registered with `ldconfig` is hidden (`unshare --mount`, root only).
Needs `readelf`, `uv` and `poetry` on the path, and the Pythons of the entries. It takes
gigabytes and minutes, so it runs by hand when an entry is added, and never in CI.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import yaml

FOLDER = Path(__file__).parent
LARGE = 120_000_000
VENDORS = {
    "nvidia": r"lib(cuda|cudart|cublas|cublasLt|cudnn\w*|cufft\w*|curand|cusolver\w*|cusparse\w*"
    r"|nvrtc|nvrtc-builtins|nvJitLink|nvToolsExt|nvtx3\w*|cupti|nvperf\w*|nvinfer\w*|nccl"
    r"|nvidia-ml|cufile\w*|nvshmem\w*|nvvm|cutensor\w*|cudf|cuml|cuvs|raft|rmm|nvcomp\w*)",
    "amd": r"lib(amdhip64|hsa-runtime64|rocm_smi64|amd_smi|roc\w+|hip\w+|MIOpen|rccl|hiprtc)",
    "intel": r"lib(ze_loader|sycl|ur_loader|pi_level_zero|openvino_intel_[gn]pu_plugin)",
    "google": r"lib(tpu)",
    "qualcomm": r"lib(Qnn\w+|cdsprpc|adsprpc)",
    "opencl": r"lib(OpenCL)",
}
#: Names of a distribution's own libraries that say for which vendor they are.
OWN = re.compile(r"^lib\w*[_-](cuda\d*|cu1[123]|tensorrt|rocm|hip|migraphx)\w*\.so")
SONAME = {
    vendor: re.compile(rf"^{names}(-[0-9a-f]{{8}})?(\.[0-9a-f]{{8}})?\.so(\.[\d.]+)?$")
    for vendor, names in VENDORS.items()
}
SECTIONS = {
    "nvidia": ("nv_fatbin", "nvFatBinSegment", "__nv_relfatbin"),
    "amd": ("hip_fatbin", "hipFatBinSegment"),
}
STATIC_CUDART = b"CUDA driver version is insufficient for CUDA runtime version"
REQUIRED = re.compile(r"^(nvidia-|cuda-|cupy-|jax-cuda|libtpu|amdsmi|rocm|intel-sycl|dpcpp|triton)")
HIDDEN = ["/usr/local/cuda", "/usr/local/cuda-13.0", "/opt/rocm"]


class Ranges(io.RawIOBase):
    """A file on a server, read by HTTP ranges, a quarter of a MiB at a time."""

    STEP = 1 << 18

    def __init__(self, url: str) -> None:
        self.url = url
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request) as answer:
            self.size = int(answer.headers["Content-Length"])
        self.position = 0
        self.parts: dict[int, bytes] = {}
        parts = urlsplit(url)
        self.connection = http.client.HTTPSConnection(parts.netloc, timeout=120)
        self.path = parts.path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.position = offset + (0, self.position, self.size)[whence]
        return self.position

    def tell(self) -> int:
        return self.position

    def _part(self, number: int) -> bytes:
        if number not in self.parts:
            first = number * self.STEP
            last = min(first + self.STEP, self.size) - 1
            self.connection.request("GET", self.path, headers={"Range": f"bytes={first}-{last}"})
            answer = self.connection.getresponse()
            data = answer.read()
            if answer.status != 206:
                raise OSError(f"{self.url}: {answer.status}")
            self.parts[number] = data
        return self.parts[number]

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        wanted = min(len(buffer), self.size - self.position)
        done = 0
        while done < wanted:
            number, offset = divmod(self.position + done, self.STEP)
            piece = self._part(number)[offset : offset + wanted - done]
            buffer[done : done + len(piece)] = piece
            done += len(piece)
        self.position += done
        return done


def run(
    *command: str, folder: Path | None = None, text: str | None = None, **variables: str
) -> str:
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never", **variables}
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, input=text
    )
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{ended.stderr[-2000:]}")
    return ended.stdout


# --- pins --------------------------------------------------------------------------------------


def pins(project: dict, audit: dict, python: str) -> list[str]:
    """`name==version` of what the file installs on Linux x86-64, by the tool of its format."""
    folder = FOLDER / project["name"]
    file, extras, groups = split(audit["source"])
    newer = project.get("exclude_newer", "2026-11-01T00:00:00Z")
    if file.endswith("uv.lock"):
        chosen = [f"--extra={extra}" for extra in extras] + [
            f"--no-group={name[1:]}" if name.startswith("-") else f"--group={name}"
            for name in groups
        ]
        text = run(
            *("uv", "export", "--frozen", "--no-emit-project", "--no-hashes", "--no-annotate"),
            *("--no-header", "--python", interpreter(python), *chosen),
            folder=(folder / file).parent,
        )
    elif Path(file).name.startswith("pylock"):
        packages = tomllib.loads((folder / file).read_text())["packages"]
        lines = [
            f"{p['name']}=={p['version']}" + (f" ; {p['marker']}" if "marker" in p else "")
            for p in packages
            if "version" in p
        ]
        return applying("\n".join(lines), python)
    elif file.endswith("poetry.lock"):
        return poetry(folder / file, extras, python)
    elif file.endswith("Pipfile.lock"):
        lock = json.loads((folder / file).read_text())["default"]
        lines = [
            f"{name}{value['version']}" + (f" ; {value['markers']}" if "markers" in value else "")
            for name, value in lock.items()
            if "version" in value
        ]
        return applying("\n".join(lines), python)
    elif file.endswith((".yml", ".yaml")):
        listed = yaml.safe_load((folder / file).read_text())["dependencies"]
        asked = "\n".join(line for one in listed if isinstance(one, dict) for line in one["pip"])
        text = run(
            *("uv", "pip", "compile", "-", "--no-header", "--no-annotate", "--no-config"),
            *("--python-version", python, "--python-platform", "x86_64-manylinux_2_39"),
            *("--exclude-newer", newer),
            folder=(folder / file).parent,
            text=asked,
        )
    else:
        arguments = [f"--extra={extra}" for extra in extras]
        text = (
            run(
                *("uv", "pip", "compile", file, "--no-header", "--no-annotate", "--no-config"),
                *("--python-version", python, "--python-platform", "x86_64-manylinux_2_39"),
                *("--exclude-newer", newer, *arguments),
                folder=folder,
            )
            if audit.get("compile", True)
            else (folder / file).read_text()
        )
    return applying(text, python)


def poetry(lock: Path, extras: list[str], python: str) -> list[str]:
    """What `poetry install` would do, in a copy of the folder."""
    with tempfile.TemporaryDirectory() as place:
        for name in ("pyproject.toml", "poetry.lock"):
            (Path(place) / name).write_bytes((lock.parent / name).read_bytes())
        (Path(place) / "LICENSE.txt").touch()
        # Up to Poetry 2.2 an install resolved again, and paid no heed to the markers of the lock.
        settings = {"POETRY_VIRTUALENVS_IN_PROJECT": "true", "POETRY_INSTALLER_RE_RESOLVE": "false"}
        folder = Path(place)
        run("poetry", "env", "use", interpreter(python), folder=folder, **settings)
        chosen = [f"--extras={extra}" for extra in extras]
        text = run(
            *("poetry", "install", "--dry-run", "--no-root", *chosen),
            folder=folder,
            **settings,
        )
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = "\n".join(line for line in text.splitlines() if "Skipped" not in line)
    rows = re.findall(r"(?:Installing|Updating) ([\w.-]+) \((?:[\w.]+ -> )?([\w.+]+)\)", text)
    return sorted({f"{name.lower()}=={version}" for name, version in rows})


def applying(text: str, python: str) -> list[str]:
    """The requirement lines whose markers hold; evaluated by the target's own interpreter."""
    code = (
        "import sys\nfrom pip._vendor.packaging.requirements import Requirement\n"
        "for line in sys.stdin:\n"
        "    line = line.split(' #')[0].split(' --hash')[0].strip().rstrip('\\\\').strip()\n"
        "    if not line or line[0] in '#-': continue\n"
        "    r = Requirement(line)\n"
        "    environment = {'extra': '', 'extras': set(), 'dependency_groups': set()}\n"
        "    if r.marker is None or r.marker.evaluate(environment):\n"
        "        print(f'{r.name}{r.specifier}')\n"
    )
    ended = subprocess.run(
        [interpreter(python), "-c", code], input=text, capture_output=True, text=True, check=True
    )
    return sorted({line.lower().replace("_", "-") for line in ended.stdout.split()})


def interpreter(python: str) -> str:
    return run("uv", "python", "find", "--no-project", python).strip()


def split(source: str) -> tuple[str, list[str], list[str]]:
    found = re.fullmatch(
        r"([^\[\]:]+)(?:\[([^\]]*)\])?(?::(.*))?",
        source.removeprefix("lock:"),
    )
    assert found, source
    return (
        found[1],
        [one for one in (found[2] or "").split(",") if one],
        [one for one in (found[3] or "").split(",") if one],
    )


# --- wheels ------------------------------------------------------------------------------------


def chosen_wheels(pinned: list[str], python: str) -> tuple[dict[str, dict], list[str]]:
    """Name → pip's report of it; and what has no wheel."""
    left, without = list(pinned), []
    with tempfile.TemporaryDirectory() as place:
        while left:
            requirements = Path(place) / "pins.txt"
            requirements.write_text("\n".join(left))
            report = Path(place) / "report.json"
            ended = subprocess.run(
                [
                    *(interpreter(python), "-m", "pip", "install", "--dry-run", "--quiet"),
                    *("--ignore-installed", "--no-deps", "--only-binary=:all:"),
                    *("--target", place, "--python-version", python, "--implementation", "cp"),
                    *(f"--platform=manylinux_2_{n}_x86_64" for n in range(39, 4, -1)),
                    *("--platform=manylinux2014_x86_64", "--platform=manylinux2010_x86_64"),
                    *("--platform=manylinux1_x86_64", "--platform=linux_x86_64"),
                    *("--report", str(report), "-r", str(requirements)),
                ],
                env={k: v for k, v in os.environ.items() if k not in ("PIP_CONSTRAINT",)}
                | {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""},
                capture_output=True,
                text=True,
            )
            if ended.returncode == 0:
                items = json.loads(report.read_text())["install"]
                return {normal(i["metadata"]["name"]): i for i in items}, without
            missing = re.search(r"No matching distribution found for ([\w.-]+==\S+)", ended.stderr)
            if not missing:
                raise RuntimeError(ended.stderr[-2000:])
            without.append(missing[1])
            left = [pin for pin in left if normal(pin) != normal(missing[1])]
    return {}, without


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.split("==")[0]).lower() + (
        "==" + name.split("==")[1] if "==" in name else ""
    )


def evidence(item: dict, cache: Path) -> dict:
    """What the bytes of one wheel say; kept in `cache`."""
    url = item["download_info"]["url"]
    digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
    kept = cache / f"{digest}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    found: dict = {"wheel": url.rsplit("/", 1)[-1]}
    name = normal(item["metadata"]["name"])
    source: io.BufferedIOBase
    remote = Ranges(url)
    found["size"] = remote.size
    whole = remote.size <= LARGE and not name.startswith("nvidia-")
    if whole:
        with urllib.request.urlopen(url) as answer:
            data = answer.read()
        assert hashlib.sha256(data).hexdigest() == digest, url
        source = io.BytesIO(data)
    else:
        source = io.BufferedReader(remote, 1 << 18)
    with zipfile.ZipFile(source) as archive:
        names = archive.namelist()
        found["vendor_files"] = sorted(
            {f"{v}:{Path(n).name}" for n in names for v in owners(Path(n).name)}
            | {f"own:{Path(n).name}" for n in names if OWN.match(Path(n).name)}
        )
        found["requires"] = [
            line.split(":", 1)[1].strip()
            for line in archive.read(next(n for n in names if n.endswith(".dist-info/METADATA")))
            .decode(errors="replace")
            .split("\n\n")[0]
            .splitlines()
            if line.startswith("Requires-Dist:")
        ]
        if whole:
            found["elf"] = dict(binaries(archive))
            found["python"] = sorted(python_loads(archive))
    kept.write_text(json.dumps(found))
    return found


def owners(name: str) -> list[str]:
    return [vendor for vendor, pattern in SONAME.items() if pattern.match(name)]


def binaries(archive: zipfile.ZipFile) -> Iterator[tuple[str, dict]]:
    with tempfile.NamedTemporaryFile() as place:
        for member in archive.infolist():
            with archive.open(member) as stream:
                if stream.read(4) != b"\x7fELF":
                    continue
            data = archive.read(member)
            Path(place.name).write_bytes(data)
            dynamic = run("readelf", "-dW", place.name)
            needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
            sections = run("readelf", "-SW", place.name)
            texts = {t.decode() for t in re.findall(rb"lib[A-Za-z][\w+-]*\.so(?:\.\d+)*", data)}
            one = {
                "needed": [f"{v}:{n}" for n in needed for v in owners(n)],
                "sections": [
                    f"{v}:{s}" for v, marks in SECTIONS.items() for s in marks if s in sections
                ],
                "static_cudart": STATIC_CUDART in data,
                "names": sorted({f"{v}:{t}" for t in texts for v in owners(t)}),
            }
            if any(one.values()):
                yield member.filename, one


def python_loads(archive: zipfile.ZipFile) -> Iterator[str]:
    """Lines of Python that load a vendor's library by name."""
    for member in archive.infolist():
        if member.filename.endswith(".py") and member.file_size < 2_000_000:
            for line in archive.read(member).decode(errors="replace").splitlines():
                if re.search(r"CDLL|LoadLibrary|find_library", line) and any(
                    re.search(pattern, line) for pattern in VENDORS.values()
                ):
                    yield f"{member.filename}: {line.strip()[:100]}"


# --- report ------------------------------------------------------------------------------------


def told(found: dict) -> list[str]:
    """The evidence of one wheel in lines; none for a wheel that has nothing to do with a vendor."""
    lines = []
    if found["vendor_files"]:
        lines.append("ships " + ", ".join(found["vendor_files"])[:300])
    required = [line for line in found["requires"] if REQUIRED.match(line) and "extra" not in line]
    if required:
        lines.append("METADATA requires " + ", ".join(required)[:200])
    for path, one in found.get("elf", {}).items():
        for key, value in one.items():
            if value:
                lines.append(f"{path}: {key} {value if value is True else ', '.join(value)[:200]}")
    return lines + found.get("python", [])


def importable(name: str, version: str, python: str) -> str:
    """What `import` of every top-level module says without a vendor's libraries."""
    with tempfile.TemporaryDirectory() as place:
        run("uv", "venv", "-q", "--python", interpreter(python), f"{place}/v")
        run("uv", "pip", "install", "-q", "--python", f"{place}/v/bin/python", f"{name}=={version}")
        code = (
            "import importlib.metadata as m, importlib, sys\n"
            f"d = m.distribution({name!r})\n"
            "tops = {f.parts[0].removesuffix('.py') for f in d.files if f.suffix in ('.py','.so')\n"
            "        and '..' not in f.parts and not f.parts[0].endswith('.dist-info')}\n"
            "for t in sorted(tops):\n"
            "    try:\n        importlib.import_module(t); print(t, 'ok')\n"
            "    except BaseException as e: print(t, type(e).__name__, str(e)[:120])\n"
        )
        hide = [f"[ ! -d {path} ] || mount -t tmpfs none {path}" for path in HIDDEN]
        script = "; ".join([*hide, "mount --bind /dev/null /etc/ld.so.cache", 'exec "$@"'])
        return run(
            "unshare",
            "--mount",
            "sh",
            "-c",
            script,
            "sh",
            f"{place}/v/bin/python",
            "-c",
            code,
            LD_LIBRARY_PATH="",
        ).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("projects", nargs="*")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/buildmatrix/projects")
    parser.add_argument("--import", action="store_true", dest="imports")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    done: set[tuple[str, str]] = set()
    for project in tomllib.loads((FOLDER / "projects.toml").read_text())["project"]:
        if options.projects and project["name"] not in options.projects:
            continue
        for audit in project["audit"]:
            if "commit" in project:  # The lock itself says all that is known of conda's packages.
                continue
            python = audit.get("python", project.get("python", "3.12"))
            if (key := (project["name"], audit["source"])) in done:
                continue
            done.add(key)
            try:
                wheels, without = chosen_wheels(pins(project, audit, python), python)
            except RuntimeError as error:
                print(f"\n## {project['name']} {audit['source']}: {str(error)[-300:]}", flush=True)
                continue
            print(
                f"\n## {project['name']} {audit['source']} Python {python}:"
                f" {len(wheels) + len(without)} distributions; no wheel: {without}"
            )
            with ThreadPoolExecutor(4) as threads:
                every = dict(
                    zip(
                        wheels,
                        threads.map(lambda item: evidence(item, options.cache), wheels.values()),
                        strict=True,
                    )
                )
            for name, found in sorted(every.items()):
                if lines := told(found):
                    print(
                        f"  {name} {wheels[name]['metadata']['version']}"
                        f" ({found['size'] / 1e6:.1f} MB)"
                    )
                    print("\n".join(f"      {line}" for line in lines[:12]))
                    if options.imports and "elf" in found:
                        version = wheels[name]["metadata"]["version"]
                        print(f"      import: {importable(name, version, python)}")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
