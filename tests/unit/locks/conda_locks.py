"""Locks of conda and pixi, made for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

FORGE = "https://conda.anaconda.org/conda-forge"
PYTHON = "python-3.12.7-hc5c86c4_0_cpython"


def package(file: str, *depends: str, channel: str = FORGE, subdir: str = "linux-64") -> str:
    """A package of `pixi.lock`, version 6, by the stem of its file."""
    lines = [f"- conda: {channel}/{subdir}/{file}.conda", f"  sha256: {'a' * 64}", "  size: 1000"]
    lines += ["  depends:", *(f"  - {need}" for need in depends)] if depends else []
    return "\n".join(lines) + "\n"


def wheel(name: str, version: str, url: str) -> str:
    """A distribution of PyPI in `pixi.lock`, version 6."""
    return f"- pypi: {url}\n  name: {name}\n  version: {version}\n  sha256: {'b' * 64}\n"


def pixi(packages: Iterable[str], environments: Mapping[str, Iterable[int]] | None = None) -> str:
    """A `pixi.lock` with these packages for linux-64, by their numbers in each environment."""
    packages = list(packages)
    environments = environments or {"default": range(len(packages))}
    lines = ["version: 6", "environments:"]
    for name, numbers in environments.items():
        lines += [f"  {name}:", "    channels:", f"    - url: {FORGE}/", "    packages:"]
        lines += ["      linux-64:"]
        lines += [f"      {packages[number].splitlines()[0]}" for number in numbers]
    return "\n".join([*lines, "packages:", *packages])


def conda_lock(*entries: Mapping[str, str], head: str = "version: 1\nmetadata: {}\n") -> str:
    """A `conda-lock.yml` with these entries; `file` and `depends` are short for the others."""
    lines = [f"{head}package:"]
    for entry in entries:
        file = entry.get("file", "")
        name, version, _ = file.rsplit("-", 2) if file else ("", "", "")
        platform = entry.get("platform", "linux-64")
        needs = [need.partition(" ") for need in entry.get("depends", "").split(", ") if need]
        values = {
            "name": name,
            "version": f"'{version}'",
            "manager": "conda",
            "platform": platform,
            "dependencies": "{" + ", ".join(f"{need}: '{spec}'" for need, _, spec in needs) + "}",
            "url": f"{FORGE}/{platform}/{file}.conda",
            "hash": f"{{md5: x, sha256: {'a' * 64}}}",
            "category": "main",
            "optional": "false",
        } | {key: value for key, value in entry.items() if key not in ("file", "depends")}
        first, *rest = (f"{key}: {value}" for key, value in values.items())
        lines += [f"- {first}", *(f"  {line}" for line in rest)]
    return "\n".join(lines) + "\n"
