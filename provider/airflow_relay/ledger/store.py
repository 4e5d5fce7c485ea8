"""The ledger as the rings above use it: one method a use, each one short transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from airflow_relay.core.completion import Completion, StageShape
from airflow_relay.core.guard import GuardAction
from airflow_relay.core.item import Item, Run
from airflow_relay.core.pipeline import Pipeline
from airflow_relay.core.snapshot import Conditions
from airflow_relay.ledger import (
    closing,
    declarations,
    dispatching,
    guarding,
    registering,
    results,
    retention,
    runs,
)
from airflow_relay.ledger.closing import Closed
from airflow_relay.ledger.engine import Tx, connected, safe_url
from airflow_relay.ledger.errors import LedgerNotReadyError
from airflow_relay.ledger.guarding import Guarded
from airflow_relay.ledger.registering import NewItem, Registered
from airflow_relay.ledger.results import ObjectStore, Stored
from airflow_relay.ledger.schema import REVISION, meta, version


@dataclass(frozen=True)
class HandedOff:
    """What a hand-off did.

    :param closed: the run that it came for.
    :param grants: to send now.
    :param lost: grants of others whose sender seems lost; to send as well.
    """

    closed: Closed
    grants: tuple[Run, ...]
    lost: tuple[Run, ...]


class Ledger:
    """One ledger, by its SQLAlchemy URL.

    :param url: SQLite or PostgreSQL.
    :param objects: where results above 64 KB go.
    """

    def __init__(self, url: str, objects: ObjectStore) -> None:
        self.url = url
        self.objects = objects
        self._identity: str | None = None

    def __repr__(self) -> str:
        return f"Ledger({safe_url(self.url)})"

    @property
    def ledger_id(self) -> str:
        """The identity that each run row carries.

        :raises LedgerNotReadyError: the ledger does not answer, has no tables, or those of another version.
        """
        if self._identity is None:
            with connected(self.url, write=False) as conn:
                return self._identify(conn)
        return self._identity

    def _identify(self, conn: Connection) -> str:
        """The identity, asked for in a transaction that is open anyway, and once in a process."""
        if self._identity is None:
            found = conn.execute(_IDENTITY).one_or_none()
            if found is None:
                raise LedgerNotReadyError(f"{self!r} has no identity: run `airflow relay init`.")
            if found.revision != REVISION:
                raise LedgerNotReadyError(
                    f"The schema of {self!r} is {found.revision}, this package works with {REVISION}: run "
                    "`airflow relay init`, or upgrade airflow-provider-relay here if the schema is newer."
                )
            self._identity = found.value
        return self._identity

    @contextmanager
    def read(self) -> Iterator[Tx]:
        """A transaction that only reads; it blocks nobody."""
        with connected(self.url, write=False) as conn:
            yield Tx(conn, self._identify(conn))

    @contextmanager
    def write(self) -> Iterator[Tx]:
        """A short transaction that writes. No HTTP call, no upload inside."""
        with connected(self.url, write=True) as conn:
            yield Tx(conn, self._identify(conn))

    @contextmanager
    def dispatcher(self) -> Iterator[Tx]:
        """A writing transaction under the dispatcher's lock: around free, decide and grant."""
        with self.write() as tx:
            dispatching.lock(tx)
            yield tx

    def init(self) -> str:
        """Create or upgrade the schema; returns the ledger's identity."""
        from airflow_relay.ledger import migrate  # noqa: PLC0415 - Alembic costs a task more than the ledger

        self._identity = migrate.upgrade(self.url)
        return self._identity

    def intake(
        self, pipeline: Pipeline, found: Iterable[Any], conditions: Conditions, now: datetime
    ) -> tuple[Registered, list[Run]]:
        """Register what an intake found and dispatch, in one transaction.

        :param found: keys, mappings with ``key``, or :class:`NewItem` values.
        :raises BadItemError: names the field; nothing was registered.
        """
        new = registering.found_by_intake(found)
        prepared = [(n, self.prepare(n.payload, pipeline.name, n.key, "payload")) for n in new]
        with self.dispatcher() as tx:
            declarations.declare(tx, pipeline, now)
            registered = registering.register(tx, pipeline, prepared, now)
            registering.record_intake(
                tx, pipeline.name, now, registered=len(registered.new), known=len(registered.known)
            )
            return registered, dispatching.run_dispatch(tx, conditions, now)

    def register_one(self, pipeline: Pipeline, key: str, payload: Any, now: datetime) -> bool:
        """Register an item that a person started by hand; returns whether it was new. No dispatch."""
        new = NewItem(key=key, payload=payload)
        stored = self.prepare(payload, pipeline.name, key, "payload")
        with self.dispatcher() as tx:
            declarations.declare(tx, pipeline, now)
            retention.take_back(tx, pipeline.name, key)
            return bool(registering.register(tx, pipeline, [(new, stored)], now).new)

    def intake_must_wait(self, pipeline: Pipeline, now: datetime) -> str | None:
        """Why the intake does nothing this time (counted), or ``None`` when it may work."""
        with self.dispatcher() as tx:
            return registering.backpressure(tx, pipeline, now)

    def prepare(self, value: Any, pipeline: str, key: str, what: str) -> Stored:
        """Encode a value for the ledger, uploading a large one before any transaction."""
        return results.prepare(value, objects=self.objects, pipeline=pipeline, key=key, what=what)

    def dispatch(self, conditions: Conditions, now: datetime) -> list[Run]:
        """Grant what may run now; returns the grants to send."""
        with self.dispatcher() as tx:
            return dispatching.run_dispatch(tx, conditions, now)

    def hand_off(
        self,
        run: Run,
        *,
        pipeline: Pipeline,
        completion: Completion,
        stored: Stored | None,
        clear_number: int | None,
        conditions: Conditions,
        now: datetime,
    ) -> HandedOff:
        """Close the run, free its slots, move its item, dispatch: one transaction, once per grant."""
        with self.write() as tx:
            is_declared = declarations.is_current(tx, pipeline)  # nearly always; nobody waits for the answer
            dispatching.lock(tx, with_next=True)
            if not is_declared:
                declarations.declare(tx, pipeline, now)
            closed = closing.close_run(
                tx,
                run.id,
                pipeline=pipeline,
                completion=completion,
                stored=stored,
                clear_number=clear_number,
                now=now,
                adaptive=conditions.adaptive,
            )
            grants = dispatching.run_dispatch(tx, conditions, now)
            return HandedOff(closed, tuple(grants), lost=tuple(runs.claim_unconfirmed(tx, now)))

    def find_run(self, dag_id: str, run_id: str) -> Run | None:
        """The grant behind an Airflow run."""
        with self.read() as tx:
            return runs.find(tx, dag_id, run_id)

    def unconfirmed(self, now: datetime) -> list[Run]:
        """Grants whose sender seems lost; the caller sends them."""
        with self.write() as tx:
            return runs.claim_unconfirmed(tx, now)

    def confirm(self, run_ids: Collection[int], now: datetime) -> None:
        """Airflow has these runs."""
        with self.write() as tx:
            runs.confirm(tx, run_ids, now)

    def ask_guard(
        self,
        *,
        dag_id: str,
        run_id: str,
        clear_number: int,
        pipeline: Pipeline,
        shape: StageShape,
        is_entry_dag: bool,
        named_ledger: str | None,
        now: datetime,
    ) -> Guarded:
        """May a task of this run work? Reopening is left to :meth:`reopen`; a first start is recorded."""

        def decide(tx: Tx, *, locked: bool) -> Guarded:
            return guarding.decide(
                tx,
                locked=locked,
                dag_id=dag_id,
                run_id=run_id,
                clear_number=clear_number,
                is_entry_dag=is_entry_dag,
                named_ledger=named_ledger,
                now=now,
            )

        with self.read() as tx:
            guarded = decide(tx, locked=False)
        if not _changes_something(guarded):
            return guarded
        with self.write() as tx:
            guarded = decide(tx, locked=True)
            if guarded.decision.action in _REOPENS:
                return guarded
            return guarding.perform(
                tx,
                guarded,
                pipeline=pipeline,
                shape=shape,
                clear_number=clear_number,
                limits={},
                now=now,
            )

    def reopen(
        self,
        *,
        dag_id: str,
        run_id: str,
        clear_number: int,
        pipeline: Pipeline,
        shape: StageShape,
        conditions: Conditions,
        now: datetime,
    ) -> Guarded:
        """Open a closed run after a clear: it takes its slots, or ``has_slots`` is false and it waits."""
        with self.dispatcher() as tx:
            declarations.declare(tx, pipeline, now)
            guarded = guarding.decide(
                tx,
                dag_id=dag_id,
                run_id=run_id,
                clear_number=clear_number,
                is_entry_dag=False,
                named_ledger=None,
                now=now,
            )
            limits = dispatching.effective_limits(declarations.load_all(tx), conditions)
            return guarding.perform(
                tx,
                guarded,
                pipeline=pipeline,
                shape=shape,
                clear_number=clear_number,
                limits=limits,
                now=now,
            )

    def adopt(
        self,
        *,
        pipeline: Pipeline,
        key: str,
        stage: str,
        dag_id: str,
        run_id: str,
        clear_number: int,
        shape: StageShape,
        conditions: Conditions,
        now: datetime,
    ) -> tuple[Item, Run] | None:
        """Bind a run started by hand to an item; ``None`` while there is no free slot."""
        with self.dispatcher() as tx:
            declarations.declare(tx, pipeline, now)
            limits = dispatching.effective_limits(declarations.load_all(tx), conditions)
            return registering.adopt(
                tx,
                pipeline,
                key=key,
                stage=stage,
                dag_id=dag_id,
                run_id=run_id,
                clear_number=clear_number,
                shape=shape,
                limits=limits,
                now=now,
            )


_IDENTITY = select(meta.c.value, select(version.c.version_num).scalar_subquery().label("revision")).where(
    meta.c.name == "ledger_id"
)

_REOPENS = frozenset({GuardAction.REOPEN, GuardAction.REWIND})


def _changes_something(guarded: Guarded) -> bool:
    """Whether the read decision has to be decided again under locks. Reopening waits for its own call."""
    decision, run = guarded.decision, guarded.run
    if run is None or decision.action in _REOPENS:
        return False
    if decision.action is GuardAction.GO_ON and run.started_at is None:
        return True
    return decision.record_clear
