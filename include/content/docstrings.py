"""Docstrings of the installed Airflow packages as passages, read with ``ast``: nothing is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from .citations import normalised
from .packages import documents
from .passages import Passage, PassageKind, dedented, paragraphs, pieces

_OPENING = re.compile(r"^\s*[rR]?(\"\"\"|'''|\"|')")
_CLOSING = re.compile(r"(\"\"\"|'''|\"|')\s*$")
_PARAMETER = re.compile(r"^\s*:param\s+(?:[\w\[\], .|]+\s)?\*{0,2}(\w+):\s*")
_FIELD = re.compile(r"^\s*(:[a-z]+[^:`]*:|(Args|Returns?|Raises|Yields|Examples?):\s*$)")
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_MINIMUM = 40


def docstring_passages(words: Sequence[str]) -> Iterator[Passage]:
    """Passages of public docstrings, from those modules that contain at least one of the words (any case).

    Looking for the words first spares parsing a thousand modules for each question.
    """
    wanted = [word.lower() for word in words if word.strip()]
    for document in documents((".py",)):
        source = document.file.read_text(encoding="utf-8")
        lowered = source.lower()
        if any(word in lowered for word in wanted):
            yield from module_passages(document.path, source)


@lru_cache(maxsize=1024)
def module_passages(path: str, source: str) -> tuple[Passage, ...]:
    """Passages of one module: its own docstring, its public classes and functions, and their parameters.

    :param path: as citations name it.
    :param source: the module's text.
    """
    lines = source.splitlines()
    module = path.rsplit("/", 1)[-1].removesuffix(".py")
    documented = _documented(ast.parse(source), module, outer=())
    return tuple(passage for title, node in documented for passage in _docstring(path, title, node, lines))


def _documented(node: ast.AST, module: str, outer: tuple[str, ...]) -> Iterator[tuple[str, ast.Expr]]:
    body = getattr(node, "body", [])
    if body and _is_text(body[0]):
        yield ".".join(outer) or module, body[0]
    for child in body:
        if isinstance(child, _DEFINITIONS) and not child.name.startswith("_"):
            yield from _documented(child, module, (*outer, child.name))


def _is_text(statement: ast.stmt) -> bool:
    value = getattr(statement, "value", None)
    return (
        isinstance(statement, ast.Expr) and isinstance(value, ast.Constant) and isinstance(value.value, str)
    )


def _docstring(path: str, title: str, expression: ast.Expr, lines: Sequence[str]) -> Iterator[Passage]:
    first, last = expression.lineno - 1, expression.end_lineno or expression.lineno
    written = list(lines[first:last])
    written[0] = _OPENING.sub("", written[0], count=1)
    written[-1] = _CLOSING.sub("", written[-1], count=1)
    text = expression.value.value if isinstance(expression.value, ast.Constant) else ""
    if normalised("\n".join(written)) != normalised(str(text)):
        return  # escapes or joined literals: the lines of the file are not the words of the text
    prose, parameters = _parted(written)
    for offset, piece in pieces(prose):
        if len(piece) >= _MINIMUM:
            yield Passage(PassageKind.DOCSTRING, title, path, first + 1 + offset, piece)
    for name, offset, piece in parameters:
        if len(piece) >= _MINIMUM:
            yield Passage(PassageKind.DOCSTRING, f"{title}({name})", path, first + 1 + offset, piece)


def _parted(written: Sequence[str]) -> tuple[list[str], list[tuple[str, int, str]]]:
    """The docstring's prose with its field lists blanked, and the text of every ``:param name:``."""
    prose = list(written)
    parameters = []
    for start, block in paragraphs(written):
        index = 0
        while index < len(block):
            end = index + 1
            if _FIELD.match(block[index]):
                while end < len(block) and not _FIELD.match(block[end]):
                    end += 1
                prose[start + index : start + end] = [""] * (end - index)
                match = _PARAMETER.match(block[index])
                if match:
                    entry = [block[index][match.end() :], *block[index + 1 : end]]
                    skipped = 0 if entry[0].strip() else 1
                    if entry[skipped:]:
                        parameters.append((match[1], start + index + skipped, dedented(entry[skipped:])))
            index = end
    return prose, parameters
