from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from oci_world import (
    SPEC,
    SYSTEM,
    LayerFile,
    file,
    files_of,
    link,
    make_base,
    make_world,
    origins,
)

from buildmatrix.base.errors import SpecError, UndecidedError
from buildmatrix.base.progress import Silent
from buildmatrix.engines.oci import apt, contents, debian
from buildmatrix.engines.oci.base_files import BaseFiles, notes_store, read_layer
from buildmatrix.engines.oci.debian import DebianPackages
from buildmatrix.engines.oci.maintainer_scripts import find_effect
from buildmatrix.engines.oci.recipe import recipe
from buildmatrix.facts.trees.archive import Slice
from buildmatrix.images.store.cache import Cache

STATUS = (
    "Package: aa\nStatus: install ok installed\nVersion: 1\n\n"
    "Package: zz\nStatus: install ok installed\nVersion: 1\n\n"
)
DPKG = (
    *(item for item in SYSTEM if not item.entry.path.startswith("opt")),
    file("var/lib/dpkg/status", STATUS),
    file("etc/dpkg/dpkg.cfg.d/docker", "path-exclude /usr/share/doc/*\npath-include */copyright\n"),
    file(
        "etc/apt/sources.list", "deb [signed-by=/usr/share/keyrings/x.gpg] http://h/debian s main\n"
    ),
    file("usr/share/keyrings/x.gpg", "key"),
    file("usr/lib/x86_64-linux-gnu/libc.so.6", ""),
    link("lib", "usr/lib"),
    file("var/lib/dpkg/triggers/File", "/usr/share/watched zz/noawait\n"),
)


