"""All sandboxes give one answer, whatever an image holds; podman says which is right.

The images are hostile: their modules, libraries and shell would end or fool a launcher that takes
any of them. Their only program is linked statically, so it needs none of them.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from components import missing

from buildmatrix.base.data import replace
from buildmatrix.engines.model import RunResult
from buildmatrix.engines.oci import sandboxes as sandbox_module
from buildmatrix.engines.oci import sandboxes as sandboxes_module
from buildmatrix.engines.oci.confinement import Confined, Sandbox
from buildmatrix.engines.oci.sandboxes import (
    Bubblewrap,
    ChangedRoot,
    Runtime,
    failure,
    of_this_machine,
    run,
)
from buildmatrix.engines.oci.unpacking import Identity, add_mount_points

IS_ROOT = os.geteuid() == 0
ACCOUNT = Identity(10001, 10002)
#: Nobody: the account of an ordinary user, for what is not run as root.
NOBODY = 65534
#: Where Debian has its Python.
USUAL_PYTHON = Path("/usr/bin/python3")

PROGRAM = """
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
void copy(const char *path) {
    char data[65536];
    struct stat status;
    int length, file;
    if (stat(path, &status) || !S_ISREG(status.st_mode)) return;
    if ((file = open(path, O_RDONLY | O_NONBLOCK)) < 0) return;
    lseek(file, 0, SEEK_SET);
    while ((length = read(file, data, sizeof data)) > 0) fwrite(data, 1, length, stdout);
    puts("");
    close(file);
}
void list(const char *folder, void (*each)(const char *)) {
    char path[4096];
    struct dirent *entry;
    DIR *entries = opendir(folder);
    if (!entries) return;
    while ((entry = readdir(entries))) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        each(path);
    }
    closedir(entries);
}
void descriptor(const char *path) {
    char target[4096] = "";
    readlink(path, target, sizeof target - 1);
    printf("%s -> %s\\n", path, target);
    copy(path);
}
void process(const char *folder) {
    const char *names[] = {"environ", "cmdline", "mountinfo", "auxv", "comm", "status"};
    char path[4096];
    if (strspn(folder + 6, "0123456789") != strlen(folder + 6)) return;
    for (int index = 0; index < 6; index++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[index]);
        printf("%s: ", path);
        copy(path);
    }
    snprintf(path, sizeof path, "%s/fd", folder);
    list(path, descriptor);
}
int main(int count, char **words, char **variables) {
    const char *what = count > 1 ? words[1] : "0";
    if (!strcmp(what, "variables")) {
        while (*variables) puts(*variables++);
        return 0;
    }
    if (!strcmp(what, "spy")) {
        list("/proc", process);
        return 0;
    }
    if (!strcmp(what, "state")) {
        char folder[256];
        gid_t groups[64];
        struct sigaction pipe;
        int length = getgroups(64, groups);
        sigaction(SIGPIPE, NULL, &pipe);
        printf("%d %d %s %03o %s", getuid(), getgid(), getcwd(folder, 256), umask(0),
               pipe.sa_handler == SIG_DFL ? "default" : "ignored");
        for (int index = 0; index < length; index++) printf(" %d", groups[index]);
        return 0;
    }
    puts("started");
    return atoi(what);
}
"""
#: For a launcher that imports a module of the image: it ends, and nothing has failed.
MODULE = "import posix\nposix._exit(0)\n"
MODULES = (
    *("_bootlocale", "codecs", "encodings/__init__", "encodings/utf_8", "encodings/ascii"),
    *("linecache", "locale", "os", "signal", "sitecustomize", "site", "tokenize", "traceback"),
    *("struct", "warnings"),
)
LIBRARIES = ("libc.so.6", "libdl.so.2", "libnss_files.so.2", "libm.so.6", "libseccomp.so.2")
#: Where an image has its Python.
PYTHONS = {"usr": "usr", "usr-local": "usr/local", "venv": "opt/venv", "none": ""}
ENVIRONMENT = {
    "PATH": "/opt/venv/bin:/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "LD_PRELOAD": "/lib/evil.so",
    "LD_AUDIT": "/lib/evil.so",
    "LD_LIBRARY_PATH": "/lib:/usr/lib",
    "GCONV_PATH": "/lib",
    "LANGUAGE": "de",
    "LC_ALL": "de_DE.ISO-8859-15",
    "PYTHONHOME": "/usr",
    "PYTHONPATH": "/usr/lib",
    "ENV": "/etc/profile",
    "BASH_ENV": "/etc/profile",
    "EMPTY": "",
    "TEXT": "two words, 'quotes' and\na line: ü",
}
#: Command → its exit code. It is not started where that is 126 or 127.
COMMANDS = {
    "tool": 0,
    "tool 7": 7,
    "/usr/bin/tool 3": 3,
    "usr/bin/tool 3": 3,
    "alias 4": 4,
    "sh -c false": 0,  # It lies.
    "missing": 127,
    "/no/such/program": 127,
    "/usr/bin/tool/program": 127,
    "/tmp/tool": 127,  # The folder in memory hides what the image has there.
    "locked": 126,
    "/usr/bin/locked": 126,
    "folder": 126,
    "/usr/bin/folder": 126,
    "text": 126,
    "orphan": 127,
}
#: Those whose answer could come from the image.
TELLING = ("tool 7", "missing", "locked", "text")
#: Exit codes of podman that say less than ours.
PODMAN = {"/usr/bin/tool/program": 126, "text": 1, "orphan": 1}


def program(name: str, package: str) -> str:
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if path is None:
        missing(name, f"install the package {package}")
    return path


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that every account may enter; those of pytest are closed."""
    with tempfile.TemporaryDirectory(prefix="sandboxes.") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def tool(place: Path) -> Path:
    source, path = place / "tool.c", place / "tool"
    source.write_text(PROGRAM)
    subprocess.run(["gcc", "-static", "-Os", "-w", "-o", path, source], check=True)
    return path


