"""The ledger's tables. Migrations in ``migrations/`` build them; a test keeps the two alike."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    column,
    false,
    table,
)

from airflow_relay.core.barrier import TrackPhase
from airflow_relay.core.naming import MAX_KEY, MAX_RUN_ID
from airflow_relay.core.states import EventKind, ItemState, PriorityClass, RunResult, RunState
from airflow_relay.ledger.types import EnumText, Instant, Json

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_NAME = String(64)
# SQLite gives a row number only to INTEGER PRIMARY KEY.
_ID = BigInteger().with_variant(Integer, "sqlite")


def _id() -> Column[Any]:
    return Column("id", _ID, primary_key=True, autoincrement=True)


def _item() -> Column[Any]:
    return Column("item_id", _ID, ForeignKey("items.id"), nullable=False)


def _enum(name: str, enum: Any, *, nullable: bool = False) -> Column[Any]:
    return Column(name, EnumText(enum), nullable=nullable)


REVISION: Final = "r0002"
"""The newest migration, known here so that tasks need not import Alembic."""

VERSION_TABLE: Final = "relay_alembic_version"
"""An own table, so that the ledger can share a database with another Alembic user."""

version = table(VERSION_TABLE, column("version_num", String(32)))
"""Alembic's own table, which is none of the schema's."""

DISPATCHER_LOCK: Final = "dispatcher"
"""The row of ``meta`` that is the dispatcher's lock."""

OBSERVATION: Final = "observation"
"""The row of ``meta`` with what Airflow last said (:mod:`airflow_relay.ledger.observations`)."""

meta = Table(
    "meta",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("value", Text, nullable=False),
    comment="ledger_id: the identity that each run row carries; dispatcher: the row that is the lock",
)

pipelines = Table(
    "pipelines",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("definition", Json, nullable=False),
    Column("declared_at", Instant, nullable=False),
    comment="declarations as last deployed, so that tick, sweep and CLI know them without the DAG files",
)