@pytest.fixture(autouse=True)
def programs() -> None:
    """On Debian, where the tests run on CI, they are always there."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is missing")


def make_deb(
    folder: Path,
    name: str,
    files: Mapping[str, str],
    control: Mapping[str, str] | None = None,
    fields: str = "",
) -> Path:
    root = folder / name
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN" / "control").write_text(
        f"Package: {name}\nVersion: 1:2.0-1\nArchitecture: amd64\n{fields}"
        "Maintainer: Tests <tests@example.com>\nHomepage: https://example.com\n"
        "Description: short\n longer\n .\n and longer\n"
    )
    for path, text in (control or {}).items():
        (root / "DEBIAN" / path).write_text(text)
        (root / "DEBIAN" / path).chmod(0o755 if path.endswith(("inst", "rm")) else 0o644)
    root.chmod(0o755)
    deb = folder / f"{name}.deb"
    build = ["dpkg-deb", "--root-owner-group", "--build", root, deb]
    subprocess.run(build, check=True, capture_output=True)
    return deb


def unpacked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    debs: Sequence[Path],
    names: Sequence[str] = ("tool",),
    base: Sequence[LayerFile] = DPKG,
) -> dict[str, tuple[str, bytes]]:
    image = make_base(tmp_path / "base", base)
    store = notes_store(Cache(None))
    files = BaseFiles([read_layer(image.layout, layer, store) for layer in image.manifest.layers])
    found = {deb.stem for deb in debs}, list(debs)
    monkeypatch.setattr(apt, "fetch_packages", lambda *_: found)
    with ExitStack() as held:
        made = DebianPackages(files, "linux/amd64", held).files(names)
        return {
            path: (f"{item.entry.kind} {item.entry.mode:o}", b"".join(item.content()))
            for path, item in made.items()
        }


def test_files_and_database_of_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = make_deb(
        tmp_path,
        "libtool2",
        {"lib/x86_64-linux-gnu/libtool.so.2": "so", "usr/share/doc/libtool2/changelog": "c",
         "usr/share/doc/libtool2/copyright": "c"},
        {"triggers": "# debhelper\nactivate-noawait ldconfig\n"},
        "Multi-Arch: same\n",
    )  # fmt: skip
    tool = make_deb(
        tmp_path,
        "tool",
        {"usr/bin/tool": "#!", "etc/tool.conf": "x = 1\n"},
        {"conffiles": "/etc/tool.conf\n", "postinst": "#!/bin/sh\nset -e\n\nexit 0\n"},
        "Depends: libtool2\nSection: misc\n",
    )
    files = unpacked(tmp_path, monkeypatch, [library, tool])
    assert files["usr/lib/x86_64-linux-gnu/libtool.so.2"] == ("file 644", b"so")
    assert "usr/lib" not in files and "lib" not in files  # the base has them
    assert "usr/share/doc/libtool2/changelog" not in files
    assert "usr/share/doc/libtool2/copyright" in files
    listed = files["var/lib/dpkg/info/libtool2:amd64.list"][1].decode().splitlines()
    assert listed[0] == "/." and "/lib/x86_64-linux-gnu/libtool.so.2" in listed
    assert files["var/lib/dpkg/info/tool.postinst"][0] == "file 755"
    status = files["var/lib/dpkg/status"][1].decode()
    assert re.findall("^Package: (.*)$", status, re.M) == ["aa", "libtool2", "tool", "zz"]
    stanza = status.split("\n\n")[2]
    assert stanza == (
        "Package: tool\nStatus: install ok installed\nSection: misc\n"
        "Maintainer: Tests <tests@example.com>\nArchitecture: amd64\nVersion: 1:2.0-1\n"
        "Depends: libtool2\nConffiles:\n /etc/tool.conf 3253b41059cac6e987c5a5e9233ea5d0\n"
        "Description: short\n longer\n .\n and longer\nHomepage: https://example.com"
    )
    automatic = files["var/lib/apt/extended_states"][1].decode()
    assert automatic == "Package: libtool2\nArchitecture: amd64\nAuto-Installed: 1\n\n"


def test_the_status_is_one_that_dpkg_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = make_deb(tmp_path, "tool", {"usr/bin/tool": "#!"})
    files = unpacked(tmp_path, monkeypatch, [tool])
    admin = tmp_path / "admin"
    for path, (_, data) in files.items():
        if path.startswith("var/lib/dpkg/"):
            place = admin / path.removeprefix("var/lib/dpkg/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    query = ["dpkg-query", "--admindir", admin, "-W", "-f", "${Package} ${db:Status-Status}\\n"]
    shown = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    assert "tool installed\n" in shown
    query = ["dpkg-query", "--admindir", admin, "-L", "tool"]
    shown = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    assert "/usr/bin/tool\n" in shown


HELPER = 'dpkg-maintscript-helper rm_conffile /etc/drirc 19.0.3-1\\~ -- "$@"'
DIRECTORY = 'dpkg-maintscript-helper dir_to_symlink /usr/share/x y 1~ x -- "$@"'
CONFIGURED = 'if [ "$1" = "configure" ] || [ "$1" = "abort-upgrade" ] ; then\n%s\nfi'
PATHFIND = """pathfind() {
    OLDIFS="$IFS"
    IFS=:
    for p in $PATH; do
        if [ -x "$p/$*" ]; then
            IFS="$OLDIFS"
            return 0
        fi
    done
    IFS="$OLDIFS"
    return 1
}
"""
GLIB = """handle () {
    for trigger in "$@"; do
        if ! [ -d $trigger ]; then continue; fi
        case $trigger in
          /usr/share/s) "/usr/lib/glib-2.0/glib-compile-schemas" /usr/share/s || true ;;
        esac
    done
}
if [ "$1" = triggered ]; then handle $2; exit 0; fi
install -d "/usr/share/own"
"/usr/lib/glib-2.0/glib-compile-schemas" /usr/share/s || true
if [ -d /usr/lib/gio ]; then rm -f /usr/lib/gio/x; rmdir -p /usr/lib/gio; fi
"""


class Files:
    """A base with /usr/share/base, and the package's /usr/share/own and /usr/share/own/file."""

    def kind(self, path: str) -> str | None:
        if path.startswith("/usr/share/other"):
            return None
        names = {"base": "folder", "own": "folder", "own/file": "file", "link": "symlink"}
        return names.get(path.removeprefix("/usr/share/"), "")

    def is_empty(self, folder: str) -> bool:
        return not folder.startswith("/usr/share/own")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", None),
        ("set -e\n# Automatically added by dh_installdeb/13\n" + HELPER, None),
        (DIRECTORY, None),
        (DIRECTORY.replace("share/x", "share/other"), 2),
        (HELPER.replace("rm_conffile", "rm_everything"), 2),
        (HELPER.replace('"$@"', "upgrade 1"), 2),
        (HELPER.replace("/etc", "etc"), 2),
        (HELPER + " >/etc/x", 2),
        (HELPER + "; touch /x", 2),
        (HELPER + " && touch /x", 2),
        (HELPER + " || touch /x", None),
        (HELPER + " | tee /x", 2),
        (HELPER + " &", 2),
        (GLIB, None),
        (GLIB.replace("/usr/lib/glib-2.0", "/opt/x"), 12),
        (GLIB.replace("/usr/share/s ||", "/usr/share/own ||"), 12),
        (GLIB.replace("/usr/share/s || true\nif", "/usr/share/s\nif"), 12),
        (GLIB.replace("/usr/lib/gio ]", "/usr/share/base ]"), 13),
        (PATHFIND + "if pathfind ucf; then ucf -p /etc/x; fi", None),
        (PATHFIND.replace("return 1", "touch /x; return 1") + "if pathfind ucf; then :; fi", 4),
        (CONFIGURED % "touch /x", 3),
        (CONFIGURED % "\tif [ -d /run/systemd/system ]; then systemctl daemon-reload; fi", None),
        (CONFIGURED % 'if [ -x "$(command -v tmpfiles)" ]; then tmpfiles ${A:+"$A"} x; fi', None),
        (CONFIGURED % 'if [ -x "`which update-menus 2>/dev/null`" ]; then update-menus; fi', None),
        ('if [ -x "$(touch /x)" ]; then :; fi', 2),
        ("if [ -x `touch /x` ]; then :; fi", 2),
        (CONFIGURED % 'ldconfig', None),
        ('if [ "$1" = upgrade ]; then\nrm -rf /etc/old\nfi', None),
        ('if [ -n "$2" ] && dpkg --compare-versions "$2" lt 1; then touch /x; fi', None),
        ('if [ -n $2 ]; then\ntouch /x; fi', 3),  # `[ -n ]` is true
        ('if dpkg --compare-versions "$2" lt-nl 1~; then touch /x; fi', None),
        ('if dpkg --compare-versions "$2" lt 1~; then\ntouch /x; fi', 3),
        ('case "$1" in\nabort-*|upgrade) touch /x ;;\nconfigure) ;;\n*) exit 1 ;;\nesac', None),
        ('case "$1" in\nc*gure)\ntouch /x ;;\nesac', 4),
        ('case "$1" in "c*") touch /x ;; esac', None),
        ('if [ "$DEBUG" ]; then\ntouch /x\nfi', 3),
        ('if [ "$DEBUG" ]; then exit 0\nfi\ntouch /x', 4),
        ('A=a\n[ "$DEBUG" ] && A=configure || :\nif [ "$1" = "$A" ]; then touch /x; fi', 4),
        ("exit 0\ntouch /x", None),
        ("exit 1", 2),
        ("exit", 2),
        ("false", 2),
        ("[ -e /usr/share/none ]", 2),
        ("[ -e /usr/share/base ]", None),
        ("[ -e /usr/share/other ] || true", None),
        ("test -e /proc/1 || touch /x", 2),
        ("test -e /usr/share/link && touch /x", 2),
        ("update-alternatives --quiet --remove none /usr/bin/x", None),
        ("update-alternatives --remove ../../../../usr/share/none /usr/bin/x", 2),
        ("rm -f /usr/share/none", None),
        ("rm -f /usr/share/own/file", 2),
        ("rm -f /usr/share/*", 2),
        ("rm -f /var/cache/x", 2),
        ("mkdir -p /usr/share/none", 2),
        ("echo x", None),
        ("echo x > /etc/x", 2),
        ("echo x 2>&1 >/dev/null", None),
        ("true() { touch /x; }\ntrue", 2),
        ("f() { f; }\nf", 2),
        ("a=x\n" + "a=$a$a\n" * 40, 15),
        ("PATH=/x", 2),
        ("eval touch /x", 2),
        (". /usr/share/debconf/confmodule", 2),
        ("cat <<E\ntouch /x\nE", 2),
        ("if true; then :", 2),
        ("'", 2),
        ("(" * 5000, 2),
        ("[ " + "! " * 5000 + "x ]", 2),
        ("while true; do :; done", 2),
        ("exit 0\r", 2),
        ("echo a#b; # touch\necho 'a\n#'; touch /x", 4),
        ("exit\\\n 0\ntouch /x", None),
    ],
)  # fmt: skip
def test_scripts_without_an_effect_are_recognized(text: str, line: int | None) -> None:
    """Those of debhelper and of Debian 12, and attacks; the first line is `#!/bin/sh`."""
    assert find_effect(f"#!/bin/sh\n{text}", ("configure", ""), Files()) == line


