"""Says at once, and not after a launch, what the harness misses on a host: `python3 -m scripts.gpu.check`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement

IMPORTED = ("tuning.cli.search", "tuning.search", "tuning.report", "harness.lab", "harness.trial", "scenarios")


def main() -> None:
    """Exit with what is missing or too old; say nothing of it when all is well."""
    if missing := list(lacks()):
        sys.exit(f"this host lacks for the harness: {'; '.join(missing)}. Take them off HOST_HAS in pack.py")
    for name in IMPORTED:
        importlib.import_module(name)
    # Last, because it replaces the blocking calls of the standard library.
    importlib.import_module("harness.load.process")
    sys.stdout.write(f"harness: all packages are there, for Python {sys.version.split()[0]}\n")


def lacks() -> Iterator[str]:
    """Yield each requirement of the project that the host does not meet."""
    for text in metadata.requires("hicache-tune") or ():
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield f"{requirement} (absent)"
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            yield f"{requirement} (has {found})"


if __name__ == "__main__":
    main()