items = Table(
    "items",
    metadata,
    _id(),
    Column("pipeline", _NAME, nullable=False),
    Column("key", String(MAX_KEY), nullable=False),
    _enum("state", ItemState),
    Column("stage", _NAME, nullable=False),
    Column("status", _NAME, nullable=False),
    Column("epoch", Integer, nullable=False),
    _enum("klass", PriorityClass),
    Column("rank", Integer, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("keys", Json, nullable=False),
    Column("dag_id", String(MAX_RUN_ID), nullable=False),
    Column("ready_since", Instant),
    Column("not_before", Instant),
    Column("visits", Json, nullable=False),
    Column("error_class", String(32)),
    Column("error_reason", Text),
    Column("attempts", Integer, nullable=False),
    Column("attempts_day", String(10)),
    Column("last_attempt_at", Instant),
    Column("recovering", Boolean, nullable=False, server_default=false()),
    Column("registered_at", Instant, nullable=False),
    Column("last_activity_at", Instant, nullable=False),
    Column("finished_at", Instant),
    UniqueConstraint("pipeline", "key"),
)
_READY = items.c.state == ItemState.READY
Index(
    "ix_items_ready",
    items.c.pipeline,
    items.c.stage,
    items.c.dag_id,
    items.c.klass,
    items.c.rank,
    items.c["keys"],
    items.c.ready_since,
    sqlite_where=_READY,
    postgresql_where=_READY,
)
Index("ix_items_state_activity", items.c.state, items.c.last_activity_at)
Index("ix_items_pipeline_state", items.c.pipeline, items.c.state)

retired = Table(
    "retired",
    metadata,
    Column("pipeline", _NAME, primary_key=True),
    Column("key", String(MAX_KEY), primary_key=True),
    Column("at", Instant, nullable=False),
    comment="keys of finished items that retention has removed: an intake that finds one knows it still",
)

runs = Table(
    "runs",
    metadata,
    _id(),
    _item(),
    Column("pipeline", _NAME, nullable=False),
    Column("stage", _NAME, nullable=False),
    Column("visit", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("dag_id", String(MAX_RUN_ID), nullable=False),
    Column("run_id", String(MAX_RUN_ID), nullable=False),
    Column("ledger_id", String(36), nullable=False),
    _enum("state", RunState),
    _enum("klass", PriorityClass),
    Column("clear_number", Integer, nullable=False),
    _enum("result", RunResult, nullable=True),
    Column("outcome", String(200)),
    Column("error_class", String(32)),
    Column("error_reason", Text),
    Column("attempt", Integer, nullable=False),
    Column("ready_since", Instant),
    Column("granted_at", Instant, nullable=False),
    Column("sent_at", Instant),
    Column("confirmed_at", Instant),
    Column("started_at", Instant),
    Column("deadline", Instant),
    Column("closed_at", Instant),
    Column("superseded_by", _ID),
    Column("shape", Json),
    UniqueConstraint("dag_id", "run_id"),
)
_OPEN = runs.c.state == RunState.OPEN
Index("ix_runs_item", runs.c.item_id, runs.c.epoch)
Index("ix_runs_open", runs.c.granted_at, sqlite_where=_OPEN, postgresql_where=_OPEN)
Index("ix_runs_closed", runs.c.closed_at)

slots = Table(
    "slots",
    metadata,
    Column("run", _ID, ForeignKey("runs.id"), primary_key=True),
    Column("key", String(200), primary_key=True),
    Index("ix_slots_key", "key"),
    comment="one row a unit held; a run's rows go in the transaction that closes it",
)

events = Table(
    "events",
    metadata,
    _id(),
    _item(),
    Column("at", Instant, nullable=False),
    _enum("kind", EventKind),
    Column("text", Text, nullable=False),
    Column("set", Json, nullable=False),
    Column("detail", Json, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("run", _ID),
    Index("ix_events_item", "item_id", "id"),
    Index("ix_events_at", "at"),
)

results = Table(
    "results",
    metadata,
    _id(),
    _item(),
    Column("stage", _NAME, nullable=False),
    Column("visit", Integer, nullable=False),
    Column("outcome", String(200)),
    Column("value", Json),
    Column("ref", Text),
    Column("size", Integer, nullable=False),
    Column("at", Instant, nullable=False),
    UniqueConstraint("item_id", "stage", "visit"),
    comment="stage results; stage '' is the item's payload; a large value is referenced by ref",
)

jobs = Table(
    "jobs",
    metadata,
    _id(),
    _item(),
    Column("stage", _NAME, nullable=False),
    Column("visit", Integer, nullable=False),
    Column("task_id", String(MAX_RUN_ID), nullable=False),
    Column("map_index", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("key", String(64), nullable=False),
    Column("run", _ID, nullable=False),
    Column("attempt", String(64), nullable=False),
    Column("protocol", _NAME, nullable=False),
    Column("conn_id", String(250), nullable=False),
    Column("phase", String(32), nullable=False),
    Column("ref", Json),
    Column("error_class", String(32)),
    Column("error_reason", Text),
    Column("result", Json),
    Column("result_ref", Text),
    Column("input_tokens", BigInteger),
    Column("output_tokens", BigInteger),
    Column("cost", Text),
    Column("intended_at", Instant, nullable=False),
    Column("submitted_at", Instant),
    Column("finished_at", Instant),
    Column("dropped_at", Instant),
    Column("cancel_requested_at", Instant),
    UniqueConstraint("item_id", "stage", "visit", "task_id", "map_index", "generation"),
    Index("ix_jobs_key", "key"),
    Index("ix_jobs_finished", "finished_at"),
    comment="agent jobs: intent before the submit, reference after it, the kept result",
)

breakers = Table(
    "breakers",
    metadata,
    Column("pipeline", _NAME, primary_key=True),
    Column("stage", _NAME, primary_key=True),
    Column("data", Json, nullable=False),
    Column("updated_at", Instant, nullable=False),
)

adaptive_limits = Table(
    "adaptive_limits",
    metadata,
    Column("key", String(200), primary_key=True),
    Column("data", Json, nullable=False),
    Column("updated_at", Instant, nullable=False),
)

holds = Table(
    "holds",
    metadata,
    Column("scope", String(MAX_RUN_ID), primary_key=True),
    Column("reason", Text, nullable=False),
    Column("until", Instant),
    Column("set_at", Instant, nullable=False),
    Column("set_by", String(250), nullable=False),
)

dead_letters = Table(
    "dead_letters",
    metadata,
    _id(),
    _item(),
    Column("pipeline", _NAME, nullable=False),
    Column("stage", _NAME, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("at", Instant, nullable=False),
    Column("error_class", String(32)),
    Column("reason", Text, nullable=False),
    Column("trail", Json, nullable=False),
    Column("resolved_at", Instant),
    Column("resolution", String(32)),
    Column("resolved_by", String(250)),
    Column("offered_at", Instant),
    UniqueConstraint("item_id", "epoch", "at"),
    Index("ix_dead_letters_open", "resolved_at", "pipeline", "stage"),
)

alerts = Table(
    "alerts",
    metadata,
    _id(),
    Column("dedup_key", String(300), nullable=False, unique=True),
    Column("text", Text, nullable=False),
    Column("raised_at", Instant, nullable=False),
    Column("claimed_at", Instant),
    Column("sent_at", Instant),
    Column("attempts", Integer, nullable=False),
    Column("error", Text),
    Index("ix_alerts_unsent", "sent_at"),
    comment="the alert outbox: once per dedup_key, sent again until the channel takes it",
)

heartbeats = Table(
    "heartbeats",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("at", Instant, nullable=False),
    Column("detail", Json, nullable=False),
)

intakes = Table(
    "intakes",
    metadata,
    _id(),
    Column("pipeline", _NAME, nullable=False),
    Column("at", Instant, nullable=False),
    Column("registered", Integer, nullable=False),
    Column("known", Integer, nullable=False),
    Column("skipped_because", Text),
    Index("ix_intakes_pipeline", "pipeline", "id"),
)

track_groups = Table(
    "track_groups",
    metadata,
    _id(),
    Column("dag_id", String(MAX_RUN_ID), nullable=False),
    Column("run_id", String(MAX_RUN_ID), nullable=False),
    Column("name", String(MAX_KEY), nullable=False),
    Column("clear_number", Integer, nullable=False),
    Column("dispatched_at", Instant, nullable=False),
    Column("settings", Json, nullable=False),
    UniqueConstraint("dag_id", "run_id", "name", "clear_number"),
    comment="one dispatch of parallel tracks: where its clock starts; clear_number: of the last dispatch try",
)

tracks = Table(
    "tracks",
    metadata,
    Column("group_id", _ID, ForeignKey("track_groups.id"), primary_key=True),
    Column("name", String(MAX_KEY), primary_key=True),
    _enum("phase", TrackPhase),
    Column("dag_id", String(MAX_RUN_ID)),
    Column("run_id", String(MAX_RUN_ID)),
    Column("task", String(MAX_RUN_ID)),
    Column("max_wallclock", Integer),
    Column("triggered_at", Instant),
    Column("started_at", Instant),
    Column("finished_at", Instant),
    Column("reason", Text),
    Column("result", Json),
    comment="max_wallclock in seconds; task: the task that does the work, as <task_id> or <task_id>_<index>",
)

polls = Table(
    "polls",
    metadata,
    _id(),
    Column("group_id", _ID, ForeignKey("track_groups.id"), nullable=False),
    Column("at", Instant, nullable=False),
    Column("phases", Json, nullable=False),
    Column("elapsed_h", String(32), nullable=False),
    Column("done", Integer, nullable=False),
    Column("tapped", Json, nullable=False),
    Index("ix_polls_group", "group_id", "id"),
    comment="phases: of the expected tracks as found; tapped: names that this poll tapped out",
)
