# SPDX-License-Identifier: Apache-2.0
"""Tokens and directives of a C file, without deciding any `#if`.

Translation phases 2 and 3 of C (C99, 5.1.1.2): lines that end in a backslash are joined, comments
are one space, and the rest is tokens. Texts of strings are left out, except assembler.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

SPLICE = re.compile(r"\\[ \t]*\r?\n")
PIECE = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))"
    r'|(?P<string>"(?:\\.|[^"\\\n])*")'
    r"|(?P<character>'(?:\\.|[^'\\\n])*')",
    re.DOTALL,
)
TOKEN = re.compile(r'[A-Za-z_$][\w$]*|\.?\d(?:[eEpP][+-]|[\w.])*|##|"[^"\n]*"|\S')
IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")
DIRECTIVE = re.compile(r"[ \t]*(?:#|%:)[ \t]*(\w*)[ \t]*(.*)", re.DOTALL)
DEFINITION = re.compile(r"([A-Za-z_$][\w$]*)(\(([^)]*)\))?(.*)", re.DOTALL)
FILE_NAME = re.compile(r'(?:"([^"\n]+)"|<([^>\n]+)>)')
ASSEMBLER = re.compile(r"\b(?:__)?asm(?:__)?\b")

KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if "
    "inline int long register restrict return short signed sizeof static struct switch typedef "
    "union unsigned void volatile while _Bool _Complex _Imaginary".split()
)

Tokens = tuple[str, ...]


@dataclass(frozen=True)
class Macro:
    """A definition of a macro.

    Attributes:
        parameters: names of the parameters; None for a macro without a list of parameters.
        body: tokens of the definition.
        text: text of the definition, possibly a file name.
    """

    parameters: tuple[str, ...] | None
    body: Tokens
    text: str


@dataclass(frozen=True)
class Directive:
    """A line of the preprocessor: its name and the rest of the line, without comments."""

    name: str
    text: str


Line = Tokens | Directive


@lru_cache(maxsize=4096)
def read_lines(content: bytes) -> tuple[Line, ...]:
    """Return the lines of a C file as tokens or directives; empty lines are left out."""
    text = SPLICE.sub("", content.decode("utf-8", "replace").lstrip("\ufeff"))
    has_assembler = ASSEMBLER.search(text) is not None
    return tuple(_lines(_plain(text), has_assembler))


def _plain(text: str) -> str:
    """Return the text without comments and character constants."""

    def replaced(match: re.Match[str]) -> str:
        if match["string"] is not None:
            return match[0]
        return " " if match["comment"] is not None else "0"

    return PIECE.sub(replaced, text)


def _lines(text: str, has_assembler: bool) -> Iterator[Line]:
    for line in text.splitlines():
        directive = DIRECTIVE.fullmatch(line)
        if directive is not None:
            yield Directive(directive[1], directive[2].strip())
            continue
        tokens = tokens_of(line, has_assembler)
        if tokens:
            yield tokens


def tokens_of(text: str, with_strings: bool = False) -> Tokens:
    """Return the tokens of a text; words in strings only for possible assembler."""
    found: list[str] = []
    for token in TOKEN.findall(text):
        if token.startswith('"') and len(token) > 1:
            found.append('""')
            found += IDENTIFIER.findall(token) if with_strings else []
        else:
            found.append(token)
    return tuple(found)


def macro_of(text: str) -> tuple[str, Macro] | None:
    """Return name and definition of the rest of a line `#define`; None if malformed."""
    match = DEFINITION.fullmatch(text)
    if match is None:
        return None
    name, listed, body = match[1], match[2], match[4].strip()
    parameters = None
    if listed is not None:
        parameters = tuple(each.strip() for each in match[3].split(",") if each.strip())
    return name, Macro(parameters, tokens_of(body), body)


def is_identifier(token: str) -> bool:
    """Whether a token is a name or a keyword."""
    return token[0].isalpha() or token[0] in "_$"


def is_name(token: str) -> bool:
    """Whether a token is a name that may be declared."""
    return is_identifier(token) and token not in KEYWORDS
