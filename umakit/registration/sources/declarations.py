# SPDX-License-Identifier: Apache-2.0
"""The declarations of a C file at file scope, without deciding any `#if`.

Tokens come from translation phases 2 and 3 of C (C99, 5.1.1.2): lines that end in a backslash are
joined, comments are one space, and the rest is tokens. Texts of strings are left out, except
assembler.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
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
    match = DEFINITION.fullmatch(text)
    if match is None:
        return None
    name, listed, body = match[1], match[2], match[4].strip()
    parameters = None
    if listed is not None:
        parameters = tuple(each.strip() for each in match[3].split(",") if each.strip())
    return name, Macro(parameters, tokens_of(body), body)


def is_identifier(token: str) -> bool:
    return token[0].isalpha() or token[0] in "_$"


def is_name(token: str) -> bool:
    """Whether a token is a name that may be declared."""
    return is_identifier(token) and token not in KEYWORDS


TYPES = frozenset(("struct", "union", "enum", "class"))


@dataclass(frozen=True)
class Declaration:
    """Tokens at file scope up to a semicolon, `head`, or up to the braces around `body`."""

    head: Tokens
    body: Tokens = ()
    is_function: bool = False


@dataclass(frozen=True)
class Include:
    """An `#include` directive.

    Attributes:
        text: the rest of the line.
        inside: whether the directive is inside of braces.
        unconditional: whether the directive precedes all conditions except an include guard.
    """

    text: str
    inside: bool
    unconditional: bool


@dataclass
class Declarations:
    """The declarations and directives of a file.

    Attributes:
        used: tokens that always count as used: of assembler and of `#pragma weak`.
        is_clear: whether all braces match.
    """

    found: list[Declaration] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    includes: list[Include] = field(default_factory=list)
    macros: list[tuple[str, Macro]] = field(default_factory=list)
    is_clear: bool = True


@dataclass
class _State:
    braces: int = 0
    parentheses: int = 0
    head: list[str] = field(default_factory=list)
    kind: str = ""

    def copy(self) -> _State:
        return _State(self.braces, self.parentheses, [*self.head], self.kind)


def read_declarations(lines: Iterable[Line]) -> Declarations:
    """Return the declarations and directives in the lines of a file.

    All branches of `#if` are read. Each branch begins with the open braces at `#if`.
    """
    reader = _Reader()
    for line in lines:
        if isinstance(line, Directive):
            reader.directive(line)
        else:
            for token in line:
                reader.token(token)
    reader.end()
    return reader.result


class _Reader:
    def __init__(self) -> None:
        self.result = Declarations()
        self._now = _State()
        self._body: list[str] = []
        self._other_heads: list[list[str]] = []
        self._before: list[_State] = []
        self._conditions = 0
        self._directives = 0

    def directive(self, line: Directive) -> None:
        name = line.name
        self._directives += 1
        if name in ("if", "ifdef", "ifndef"):
            is_guard = name == "ifndef" and self._directives == 1
            self._conditions += not is_guard
            self._before.append(self._now.copy())
        elif name in ("else", "elif", "elifdef", "elifndef") and self._before:
            self._other_branch(self._before[-1])
        elif name == "endif" and self._before:
            self._before.pop()
        elif name in ("include", "include_next", "import", "embed"):
            include = Include(line.text, self._now.braces > 0, not self._conditions)
            self.result.includes.append(include)
        elif name == "define":
            macro = macro_of(line.text)
            if macro is not None:
                self.result.macros.append(macro)
        elif name == "pragma" and line.text.startswith(("weak", "redefine_extname")):
            self.result.used += line.text.split()

    def _other_branch(self, before: _State) -> None:
        """Restore the state at the condition; keep declarations begun in the last branch."""
        now = self._now
        if now.kind and not before.kind:
            self._other_heads.append(now.head)
        elif not now.kind and len(now.head) > len(before.head):
            self.result.found.append(Declaration(tuple(now.head)))
        self._now = before.copy()

    def token(self, token: str) -> None:
        now = self._now
        if now.braces:
            now.braces += (token == "{") - (token == "}")
            if now.braces:
                self._body.append(token)
            else:
                self._close()
            return
        now.parentheses = max(0, now.parentheses + (token == "(") - (token == ")"))
        if now.parentheses or token == ")":
            now.head.append(token)
        elif token == "{":
            self._open()
        elif token == "}":  # of extern "C", of a namespace
            now.head.clear()
        elif token == ";" and not _is_old_style(now.head):
            self._emit(is_function=False)
        else:
            now.head.append(token)

    def _open(self) -> None:
        head = self._now.head
        linkage = ["extern", '""']  # and the words of the string in a file with assembler
        if "namespace" in head or linkage in (head[-2:], head[-3:-1]):
            head.clear()
            return
        if "=" in head:
            self._now.kind = "value"
        elif TYPES & set(head) and not _ends_in_parameters(head):
            self._now.kind = "type"
        else:
            self._now.kind = "function"
        self._now.braces = 1

    def _close(self) -> None:
        kind, self._now.kind = self._now.kind, ""
        if kind == "function":
            self._emit(is_function=True)
        elif kind == "type":
            if {"{", "="} & set(self._body):  # functions of a class
                self.result.used += self._body
            self._body = []

    def _emit(self, is_function: bool) -> None:
        body = tuple(self._body)
        for head in (*self._other_heads, self._now.head):
            if head or body:
                self.result.found.append(Declaration(tuple(head), body, is_function))
        self._body, self._other_heads = [], []
        self._now.head = []

    def end(self) -> None:
        if self._now.braces:
            self.result.is_clear = False
        self._emit(is_function=bool(self._now.braces))


def _ends_in_parameters(head: Sequence[str]) -> bool:
    return ")" in head and "(" in head


def _is_old_style(head: Sequence[str]) -> bool:
    """Whether parameters are declared after the parentheses, as before C89."""
    if ")" not in head or head[0] == "typedef":
        return False
    start, end = head.index("("), head.index(")")
    names = set(head[start + 1 : end : 2])
    is_list = all(map(is_identifier, names)) and set(head[start + 2 : end : 2]) <= {","}
    behind = head[end + 1 :]
    return is_list and "(" not in behind and not names.isdisjoint(behind)
