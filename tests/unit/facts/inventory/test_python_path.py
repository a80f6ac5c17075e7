"""Which folders the interpreters of a tree import from."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.folders import (
    add_pythonpath,
    find_python_paths,
    find_visible_distributions,
)
from buildmatrix.facts.inventory.listing import Listing
from buildmatrix.facts.inventory.model import Distribution, PythonPath
from buildmatrix.facts.trees.archive import DirectoryTree


def paths(
    root: Path, files: dict[str, str], environment: dict[str, str] | None = None
) -> dict[str, PythonPath]:
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    with DirectoryTree(root) as tree:
        inventory = collect(tree, environment or {})
    return {path.interpreter: path for path in inventory.python_paths}


def test_debian_s_python_looks_into_the_local_folder_first(tmp_path: Path) -> None:
    found = paths(
        tmp_path,
        {
            "usr/bin/python3.11": "",
            "usr/lib/python3/dist-packages/a.py": "",
            "usr/local/lib/python3.11/dist-packages/b.py": "",
        },
    )
    assert found["usr/bin/python3.11"].folders == (
        "usr/local/lib/python3.11/dist-packages",
        "usr/lib/python3/dist-packages",
    )


def test_a_virtual_environment_sees_the_base_s_folders_only_when_it_says_so(
    tmp_path: Path,
) -> None:
    files = {
        "usr/local/bin/python3.12": "",
        "usr/local/lib/python3.12/site-packages/a.py": "",
        "opt/venv/lib/python3.12/site-packages/b.py": "",
    }
    settings = "home = /usr/local/bin\nversion = 3.12.1\ninclude-system-site-packages = "
    own = "opt/venv/lib/python3.12/site-packages"
    for answer, expected in (
        ("false", (own,)),
        ("true", (own, "usr/local/lib/python3.12/site-packages")),
    ):
        found = paths(tmp_path, {**files, "opt/venv/pyvenv.cfg": settings + answer})
        assert found["opt/venv/bin/python"].folders == expected
        assert found["usr/local/bin/python3.12"].version == "3.12"


def test_pth_files_add_folders_of_the_tree_and_their_code_is_not_run(
    tmp_path: Path,
) -> None:
    site = "usr/local/lib/python3.12/site-packages"
    found = paths(
        tmp_path,
        {
            "usr/local/bin/python3.12": "",
            "opt/more/x.py": "",
            f"{site}/a.pth": "# comment\n/opt/more\n../../../../../../../etc/passwd\n/none\n",
            f"{site}/b.pth": f"import os; open({str(tmp_path / 'ran')!r}, 'w')\n",
        },
    )
    assert found["usr/local/bin/python3.12"].folders == (site, "opt/more")
    assert not (tmp_path / "ran").exists()


def test_pythonpath_of_the_image_comes_first_and_decides_which_distribution_counts(
    tmp_path: Path,
) -> None:
    site = "usr/local/lib/python3.12/site-packages"
    files = {"usr/local/bin/python3.12": "", "opt/a/x.py": "", f"{site}/x.py": ""}
    (path,) = paths(tmp_path, files, {"PYTHONPATH": "/opt/a:relative"}).values()
    assert path.folders == ("opt/a", site)
    torch = [
        Distribution("torch", "1", f"{site}/torch-1.dist-info"),
        Distribution("torch", "2", "opt/a/torch-2.dist-info"),
        Distribution("torch", "3", "elsewhere/torch-3.dist-info"),
    ]
    assert find_visible_distributions(path, torch)["torch"].version == "2"


def test_the_order_is_the_one_that_a_real_interpreter_has(tmp_path: Path) -> None:
    """PYTHONPATH before the sites, its `.pth` files unread; those of a site behind it."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    (site,) = (tmp_path / "env").glob("lib/python3*/site-packages")
    files = {
        "env/x.txt": "",
        "first/torch.py": "",
        "first/unread.pth": "../never\n",
        "never/torch.py": "",
        "behind/torch.py": "",
        "second/torch.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (site / "a.pth").write_text("# a comment\n../../../../behind\n../../../../missing\n\n")
    (site / "b.pth").write_text("../../../../second\n../../../../behind\nimport os\n")
    environment = {"PYTHONPATH": f"{tmp_path}/first:{tmp_path}/missing"}
    done = subprocess.run(
        [tmp_path / "env/bin/python", "-c", "import sys; print('\\n'.join(sys.path[1:]))"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    inside = (line for line in done.stdout.splitlines() if line.startswith(f"{tmp_path}/"))
    real = [one.removeprefix(f"{tmp_path}/") for one in inside if Path(one).is_dir()]

    with DirectoryTree(tmp_path) as tree:
        known = {"PYTHONPATH": "/first:/missing"}
        (path,) = find_python_paths(Listing(tree), known)
        (bare,) = find_python_paths(Listing(tree), {})
    assert list(path.folders) == real
    assert add_pythonpath(bare, {"PYTHONPATH": "/first"}).folders == path.folders


def test_what_a_user_installed_for_himself_comes_before_the_systems(tmp_path: Path) -> None:
    system, user = "usr/local/lib/python3.12/site-packages", "lib/python3.12/site-packages"
    files = {
        "usr/local/bin/python3.12": "",
        f"{system}/x.py": "",
        f"root/.local/{user}/x.py": "",
        f"home/app/.local/{user}/x.py": "",
    }

    def folders(**environment: str) -> tuple[str, ...]:
        (path,) = paths(tmp_path, files, environment).values()
        return path.folders

    assert folders() == (f"root/.local/{user}", system)
    assert folders(HOME="/home/app") == (f"home/app/.local/{user}", system)
    assert folders(PYTHONUSERBASE="/home/app/.local") == (f"home/app/.local/{user}", system)
    assert folders(PYTHONNOUSERSITE="1") == (system,)
