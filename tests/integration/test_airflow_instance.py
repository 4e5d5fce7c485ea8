from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

import reaper
from airflow_config import RECOMMENDED
from airflow_instance import AirflowInstance
from polling import WaitTimeoutError, wait_until

PROBE = "harness__probe"
RUNNING = frozenset({"running"})


@pytest.fixture
def finished_run(airflow_instance: AirflowInstance) -> str:
    airflow_instance.wait_for_dags(PROBE)
    run_id = airflow_instance.api.trigger_dag(PROBE, {"name": "Ada"})
    assert airflow_instance.wait_for_run(PROBE, run_id)["state"] == "success"
    return run_id


def test_a_run_goes_through_and_its_traces_can_be_read(airflow_instance, finished_run):
    api = airflow_instance.api
    assert api.task_states(PROBE, finished_run) == {"greet": "success", "demand": "success"}
    assert api.xcom(PROBE, finished_run, "greet")["greeted"] == "Ada"
    assert "good morning, Ada" in api.task_log(PROBE, finished_run, "greet")
    assert finished_run in {run["dag_run_id"] for run in api.list_runs(PROBE)}
    assert api.get_note(PROBE, finished_run) is None


def test_a_given_run_id_is_kept(airflow_instance):
    run_id = airflow_instance.api.trigger_dag(PROBE, run_id="harness.own_id", note="by a test")
    assert run_id == "harness.own_id"
    assert airflow_instance.api.get_note(PROBE, run_id) == "by a test"


def test_clear_runs_the_tasks_again(airflow_instance, finished_run):
    api = airflow_instance.api
    first = api.xcom(PROBE, finished_run, "greet")["pid"]
    assert sorted(api.clear(PROBE, finished_run, ["greet"])) == ["demand", "greet"]
    airflow_instance.wait_for_run(PROBE, finished_run)
    assert api.task_instance(PROBE, finished_run, "greet")["try_number"] == 2
    assert api.xcom(PROBE, finished_run, "greet")["pid"] != first


def test_states_can_be_set_by_hand(airflow_instance):
    api = airflow_instance.api
    run_id = api.trigger_dag(PROBE, {"refuse": True})
    assert airflow_instance.wait_for_run(PROBE, run_id)["state"] == "failed"
    api.set_task_state(PROBE, run_id, "demand", "success")
    assert api.task_states(PROBE, run_id)["demand"] == "success"
    api.set_run_state(PROBE, run_id, "failed")
    assert api.dag_run(PROBE, run_id)["state"] == "failed"
    api.delete_run(PROBE, run_id)
    assert run_id not in {run["dag_run_id"] for run in api.list_runs(PROBE)}


def test_pause_holds_runs_back(airflow_instance):
    api = airflow_instance.api
    api.pause(PROBE)
    run_id = api.trigger_dag(PROBE)
    assert api.dag(PROBE)["is_paused"]
    assert api.dag_run(PROBE, run_id)["state"] == "queued"
    api.unpause(PROBE)
    assert airflow_instance.wait_for_run(PROBE, run_id)["state"] == "success"


def test_variables_can_be_written_twice(airflow_instance):
    api = airflow_instance.api
    for value in ("1", "2"):
        api.set_variable("harness_variable", value)
        assert api.get("variables/harness_variable")["value"] == value
    api.delete_variable("harness_variable")
    assert "harness_variable" not in {row["key"] for row in api.get_all("variables", "variables")}


def test_a_killed_scheduler_takes_its_tasks_along_and_a_new_one_runs_new_tasks(airflow_instance):
    sleeper, api = "harness__sleeper", airflow_instance.api
    airflow_instance.wait_for_dags(sleeper)
    run_id = api.trigger_dag(sleeper)
    row = airflow_instance.wait_for_task(sleeper, run_id, "sleep_long", states=RUNNING)
    tree = psutil.Process(airflow_instance.component("scheduler").pid).children(recursive=True)
    task_pids = {process.pid for process in tree}
    assert row["pid"] in task_pids

    airflow_instance.kill("scheduler")
    assert not any(psutil.pid_exists(pid) and _lives(pid) for pid in task_pids)

    airflow_instance.restart("scheduler")
    api.set_run_state(sleeper, run_id, "failed")  # a running run cannot be deleted
    api.delete_run(sleeper, run_id)
    fresh = api.trigger_dag(PROBE)
    assert airflow_instance.wait_for_run(PROBE, fresh)["state"] == "success"


