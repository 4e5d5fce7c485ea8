"""A process that brings ledgers to the newest schema, as every Airflow component does when it starts."""

from __future__ import annotations

import traceback

from airflow_relay.ledger.engine import dispose_engines
from airflow_relay.ledger.migrate import upgrade
from support.fleet import serve


def answer(url: str) -> str:
    """The ledger's identity, or what went wrong."""
    try:
        return upgrade(url)
    except Exception:  # noqa: BLE001 - the parent asserts on the text
        return traceback.format_exc()
    finally:
        dispose_engines()


if __name__ == "__main__":
    serve(answer)