def test_the_interests_of_packages_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    triggers = {"triggers": "interest-noawait /usr/share/x\ninterest-await named\n"}
    tool = make_deb(
        tmp_path, "tool", {"usr/bin/tool": ""}, {**triggers, "preinst": f"#!/bin/sh\n{HELPER}\n"}
    )
    files = unpacked(tmp_path, monkeypatch, [tool])
    lists = {path: data for path, (_, data) in files.items() if "/triggers/" in path}
    assert lists == {
        "var/lib/dpkg/triggers/File": b"/usr/share/watched zz/noawait\n/usr/share/x tool/noawait\n",
        "var/lib/dpkg/triggers/named": b"tool\n",
    }
    other = make_deb(tmp_path, "other", {"usr/share/x/y": ""})
    with pytest.raises(UndecidedError, match="/usr/share/x of other activates a trigger of tool"):
        unpacked(tmp_path / "two", monkeypatch, [tool, other])


def test_a_script_of_a_package_with_left_configuration_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = "Package: tool\nStatus: deinstall ok config-files\nVersion: 1\n"
    base = (
        *(item for item in DPKG if "status" not in item.entry.path),
        file("var/lib/dpkg/status", left),
    )
    tool = make_deb(tmp_path, "tool", {"a": ""}, {"postinst": f"#!/bin/sh\n{HELPER}\n"})
    with pytest.raises(UndecidedError, match="tool was removed from the base"):
        unpacked(tmp_path, monkeypatch, [tool], base=base)


