"""Protocols by name, and the example of the manual, installed and run as a reader would do it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from airflow_relay.protocols import registry
from airflow_relay.protocols.base import (
    HttpReply,
    InvalidRequest,
    JobRejected,
    JobRequest,
    Phase,
    TransientReply,
)
from airflow_relay.protocols.registry import get_protocol, protocol_names

MANUAL = Path(__file__).parents[3] / "docs" / "adding-a-protocol.md"


@pytest.mark.parametrize("name", ["responses", "a2a", "http202", "openclaw"])
def test_each_built_in_protocol_is_found_under_its_own_name(name):
    protocol = get_protocol(name)
    assert protocol.name == name
    assert name in protocol_names()
    assert protocol.ref("1").protocol == name


def test_settings_reach_the_protocol():
    assert get_protocol("a2a", {"endpoint": "/x", "min_poll_interval": 3}).endpoint == "/x"
    assert get_protocol("responses", {"idempotency": True}).capabilities.idempotent_submit


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("smtp", {}, "no agent protocol 'smtp'; there are .*responses"),
        ("responses", {"endpoint": "/x"}, r"has no setting \['endpoint'\]; it has .*'path'"),
        ("responses", {"allow_empty": "false"}, "allow_empty must be bool, not 'false'"),
        ("a2a", {"endpoint": 7}, "endpoint must be str"),
        ("a2a", {"min_poll_interval": True}, "min_poll_interval must be float"),
        ("a2a", {"version": "9"}, "9"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_sent(name, options, why):
    with pytest.raises(InvalidRequest, match=why):
        get_protocol(name, options)


def install(folder: Path, module: str, source: str, entry: str) -> None:
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINT_GROUP}]\n{entry}\n")


@pytest.fixture
def crew(tmp_path, monkeypatch):
    """The manual's example, installed as a package with an entry point."""
    (source,) = re.findall(r"^```python\n(.*?)^```$", MANUAL.read_text(), re.DOTALL | re.MULTILINE)
    assert len(source.splitlines()) < 100
    install(tmp_path, "relay_crewai_example", source, "crewai = relay_crewai_example:CrewProtocol")
    monkeypatch.syspath_prepend(tmp_path)
    registry._load.cache_clear()
    yield get_protocol("crewai", {"input_name": "topic"})
    registry._load.cache_clear()


def reply(body, status: int = 200) -> HttpReply:
    return HttpReply(status, {}, body if isinstance(body, str) else json.dumps(body))


def test_the_manuals_example_is_found_by_its_entry_point(crew):
    assert crew.name == "crewai"
    assert "crewai" in protocol_names()


def test_the_manuals_example_speaks_from_submit_to_output(crew):
    call = crew.submit(JobRequest(input="airflow", key="k", options={"depth": 2}))
    assert (call.method, call.path) == ("POST", "/kickoff")
    assert call.json["inputs"] == {"topic": "airflow", "depth": 2}
    queued = crew.parse_submit(reply({"kickoff_id": "k/1"}))
    assert queued.phase is Phase.QUEUED
    assert crew.poll(queued.ref).path == "/status/k%2F1"
    running = crew.parse_poll(queued.ref, reply({"status": "running", "current_task": "research"}))
    assert (running.phase, running.progress) == (Phase.RUNNING, "research")
    done = crew.parse_poll(queued.ref, reply({"status": "completed", "result": {"output": '{"a": 1}'}}))
    assert (done.phase, done.data) == (Phase.SUCCEEDED, {"a": 1})


def test_the_manuals_example_keeps_the_four_rules(crew):
    ref = crew.ref("1")
    with pytest.raises(TransientReply) as error:
        crew.parse_submit(reply({"ok": True}))
    assert error.value.ambiguous
    with pytest.raises(TransientReply):
        crew.parse_poll(ref, reply("<html>", 503))
    with pytest.raises(JobRejected):
        crew.parse_submit(reply({"error": "no"}, 401))
    assert crew.parse_poll(ref, reply("", 404)).phase is Phase.LOST
    assert crew.parse_poll(ref, reply({"status": "completed", "result": {}})).error.code == "empty_output"
    assert crew.parse_poll(ref, reply({"status": "error", "error": "boom"})).error.message == "boom"
    assert crew.cancel(ref) is None


@pytest.mark.parametrize(
    "target", ["json:JSONDecoder", "airflow_relay.protocols.responses:ResponsesProtocol"]
)
def test_an_entry_point_that_gives_no_protocol_of_its_name_is_refused(tmp_path, monkeypatch, target):
    install(tmp_path, "relay_wrong_example", "", f"wrong = {target}")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidRequest, match="whose own name is 'wrong'"):
        get_protocol("wrong")
