"""Where the files of the installed Airflow packages are, and how a citation names them.

A citation's path is ``<distribution>/<path in the package>``, for example
``apache-airflow-core/airflow/config_templates/config.yml``: the same on every machine with that version.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path, PurePosixPath

_PREFIX = "apache-airflow"
_ROOT = "airflow"
# Copies of other projects, generated clients, and examples say nothing about running Airflow.
_SKIPPED_PARTS = frozenset({"_vendor", "example_dags", "migrations", "tests", "ui", "www"})


class UnknownDocumentError(LookupError):
    """A cited path that is no file of an installed Airflow package."""


@dataclass(frozen=True)
class Document:
    """One file that can be cited."""

    path: str
    """The path as a citation shows it."""
    file: Path
    """Where the file is on this machine."""


def installed_version(name: str) -> str:
    """The installed version of a distribution. Raises `UnknownDocumentError` when it is not installed."""
    return _distribution(name).version


def documents(suffixes: tuple[str, ...]) -> Iterator[Document]:
    """Every file of the installed Airflow packages with one of these endings, sorted by path."""
    for package in _airflow_distributions():
        name = package.metadata["Name"]
        for entry in sorted(package.files or (), key=str):
            inside = PurePosixPath(entry)
            if inside.suffix not in suffixes or inside.parts[0] != _ROOT:
                continue
            if _SKIPPED_PARTS.isdisjoint(inside.parts):
                yield Document(path=f"{name}/{inside}", file=Path(str(package.locate_file(entry))))


def locate(path: str) -> Path:
    """The file behind a citation's path.

    Raises `UnknownDocumentError` for a package that is not installed or not Airflow's, for a path that leaves
    the package, and for a file that is not there.
    """
    name, _, inside = path.partition("/")
    parts = PurePosixPath(inside).parts
    if not name.startswith(_PREFIX) or not parts or parts[0] != _ROOT or ".." in parts:
        raise UnknownDocumentError(f"{path!r} is no path inside an Airflow package (<package>/airflow/…)")
    file = Path(str(_distribution(name).locate_file(inside)))
    if not file.is_file():
        raise UnknownDocumentError(f"{name} {_distribution(name).version} has no file {inside!r}")
    return file


@lru_cache(maxsize=64)
def _distribution(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError as error:
        raise UnknownDocumentError(f"the package {name!r} is not installed") from error


def _airflow_distributions() -> list[Distribution]:
    found = {d.metadata["Name"]: d for d in distributions() if (d.metadata["Name"] or "").startswith(_PREFIX)}
    return [found[name] for name in sorted(found)]
