"""The Airflow configuration of demo, integration tests and benchmarks, as values and as files."""

from __future__ import annotations

import base64
import configparser
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

Config = dict[str, dict[str, str]]

# What the README recommends, and docker-compose.yaml sets. Each line takes waiting out of the gap between two
# stages.
RECOMMENDED: Config = {
    # The scheduler's loop sleeps this long when it found nothing to do (stock: 1 s).
    "scheduler": {
        "scheduler_idle_sleep_time": "0.1",
        # It looks at so many running runs, deferred ones too, before it goes on to what is new (stock: 20).
        "max_dagruns_per_loop_to_schedule": "10",
    },
    # A short task's supervisor may hold its worker slot for one heartbeat interval (stock: 5 s).
    "workers": {"min_heartbeat_interval": "1"},
    # Parsing unchanged files again competes with the tasks for the processor (stock: 30 s).
    "dag_processor": {"min_file_process_interval": "300"},
}

PRELOAD = "from airflow_relay.local_settings import *  # noqa: F403\n"


def merged(*parts: Mapping[str, Mapping[str, str]]) -> Config:
    """The union of several configurations; later ones win."""
    result: Config = {}
    for part in parts:
        for section, options in part.items():
            result.setdefault(section, {}).update(options)
    return result


def base_config(
    *,
    home: Path,
    dags_folders: Sequence[Path],
    plugins_folder: Path,
    metadata_url: str,
    ports: Mapping[str, int],
    executor: str,
    parallelism: int,
    login: bool,
) -> Config:
    """Everything an Airflow of its own needs, bound to 127.0.0.1.

    :param ports: ``api``, ``worker_logs`` and ``trigger_logs``.
    :param login: ask for user ``admin`` and the password in ``<home>/passwords.json``; otherwise everybody is
        admin.
    """
    bundle = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundles = [
        {"name": f"{number}-{folder.name}", "classpath": bundle, "kwargs": {"path": str(folder)}}
        for number, folder in enumerate(dags_folders)
    ]
    address = f"http://127.0.0.1:{ports['api']}"
    return {
        "core": {
            "dags_folder": str(dags_folders[0]),
            "plugins_folder": str(plugins_folder),
            "executor": executor,
            "parallelism": str(parallelism),
            "load_examples": "False",
            "fernet_key": base64.urlsafe_b64encode(os.urandom(32)).decode(),
            "execution_api_server_url": f"{address}/execution/",
            "simple_auth_manager_all_admins": str(not login),
            "simple_auth_manager_users": "admin:admin",
            "simple_auth_manager_passwords_file": str(home / "passwords.json"),
        },
        "database": {"sql_alchemy_conn": metadata_url},
        "api": {
            "host": "127.0.0.1",
            "port": str(ports["api"]),
            "base_url": address,
            "workers": "1",
            "secret_key": secrets.token_hex(32),
        },
        "api_auth": {"jwt_secret": secrets.token_hex(32)},
        "logging": {
            "base_log_folder": str(home / "logs"),
            "worker_log_server_port": str(ports["worker_logs"]),
            "trigger_log_server_port": str(ports["trigger_logs"]),
            "colored_console_log": "False",
        },
        "dag_processor": {"dag_bundle_config_list": json.dumps(bundles), "refresh_interval": "5"},
        "usage_data_collection": {"enabled": "False"},
    }


def write_home(home: Path, config: Config, *, password: str | None, preload: bool) -> None:
    """Write ``airflow.cfg``, the password file and, with ``preload``, ``config/airflow_local_settings.py``.

    All components read the same file, so ``AIRFLOW_HOME=<home> airflow …`` works from a shell as well.
    """
    parser = configparser.RawConfigParser()
    # Airflow interpolates "%" when it reads the file.
    parser.read_dict(
        {s: {k: v.replace("%", "%%") for k, v in options.items()} for s, options in config.items()}
    )
    (home / "config").mkdir(parents=True, exist_ok=True)
    with _private(home / "airflow.cfg").open("w") as file:
        parser.write(file)
    if password is not None:
        _private(home / "passwords.json").write_text(json.dumps({"admin": password}))
    if preload:
        (home / "config" / "airflow_local_settings.py").write_text(PRELOAD)


def _private(path: Path) -> Path:
    """Create an empty file that only its owner may read: it is going to hold secrets."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    return path
