"""Airflow's configuration reference and metrics registry, read with the line of every entry."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import yaml

from .packages import locate
from .passages import Passage, PassageKind, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG_PATH = "apache-airflow-core/airflow/config_templates/config.yml"
METRICS_PATH = "apache-airflow-core/airflow/_shared/observability/metrics/metrics_template.yaml"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Setting:
    """One option of the configuration reference."""

    section: str
    option: str
    default: str
    """The default as the reference writes it; ``none`` when there is none."""
    default_line: int
    default_quote: str
    """The line of the default as it stands in the file, to cite."""
    version_added: str
    """Empty for an option that is older than the reference's records."""
    line_start: int
    """The line of the option's name."""
    line_end: int
    description_line: int
    description: tuple[str, ...]
    """The description's lines, as indented in the file."""

    @property
    def name(self) -> str:
        """The option as people write it: ``[section] option``."""
        return f"[{self.section}] {self.option}"

    @property
    def variable(self) -> str:
        """The environment variable that sets the option."""
        return f"AIRFLOW__{self.section.upper().replace('.', '_')}__{self.option.upper()}"


@dataclass(frozen=True)
class Metric:
    """One entry of the metrics registry."""

    name: str
    type: str
    """counter, gauge or timer"""
    legacy_name: str
    """The older name with variables in it, exported too while ``[metrics] legacy_names_on``; may be empty."""
    line_start: int
    line_end: int
    passage: Passage


@lru_cache(maxsize=1)
def settings() -> tuple[Setting, ...]:
    """All options of the installed configuration reference, in the file's order."""
    lines = _read(CONFIG_PATH)
    root = yaml.compose("\n".join(lines), Loader=_LOADER)
    found = []
    for section, body in root.value:
        for key, options in body.value:
            if key.value == "options":
                found += [_setting(section.value, name, option, lines) for name, option in options.value]
    return tuple(found)


@lru_cache(maxsize=1)
def metrics() -> tuple[Metric, ...]:
    """All entries of the installed metrics registry, in the file's order."""
    lines = _read(METRICS_PATH)
    root = yaml.compose("\n".join(lines), Loader=_LOADER)
    return tuple(
        _metric(entry, lines)
        for key, entries in root.value
        if key.value == "metrics"
        for entry in entries.value
    )


def setting_passages() -> Iterator[Passage]:
    """The descriptions of all options as passages."""
    for setting in settings():
        for offset, text in pieces(setting.description):
            yield Passage(
                kind=PassageKind.SETTING,
                title=setting.name,
                path=CONFIG_PATH,
                line=setting.description_line + offset,
                text=text,
            )


def metric_passages() -> Iterator[Passage]:
    """The descriptions of all metrics as passages."""
    return (metric.passage for metric in metrics())


def setting_at(path: str, line: int) -> Setting | None:
    """The option whose entry covers this line of the configuration reference."""
    if path != CONFIG_PATH:
        return None
    return next((entry for entry in settings() if entry.line_start <= line <= entry.line_end), None)


def metric_at(path: str, line: int) -> Metric | None:
    """The metric whose entry covers this line of the metrics registry."""
    if path != METRICS_PATH:
        return None
    return next((entry for entry in metrics() if entry.line_start <= line <= entry.line_end), None)


def _read(path: str) -> list[str]:
    return locate(path).read_text(encoding="utf-8").splitlines()


def _setting(section: str, name: yaml.Node, option: yaml.MappingNode, lines: list[str]) -> Setting:
    parts = {key.value: (key, value) for key, value in option.value}
    start, written = _written(parts["description"][1], lines)
    default_key, default = parts["default"]
    default_line = default_key.start_mark.line
    return Setting(
        section=section,
        option=name.value,
        default=_plain(default),
        default_line=default_line + 1,
        default_quote=lines[default_line].strip(),
        version_added=_plain(parts["version_added"][1], none=""),
        line_start=name.start_mark.line + 1,
        line_end=_last_line(default) + 1,
        description_line=start + 1,
        description=tuple(written),
    )


def _metric(entry: yaml.MappingNode, lines: list[str]) -> Metric:
    parts = {key.value: value for key, value in entry.value}
    start, written = _written(parts["description"], lines)
    name, kind = parts["name"].value, parts["type"].value
    return Metric(
        name=name,
        type=kind,
        legacy_name=_plain(parts["legacy_name"], none="").strip("-"),
        line_start=entry.start_mark.line + 1,
        line_end=max(_last_line(value) for value in parts.values()) + 1,
        passage=Passage(
            kind=PassageKind.METRIC,
            title=name,
            path=METRICS_PATH,
            line=start + 1,
            text="\n".join(line.strip() for line in written),
        ),
    )


def _written(node: yaml.Node, lines: list[str]) -> tuple[int, list[str]]:
    """A scalar's first line (from 0) and its lines as they stand in the file, without YAML's own marks."""
    if _is_block(node):
        start = node.start_mark.line + 1
        return start, lines[start : max(start, _last_line(node)) + 1]
    start = node.start_mark.line
    written = lines[start : max(start, _last_line(node)) + 1]
    written[0] = written[0][node.start_mark.column :]
    if getattr(node, "style", None) in {"'", '"'}:
        written[0] = written[0][1:]
        written[-1] = written[-1].rstrip()[:-1]
    return start, written


def _is_block(node: yaml.Node) -> bool:
    return getattr(node, "style", None) in {"|", ">"}


def _last_line(node: yaml.Node) -> int:
    """The last line (from 0) of a value; a block scalar's end mark stands at the next key."""
    mark = node.end_mark
    return int(mark.line) - (1 if mark.column == 0 or _is_block(node) else 0)


def _plain(node: yaml.Node, none: str = "none") -> str:
    if node.tag == "tag:yaml.org,2002:null":
        return none
    return " ".join(str(node.value).split()) or "empty"
