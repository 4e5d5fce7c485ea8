"""Writing published files: whole or not at all, only under the output folder, one publisher at a time."""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOCK = ".lock"
_TEMPORARY = (".writing-", ".tmp")


class OutputError(OSError):
    """A file that must not be written where it would end up."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's advisory lock; waits for other publishers, ends with the process that holds it.

    Creates the folder. Raises `OutputError` when its place is taken by a file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise OutputError(f"{folder} is a file; the output folder must be a folder") from error
    with (folder / _LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _remove_left_overs(folder)
        yield


def write_atomically(root: Path, relative: str, text: str) -> Path:
    """Write a text file under ``root``; readers see the old content or the new, never a part.

    Call it under `locked`. Raises `OutputError` for a path that leaves ``root``, also by a symbolic link.
    """
    target = root / relative
    parent = target.parent
    if ".." in Path(relative).parts or not parent.resolve().is_relative_to(root.resolve()):
        raise OutputError(f"{target} is outside of the output folder {root}; nothing was written")
    parent.mkdir(parents=True, exist_ok=True)
    prefix, suffix = _TEMPORARY
    descriptor, temporary = tempfile.mkstemp(prefix=prefix, suffix=suffix, dir=parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fchmod(stream.fileno(), 0o644)  # a web server under another user reads it
            os.fsync(stream.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target


def _remove_left_overs(folder: Path) -> None:
    """Remove a killed publisher's temporary files: only who holds the lock writes, so none is in use."""
    prefix, suffix = _TEMPORARY
    for left_over in folder.rglob(f"{prefix}*{suffix}"):
        left_over.unlink(missing_ok=True)
