"""Serving one stage on its old schedule, beside completion triggers or in their place."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from airflow_relay.clock import utcnow
from airflow_relay.hooks.conditions import read_conditions
from airflow_relay.hooks.ledger import get_ledger
from airflow_relay.ledger.recovering import Scope
from airflow_relay.operators.sweep import serve_stage
from airflow_relay.operators.trigger import RelayTrigger

log: Final = logging.getLogger(__name__)


class FallbackServe(RelayTrigger):
    """Give every waiting item of a stage its run, once each.

    Waiting are its ready items, and those failed ones that the rules of the recovery sweep allow to run again
    now, which costs them an attempt as it does there. Grants come from the one dispatcher, so an item that a
    completion trigger serves at the same time still gets one run.

    :param pipeline: the pipeline's name.
    :param stage: the stage's name.
    """

    def __init__(self, *, pipeline: str, stage: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.stage = stage

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - Airflow's signature
        """Returns ``{"refired": [key], "sent": n, "text"}``.

        :raises TargetDagError: the stage's DAG is missing or broken; the grant stays in the outbox.
        """
        refired, problem = serve_stage(Scope(self.pipeline, self.stage))
        ledger, now = get_ledger(), utcnow()
        grants = ledger.dispatch(read_conditions(ledger, now), now)
        sent = self.send(ledger, grants)
        text = f"{len(refired)} failed items refired, {len(sent)} grants sent.{problem}"
        log.info("%s", text)
        return {"refired": [item.key for item in refired], "sent": len(sent), "text": text}
