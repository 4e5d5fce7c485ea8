"""Databases for one test session or demo: made from a migrated template, dropped afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.pool import NullPool

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / ".work" / "templates"


def _on_server(server_url: str | URL, *statements: str) -> list[Any]:
    """Run statements outside a transaction (CREATE and DROP DATABASE demand it); rows of the last one."""
    engine = create_engine(server_url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    rows: list[Any] = []
    with engine.connect() as connection:
        for statement in statements:
            result = connection.execute(text(statement))
            rows = list(result) if result.returns_rows else []
    return rows


def create_database(server_url: str, *, prefix: str, template: str | None = None) -> str:
    """Create an empty PostgreSQL database, or a copy of ``template``, and return its SQLAlchemy URL.

    :param server_url: URL of any database on the server from which databases may be created.
    :param prefix: start of the new name; a random part follows, so that sessions never meet.
    """
    name = f"{prefix}_{uuid.uuid4().hex[:12]}"
    suffix = f' TEMPLATE "{template}"' if template else ""
    _on_server(server_url, f'CREATE DATABASE "{name}"{suffix}')
    return make_url(server_url).set(database=name).render_as_string(hide_password=False)


def drop_database(server_url: str, url: str) -> None:
    """Drop the database of ``url``, also while processes are still connected to it (PostgreSQL 13+)."""
    _on_server(server_url, f'DROP DATABASE IF EXISTS "{make_url(url).database}" WITH (FORCE)')


def migrate(url: str) -> None:
    """Run ``airflow db migrate`` on the database of ``url`` in a throw-away AIRFLOW_HOME."""
    with TemporaryDirectory(prefix="airflow-migrate-") as home:
        env = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW")}
        env |= {
            "AIRFLOW_HOME": home,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": url,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        }
        command = [sys.executable, "-m", "airflow", "db", "migrate"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"airflow db migrate failed:\n{done.stdout}\n{done.stderr}")


def sqlite_metadata(path: Path) -> str:
    """Put a migrated Airflow metadata database at ``path`` and return its URL.

    Migrating takes seven seconds, so it is done once for each Airflow version and copied from then on.
    Two builders at once both finish; the later one's file replaces an equal one.
    """
    template = TEMPLATES / f"airflow-{version('apache-airflow-core')}.db"
    if not template.exists():
        TEMPLATES.mkdir(parents=True, exist_ok=True)
        fresh = TEMPLATES / f"{template.stem}-{uuid.uuid4().hex}.db"
        migrate(f"sqlite:///{fresh}")
        fresh.replace(template)
    shutil.copyfile(template, path)
    return f"sqlite:///{path}"


def postgres_metadata(server_url: str) -> str:
    """Create a migrated Airflow metadata database on a PostgreSQL server and return its URL.

    The template stays on the server (``relay_template_airflow_<version>``) for the next session. It is
    renamed to that name only when complete, so a session that died half-way leaves no broken template.
    """
    template = f"relay_template_airflow_{version('apache-airflow-core').replace('.', '_')}"
    found = _on_server(server_url, f"SELECT 1 FROM pg_database WHERE datname = '{template}'")
    if not found:
        fresh = create_database(server_url, prefix="relay_template_new")
        migrate(fresh)
        try:
            _on_server(server_url, f'ALTER DATABASE "{make_url(fresh).database}" RENAME TO "{template}"')
        except ProgrammingError:  # another session was faster; its template is as good
            drop_database(server_url, fresh)
    return create_database(server_url, prefix="relay_airflow", template=template)
