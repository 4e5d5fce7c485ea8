"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "adaptive_limits",
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_adaptive_limits")),
    )
    op.create_table(
        "alerts",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("dedup_key", sa.String(length=300), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("raised_at", sa.BigInteger(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=True),
        sa.Column("sent_at", sa.BigInteger(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
        sa.UniqueConstraint("dedup_key", name=op.f("uq_alerts_dedup_key")),
        comment="the alert outbox: once per dedup_key, sent again until the channel takes it",
    )
    op.create_index("ix_alerts_unsent", "alerts", ["sent_at"], unique=False)
    op.create_table(
        "breakers",
        sa.Column("pipeline", sa.String(length=64), nullable=False),
        sa.Column("stage", sa.String(length=64), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "stage", name=op.f("pk_breakers")),
    )
    op.create_table(
        "heartbeats",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_heartbeats")),
    )
    op.create_table(
        "holds",
        sa.Column("scope", sa.String(length=64), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=True),
        sa.Column("set_at", sa.BigInteger(), nullable=False),
        sa.Column("set_by", sa.String(length=250), nullable=False),
        sa.PrimaryKeyConstraint("scope", name=op.f("pk_holds")),
    )
    op.create_table(
        "intakes",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("pipeline", sa.String(length=64), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("registered", sa.Integer(), nullable=False),
        sa.Column("known", sa.Integer(), nullable=False),
        sa.Column("skipped_because", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_intakes")),
    )
    op.create_index("ix_intakes_pipeline", "intakes", ["pipeline", "id"], unique=False)
    op.create_table(
        "items",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("pipeline", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("stage", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=64), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("klass", sa.String(length=32), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("keys", sa.Text(), nullable=False),
        sa.Column("dag_id", sa.String(length=250), nullable=False),
        sa.Column("ready_since", sa.BigInteger(), nullable=True),
        sa.Column("not_before", sa.BigInteger(), nullable=True),
        sa.Column("visits", sa.Text(), nullable=False),
        sa.Column("error_class", sa.String(length=32), nullable=True),
        sa.Column("error_reason", sa.Text(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("attempts_day", sa.String(length=10), nullable=True),
        sa.Column("last_attempt_at", sa.BigInteger(), nullable=True),
        sa.Column("registered_at", sa.BigInteger(), nullable=False),
        sa.Column("last_activity_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_items")),
        sa.UniqueConstraint("pipeline", "key", name=op.f("uq_items_pipeline_key")),
    )
    op.create_index("ix_items_pipeline_state", "items", ["pipeline", "state"], unique=False)
    op.create_index(
        "ix_items_ready",
        "items",
        ["pipeline", "stage", "dag_id", "klass", "rank", "keys", "ready_since"],
        unique=False,
        sqlite_where=sa.text("state = 'ready'"),
        postgresql_where=sa.text("state = 'ready'"),
    )
    op.create_index("ix_items_state_activity", "items", ["state", "last_activity_at"], unique=False)
    op.create_table(
        "meta",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_meta")),
        comment="ledger_id: the identity that each run row carries; dispatcher: the row that is the lock",
    )
    op.create_table(
        "pipelines",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("declared_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_pipelines")),
        comment="declarations as last deployed, so that tick, sweep and CLI know them without the DAG files",
    )
    op.create_table(
        "retired",
        sa.Column("pipeline", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "key", name=op.f("pk_retired")),
        comment="keys of finished items that retention has removed: an intake that finds one knows it still",
    )
    op.create_table(
        "track_groups",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("dag_id", sa.String(length=250), nullable=False),
        sa.Column("run_id", sa.String(length=250), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("clear_number", sa.Integer(), nullable=False),
        sa.Column("dispatched_at", sa.BigInteger(), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_track_groups")),
        sa.UniqueConstraint(
            "dag_id",
            "run_id",
            "name",
            "clear_number",
            name=op.f("uq_track_groups_dag_id_run_id_name_clear_number"),
        ),
        comment="one dispatch of parallel tracks: where its clock starts; "
        "clear_number: of the last dispatch try",
    )
    op.create_table(
        "dead_letters",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("item_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("pipeline", sa.String(length=64), nullable=False),
        sa.Column("stage", sa.String(length=64), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("error_class", sa.String(length=32), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("trail", sa.Text(), nullable=False),
        sa.Column("resolved_at", sa.BigInteger(), nullable=True),
        sa.Column("resolution", sa.String(length=32), nullable=True),
        sa.Column("resolved_by", sa.String(length=250), nullable=True),
        sa.Column("offered_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name=op.f("fk_dead_letters_item_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dead_letters")),
        sa.UniqueConstraint("item_id", "epoch", "at", name=op.f("uq_dead_letters_item_id_epoch_at")),
    )
    op.create_index(
        "ix_dead_letters_open", "dead_letters", ["resolved_at", "pipeline", "stage"], unique=False
    )
    op.create_table(
        "events",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("item_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("set", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name=op.f("fk_events_item_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index("ix_events_at", "events", ["at"], unique=False)
    op.create_index("ix_events_item", "events", ["item_id", "id"], unique=False)
    op.create_table(
        "jobs",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("item_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("stage", sa.String(length=64), nullable=False),
        sa.Column("visit", sa.Integer(), nullable=False),
        sa.Column("task_id", sa.String(length=250), nullable=False),
        sa.Column("map_index", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("attempt", sa.String(length=64), nullable=False),
        sa.Column("protocol", sa.String(length=64), nullable=False),
        sa.Column("conn_id", sa.String(length=250), nullable=False),
        sa.Column("phase", sa.String(length=32), nullable=False),
        sa.Column("ref", sa.Text(), nullable=True),
        sa.Column("error_class", sa.String(length=32), nullable=True),
        sa.Column("error_reason", sa.Text(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("result_ref", sa.Text(), nullable=True),
        sa.Column("input_tokens", sa.BigInteger(), nullable=True),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cost", sa.Text(), nullable=True),
        sa.Column("intended_at", sa.BigInteger(), nullable=False),
        sa.Column("submitted_at", sa.BigInteger(), nullable=True),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("dropped_at", sa.BigInteger(), nullable=True),
        sa.Column("cancel_requested_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name=op.f("fk_jobs_item_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint(
            "item_id",
            "stage",
            "visit",
            "task_id",
            "map_index",
            "generation",
            name=op.f("uq_jobs_item_id_stage_visit_task_id_map_index_generation"),
        ),
        comment="agent jobs: intent before the submit, reference after it, the kept result",
    )
    op.create_index("ix_jobs_finished", "jobs", ["finished_at"], unique=False)
    op.create_index("ix_jobs_key", "jobs", ["key"], unique=False)
    op.create_table(
        "polls",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("group_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("phases", sa.Text(), nullable=False),
        sa.Column("elapsed_h", sa.String(length=32), nullable=False),
        sa.Column("done", sa.Integer(), nullable=False),
        sa.Column("tapped", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["group_id"], ["track_groups.id"], name=op.f("fk_polls_group_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_polls")),
        comment="phases: of the expected tracks as found; tapped: names that this poll tapped out",
    )
    op.create_index("ix_polls_group", "polls", ["group_id", "id"], unique=False)
    op.create_table(
        "results",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("item_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("stage", sa.String(length=64), nullable=False),
        sa.Column("visit", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(length=200), nullable=True),
        sa.Column("value", sa.Text(), nullable=True),
        sa.Column("ref", sa.Text(), nullable=True),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name=op.f("fk_results_item_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_results")),
        sa.UniqueConstraint("item_id", "stage", "visit", name=op.f("uq_results_item_id_stage_visit")),
        comment="stage results; stage '' is the item's payload; a large value is referenced by ref",
    )
    op.create_table(
        "runs",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("item_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("pipeline", sa.String(length=64), nullable=False),
        sa.Column("stage", sa.String(length=64), nullable=False),
        sa.Column("visit", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("dag_id", sa.String(length=250), nullable=False),
        sa.Column("run_id", sa.String(length=250), nullable=False),
        sa.Column("ledger_id", sa.String(length=36), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("klass", sa.String(length=32), nullable=False),
        sa.Column("clear_number", sa.Integer(), nullable=False),
        sa.Column("result", sa.String(length=32), nullable=True),
        sa.Column("outcome", sa.String(length=200), nullable=True),
        sa.Column("error_class", sa.String(length=32), nullable=True),
        sa.Column("error_reason", sa.Text(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("ready_since", sa.BigInteger(), nullable=True),
        sa.Column("granted_at", sa.BigInteger(), nullable=False),
        sa.Column("sent_at", sa.BigInteger(), nullable=True),
        sa.Column("confirmed_at", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("deadline", sa.BigInteger(), nullable=True),
        sa.Column("closed_at", sa.BigInteger(), nullable=True),
        sa.Column("superseded_by", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("shape", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name=op.f("fk_runs_item_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("dag_id", "run_id", name=op.f("uq_runs_dag_id_run_id")),
    )
    op.create_index("ix_runs_closed", "runs", ["closed_at"], unique=False)
    op.create_index("ix_runs_item", "runs", ["item_id", "epoch"], unique=False)
    op.create_index(
        "ix_runs_open",
        "runs",
        ["granted_at"],
        unique=False,
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    )
    op.create_table(
        "tracks",
        sa.Column("group_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("phase", sa.String(length=32), nullable=False),
        sa.Column("dag_id", sa.String(length=250), nullable=True),
        sa.Column("run_id", sa.String(length=250), nullable=True),
        sa.Column("task", sa.String(length=250), nullable=True),
        sa.Column("max_wallclock", sa.Integer(), nullable=True),
        sa.Column("triggered_at", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["group_id"], ["track_groups.id"], name=op.f("fk_tracks_group_id")),
        sa.PrimaryKeyConstraint("group_id", "name", name=op.f("pk_tracks")),
        comment="max_wallclock in seconds; task: the task that does the work, as "
        "<task_id> or <task_id>_<index>",
    )
    op.create_table(
        "slots",
        sa.Column("run", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name=op.f("fk_slots_run")),
        sa.PrimaryKeyConstraint("run", "key", name=op.f("pk_slots")),
        comment="one row a unit held; a run's rows go in the transaction that closes it",
    )
    op.create_index("ix_slots_key", "slots", ["key"], unique=False)


def downgrade() -> None:
    op.drop_table("slots")
    op.drop_table("tracks")
    op.drop_table("runs")
    op.drop_table("results")
    op.drop_table("polls")
    op.drop_table("jobs")
    op.drop_table("events")
    op.drop_table("dead_letters")
    op.drop_table("track_groups")
    op.drop_table("retired")
    op.drop_table("pipelines")
    op.drop_table("meta")
    op.drop_table("items")
    op.drop_table("intakes")
    op.drop_table("holds")
    op.drop_table("heartbeats")
    op.drop_table("breakers")
    op.drop_table("alerts")
    op.drop_table("adaptive_limits")