@pytest.mark.parametrize(
    ("files", "control", "why"),
    [
        (
            {"a": ""},
            {"postinst": "#!/bin/sh\nupdate-alternatives --install\n"},
            "postinst, line 2: `update",
        ),
        ({"a": ""}, {"preinst": "#!/usr/bin/python3\n\nimport os\n"}, "runs a script"),
        ({"a": ""}, {"triggers": "activate-noawait update-initramfs\n"}, "has the trigger"),
        ({"a": ""}, {"triggers": "interest ../../x\n"}, "has the trigger"),
        ({"usr/share/watched/x": ""}, {}, "activates a trigger of zz"),
        ({"etc/ld.so.conf.d/x.conf": "/x"}, {}, "changes where the loader looks"),
        ({"usr/bin/python3.11": ""}, {}, "which the base has"),
        ({"bin": ""}, {}, "which the base has"),
    ],
)
def test_what_would_have_to_run_is_refused_by_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    control: dict[str, str],
    why: str,
) -> None:
    deb = make_deb(tmp_path, "tool", files, control)
    with pytest.raises(UndecidedError, match="tool") as error:
        unpacked(tmp_path, monkeypatch, [deb])
    assert why in error.value.message


def test_a_base_without_dpkg_has_no_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UndecidedError, match="has no dpkg"):
        unpacked(tmp_path, monkeypatch, [], base=SYSTEM)


