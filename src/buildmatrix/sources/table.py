"""The kinds of SOURCE: a new one is a module with a class, and a line here."""

from __future__ import annotations

from buildmatrix.sources.archive import ImageArchive, ImageLayout
from buildmatrix.sources.binary import SingleBinary
from buildmatrix.sources.directory import Directory
from buildmatrix.sources.docker import DockerImage
from buildmatrix.sources.lock_file import LockSource
from buildmatrix.sources.model import Source
from buildmatrix.sources.project_file import ProjectFile
from buildmatrix.sources.pypi import PackageRequirement
from buildmatrix.sources.registry import NamedImage, RegistryImage
from buildmatrix.sources.report import SavedReport
from buildmatrix.sources.requirements_file import RequirementsFile
from buildmatrix.sources.target import BuiltTarget
from buildmatrix.sources.wheel import WheelFile

#: In the order in which they are tried: what has no prefix is the first that recognizes itself.
SOURCES: tuple[type[Source], ...] = (
    Directory,
    WheelFile,
    ImageArchive,
    ImageLayout,
    RequirementsFile,
    ProjectFile,
    LockSource,
    PackageRequirement,
    SavedReport,
    SingleBinary,
    BuiltTarget,
    DockerImage,
    RegistryImage,
    # Anything may be the name of an image.
    NamedImage,
)