@pytest.fixture(scope="module")
def without_unified_cgroups(place: Path) -> Callable[[str], str]:
    """Makes a program that runs another where crun 1.8 works: it refuses both kinds of cgroups."""

    def wrapped(path: str) -> str:
        if not IS_ROOT or not Path("/sys/fs/cgroup/unified/cgroup.controllers").exists():
            return path
        wrapper = place / "bin" / Path(path).name
        wrapper.parent.mkdir(exist_ok=True)
        script = 'mount --make-rprivate /; umount -l /sys/fs/cgroup/unified; exec "$@"'
        wrapper.write_text(f"#!/bin/sh\nexec unshare --mount sh -c '{script}' sh {path} \"$@\"\n")
        wrapper.chmod(0o755)
        return str(wrapper)

    return wrapped


@pytest.fixture(
    params=["bwrap", "crun", "runc", "chroot", "chroot-usual-python", "chroot-ordinary-user"]
)
def sandbox(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    without_unified_cgroups: Callable[[str], str],
) -> Sandbox:
    """Each sandbox; bwrap run by an ordinary user, and chroot by both and by several Pythons."""
    name = request.param
    found: Sandbox
    if name in ("bwrap", "chroot-ordinary-user"):
        if name == "bwrap":
            found = Bubblewrap(program("bwrap", "bubblewrap"))
        else:
            found = ChangedRoot(program("unshare", "util-linux"))
            found.has_owners = False
            # Nobody else may enter the home folder of root, where this Python may be.
            monkeypatch.setattr(sandboxes_module, "sys", SimpleNamespace(executable=USUAL_PYTHON))
        if IS_ROOT:
            user = partial(subprocess.Popen, user=NOBODY, group=NOBODY, extra_groups=[])

            def start(line: Sequence[str], **options: object) -> subprocess.Popen[bytes]:
                """Start it with files of its own, as an ordinary user has them."""
                for path in map(Path, line):
                    if path.name == "change.json":
                        os.chown(path, NOBODY, NOBODY)
                return user(line, **options)

            subprocesses = SimpleNamespace(**{**vars(subprocess), "Popen": start})
            monkeypatch.setattr(sandbox_module, "subprocess", subprocesses)
            # Root of a container may not limit the processes of others.
            monkeypatch.setattr(sandbox_module, "bound", lambda *_, **__: None)
        return found
    if name == "crun":
        found = Runtime(without_unified_cgroups(program("crun", "crun")))
    elif not IS_ROOT:
        pytest.skip(f"only root runs {name}")
    elif name == "runc":
        found = Runtime(program("runc", "runc"))
    else:
        found = ChangedRoot(program("unshare", "util-linux"))
        if name == "chroot-usual-python":
            if not USUAL_PYTHON.exists():
                missing(str(USUAL_PYTHON), "install the package python3")
            monkeypatch.setattr(sandboxes_module, "sys", SimpleNamespace(executable=USUAL_PYTHON))
    if why := failure(found, math.inf):
        missing(f"a {name} that works", why)
    return found


def add(root: Path, name: str, text: str, mode: int = 0o644) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


@cache
def standard_library(python: str) -> str:
    ask = "import os; print(os.path.dirname(os.__file__))"
    return subprocess.check_output([python, "-I", "-S", "-c", ask], text=True).strip().lstrip("/")


