"""``airflow relay rewind | discard | move | drop-results``: what a person does to single items."""

from __future__ import annotations

import argparse

from airflow_relay.cli import output
from airflow_relay.cli.output import Table
from airflow_relay.cli.session import asker, command, open_ledger, say
from airflow_relay.clock import utcnow
from airflow_relay.ledger import items, jobs
from airflow_relay.operations import actions
from airflow_relay.operations.actions import ActionResult

_GRANTED_LATER = (
    "What is ready now is granted by the next hand-off or tick; at once by `airflow relay dispatch`."
)


def tell(form: str, result: ActionResult, *, readies: bool = True) -> int:
    """Write what an action did. That it was done before is an answer like any other: 0.

    :param readies: it made items ready, which something has to grant.
    """
    row = {"changed": result.changed, "text": result.text, "items": list(result.keys)}
    document = {**row, "problems": list(result.problems)}
    output.write(form, document, Table("", ("changed", "text", "items"), [{**row, "items": _names(result)}]))
    for problem in result.problems:
        say(f"left as it is: {problem}")
    if readies and result.changed:
        say(_GRANTED_LATER)
    return 1 if result.problems else 0


def _names(result: ActionResult) -> str:
    more = result.changed - len(result.keys)
    return ", ".join(result.keys) + (f" and {more} more" if result.keys and more > 0 else "")


@command
def rewind(args: argparse.Namespace) -> int:
    """``rewind ITEM STAGE``."""
    result = actions.rewind(
        open_ledger(),
        args.item,
        args.to_stage,
        by=asker(),
        now=utcnow(),
        pipeline=args.pipeline,
        fresh=args.fresh,
    )
    return tell(args.output, result)


@command
def discard(args: argparse.Namespace) -> int:
    """``discard ITEM``."""
    result = actions.discard(
        open_ledger(), args.item, by=asker(), now=utcnow(), pipeline=args.pipeline, reason=args.reason
    )
    return tell(args.output, result, readies=False)


@command
def move(args: argparse.Namespace) -> int:
    """``move PIPELINE FROM TO``: after a stage was renamed or removed."""
    result = actions.move(
        open_ledger(),
        args.of_pipeline,
        args.from_stage,
        args.to_stage,
        by=asker(),
        now=utcnow(),
        keys=args.item or None,
    )
    return tell(args.output, result)


@command
def drop_results(args: argparse.Namespace) -> int:
    """``drop-results ITEM``: the next run of its stages pays for fresh agent jobs."""
    ledger, now = open_ledger(), utcnow()
    with ledger.write() as tx:
        item = items.find(tx, args.item, args.pipeline)
        dropped = jobs.drop_kept(tx, item.id, now=now, stage=args.stage, task_id=args.task)
        if dropped:
            items.note(tx, item, f"Kept results dropped by {asker()}", now, dropped=dropped)
    text = f"{dropped} kept results of item '{item.key}' are dropped: its next runs ask for them anew."
    result = ActionResult(changed=dropped, text=text, keys=(item.key,) if dropped else ())
    return tell(args.output, result, readies=False)
