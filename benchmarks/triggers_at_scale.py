"""Thousands of agent jobs watched by one triggerer process, beside the HTTP provider's polling trigger.

    python benchmarks/triggers_at_scale.py --triggers 5000 --interval 30 --seconds 240

Airflow's own TriggerRunner runs the triggers in this process; only its pipe to the supervisor is replaced, by
a queue. The agent server is a process of its own. Printed: how late completions were noticed, the runner's
share of one core, its memory, and the CPU time of one poll; the same for HttpEventTrigger afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts")]

from airflow_relay.local_agent.jobs import TERMINAL, JobStatus  # noqa: E402
from support.agent_server import AgentServerProcess  # noqa: E402 - needs the path above

CONNECTION = "relay_agent"
DRAFT = json.dumps({"draft": "# Pools\n\nA pool has a fixed number of slots [1]."})
RELAY = "airflow_relay.triggers.agent_job.AgentJobTrigger"
HTTP = "airflow.providers.http.triggers.http.HttpEventTrigger"


async def is_finished(response: Any) -> bool:
    """The check that HttpEventTrigger makes of each reply."""
    return response.json()["status"] not in {"queued", "in_progress"}


async def submit(server: AgentServerProcess, number: int) -> list[tuple[str, datetime]]:
    """Create jobs; returns their ids, and when each was accepted: its task would be deferred then."""
    body = {"model": "extractive/publish", "input": DRAFT, "background": True, "store": True}
    limit = asyncio.Semaphore(20)

    async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=60) as client:

        async def one(index: int) -> tuple[str, datetime]:
            async with limit:
                reply = await client.post("/v1/responses", json={**body, "metadata": {"n": str(index)}})
            return str(reply.raise_for_status().json()["id"]), datetime.now(timezone.utc)

        return await asyncio.gather(*(one(n) for n in range(number)))


def workload(trigger_id: int, classpath: str, kwargs: dict[str, Any]) -> Any:
    from airflow.executors.workloads.trigger import RunTrigger
    from airflow.models.trigger import Trigger

    return RunTrigger(id=trigger_id, classpath=classpath, encrypted_kwargs=Trigger.encrypt_kwargs(kwargs))


def relay_kwargs(job_id: str, since: datetime, interval: float) -> dict[str, Any]:
    return {
        "conn_id": CONNECTION,
        "ref": {"protocol": "responses", "id": job_id, "extra": {}},
        "deadline": (datetime.now(timezone.utc) + timedelta(hours=1)).isoformat(),
        "interval": interval,
        "since": since.isoformat(),
        "attempt": "benchmark",
    }


def http_kwargs(job_id: str, _since: datetime, interval: float) -> dict[str, Any]:
    return {
        "http_conn_id": CONNECTION,
        "endpoint": f"/v1/responses/{job_id}",
        "response_check_path": "triggers_at_scale.is_finished",
        "poll_interval": interval,
        "max_consecutive_failures": 100,
    }


def runner_for(workloads: list[Any]) -> tuple[Any, dict[int, float]]:
    """Airflow's TriggerRunner, and trigger id → time at which its event was handed over."""
    from airflow.jobs.triggerer_job_runner import TriggerRunner

    noticed: dict[int, float] = {}

    class Runner(TriggerRunner):
        async def init_comms(self) -> None:
            self.comms_decoder = SimpleNamespace(
                _reader_task=asyncio.create_task(asyncio.Event().wait(), name="no supervisor")
            )
            self.to_create.extend(workloads)

        async def sync_state_to_supervisor(self, finished_ids: list[int]) -> None:  # noqa: ARG002
            while self.events:
                noticed.setdefault(self.events.popleft().trigger_id, time.time())

    return Runner(), noticed


async def drive(workloads: list[Any], seconds: float) -> tuple[dict[int, float], float, float]:
    """Run the triggers; returns when each fired, CPU seconds used, and wall seconds."""
    runner, noticed = runner_for(workloads)
    started, cpu = time.monotonic(), time.process_time()
    task = asyncio.create_task(runner.arun())
    while len(noticed) < len(workloads) and time.monotonic() - started < seconds:  # noqa: ASYNC110
        await asyncio.sleep(1)
    used, wall = time.process_time() - cpu, time.monotonic() - started
    runner.stop = True
    await task
    for details in runner.triggers.values():
        details["task"].cancel()
    await asyncio.gather(*(d["task"] for d in runner.triggers.values()), return_exceptions=True)
    return noticed, used, wall


def ends(server: AgentServerProcess) -> dict[str, float]:
    """Job id → when it ended, from the server's log: its API tells whole seconds only."""
    lines = [line for line in server.log_lines() if line["event"] == "job"]
    return {
        line["id"]: datetime.fromisoformat(line["time"]).timestamp()
        for line in lines
        if JobStatus(line["status"]) in TERMINAL
    }


def measure(
    name: str, server: AgentServerProcess, classpath: str, make: Any, *, number: int, args: argparse.Namespace
) -> dict[str, Any]:
    jobs = asyncio.run(submit(server, number))
    polls = server.stats()["polls"]
    workloads = [
        workload(n, classpath, make(job_id, since, args.interval)) for n, (job_id, since) in enumerate(jobs)
    ]
    noticed, cpu, wall = asyncio.run(drive(workloads, args.seconds))
    polls = server.stats()["polls"] - polls
    ended = ends(server)
    late = sorted(noticed[n] - ended[job_id] for n, (job_id, _) in enumerate(jobs) if n in noticed)
    return {
        "trigger": name,
        "triggers": number,
        "noticed": len(noticed),
        "late_p50_s": round(statistics.median(late), 2) if late else None,
        "late_p99_s": round(late[int(len(late) * 0.99)], 2) if late else None,
        "late_max_s": round(late[-1], 2) if late else None,
        "core_share": round(cpu / wall, 3),
        "polls": polls,
        "cpu_per_poll_ms": round(1000 * cpu / max(1, polls), 3),
        "rss_mb": _rss_mb(),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def _rss_mb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--triggers", type=int, default=5000)
    parser.add_argument("--http-triggers", type=int, default=1000, help="of HttpEventTrigger")
    parser.add_argument("--interval", type=float, default=30.0, help="seconds between polls")
    parser.add_argument("--seconds", type=float, default=360.0, help="at most, per kind")
    parser.add_argument("--latency", default="40:280", help="seconds that a job takes")
    args = parser.parse_args()
    os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")
    sys.path.insert(0, str(Path(__file__).parent))
    with AgentServerProcess(latency=args.latency) as server:
        os.environ["AIRFLOW_CONN_RELAY_AGENT"] = server.url
        relay = measure("AgentJobTrigger", server, RELAY, relay_kwargs, number=args.triggers, args=args)
        print(json.dumps(relay), flush=True)
        http = measure("HttpEventTrigger", server, HTTP, http_kwargs, number=args.http_triggers, args=args)
        print(json.dumps(http))
    print(f"CPU per poll: {relay['cpu_per_poll_ms'] / http['cpu_per_poll_ms']:.2f} of HttpEventTrigger's")


if __name__ == "__main__":
    main()