def lay_out(root: Path, tool: Path, python: str) -> Path:
    """A hostile image; `python` is where it has a Python, and nothing if it has none."""
    for name in ("usr/bin/tool", "usr/bin/locked", "bin/sh", "tmp/tool"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tool, root / name)
    (root / "usr/bin/locked").chmod(0o644)
    (root / "usr/bin/folder").mkdir()
    (root / "usr/bin/alias").symlink_to("/bin/../usr/bin/loop")
    (root / "usr/bin/loop").symlink_to("../../../../usr/bin/tool")
    add(root, "usr/bin/text", "exit 0\n", 0o755)
    add(root, "usr/bin/orphan", "#!/no/such/interpreter -I\nexit 0\n", 0o755)
    for folder in ("lib", "lib64", "usr/lib", "lib/x86_64-linux-gnu"):
        for library in LIBRARIES:
            add(root, f"{folder}/{library}", "no library", 0o755)
    add(root, "etc/ld.so.preload", "/lib/evil.so\n")
    add(root, "etc/nsswitch.conf", "passwd: evil\ngroup: evil\n")
    add(root, "etc/passwd", "10001:x:0:0::/root:/bin/sh\n")
    add(root, "etc/group", "10002:x:0:\n44:x:0:\n")
    if python:
        minor = sys.version_info.minor
        launchers = [str(USUAL_PYTHON)] if USUAL_PYTHON.exists() else []
        own = map(standard_library, {sys.executable, *launchers})
        for folder in {*own, f"{python}/lib/python3.{minor}"}:
            for module in MODULES:
                add(root, f"{folder}/{module}.py", MODULE)
        (root / python / "bin").mkdir(exist_ok=True)
        shutil.copy(tool, root / python / "bin/python3")
    add_mount_points(root)
    return root


@pytest.fixture(scope="module")
def images(place: Path, tool: Path) -> dict[str, Path]:
    made = {}
    for name, python in PYTHONS.items():
        root = place / f"image-{name}"
        root.mkdir(mode=0o755)
        made[name] = lay_out(root, tool, python)
    return made


@pytest.fixture
def image(place: Path, tool: Path) -> Iterator[Path]:
    """An image that a test may change."""
    with tempfile.TemporaryDirectory(dir=place) as name:
        Path(name).chmod(0o755)
        yield lay_out(Path(name), tool, "usr")


def answer(
    sandbox: Sandbox,
    root: Path,
    command: Sequence[str],
    folder: str = "/",
    account: Identity = ACCOUNT,
) -> RunResult:
    with tempfile.TemporaryDirectory() as own:
        Path(own).chmod(0o755)
        confined = Confined(root, account, command, ENVIRONMENT, folder)
        return run(sandbox, confined, Path(own), math.inf, lambda: False)


@pytest.mark.parametrize("python", PYTHONS)
def test_the_files_of_an_image_do_not_change_an_answer(
    sandbox: Sandbox, images: dict[str, Path], python: str
) -> None:
    commands = COMMANDS if python == "none" else TELLING
    wanted = {command: COMMANDS[command] for command in commands}
    wanted["python3 5"] = 127 if python == "none" else 5
    for command, code in wanted.items():
        result = answer(sandbox, images[python], command.split())
        assert result.exit_code == code, (command, result.output)
        if code in (126, 127):
            name, _, why = result.output.partition(": ")
            assert name.endswith(command.split()[0]) and why, command
        else:
            assert result.output == "started\n", command


@pytest.fixture(scope="module")
def podman(without_unified_cgroups: Callable[[str], str]) -> Iterator[list[str]]:
    """A command line that runs a root folder by podman, with a storage of the test's own."""
    path = program("podman", "podman")
    if not IS_ROOT:
        pytest.skip("only root runs the account of an image by podman")
    # Its paths have 50 characters at most.
    with tempfile.TemporaryDirectory(prefix="podman.") as storage:
        yield [
            *(without_unified_cgroups(path), "--root", f"{storage}/images"),
            *(
                "--runroot",
                f"{storage}/run",
                "--storage-driver=vfs",
                "--runtime=crun",
                "run",
                "--rm",
            ),
            # More than this machine has can be asked for, and is by default.
            *("--ulimit=nofile=1000:1000", "--ulimit=nproc=1000:1000", "--cgroups=disabled"),
            *("--network=none", "--read-only", f"--user={ACCOUNT.uid}:{ACCOUNT.gid}"),
            *("--tmpfs=/tmp:notmpcopyup", f"--env=PATH={ENVIRONMENT['PATH']}", "--rootfs"),
        ]


def test_podman_gives_the_same_answers(podman: list[str], image: Path) -> None:
    for command, code in COMMANDS.items():
        line = [*podman, str(image), *command.split()]
        done = subprocess.run(line, capture_output=True, text=True)
        assert done.returncode == PODMAN.get(command, code), (command, done.stderr)
        assert (done.stdout == "started\n") is (code not in (126, 127)), command


