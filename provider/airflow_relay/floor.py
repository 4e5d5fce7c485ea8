"""The oldest Airflow that Relay works with. Importing this module refuses an older one, with the cure.

Every package that needs Airflow imports it first: on an older Airflow the next import would fail with a name
that says nothing, or a run would be triggered without its delay, and nobody would be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from packaging.version import Version

OLDEST: Final[Mapping[str, str]] = {
    "apache-airflow-core": "3.3",
    "apache-airflow-providers-standard": "1.16",
}


class TooOldError(ImportError):
    """Airflow, or a provider that Relay builds on, is older than what Relay needs, or missing."""


def check() -> None:
    """Compare what is installed with what is needed.

    :raises TooOldError: names each package, its version and the one that is needed.
    """
    wrong = [
        f"{name} is {found or 'not installed'}, at least {oldest} is needed"
        for name, oldest in OLDEST.items()
        if (found := _installed(name)) is None or Version(found).release < Version(oldest).release
    ]
    if wrong:
        names = " ".join(f"'{name}>={oldest}'" for name, oldest in OLDEST.items())
        raise TooOldError(
            f"airflow-provider-relay does not work here: {'; '.join(wrong)}. Upgrade: pip install {names}"
        )


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


check()
