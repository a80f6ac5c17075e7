"""How the C libraries of a tree were configured: their default folders."""

from __future__ import annotations

from collections.abc import Mapping

from buildmatrix.inventory.paths import LinkedPaths
from buildmatrix.loader.names import LibraryNames
from buildmatrix.loader.process import Abi, SystemFolders, file_name, folder_of

#: Debian's name of a machine in library folders (multiarch tuples).
_MULTIARCH = {
    "x86_64": "x86_64-linux-gnu",
    "386": "i386-linux-gnu",
    "aarch64": "aarch64-linux-gnu",
    "arm": "arm-linux-gnueabihf",
    "ppc64": "powerpc64le-linux-gnu",
    "riscv": "riscv64-linux-gnu",
    "s390": "s390x-linux-gnu",
}
_LIBC = "libc.so.6"
_MUSL = "ld-musl-"
_MUSL_DEFAULT = ("/lib", "/usr/local/lib", "/usr/lib")


class SystemLayouts:
    """The layout of a tree's C library for each ABI; `musl_folders` as in `Inventory`."""

    def __init__(
        self,
        names: LibraryNames,
        paths: LinkedPaths,
        musl_folders: Mapping[str, tuple[str, ...]],
    ) -> None:
        self._names = names
        self._paths = paths
        self._musl_folders = musl_folders
        self._layouts: dict[Abi, SystemFolders] = {}
        #: Whether the tree holds a C library.
        self.is_root = any(name == _LIBC or name.startswith(_MUSL) for name in names)

    def of(self, abi: Abi, interpreter: str | None) -> SystemFolders:
        """The layout of the tree's own C library, whose folder is one of the default folders."""
        if abi not in self._layouts:
            self._layouts[abi] = self._find(abi)
        layout = self._layouts[abi]
        if interpreter is None or (layout.musl is not None) == (_MUSL in interpreter):
            return layout
        if _MUSL in interpreter:
            return self._of_musl(self._paths.file(interpreter) or interpreter.lstrip("/"))
        return layout

    def _of_musl(self, loader: str) -> SystemFolders:
        architecture = file_name(loader).removeprefix(_MUSL).partition(".")[0]
        folders = self._musl_folders.get(architecture, _MUSL_DEFAULT)
        return SystemFolders(folders, "lib", loader)

    def _find(self, abi: Abi) -> SystemFolders:
        libraries = self._names.of_abi(_LIBC, abi)
        if not libraries:
            for name in sorted(self._names):
                if name.startswith(_MUSL) and self._names.of_abi(name, abi):
                    return self._of_musl(self._names.of_abi(name, abi)[0])
        multiarch = f"lib/{_MULTIARCH.get(abi.machine, abi.machine + '-linux-gnu')}"
        wide = "lib64" if abi.bits == 64 else "lib32"
        layouts = (
            SystemFolders((f"/{multiarch}", f"/usr/{multiarch}", "/lib", "/usr/lib"), multiarch),
            SystemFolders((f"/{wide}", f"/usr/{wide}"), wide),
            SystemFolders(("/lib", "/usr/lib"), "lib"),
        )
        home = {folder_of(path) for path in libraries}
        for layout in layouts:
            # Debian's multiarch folders come first in its list and are decisive.
            if home & {self._paths.folder(folder) for folder in layout.folders[:2]}:
                return layout
        everything = dict.fromkeys(folder for layout in layouts for folder in layout.folders)
        return SystemFolders(tuple(everything), "lib")
