"""Names that are derived from items: run ids, DAG ids, slugs. Different inputs never share a name."""

from __future__ import annotations

import hashlib
import re
from typing import Final

NAME_PATTERN: Final = re.compile(r"^[A-Za-z][A-Za-z0-9_\-]{0,63}\Z")
"""Pipeline and stage names. ``__`` is refused as well: it separates the two in DAG ids."""

RUN_ID_PREFIX: Final = "relay"
MAX_RUN_ID: Final = 250  # the width of Airflow's dag_run.run_id column
MAX_KEY: Final = 200

# Airflow's default `[scheduler] allowed_run_id_pattern` allows these and refuses "..".
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.~-]+")
_SLUG_LENGTH: Final = 80
_DIGEST_LENGTH: Final = 12


def slug(key: str) -> str:
    """Return a name for ``key`` that is safe in run ids, URLs and file names (at most 93 characters).

    A key that is safe and short stays readable as it is; anything that had to be changed carries a hash of
    the whole key, so two different keys never share a slug. A safe key that happens to look like a hashed
    one is hashed as well.
    """
    safe = _UNSAFE.sub("-", key).strip(".-")
    while ".." in safe:
        safe = safe.replace("..", ".")
    if safe == key and len(safe) <= _SLUG_LENGTH and "~" not in safe:
        return safe
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{safe.replace('~', '-')[:_SLUG_LENGTH].strip('.-')}~{digest}"


def dag_id(pipeline: str, stage: str) -> str:
    """The DAG of a stage."""
    return f"{pipeline}__{stage}"


def fallback_dag_id(pipeline: str, stage: str) -> str:
    """The paused DAG that serves a stage on its old schedule."""
    return f"relay__fallback__{pipeline}__{stage}"


def run_id(pipeline: str, stage: str, key: str, epoch: int) -> str:
    """The run id of a grant; unique to pipeline + stage + item + epoch, at most 250 characters."""
    return f"{RUN_ID_PREFIX}:{pipeline}:{stage}:{slug(key)}:{epoch}"
