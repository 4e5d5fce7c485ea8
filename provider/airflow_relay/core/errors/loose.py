"""A tolerant reader of object literals: JSON, Python reprs, JavaScript's inspect form, and cut-off ones.

Error texts carry bodies in all four forms, often truncated by a logger, so a strict parser loses the code
that decides. `read_literal` is a plain recursive descent with a depth limit; it does no regular-expression
search over the whole text, so its time is linear.
"""

from __future__ import annotations

from typing import Any

MAX_DEPTH = 24
"""Nesting beyond this is dropped: no provider nests an error so deep."""

_CLOSERS = {"{": "}", "[": "]", "(": ")"}
_WORDS = {
    "true": True,
    "false": False,
    "none": None,
    "null": None,
    "nil": None,
    "undefined": None,
    "nan": None,
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}
_STOPS = frozenset(",:={}[]()'\"\n")


class NotALiteralError(ValueError):
    """The text at this place is prose, not an object literal."""


def read_literal(text: str, start: int) -> tuple[Any, int]:
    """Reads the object or list that begins at `text[start]`.

    Returns the value (dict or list) and the position behind it; a cut-off literal gives what was read.
    Raises NotALiteralError when the text there is not a literal.
    """
    return _Reader(text, start).container(0)


class _Reader:
    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.at = position

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def skip_blank(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def container(self, depth: int) -> tuple[Any, int]:
        if depth > MAX_DEPTH:
            raise NotALiteralError("nested too deep")
        opener = self.peek()
        self.at += 1
        value = self.mapping(depth) if opener == "{" else self.sequence(_CLOSERS[opener], depth)
        return value, self.at

    def mapping(self, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        while True:
            self.skip_blank()
            char = self.peek()
            if char in ("", "}"):
                self.at += 1
                return result
            if char == ",":
                self.at += 1
                continue
            key = self.value(depth + 1)
            self.skip_blank()
            if self.peek() == "{" and isinstance(
                key, str
            ):  # protobuf's text form: retry_delay { seconds: 28 }
                result[key[:200]] = self.value(depth + 1)
                continue
            if self.peek() not in (":", "="):
                # A cut-off literal ends in the middle of a key; anything else is prose in braces.
                if self.peek() == "" and result:
                    return result
                raise NotALiteralError("no key")
            self.at += 1
            if self.peek() == ">":  # Ruby's and PHP's =>
                self.at += 1
            self.skip_blank()
            if self.peek() == "":
                return result
            result[str(key)[:200]] = self.value(depth + 1)

    def sequence(self, closer: str, depth: int) -> list[Any]:
        result: list[Any] = []
        while True:
            self.skip_blank()
            char = self.peek()
            if char in ("", closer):
                self.at += 1
                return result
            if char in ",:=" or char in "})]":
                self.at += 1
                continue
            result.append(self.value(depth + 1))

    def value(self, depth: int) -> Any:
        self.skip_blank()
        char = self.peek()
        if char and char in "{[(":
            return self.container(depth)[0]
        if char and char in "\"'`":
            return self.string(char)
        if char and char in "bBuUrR" and self.text[self.at + 1 : self.at + 2] in ("'", '"'):
            self.at += 1
            return self.string(self.peek())
        return self.word(depth)

    def string(self, quote: str) -> str:
        self.at += 1
        parts: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == quote:
                self.at += 1
                break
            if char == "\\":
                parts.append(self.escape())
                continue
            parts.append(char)
            self.at += 1
        return "".join(parts)

    def escape(self) -> str:
        following = self.text[self.at + 1 : self.at + 2]
        width = {"u": 4, "x": 2}.get(following)
        if width:
            digits = self.text[self.at + 2 : self.at + 2 + width]
            try:
                character = chr(int(digits, 16))
            except ValueError:
                character = ""
            self.at += 2 + width
            return character
        self.at += 2
        return _ESCAPES.get(following, following)

    def word(self, depth: int) -> Any:
        begin = self.at
        while self.at < len(self.text) and self.text[self.at] not in _STOPS:
            self.at += 1
        if self.at == begin:
            self.at += 1  # a stray delimiter must not stop the reader
            return None
        word = self.text[begin : self.at].strip()
        if self.peek() == "(":  # a call such as URL('…') or datetime(…): read and keep its arguments
            arguments = self.container(depth)[0]
            return {word: arguments}
        return _number_or_word(word)


def _number_or_word(word: str) -> Any:
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    if len(word) > 30 or not word[-1:].isdigit():
        return word
    try:
        return float(word) if "." in word or "e" in word.lower() else int(word)
    except ValueError:
        return word