def checked(text: str, folder: Path = Path("/F")) -> str:
    """What apt is given in place of a list: of lines, or of stanzas where it begins as one."""
    form = "sources" if re.search(r"(?im)^(\xef\xbb\xbf)?types:", text) else "list"
    return apt._check_sources(f"etc/apt/sources.list.d/x.{form}", text.encode("latin-1"), folder)


STANZA = "Types: deb\nURIs: http://h/\nSuites: s\nComponents: main\n"
HIDDEN = "is not read here"
UNSIGNED = "without a signature"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("deb file:/etc x main", "no web address"),
        ("deb copy:/x x main", "no web address"),
        ("deb mirror+file:/x x main", "no web address"),
        ("deb HTTP+file:/x x main", "no web address"),
        ("Types: deb\nURIs: ssh://root@h/", "no web address"),
        ("Types: deb\nURIs: http://h/\n file:/x", "no web address"),
        ("types: deb\nuris:\n http://h/\n\tfile:/x\nsuites: s", "no web address"),
        ("deb cdrom:[x]/ x main", HIDDEN),
        ("deb [trusted=yes] http://h/ x main", UNSIGNED),
        ("deb [trusted=1] http://h/ x main", UNSIGNED),
        ("deb [allow-weak=true] http://h/ x main", UNSIGNED),
        ("deb [arch=amd64 allow-insecure=on] http://h/ x main", UNSIGNED),
        *(
            (f"{STANZA}{field}: {value}", UNSIGNED)
            for field in ("Trusted", "trusted", "TRUSTED", "Allow-Insecure", "ALLOW-Weak")
            for value in ("yes", "Yes", "on", "2", "\n yes", "")
        ),
        (f"{STANZA}Allow-Downgrade-To-Insecure: enable", UNSIGNED),
        # Quotes and escapes, which apt takes off.
        ('deb [trusted="yes"] "copy:/..." ./', HIDDEN),
        ("deb [%74rusted=yes] %66ile:/srv/x ./", HIDDEN),
        ('deb ["trusted=yes"] http://h/ ./', HIDDEN),
        ("deb [trusted=y%65s] http://h/ ./", UNSIGNED),
        ('deb "file:/x" ./', HIDDEN),
        ("deb %66ile:/x ./", HIDDEN),
        ("deb fi%6ce:/x ./", HIDDEN),
        ("deb [arch=amd64 [x] trusted=yes] http://h/ ./", HIDDEN),
        ("deb [arch=amd64#] http://h/ ./", HIDDEN),
        ("deb [Trusted=yes] http://h/ ./", HIDDEN),
        ("deb [trusted+=yes] http://h/ ./", HIDDEN),
        ("deb [trusted] http://h/ ./", HIDDEN),
        ("deb [arch=amd64 arch=i386] http://h/ ./", HIDDEN),
        ("deb [uris=file:/x] http://h/ ./", HIDDEN),
        ("deb [enabled=no] http://h/ ./", HIDDEN),
        ("rpm http://h/ ./", HIDDEN),
        ("deb http://h/ $(ARCH)/", HIDDEN),
        ("deb http://h/\x85file:/x ./", HIDDEN),
        ("deb http://h/\x0bfile:/x ./", HIDDEN),
        ("deb http://h/ ./\0", HIDDEN),
        (f"{STANZA}Trusted: no\ntrusted: yes", HIDDEN),
        (f"{STANZA}Snapshot: 20250101", HIDDEN),
        (f"{STANZA}Enabled: maybe", HIDDEN),
        (f"{STANZA}Trusted : yes", HIDDEN),
        (f"\xef\xbb\xbf{STANZA}", HIDDEN),
        ("Types: deb rpm\nURIs: http://h/\nSuites: ./", HIDDEN),
        # Keys of this machine, and of nobody.
        ("deb [signed-by=/root/x.gpg] http://h/ ./", HIDDEN),
        ("deb [signed-by=/usr/share/keyrings/../../../root/x.gpg] http://h/ ./", HIDDEN),
        ("deb [signed-by=x.gpg] http://h/ ./", HIDDEN),
        (f"{STANZA}Signed-By:", HIDDEN),
        (f"{STANZA}Signed-By: /etc/apt/keyrings/a.gpg\n /root/x.gpg", HIDDEN),
    ],
)
def test_sources_of_the_base_reach_nothing_of_this_machine(text: str, why: str) -> None:
    with pytest.raises(UndecidedError) as error:
        checked(text)
    assert why in error.value.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "deb [signed-by=/usr/share/keyrings/x.gpg] http://h/debian s main\n",
            "signed-by: /F/usr/share/keyrings/x.gpg\n",
        ),
        (
            "deb [ signed-by=/etc/apt/keyrings/a.asc,0123456789ABCDEF! arch=a,b ] http://h/ /",
            "signed-by: /F/etc/apt/keyrings/a.asc 0123456789ABCDEF!\narchitectures: a b\n",
        ),
        (
            f"{STANZA}Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mDME=\n"
            " -----END PGP PUBLIC KEY BLOCK-----\n",
            "signed-by: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mDME=\n"
            " -----END PGP PUBLIC KEY BLOCK-----\n\n",
        ),
        (f"{STANZA}Enabled: no\nTrusted: yes\n", ""),
        ("deb-src http://h/ s main\n", ""),
        (f"# Trusted: yes\nX-Repolib-Name: a%20b\n{STANZA}# file:/x\nTrusted: no", "types: deb\n"),
    ],
)
def test_apt_is_given_what_was_read_of_a_list(text: str, expected: str) -> None:
    written = checked(text)
    assert expected in written if expected else not written.strip()
    assert not re.search("trusted|%", written, re.I)


