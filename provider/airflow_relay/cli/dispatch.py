"""``airflow relay dispatch``: grant what may run now, and start it."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import Any

from airflow_relay import metadata
from airflow_relay.cli import output
from airflow_relay.cli.output import Table
from airflow_relay.cli.session import NEGATIVE, USAGE, asker, command, fail, open_ledger
from airflow_relay.clock import utcnow
from airflow_relay.core.item import Run
from airflow_relay.operations import actions

_COLUMNS = ("pipeline", "stage", "grant", "run_id", "sent")


@command
def run(args: argparse.Namespace) -> int:
    """Decide, write the grants, and start their runs the way ``airflow dags trigger`` does.

    A grant that cannot be sent stays in the outbox for the tick, and the exit code is 1.
    """
    from airflow_relay.compat import TargetDagError  # noqa: PLC0415 - loads Airflow's SDK
    from airflow_relay.hooks.conditions import renew_conditions  # noqa: PLC0415 - see above
    from airflow_relay.operators.trigger import send_grants  # noqa: PLC0415 - see above

    ledger, now = open_ledger(), utcnow()
    problem = metadata.why_unreachable()
    if problem is not None:
        return fail(
            f"Airflow's database does not answer ({problem}): without limits, holds and pause states nothing "
            "is granted from here. The tick does it.",
            USAGE,
        )
    grants = actions.dispatch(ledger, renew_conditions(ledger, now), now=now)
    known = {grant.id for grant in grants}
    lost = [grant for grant in ledger.unconfirmed(now) if grant.id not in known]
    waiting: str | None = None
    # Airflow's own code logs to stdout, where only the answer belongs.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            send_grants(ledger, [*grants, *lost], trigger=_sender())
        except TargetDagError as error:
            waiting = str(error)
    with ledger.read() as tx:
        rows = [_row(tx, grant) for grant in (*grants, *lost)]
    output.write(args.output, rows, Table("", _COLUMNS, rows), empty="Nothing to grant.")
    return 0 if waiting is None else fail(f"{waiting} The tick tries again.", NEGATIVE)


def _sender() -> Any:
    by = asker()

    def trigger(**request: Any) -> bool:
        return metadata.trigger_dag_run(**request, by=by)

    return trigger


def _row(tx: Any, grant: Run) -> dict[str, Any]:
    from airflow_relay.ledger import runs  # noqa: PLC0415 - loaded by now

    return {
        "pipeline": grant.pipeline,
        "stage": grant.stage,
        "grant": grant.epoch,
        "dag_id": grant.dag_id,
        "run_id": grant.run_id,
        "sent": runs.by_id(tx, grant.id).confirmed_at is not None,
    }