def test_the_triggerer_can_be_restarted(airflow_instance):
    before = airflow_instance.component("triggerer").pid
    airflow_instance.restart("triggerer")
    assert airflow_instance.component("triggerer").pid != before
    assert airflow_instance.api.health()["triggerer"]["status"] == "healthy"


def test_the_command_line_sees_the_same_airflow(airflow_instance, finished_run):
    listing = airflow_instance.cli("dags", "list-runs", PROBE, "-o", "plain").stdout
    assert finished_run in listing
    with pytest.raises(RuntimeError, match=r"no-such-command"):
        airflow_instance.cli("no-such-command")


def test_the_recommended_configuration_is_in_force_and_preloaded(airflow_instance):
    shown = airflow_instance.cli("config", "get-value", "scheduler", "scheduler_idle_sleep_time").stdout
    assert shown.strip().splitlines()[-1] == RECOMMENDED["scheduler"]["scheduler_idle_sleep_time"]
    log = airflow_instance.component("scheduler").log_file.read_text()
    assert "could not preload" not in log


def test_a_wait_in_vain_tells_what_for_and_shows_the_logs(airflow_instance):
    with pytest.raises(WaitTimeoutError, match=r"in vain for the moon(.|\n)*--- scheduler") as caught:
        airflow_instance.wait(lambda: None, what="the moon", timeout=0)
    assert "Starting the scheduler" in str(caught.value) or "scheduler.log" in str(caught.value)


def _lives(pid: int) -> bool:
    return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def _start_a_family_and_wait(folder: Path, database: str) -> subprocess.Popen[str]:
    """A process that starts a stubborn child with a child of its own, names its marker, and waits."""
    program = textwrap.dedent(
        f"""
        import os, sys
        from pathlib import Path
        from processes import ProcessFamily
        stubborn = "import signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);" \\
            "subprocess.run([sys.executable, '-c', 'import os, time; os.setpgid(0, 0); time.sleep(600)'])"
        family = ProcessFamily(Path({str(folder)!r}))
        if {database!r}:
            family.drop_at_end(os.environ["SERVER"], {database!r})
        family.start("stubborn", [sys.executable, "-c", stubborn], env=os.environ)
        print(family.marker, flush=True)
        sys.stdin.read()
        """
    )
    scripts = str(Path(reaper.__file__).parent)
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": scripts, "SERVER": os.environ.get("RELAY_TEST_POSTGRES_URL", "")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_nothing_outlives_a_starter_that_is_killed(tmp_path):
    starter = _start_a_family_and_wait(tmp_path, database="")
    marker = starter.stdout.readline().strip()
    wait_until(lambda: len(reaper.family(marker)) == 2, what="both processes to run")
    starter.send_signal(signal.SIGKILL)
    starter.communicate()
    wait_until(lambda: not reaper.family(marker), what="the family to be gone", timeout=30)


def test_the_database_of_a_starter_that_is_killed_is_dropped(tmp_path, postgres_server):
    from databases import create_database

    database = create_database(postgres_server, prefix="relay_test_reaper")
    starter = _start_a_family_and_wait(tmp_path, database=database)
    starter.stdout.readline()
    assert _exists(postgres_server, database)
    starter.send_signal(signal.SIGKILL)
    starter.communicate()
    wait_until(lambda: not _exists(postgres_server, database), what="the database to be dropped", timeout=30)


def _exists(server: str, url: str) -> bool:
    engine = create_engine(server)
    with engine.connect() as connection:
        query = text("SELECT count(*) FROM pg_database WHERE datname = :name")
        count = connection.execute(query, {"name": make_url(url).database}).scalar_one()
    engine.dispose()
    return bool(count)


def test_a_component_that_cannot_start_is_reported_at_once_with_its_log(tmp_path):
    broken = AirflowInstance(
        tmp_path / "home", [tmp_path / "dags"], config={"core": {"executor": "no.such.Executor"}}
    )
    with pytest.raises(RuntimeError, match=r"scheduler has ended by itself with exit code 1(.|\n)*no\.such"):
        broken.start()


def test_a_home_in_use_is_refused(tmp_path):
    (tmp_path / "airflow.cfg").touch()
    with pytest.raises(FileExistsError, match="belongs to another Airflow"):
        AirflowInstance(tmp_path, [tmp_path]).start()
