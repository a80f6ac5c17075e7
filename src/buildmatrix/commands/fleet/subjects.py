"""Images of a fleet from registries, files and clusters, without duplicates.

registry:HOST/PREFIX/*     images of a registry         `catalog`
file:images.txt            a list of references         `reference_list`
pods:pods.json             images run by a cluster      `pods`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.commands.fleet import catalog, pods, reference_list
from buildmatrix.commands.fleet.listing import (
    SubjectList,
    SubjectSettings,
    is_excluded,
    merge_subjects,
)
from buildmatrix.commands.fleet.registry_lists import RegistryLists
from buildmatrix.errors import UsageError
from buildmatrix.phrases import count
from buildmatrix.progress import Progress, Silent
from buildmatrix.registry.client import Registry

#: Images of one run; a large company's daily scan has 100,000.
MOST_SUBJECTS = 500_000


@dataclass(frozen=True, slots=True)
class Lister:
    """Inputs of lists; the registry is opened when it is first needed."""

    settings: SubjectSettings
    catalogue: Catalogue
    registry: Callable[[], Registry]
    progress: Progress = field(default_factory=Silent)

    def find(self, sources: Sequence[str]) -> SubjectList:
        """List the images of `sources`, merged and sorted by name.

        Raises `UsageError` for invalid sources and for mistakes in files; failures of a registry
        are in `missing`.
        """
        if not sources:
            raise UsageError(
                "name what is in the fleet: registry:HOST/PREFIX/*, file:NAME, pods:NAME"
            )
        if sum(_is_stdin(source) for source in sources) + self.settings.nodes.count("-") > 1:
            raise UsageError("standard input can be one list only")
        lists = RegistryLists(self.registry, self.progress)
        return self._merge([self._read(source, lists) for source in sources])

    def _read(self, source: str, lists: RegistryLists) -> SubjectList:
        kind, separator, name = source.partition(":")
        if separator and kind == "registry":
            return catalog.read_registry(name, self.settings, lists, self.progress)
        if separator and kind == "pods":
            return pods.read_pods(name, self.settings, self.catalogue)
        if separator and kind == "file":
            return reference_list.read_references(name, self.settings)
        if source == "-" or Path(source).is_file():
            return reference_list.read_references(source, self.settings)
        raise UsageError(
            f"there is no file {source}; a fleet is registry:HOST/PREFIX/*, a file of references "
            "(file:NAME, - for standard input), or pods:NAME of `kubectl get pods -A -o json`"
        )

    def _merge(self, lists: Sequence[SubjectList]) -> SubjectList:
        subjects = [subject for item in lists for subject in item.subjects]
        kept = [subject for subject in subjects if not is_excluded(subject, self.settings.exclude)]
        notes = list(dict.fromkeys(note for item in lists for note in item.notes))
        missing = list(dict.fromkeys(text for item in lists for text in item.missing))
        if left_out := len(subjects) - len(kept):
            notes.append(f"{count(left_out, 'reference')} left out by --exclude")
        merged = merge_subjects(kept)
        if (rest := len(merged) - MOST_SUBJECTS) > 0:
            missing.append(f"{rest:,} images were left out: a run takes {MOST_SUBJECTS:,}")
        classes = {item.name: item for item in self.settings.node_classes}
        classes |= {item.name: item for part in lists for item in part.node_classes}
        return SubjectList(
            subjects=merged[:MOST_SUBJECTS],
            missing=tuple(missing),
            notes=tuple(notes),
            node_classes=tuple(classes.values()),
        )


def _is_stdin(source: str) -> bool:
    return source in ("-", "file:-", "pods:-")
