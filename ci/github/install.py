"""Install buildmatrix into an environment of its own, for the steps of `action.yml`.

Reads PYTHON, VERSION, EXTRAS and KEEP (the cache, `true` or `false`); says in GITHUB_OUTPUT which
`python` has it, where its `cache` is (empty: where buildmatrix has it by itself), and which `week`
it is.
"""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
from pathlib import Path

#: Installs buildmatrix ten times as fast as pip; the other recipes have the same version.
_UV = "uv==0.13.9"
#: What may stand in a version (PEP 440): nothing that an installer would take for an option.
_VERSION = re.compile(r"[0-9][0-9A-Za-z.!+]*")
_EXTRAS = re.compile(r"(?:[a-z]+(?:,[a-z]+)*)?")


def main() -> int:
    """Install, and say where; the exit code of the step."""
    version = os.environ["VERSION"]
    if version and not _VERSION.fullmatch(version):
        print(f"::error::version {version!a} is no version; write 0.1.0, without ==")
        return 2
    extras = os.environ["EXTRAS"].replace(" ", "")
    if not _EXTRAS.fullmatch(extras):
        print(f"::error::extras {extras!a} are no names; write keyless,zstd")
        return 2
    folder = Path(os.environ["RUNNER_TEMP"], "buildmatrix")
    python = folder / "venv" / "bin" / "python"
    code = os.environ["GITHUB_ACTION_PATH"]
    python_here = [sys.executable, "-I", "-m"]
    print("::group::Install buildmatrix", flush=True)
    subprocess.run([*python_here, "venv", "--clear", "--without-pip", folder / "venv"], check=True)
    pip = [*python_here, "pip", "--python", python, "install", "--quiet"]
    subprocess.run([*pip, "--disable-pip-version-check", _UV], check=True)
    # Nothing that lies in the checkout says where buildmatrix comes from.
    uv = [python, "-I", "-m", "uv", "pip", "install", "--quiet", "--no-config", "--python", python]
    more = f"[{extras}]" if extras else ""
    wanted = f"buildmatrix{more}=={version}" if version else f"{code}{more}"
    subprocess.run([*uv, wanted], check=True)
    print("::endgroup::", flush=True)
    year, week, _ = datetime.datetime.now(tz=datetime.UTC).isocalendar()
    # A folder of the job's own: on a runner that stays, what else was ever read there, gigabytes of
    # it and perhaps for others, would be uploaded with what this job read.
    own = folder / "cache" if os.environ["KEEP"] == "true" else ""
    cache = os.environ.get("BUILDMATRIX_CACHE") or own
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as output:
        output.write(f"python={python}\ncache={cache}\nweek={year}-{week:02}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