class Apt:
    """apt itself, in a root of its own, reading one list."""

    def __init__(self, folder: Path) -> None:
        self._lists = folder / "etc/apt/sources.list.d"
        for name in ("etc/apt/apt.conf.d", "state/lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        self._lists.mkdir()
        (folder / "status").touch()
        settings = {"State": "state", "State::status": "status", "Cache": "cache", "Etc": "etc/apt"}
        (folder / "apt.conf").write_text(
            "".join(f'Dir::{key} "{folder / value}";\n' for key, value in settings.items())
            + 'APT::Architecture "amd64"; APT::Architectures "amd64"; Acquire::Languages "none";'
        )
        self._environment = {"APT_CONFIG": str(folder / "apt.conf"), "PATH": os.environ["PATH"]}

    def targets(self, text: str, form: str) -> set[str] | None:
        """What it would fetch; None for a list that it refuses."""
        path = self._lists / f"x.{form}"
        path.write_bytes(text.encode("latin-1"))
        ask = ["apt-get", "indextargets", "--no-release-info", "Created-By: Packages"]
        kept = "$(REPO_URI) $(RELEASE) $(COMPONENT) $(ARCHITECTURE)"
        done = subprocess.run(
            [*ask, f"--format={kept}"], env=self._environment, capture_output=True, text=True
        )
        path.unlink()
        # Of a folder without components, apt leaves the names of both fields.
        lines = (line.partition(" $(COMP")[0] for line in done.stdout.splitlines())
        return None if done.returncode else set(lines)


WITNESSES = {
    'deb [trusted="yes"] "copy:/var/x" ./': {"copy:/var/x/ ./"},
    "deb [%74rusted=yes] %66ile:/srv/x ./": {"file:/srv/x/ ./"},
}


def test_apt_reads_a_list_as_we_wrote_it_anew(tmp_path: Path) -> None:
    """Lists of words that mean something to apt, in all orders: what we take it takes alike."""
    oracle = Apt(tmp_path)
    for text, fetched in WITNESSES.items():
        assert oracle.targets(text, "list") == fetched
    chance = random.Random(26)
    line_words = (
        "deb", "deb", "deb", "deb-src", "[", "]", "[arch=amd64]", "[ arch=amd64 ]", "[trusted=no]",
        "[arch=amd64,i386 by-hash=no]", "http://h/a", "https://g/$(ARCH)", "http://h", "s", "s/u",
        "./", "main", "a b", "#", "#x", '"', "%66", "\t", "\r", "x", "[]", "lang=none]",
    )  # fmt: skip
    stanza_lines = (
        "Types: deb", "types: deb", "Types: deb deb-src", "URIs: http://h/a", "URIs:", " http://g/",
        "\thttps://i", "Suites: s t", "suites: ./", "Components: main", " contrib", "# c", "",
        "Enabled: yes", "Enabled: no", "Architectures: amd64 i386", "X-A: %", "Trusted: no", " .",
        "URIS : http://j", "Suites:s", "Components: a\r", "PDiffs: no", "Targets: Packages",
    )  # fmt: skip
    compared = 0
    for number in range(700):
        if number % 2:
            start = chance.choice(("deb", "deb [arch=amd64]", "deb [ by-hash=no ]"))
            words = chance.choices(line_words, k=chance.randrange(2, 5))
            text, form = " ".join((start, *words)), "list"
        else:
            lines = [*STANZA.splitlines(), *chance.choices(stanza_lines, k=3)]
            chance.shuffle(lines)
            text, form = "\n".join(lines) + "\n", "sources"
        try:
            written = apt._check_sources(f"x.{form}", text.encode(), Path("/F"))
        except UndecidedError:
            continue
        theirs = oracle.targets(text, form)
        if theirs is not None:
            compared += bool(theirs)
            assert oracle.targets(written, "sources") == theirs, text
    assert compared > 10


def test_settings_of_dpkg_count_in_its_order(tmp_path: Path) -> None:
    base = make_base(
        tmp_path / "base",
        [
            file("etc/dpkg/dpkg.cfg", "path-include=/a\n"),
            file("etc/dpkg/dpkg.cfg.d/docker", "path-exclude /a\n"),
            file("etc/dpkg/dpkg.cfg.d/docker.dpkg-old", "path-exclude=/b\n"),
        ],
    )
    store = notes_store(Cache(None))
    files = BaseFiles([read_layer(base.layout, layer, store) for layer in base.manifest.layers])
    assert list(debian._read_filters(files)) == [("/a", True), ("/a", False)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("diversions", "/usr/bin/tool\n/usr/bin/tool.real\nother\n"),
        ("statoverride", "root video 4755 /usr/bin/tool\n"),
    ],
)
def test_what_the_administrator_of_a_base_changed_is_not_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    deb = make_deb(tmp_path, "tool", {"usr/bin/tool": "x"})
    base = [*DPKG, file(f"var/lib/dpkg/{name}", text)]
    with pytest.raises(UndecidedError, match="dpkg-divert"):
        unpacked(tmp_path, monkeypatch, [deb], base=base)


