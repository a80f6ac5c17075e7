"""The rung `import`, with a real interpreter and packages that break in the ways that they do."""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from buildmatrix.catalogue.load import load
from buildmatrix.engines.model import Run, RunResult
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.preflight.rungs import find_disagreements, run_imports, waits_for_driver
from buildmatrix.reports.preflight import Check


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site-packages"


def install(site: Path, name: str, source: str, entry_points: str = "") -> None:
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").write_text(source)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"{name}/__init__.py,,\n")
    if entry_points:
        (info / "entry_points.txt").write_text(entry_points)


def runner(site: Path) -> Run:
    """Runs the probe as an image would, with these packages alone."""

    def run(command: Sequence[str], timeout_s: float) -> RunResult:
        # Without the packages of this environment: -S, and what is installed by its path.
        line = [sys.executable, "-S", *command[1:]]
        done = subprocess.run(
            line,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        return RunResult(done.returncode, done.stdout + done.stderr, timed_out=False)

    return run


def imported(site: Path) -> dict[str, Check]:
    return {check.subject: check for check in run_imports(runner(site), load(), "cuda")}


def test_each_module_and_entry_point_is_imported_by_itself(site: Path) -> None:
    install(
        site, "fine", "def main(): pass", "[console_scripts]\nfine = fine:main\nbad = fine:gone\n"
    )
    install(site, "torn", "import fine\nraise RuntimeError('torn')")
    checks = imported(site)
    assert {name: check.state for name, check in checks.items()} == {
        "fine": "passed",
        "fine:main": "passed",
        "fine:gone": "failed",
        "torn": "failed",
    }
    assert checks["torn"].message == "RuntimeError: torn"
    assert checks["torn"].values["distribution"] == "torn"


def test_what_was_installed_without_bytecode_is_compiled_once_and_not_in_the_image(
    site: Path,
) -> None:
    install(site, "shared", "")
    asks = "import os, shared\nassert os.path.exists(shared.__cached__), 'compiled each time'\n"
    install(site, "first", asks)
    install(site, "second", asks)
    assert {check.state for check in imported(site).values()} == {"passed"}
    assert not list(site.rglob("*.pyc"))


def test_bytecode_of_the_image_is_used_where_it_is(site: Path) -> None:
    install(site, "shared", "")
    install(site, "asks", f"import shared\nassert shared.__cached__.startswith({str(site)!r})")
    compileall.compile_dir(site, quiet=2)
    assert {check.state for check in imported(site).values()} == {"passed"}


def test_the_function_of_an_entry_point_may_be_in_a_submodule(site: Path) -> None:
    """charset-normalizer has `charset_normalizer:cli.cli_detect`, and does not import `cli`."""
    install(site, "fine", "", "[console_scripts]\nfine = fine:cli.main\nbad = fine:cli.gone.main\n")
    (site / "fine/cli.py").write_text("def main(): pass")
    checks = imported(site)
    assert (checks["fine:cli.main"].state, checks["fine:cli.gone.main"].state) == (
        "passed",
        "failed",
    )


def test_folders_that_are_no_modules_are_not_imported(site: Path) -> None:
    """botorch and others list `dist`, `website` or `scripts` in top_level.txt."""
    install(site, "torn", "")
    info = site / "torn-1.0.dist-info"
    (info / "top_level.txt").write_text("dist\ngone\nspace\ntorn\nwebsite\n")
    (site / "website").mkdir()
    files = ("torn/__init__.py", "website/build.py", "website/a.css", "space/part/__init__.py")
    (site / "space/part").mkdir(parents=True)
    (site / "space/part/__init__.py").touch()
    # `gone` is in RECORD and was removed afterwards.
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in (*files, "gone/__init__.py")))
    checks = imported(site)
    assert {name: check.state for name, check in checks.items()} == {
        "gone": "not-run",
        "space": "passed",
        "torn": "passed",
    }
    assert checks["gone"].message == "torn names it, and has no such module"


def test_the_package_that_breaks_the_import_of_another_is_named(site: Path) -> None:
    install(site, "plugin", "raise OSError('no driver here')")
    install(site, "framework", "import plugin")
    assert imported(site)["framework"].message == "OSError: no driver here (raised in plugin)"


def test_a_missing_library_is_named_as_the_loader_says_it(
    site: Path, link: Callable[[Path, str], None]
) -> None:
    install(
        site, "native", "import ctypes, os\nctypes.CDLL(os.path.dirname(__file__) + '/core.so')"
    )
    link(site / "native/core.so", "libacme.so.7")
    check = imported(site)["native"]
    assert check.message == "libacme.so.7 is missing, which importing it needs"


@pytest.fixture
def link(tmp_path: Path) -> Callable[[Path, str], None]:
    """Makes a library that needs another one, which is then not there."""

    def make(path: Path, needed: str) -> None:
        source = tmp_path / "empty.c"
        source.write_text("int acme(void) { return 1; }\n")
        other = tmp_path / needed
        for output, arguments in (
            (other, [f"-Wl,-soname,{needed}"]),
            (path, ["-Wl,--no-as-needed", str(other)]),
        ):
            subprocess.run(
                ["gcc", "-shared", "-fPIC", "-o", output, source, *arguments], check=True
            )
        other.unlink()

    return make


def test_a_signal_is_named(site: Path) -> None:
    install(site, "crash", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
    assert imported(site)["crash"].message == "importing it died by SIGSEGV"


def test_a_module_that_prints_garbage_forks_and_lies_costs_no_other(site: Path) -> None:
    install(
        site,
        "noisy",
        "import os, sys\nsys.stdout.write('@@buildmatrix@@{}' * 100_000)\n"
        "if os.fork() == 0:\n    import time\n    time.sleep(1000)\n",
    )
    install(site, "quiet", "")
    checks = imported(site)
    assert (checks["noisy"].state, checks["quiet"].state) == ("passed", "passed")


def test_an_image_without_python_is_undecided() -> None:
    gone = RunResult(127, "python: not found", timed_out=False)
    (check,) = run_imports(lambda *_: gone, load(), "cpu")
    assert check.state == "undecided" and "exit code 127" in check.message


def test_the_model_of_the_loader_has_to_agree() -> None:
    failed = [Check("torch", "failed", values={"missing_library": "libacme.so.7"})]
    (check,) = find_disagreements(failed, Inventory())
    assert "please report it" in check.message


def test_an_optional_module_that_is_not_installed_is_no_failure(site: Path) -> None:
    install(site, "plain", "")
    install(site, "extra", "try:\n    import absent\nexcept ImportError as e:\n"
            "    raise ImportError('pip install extra[absent]') from e")  # fmt: skip
    install(site, "required", "import needed")
    metadata = site / "required-1.0.dist-info/METADATA"
    metadata.write_text(metadata.read_text() + "Requires-Dist: Needed>=1\n")
    install(site, "own", "import own.part")
    checks = imported(site)
    assert {name: check.state for name, check in checks.items()} == {
        "plain": "passed",
        "extra": "not-run",
        "required": "failed",
        "own": "failed",
    }
    assert "needs the module absent" in checks["extra"].message


def test_the_library_of_a_driver_is_the_business_of_a_node(
    site: Path, link: Callable[[Path, str], None]
) -> None:
    load = "import ctypes, os\nctypes.CDLL(os.path.dirname(__file__) + '/core.so')"
    install(site, "native", load)
    link(site / "native/core.so", "libcuda.so.1")
    check = imported(site)["native"]
    assert (check.state, waits_for_driver(check)) == ("not-run", True)
    assert check.message == "it needs libcuda.so.1, which the driver of a node brings"
