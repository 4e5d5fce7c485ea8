"""A recovery attempt is charged when it is granted: items say whether the sweep has made them ready."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0002"
down_revision = "r0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("items", sa.Column("recovering", sa.Boolean(), nullable=False, server_default=sa.false()))