def test_the_python_of_debian_runs(sandbox: Sandbox, place: Path) -> None:
    if not USUAL_PYTHON.exists():
        missing(str(USUAL_PYTHON), "install the package python3")
    with tempfile.TemporaryDirectory(dir=place) as name, tempfile.TemporaryDirectory() as own:
        for folder in (name, own):
            Path(folder).chmod(0o755)
        command = ("python3", "-c", "import sys, warnings; print(sys.prefix); sys.exit(5)")
        confined = of_this_machine(Path(name), ACCOUNT, command)
        result = run(sandbox, confined, Path(own), math.inf, lambda: False)
    assert (result.exit_code, result.output) == (5, "/usr\n")


def test_a_command_has_the_variables_of_its_image_alone(
    sandbox: Sandbox, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NOTIFY_SOCKET", "LISTEN_FDS", "LD_BIND_NOW", "PYTHONINSPECT", "TOKEN"):
        monkeypatch.setenv(name, "1")
    result = answer(sandbox, image, ("tool", "variables"))
    # bwrap says where it starts.
    lines = result.output.replace("PWD=/\n", "").splitlines()
    assert sorted(lines) == sorted("\n".join(map("=".join, ENVIRONMENT.items())).splitlines())


def test_a_command_sees_no_secret_of_this_process(
    sandbox: Sandbox, image: Path, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    """Nor of a process of the sandbox: in variables, command lines and open files."""
    secret = "planted-4ad1f0"
    for name in ("COSIGN_PASSWORD", "HOME", "LC_ALL", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, secret)
    monkeypatch.setenv("PATH", f"/{secret}", prepend=os.pathsep)
    with (place / secret).open("w+") as file:
        file.write(secret)
        file.flush()
        os.set_inheritable(file.fileno(), True)
        result = answer(sandbox, image, ("tool", "spy"))
    assert result.exit_code == 0 and "/proc/1/environ: " in result.output
    # It looked: these are its own.
    assert "toolspy" in result.output and "/fd/1 -> pipe:" in result.output
    assert secret not in result.output, result.output


def test_a_command_starts_as_podman_starts_it(
    sandbox: Sandbox, image: Path, podman: list[str]
) -> None:
    mask = os.umask(0o077)
    try:
        result = answer(sandbox, image, ("tool", "state"), account=replace(ACCOUNT, groups=()))
    finally:
        os.umask(mask)
    line = [*podman, str(image), "tool", "state"]
    # podman adds the group of the account to the groups.
    expected = subprocess.check_output(line, text=True).removesuffix(f" {ACCOUNT.gid}")
    assert result.output == expected == "10001 10002 / 022 default"


def test_an_image_does_not_choose_the_groups(sandbox: Sandbox, image: Path) -> None:
    """In its `/etc/group`, root's group has the number of another one as its name."""
    account = replace(ACCOUNT, groups=(44,))
    result = answer(sandbox, image, ("tool", "state"), account=account)
    if sandbox.name == "runc":
        assert (result.exit_code, result.output[:12]) == (126, "/etc/group: ")
    elif sandbox.has_owners:
        assert result.output.split("default")[1].split() == ["44"]


@pytest.mark.parametrize(
    ("name", "target"),
    [("dev", "/etc"), ("tmp", "/usr"), ("tmp", "nowhere"), ("proc", "/etc"), ("tmp", None)],
)
def test_no_mount_leaves_an_image(
    sandbox: Sandbox, image: Path, name: str, target: str | None
) -> None:
    shutil.rmtree(image / name)
    if target is None:
        (image / name).write_text("a file")
    else:
        (image / name).symlink_to(target)
    add_mount_points(image)
    result = answer(sandbox, image, ("tool",))
    if target is None or name == "proc":
        assert (result.exit_code, result.output) == (127, f"/{name}: Not a directory")
    else:
        assert (result.exit_code, result.output) == (0, "started\n")


def test_a_working_folder_is_made_inside(sandbox: Sandbox, image: Path) -> None:
    (image / "linked").symlink_to("/usr")
    (image / "dangling").symlink_to("/no/such/folder")
    for folder, made in {
        "/usr/bin": "/usr/bin",
        "/srv/app/data": "/srv/app/data",
        "/tmp/new/folder": "/tmp/new/folder",
        "srv/./app/../data/": "/srv/data",
        "/tmp/../../../opt/new": "/opt/new",
        "/linked/new": "/usr/new",
        "/usr/bin/tool": None,
        "/usr/bin/tool/folder": None,
        "/dangling": None,
    }.items():
        result = answer(sandbox, image, ("tool", "state"), folder)
        if made is None:
            assert result.exit_code == 127 and result.output.startswith(folder)
        else:
            assert result.output.split()[2] == made, result.output


def test_a_command_that_cannot_be_handed_over_does_not_start(sandbox: Sandbox, image: Path) -> None:
    for command in (("tool", "7\0"), ("tool", "7" * (4 << 20))):
        result = answer(sandbox, image, command)
        assert result.exit_code != 0 and "started" not in result.output
