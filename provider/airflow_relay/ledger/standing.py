"""What a dispatch decision stands on beside the items: one statement, since the dispatcher's lock is held."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import String, Text, cast, literal, null, select, type_coerce, union_all
from sqlalchemy.sql.elements import ColumnElement

from airflow_relay.core.breaker import Breaker
from airflow_relay.core.limits import AdaptiveState
from airflow_relay.core.pipeline import Pipeline
from airflow_relay.core.snapshot import StageKey
from airflow_relay.core.states import PriorityClass
from airflow_relay.ledger import declarations
from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.schema import adaptive_limits, breakers, pipelines, runs, slots


@dataclass(frozen=True)
class Standing:
    """Declarations, what runs hold, and what the dispatcher has learned.

    :param held: of each run that holds slots its keys, ``airflow.runs`` included, and its class.
    :param breakers: of the stages that have ever had a failure.
    """

    declared: Mapping[str, Pipeline]
    held: list[tuple[tuple[str, ...], PriorityClass]]
    breakers: Mapping[StageKey, Breaker]
    adaptive: Mapping[str, AdaptiveState]


def load(tx: Tx) -> Standing:
    """Read it all, as it is in this transaction."""
    digests: dict[str, str] = {}
    keys: dict[str, list[str]] = {}
    classes: dict[str, PriorityClass] = {}
    found: dict[StageKey, Breaker] = {}
    adaptive: dict[str, AdaptiveState] = {}
    for what, first, second, third in tx.conn.execute(_ALL):
        if what == _SLOT:
            if first not in keys:
                keys[first] = []
                classes[first] = PriorityClass(third)
            keys[first].append(second)
        elif what == _PIPELINE:
            digests[first] = second
        elif what == _BREAKER:
            found[first, second] = Breaker.from_json(json.loads(third))
        else:
            adaptive[first] = AdaptiveState.from_json(json.loads(third))
    return Standing(
        declared=declarations.by_digest(tx, digests),
        held=[(tuple(held), classes[run]) for run, held in keys.items()],
        breakers=found,
        adaptive=adaptive,
    )


_SLOT: Final = "slot"
_PIPELINE: Final = "pipeline"
_BREAKER: Final = "breaker"
_ADAPTIVE: Final = "adaptive"


def _part(what: str, *columns: ColumnElement[Any]) -> Any:
    raw = [type_coerce(c, Text) for c in columns]
    return select(literal(what, literal_execute=True), *raw, *[cast(null(), Text)] * (3 - len(raw)))


_ALL: Final = union_all(
    _part(_SLOT, cast(slots.c.run, String), slots.c.key, runs.c.klass).join_from(
        slots, runs, runs.c.id == slots.c.run
    ),
    _part(_PIPELINE, pipelines.c.name, pipelines.c.digest),
    _part(_BREAKER, breakers.c.pipeline, breakers.c.stage, breakers.c.data),
    _part(_ADAPTIVE, adaptive_limits.c.key, cast(null(), Text), adaptive_limits.c.data),
)
