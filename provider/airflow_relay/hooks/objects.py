"""Large results as objects under one configured folder."""

from __future__ import annotations

import os
from typing import Any, Final

from airflow.sdk.configuration import conf

RESULTS_SECTION: Final = "relay"
RESULTS_OPTION: Final = "results_path"


class ObjectFolder:
    """An object store on Airflow's ObjectStoragePath.

    :param base: a path or URL such as ``s3://conn@bucket/relay``; nothing outside it is read or written.
    """

    def __init__(self, base: str) -> None:
        self.base = base

    def write(self, name: str, data: bytes) -> str:
        """Store ``data`` under ``name`` and return the name, which is the reference."""
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return name

    def read(self, ref: str) -> bytes:
        """Return what :meth:`write` stored.

        :raises ValueError: the reference leads out of the folder.
        """
        return bytes(self._path(ref).read_bytes())

    def delete(self, ref: str) -> None:
        """Remove what :meth:`write` stored; that it is gone already is fine."""
        self._path(ref).unlink(missing_ok=True)

    def _path(self, name: str) -> Any:
        from airflow.sdk import ObjectStoragePath  # noqa: PLC0415 - only large results need it

        parts = name.split("/")
        if name.startswith("/") or any(p in ("", ".", "..") for p in parts):
            raise ValueError(f"{name!r} leads out of the results folder {self.base}.")
        return ObjectStoragePath(self.base).joinpath(*parts)


def results_folder() -> ObjectFolder:
    """The folder of ``[relay] results_path``; by default ``$AIRFLOW_HOME/relay/results``."""
    default = "file://" + os.path.join(airflow_home(), "relay", "results")  # noqa: PTH118 - a URL, not a path
    return ObjectFolder(conf.get(RESULTS_SECTION, RESULTS_OPTION, fallback=default) or default)


def airflow_home() -> str:
    """Airflow's home folder, as Airflow itself finds it."""
    return os.path.expanduser(os.environ.get("AIRFLOW_HOME", "~/airflow"))  # noqa: PTH111 - as Airflow does
