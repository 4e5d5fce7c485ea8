"""``make demo`` as a person runs it: the pipeline end to end, and nothing left behind when it is stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from include.content.briefs import read_briefs
from include.content.page_checks import check_site
from include.content.pipeline import content
from include.content.settings import content_settings

from airflow_api import AirflowApi
from airflow_relay.core.states import TERMINAL, ItemState
from demo_ledger import read_progress
from polling import wait_until

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "scripts" / "demo.py"
COMPONENTS = 4


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """As a shell starts it: in a process group of its own, to which Ctrl-C goes."""
    return subprocess.Popen(
        [sys.executable, str(DEMO), "--folder", str(folder), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _users_of(folder: Path) -> list[psutil.Process]:
    """The living processes whose Airflow home lies in ``folder``."""
    found = []
    for process in psutil.process_iter():
        try:
            home = process.environ().get("AIRFLOW_HOME", "")
        except (psutil.Error, OSError):
            continue
        if home.startswith(str(folder)) and process.pid != os.getpid():
            found.append(process)
    return found


@pytest.fixture(scope="module")
def kept_demo(tmp_path_factory):
    """A whole demo, left running (``KEEP=1``): folder and printed text."""
    folder = tmp_path_factory.mktemp("a demo") / ".demo"
    process = _start(folder, "--keep")
    text, _ = process.communicate()
    assert process.returncode == 0, text
    yield folder, text
    subprocess.run([sys.executable, str(DEMO), "--folder", str(folder), "--stop"], check=True)


@pytest.mark.timeout(900)
def test_every_brief_becomes_a_terminal_item_and_the_others_are_published(kept_demo):
    folder, text = kept_demo
    items = read_progress(folder / "airflow" / "relay" / "ledger.db", "content")
    assert {item.key for item in items} == {brief.key for brief in read_briefs(content_settings().briefs)}
    assert {item.state for item in items} <= TERMINAL - {ItemState.DEAD}
    done = {item.key for item in items if item.state is ItemState.DONE}
    pages = set((folder / "published" / "pages").glob("*.html"))
    assert len(pages) == len(done) > 0
    assert all(str(page) in text for page in pages)
    assert check_site(folder / "published") == []


def test_one_intake_is_started_by_hand_and_nothing_by_cron(kept_demo):
    folder, _ = kept_demo
    with sqlite3.connect(folder / "airflow" / "airflow.db") as database:
        rows = database.execute(
            "SELECT dag_id, run_type, conf FROM dag_run WHERE dag_id LIKE 'content\\_\\_%' ESCAPE '\\'"
        ).fetchall()
    database.close()
    by_hand = [name for name, kind, conf in rows if kind == "manual" and not json.loads(conf or "{}")]
    assert by_hand == ["content__research"]
    by_cron = {name for name, kind, _ in rows if kind == "scheduled"}
    assert by_cron <= {"content__research"}  # its own schedule may come up meanwhile; no other stage has one
    assert {name for name, _, _ in rows} == {f"content__{stage.name}" for stage in content.stages}


def test_the_table_and_the_median_latency_are_printed(kept_demo):
    folder, text = kept_demo
    median = float(re.search(r"median trigger latency: ([\d.]+) s", text)[1])
    assert median > 0
    for item in read_progress(folder / "airflow" / "relay" / "ledger.db", "content"):
        assert re.search(rf"^{re.escape(item.key)}\s+{item.state.value}\s+[\d.]+ s", text, re.MULTILINE)


def test_keep_leaves_the_ui_up_with_the_printed_login_until_it_is_stopped(kept_demo):
    folder, text = kept_demo
    address, password = re.search(r"left running: (\S+)  user admin  password (\S+)", text).groups()
    api = AirflowApi(address, password=password)
    assert "content__research" in api.dag_ids()
    api.close()
    stopped = subprocess.run(
        [sys.executable, str(DEMO), "--folder", str(folder), "--stop"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert stopped.stdout == "stopped\n"
    assert _users_of(folder) == []


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_demo_leaves_no_process_behind(tmp_path, number, exit_code):
    process = _start(tmp_path / ".demo")
    wait_until(lambda: len(_users_of(tmp_path)) >= COMPONENTS, what="the components to start", timeout=120)
    os.killpg(process.pid, number)
    text, _ = process.communicate()
    assert process.returncode == exit_code, text
    assert _users_of(tmp_path) == []


def test_a_second_demo_in_the_same_folder_is_refused(tmp_path):
    marker = "0" * 32
    other = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        env={**os.environ, "RELAY_PROCESS_FAMILY": marker},
    )
    folder = tmp_path / ".demo"
    folder.mkdir()
    notice = {"pid": other.pid, "marker": marker, "kept": False}
    (folder / "running.json").write_text(json.dumps(notice))
    process = _start(folder)
    text, _ = process.communicate()
    other.communicate()
    assert process.returncode == 1
    assert f"another demo is running here (pid {other.pid})" in text
