"""Read a scenario file; what is wrong in it is told with line and field."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from airflow_relay.simulation.scenario import Scenario
from airflow_relay.simulation.scenario_checks import ScenarioContradictionError

_UNSAID: Final = "Value error, "
Path_ = Sequence[str | int]


class ScenarioFileError(Exception):
    """A scenario file cannot be used. Each line of the text is one problem: ``file:line: field: problem``."""


def shipped() -> list[str]:
    """Names of the scenarios that come with Relay."""
    folder = files("airflow_relay.simulation") / "scenarios"
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml"))


def load(name: str) -> Scenario:
    """A scenario by the path of its YAML file, or by the name of one that comes with Relay.

    :raises ScenarioFileError: there is no such file, or something in it is wrong.
    """
    if name in shipped():
        source = files("airflow_relay.simulation") / "scenarios" / f"{name}.yaml"
        return parse(source.read_text(encoding="utf-8"), f"{name}.yaml")
    path = Path(name)
    if not path.is_file():
        raise ScenarioFileError(
            f"{name}: no such file. Scenarios that come with Relay: {', '.join(shipped())}."
        )
    return parse(path.read_text(encoding="utf-8"), name)


def parse(text: str, file: str = "scenario") -> Scenario:
    """A scenario from YAML.

    :param file: name for the messages.
    :raises ScenarioFileError: with every problem found.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ScenarioFileError(f"{file}:{line}: no valid YAML: {error.problem}") from error
    twice = "\n".join(f"{file}:{line}: {name}: is given twice" for line, name in _repeated(root))
    if twice:
        raise ScenarioFileError(twice)
    if not isinstance(data, dict):
        raise ScenarioFileError(f"{file}:1: a scenario is a table of names and values")
    base = data.pop("extends", None)
    if base is not None:
        data = {**_base(str(base), file), **data}
    try:
        return Scenario.model_validate(data)
    except ValidationError as error:
        told = "\n".join(_problem(file, root, dict(e)) for e in _causes(error))
        raise ScenarioFileError(told) from error


def _repeated(node: yaml.Node | None) -> Iterator[tuple[int, str]]:
    """Names that a table gives twice, of which YAML would take the last."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                yield key.start_mark.line + 1, str(key.value)
            seen.add(key.value)
            yield from _repeated(value)
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            yield from _repeated(child)


def _causes(error: ValidationError) -> list[Any]:
    """The errors without those that only follow: a list is called too short when its entries are wrong, and a
    text that is wrong is no table either.
    """
    places = [e["loc"] for e in error.errors()]
    told = {e["loc"][:-1] for e in error.errors() if e["type"] == "value_error"}

    def follows(e: Any) -> bool:
        if e["type"] == "too_short":
            return any(len(p) > len(e["loc"]) and p[: len(e["loc"])] == e["loc"] for p in places)
        return e["type"] == "dict_type" and e["loc"][:-1] in told and _is_alternative(e["loc"][-1])

    return [e for e in error.errors() if not follows(e)]


def _base(name: str, file: str) -> dict[str, Any]:
    """The tables of a shipped scenario, which the file replaces one by one."""
    if name not in shipped():
        raise ScenarioFileError(f"{file}: extends: {name!r} is none of {', '.join(shipped())}")
    text = (files("airflow_relay.simulation") / "scenarios" / f"{name}.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


def _problem(file: str, root: yaml.Node | None, error: dict[str, Any]) -> str:
    cause = error.get("ctx", {}).get("error")
    where = cause.path if isinstance(cause, ScenarioContradictionError) else error["loc"]
    what = error["msg"].removeprefix(_UNSAID)
    line, path = _place(root, where)
    if error["type"] == "extra_forbidden":
        what = f"there is no such field{_near(str(where[-1]), error)}"
    elif error["type"] == "missing":
        what = "is missing"
    return f"{file}:{line}: {'.'.join(path) or 'scenario'}: {what}"


def _near(name: str, error: dict[str, Any]) -> str:
    known = error.get("known") or _fields()
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _fields() -> list[str]:
    """Every field name that a scenario knows, wherever."""
    from airflow_relay.simulation import quantity, scenario  # noqa: PLC0415 - only for the message

    sections = [c for m in (scenario, quantity) for c in vars(m).values() if hasattr(c, "model_fields")]
    return sorted({name for section in sections for name in section.model_fields})


def _place(node: yaml.Node | None, where: Path_) -> tuple[int, list[str]]:
    """The line of the deepest part of the path that the file has, and the path in words.

    Pydantic puts names of alternatives into its paths, which are not in the file and are left out.
    """
    path: list[str] = []
    line = node.start_mark.line + 1 if node is not None else 1
    for position, step in enumerate(where):
        key, child = _child(node, step)
        if child is not None:
            node, path = child, [*path, str(step)]
            line = (key or child).start_mark.line + 1
        elif position == len(where) - 1 and not _is_alternative(step):
            path.append(str(step))
    return line, path


def _is_alternative(step: str | int) -> bool:
    return isinstance(step, str) and (step in {"str", "float", "int"} or "[" in step)


def _child(node: yaml.Node | None, step: str | int) -> tuple[yaml.Node | None, yaml.Node | None]:
    """(node of the key, node of the value) one step further; nothing when the file does not have it."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return key, value
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return None, node.value[step]
    return None, None
