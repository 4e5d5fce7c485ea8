"""A recovery attempt is charged at its grant; a DAG that cannot be triggered can be held by its id."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0002"
down_revision = "r0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("items", sa.Column("recovering", sa.Boolean(), nullable=False, server_default=sa.false()))
    with op.batch_alter_table("holds") as holds:
        holds.alter_column(
            "scope", existing_type=sa.String(64), type_=sa.String(250), existing_nullable=False
        )
