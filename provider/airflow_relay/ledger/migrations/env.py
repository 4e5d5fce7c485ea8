"""Alembic's entry: runs the migrations on the connection that ``ledger.migrate`` passes in."""

from __future__ import annotations

from alembic import context

from airflow_relay.ledger.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
context.run_migrations()
