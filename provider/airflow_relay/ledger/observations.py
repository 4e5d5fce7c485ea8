"""What Airflow last said of its Variables and of paused DAGs: a hand-off need not ask before it triggers.

Each question is a call to Airflow's API server, between the end of one stage and the start of the next. So
hand-offs share the answers for a minute. A Variable or a pause that a person changes takes effect after a
minute at the latest, with the next tick or ``airflow relay dispatch`` at once; what a hand-off grants to a
paused DAG in between stays queued in Airflow, and the tick takes it back.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import insert, select, update

from airflow_relay.ledger.engine import Tx
from airflow_relay.ledger.schema import OBSERVATION, meta

MAX_AGE: Final = timedelta(minutes=1)
"""How long a person may have to wait until hand-offs go by a changed Variable or a pause."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Answers of one moment.

    :param limits: the text of the Variable ``relay_limits``; ``None`` when it is not set.
    :param holds: the same of ``relay_hold``.
    :param paused: DAG → whether it is paused, of the DAGs that were asked about.
    """

    at: datetime
    limits: str | None
    holds: str | None
    paused: Mapping[str, bool]

    def is_recent(self, now: datetime) -> bool:
        """Whether it may stand for Airflow's own answers. One from the future is of a clock that is wrong."""
        return self.at <= now < self.at + MAX_AGE

    def paused_among(self, dags: Collection[str]) -> frozenset[str]:
        """Those of ``dags`` that are paused."""
        return frozenset(dag for dag in dags if self.paused.get(dag))


def load(tx: Tx) -> Observation | None:
    """The last one that was kept; ``None`` also for one that another version of this package has written."""
    text = tx.conn.execute(_LOAD).scalar_one_or_none()
    if text is None:
        return None
    try:
        data = json.loads(text)
        return Observation(
            at=datetime.fromisoformat(data["at"]),
            limits=data["limits"],
            holds=data["holds"],
            paused=dict(data["paused"]),
        )
    except (ValueError, TypeError, KeyError):
        return None


def keep(tx: Tx, observation: Observation, now: datetime) -> Observation:
    """Keep it in place of the one before, and return what is kept. The caller holds the dispatcher's lock.

    Somebody may have asked later and been here sooner: then his answers stay, beside those that he lacks.
    """
    before = load(tx)
    if before is not None and before.is_recent(now) and before.at > observation.at:
        observation = replace(before, paused={**observation.paused, **before.paused})
    text = json.dumps({**asdict(observation), "at": observation.at.isoformat()})
    changed = tx.conn.execute(update(meta).where(meta.c.name == OBSERVATION).values(value=text))
    if not changed.rowcount:
        tx.conn.execute(insert(meta).values(name=OBSERVATION, value=text))
    return observation


_LOAD: Final = select(meta.c.value).where(meta.c.name == OBSERVATION)
