"""Pipelines as last declared by their DAG files."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Final

from sqlalchemy import bindparam, insert, select, update

from airflow_relay.core.pipeline import Pipeline
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.errors import UnknownPipelineError
from airflow_relay.ledger.schema import pipelines
from airflow_relay.ledger.types import dump


def digest_of(pipeline: Pipeline) -> str:
    """The same declaration has the same digest in every process."""
    return hashlib.sha256(dump(pipeline.to_json()).encode()).hexdigest()


def is_current(tx: Tx, pipeline: Pipeline) -> bool:
    """Whether the ledger has this very declaration."""
    known = tx.conn.execute(_DIGEST, {"of_name": pipeline.name}).scalar()
    if known != digest_of(pipeline):
        return False
    _read.setdefault(known, pipeline)
    return True


def declare(tx: Tx, pipeline: Pipeline, now: datetime) -> None:
    """Write the declaration when it differs from the one in the ledger."""
    if is_current(tx, pipeline):
        return
    row = {"digest": digest_of(pipeline), "definition": pipeline.to_json(), "declared_at": now}
    changed = tx.conn.execute(update(pipelines).where(pipelines.c.name == pipeline.name).values(**row))
    if not changed.rowcount:
        tx.conn.execute(insert(pipelines).values(name=pipeline.name, **row))


def load(tx: Tx, name: str) -> Pipeline:
    """The pipeline's declaration.

    :raises UnknownPipelineError: none of this name was ever declared.
    """
    digest = tx.conn.execute(_DIGEST, {"of_name": name}).scalar()
    if digest is None:
        known = ", ".join(load_all(tx)) or "none"
        raise UnknownPipelineError(f"No pipeline {name!r} is declared. Declared: {known}.")
    return _read.get(digest) or load_all(tx)[name]


def load_all(tx: Tx) -> dict[str, Pipeline]:
    """Every declared pipeline by name."""
    digests = {
        row.name: row.digest
        for row in tx.conn.execute(select(pipelines.c.name, pipelines.c.digest).order_by(pipelines.c.name))
    }
    return by_digest(tx, digests)


def by_digest(tx: Tx, digests: dict[str, str]) -> dict[str, Pipeline]:
    """Pipeline name → declaration, from name → digest as this transaction has found them.

    Each dispatch asks for them, so a process reads and checks a declaration only once.
    """
    unknown = [name for name, digest in digests.items() if digest not in _read]
    if unknown:
        query = select(pipelines).where(pipelines.c.name.in_(unknown))
        for row in tx.conn.execute(query).all():
            digests[row.name] = row.digest
            _read[row.digest] = Pipeline.from_json(row.definition)
    for stale in _read.keys() - digests.values():
        _read.pop(stale, None)
    return {name: _read[digest] for name, digest in digests.items()}


_DIGEST: Final = select(pipelines.c.digest).where(pipelines.c.name == bindparam("of_name"))

_read: Final[dict[str, Pipeline]] = {}
"""Digest → declaration, of the ledger that this process has read last."""
