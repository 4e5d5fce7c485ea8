"""What the tracks do: read the installed Airflow packages; report figures, a table, names to follow up."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from include.content.packages import documents
from include.content.reference import metrics, settings

TABLE_LENGTH = 10
_VERSION = re.compile(r"\d+\.\d+")
_IN_TEXT = re.compile(r"deprecat", re.IGNORECASE)


@dataclass(frozen=True)
class Findings:
    """The result of one track, as JSON values."""

    title: str
    summary: str
    figures: Mapping[str, int]
    """Label → number, the first ones the most telling."""
    columns: tuple[str, str]
    rows: Sequence[tuple[str, int]]
    subjects: Sequence[str]
    """Names that the follow-up track looks for in the sources."""

    def to_json(self) -> dict[str, Any]:
        """JSON for the ledger."""
        return asdict(self)


def settings_by_section() -> Findings:
    """How large the configuration reference is, and what was added last."""
    found = settings()
    sections = Counter(setting.section for setting in found)
    recent = sorted(
        (s for s in found if _VERSION.match(s.version_added)),
        key=lambda s: tuple(int(part) for part in re.findall(r"\d+", s.version_added)),
        reverse=True,
    )
    return Findings(
        title="Configuration reference",
        summary=f"{len(found)} options in {len(sections)} sections; the newest is {recent[0].name}.",
        figures={
            "options": len(found),
            "sections": len(sections),
            "without a default": sum(s.default in ("none", "empty") for s in found),
        },
        columns=("section", "options"),
        rows=sections.most_common(TABLE_LENGTH),
        subjects=[s.option for s in recent[:TABLE_LENGTH]],
    )


def metrics_by_type() -> Findings:
    """What the metrics registry holds, by type."""
    found = metrics()
    types = Counter(metric.type for metric in found)
    words = Counter(metric.name.split(".")[0] for metric in found)
    return Findings(
        title="Metrics registry",
        summary=f"{len(found)} metrics; the most common type is {types.most_common(1)[0][0]}.",
        figures={"metrics": len(found), **dict(types.most_common())},
        columns=("first word", "metrics"),
        rows=words.most_common(TABLE_LENGTH),
        subjects=[m.name for m in found if "{" not in m.name][:TABLE_LENGTH],
    )


def docstring_coverage() -> Findings:
    """How many public classes and functions of each package say what they are."""
    total, documented = Counter[str](), Counter[str]()
    bare: list[str] = []
    for path, tree in _modules():
        package = path.split("/", 1)[0]
        for node in _public(tree):
            total[package] += 1
            if ast.get_docstring(node, clean=False):
                documented[package] += 1
            elif isinstance(node, ast.ClassDef):
                bare.append(node.name)
    percent = {package: round(100 * documented[package] / count) for package, count in total.items()}
    return Findings(
        title="Docstrings",
        summary=f"{sum(documented.values())} of {sum(total.values())} public definitions have a docstring.",
        figures={
            "definitions": sum(total.values()),
            "documented": sum(documented.values()),
            "classes without": len(bare),
        },
        columns=("package", "documented, %"),
        rows=sorted(percent.items(), key=lambda entry: (entry[1], entry[0]))[:TABLE_LENGTH],
        subjects=sorted(set(bare), key=lambda name: (-len(name), name))[:TABLE_LENGTH],
    )


def deprecations() -> Findings:
    """Where the sources speak of something that is to go."""
    files, lines = Counter[str](), Counter[str]()
    names = Counter[str]()
    for document in documents((".py",)):
        text = document.file.read_text(encoding="utf-8")
        count = sum(bool(_IN_TEXT.search(line)) for line in text.splitlines())
        if count:
            package = document.path.split("/", 1)[0]
            files[package] += 1
            lines[package] += count
            names.update(re.findall(r"\b[A-Z]\w*Deprecat\w*|\bRemovedIn\w+", text))
    return Findings(
        title="Deprecations",
        summary=f"{sum(lines.values())} lines in {sum(files.values())} files speak of deprecation.",
        figures={"lines": sum(lines.values()), "files": sum(files.values()), "packages": len(files)},
        columns=("package", "lines"),
        rows=lines.most_common(TABLE_LENGTH),
        subjects=[name for name, _ in names.most_common(TABLE_LENGTH)],
    )


ANALYSES: Mapping[str, Callable[[], Findings]] = {
    "settings": settings_by_section,
    "metrics": metrics_by_type,
    "docstrings": docstring_coverage,
    "deprecations": deprecations,
}
"""Track → its work."""


def follow_up(findings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Count in how many source files each name occurs that the tracks have found."""
    subjects = list(dict.fromkeys(name for found in findings for name in found["subjects"]))
    longest_first = sorted(subjects, key=len, reverse=True)
    any_of_them = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first)) or '(?!)'})(?!\w)")
    counts = Counter(dict.fromkeys(subjects, 0))
    for document in documents((".py",)):
        counts.update(set(any_of_them.findall(document.file.read_text(encoding="utf-8"))))
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    unused = sum(count == 0 for count in counts.values())
    return Findings(
        title="Where the findings occur",
        summary=f"{len(subjects)} names followed up; {unused} of them occur in no source file.",
        figures={"names": len(subjects), "in no source file": unused},
        columns=("name", "source files"),
        rows=ordered[: 2 * TABLE_LENGTH],
        subjects=(),
    ).to_json()


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for document in documents((".py",)):
        yield document.path, ast.parse(document.file.read_text(encoding="utf-8"))


def _public(tree: ast.Module) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
            yield node
