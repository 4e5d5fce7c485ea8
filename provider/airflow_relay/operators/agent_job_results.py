"""What an agent job gives to the tasks behind it: small things by XCom, large ones by reference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_relay.hooks.ledger import get_ledger
from airflow_relay.hooks.objects import results_folder
from airflow_relay.ledger.errors import LedgerError
from airflow_relay.ledger.jobs import Job
from airflow_relay.ledger.results import ObjectStore


def returned(job: Job) -> dict[str, Any]:
    """The operator's return value for a finished job.

    ``{"text", "data", "usage", "job": {"id", "key", "generation", "protocol"}}``, with ``"artifacts"`` where
    there are some. Of a result above 64 KB ``text`` and ``data`` are ``None``, and ``job`` has a
    ``"result_ref"``: see :func:`full_result`.
    """
    about: dict[str, Any] = {
        "id": job.ref.get("id") if job.ref else None,
        "key": job.key,
        "generation": job.generation,
        "protocol": job.protocol,
    }
    if job.result_ref is None:
        return {**job.result, "job": about}
    usage = {"input_tokens": job.input_tokens, "output_tokens": job.output_tokens}
    return {"text": None, "data": None, "usage": usage, "job": {**about, "result_ref": job.result_ref}}


def full_result(value: Mapping[str, Any], objects: ObjectStore | None = None) -> dict[str, Any]:
    """An operator's return value with everything in it, fetched from the object store where it is large.

    :param value: what an ``AgentJobOperator`` returned.
    :param objects: by default the deployment's.
    """
    ref = value["job"].get("result_ref")
    if ref is None:
        return dict(value)
    store = objects or _objects()
    return {**json.loads(store.read(ref)), "job": dict(value["job"])}


def _objects() -> ObjectStore:
    try:
        return get_ledger().objects
    except LedgerError:
        return results_folder()