@pytest.mark.parametrize("path", ["usr/share/x", "usr/share/x/below"])
def test_two_packages_with_one_path_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    debs = [
        make_deb(tmp_path, "tool", {"usr/share/x": "1"}),
        make_deb(tmp_path, "zool", {path: "2"}),
    ]
    with pytest.raises(UndecidedError, match=r"another package bring|in one package"):
        unpacked(tmp_path, monkeypatch, debs)


def test_a_package_deletes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what the base has: dpkg unpacks these files, and a layer takes them for whiteouts."""
    for number, path in enumerate(("usr/.wh.bin", "etc/.wh..wh..opq", "usr/.wh.lib/x")):
        deb = make_deb(tmp_path / str(number), "tool", {path: "1"})
        with pytest.raises(UndecidedError, match=r"tool holds .*\.wh\..* which no image can have"):
            unpacked(tmp_path / str(number), monkeypatch, [deb])


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([("a", tarfile.REGTYPE, ""), ("./a", tarfile.REGTYPE, "")], "brings /a twice"),
        ([("a", tarfile.SYMTYPE, "/etc"), ("a", tarfile.DIRTYPE, "")], "brings /a twice"),
        ([("a", tarfile.LNKTYPE, "etc/shadow")], "/a is a link to what no file before it is"),
        ([("a", tarfile.LNKTYPE, "../x")], "/a is a link to what no file before it is"),
        ([("a", tarfile.LNKTYPE, "a")], "/a is a link to what no file before it is"),
        ([("../a", tarfile.REGTYPE, "")], "'../a', which no image can have"),
        ([("a", tarfile.CHRTYPE, "")], "'a', which no image can have"),
    ],
)
def test_names_in_a_package_are_what_they_say(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entries: Sequence[tuple[str, bytes, str]],
    why: str,
) -> None:
    deb = make_deb(tmp_path, "tool", {"usr/share/tool": "1"})
    opened = DebianPackages._open_tar

    def data(packages: DebianPackages, folder: Path, command: Sequence[str], most: int) -> Slice:
        if "--fsys-tarfile" not in command:
            return opened(packages, folder, command, most)
        with tarfile.open(tmp_path / "data.tar", "w") as archive:
            for name, kind, target in entries:
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, target
                archive.addfile(info)
        return opened(packages, folder, ["cat", str(tmp_path / "data.tar")], most)

    monkeypatch.setattr(DebianPackages, "_open_tar", data)
    with pytest.raises(UndecidedError) as error:
        unpacked(tmp_path, monkeypatch, [deb])
    assert why in error.value.message


def test_a_machine_without_apt_says_so_before_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, SPEC + 'system-packages = ["libze1"]\n')
    (target,) = world.spec.targets
    assert recipe(world.spec, target, world.lock()).problems == ()
    monkeypatch.setattr(shutil, "which", lambda _: None)
    (problem,) = recipe(world.spec, target, world.lock()).problems
    assert "libze1" in problem.message and "no apt-get" in problem.message and problem.line


def test_a_target_with_packages_is_built_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, SPEC + 'system-packages = ["tool"]\n')
    world.base = make_base(tmp_path / "debian", DPKG)
    asked: list[int] = []

    def fetched(*_: object) -> tuple[set[str], list[Path]]:
        asked.append(1)
        return {"tool"}, [make_deb(tmp_path, "tool", {"srv/tool/x": "x"})]

    monkeypatch.setattr(apt, "fetch_packages", fetched)
    images = []
    for _ in range(2):
        with world.store() as store:
            image = contents.assemble(
                world.spec, world.spec.targets[0], world.lock(), world.base, store, Silent()
            )
            layer = image.layers[origins(image).index("tool")]
            assert "srv/tool/x" in files_of(store.layout, layer.descriptor)
        images.append(image.descriptor)
    assert images[0] == images[1] and asked == [1]


def test_a_package_that_must_not_be_unpacked_fails_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, SPEC + 'system-packages = ["tool"]\n')
    world.base = make_base(tmp_path / "debian", DPKG)
    deb = make_deb(tmp_path, "tool", {"a": ""}, {"postinst": "#!/bin/sh\nadduser x\n"})
    monkeypatch.setattr(apt, "fetch_packages", lambda *_: ({"tool"}, [deb]))
    with world.store() as store, pytest.raises(SpecError, match="the package tool runs a script"):
        contents.assemble(
            world.spec, world.spec.targets[0], world.lock(), world.base, store, Silent()
        )
