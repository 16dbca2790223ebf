# SPDX-License-Identifier: Apache-2.0
"""Mechanical faults in SystemVerilog: one token or statement of one file is replaced.

Kinds: operators, constants, enables (the condition of an `if` becomes a constant) and resets (one
assignment of a reset is left out). `mutants` lists all there are in a text; `drawn` draws from
several files by a seed, and leaves out mutants that Verilator refuses and those of which it writes
the same C++ as before: nothing of what is compiled has changed.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

KINDS = ("operator", "constant", "enable", "reset")

RESETS = ("rst_n", "rst", "reset", "reset_n", "rst_ni", "aresetn", "areset")
"""Names that a condition has in which registers are reset."""

TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|`\w+)
    |(?P<string>"(?:\\.|[^"\\])*")
    |(?P<constant>\d*'[sS]?[bodhBODH][0-9a-fA-F_]+|'[01](?!\w)|(?<![\w.$'])\d[\d_]*(?![\w.]))
    |(?P<word>[A-Za-z_$][\w$]*)
    |(?P<operator><<<|>>>|===|!==|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[+\-*/&|^]=|->|\+:|-:|::|\.\*
        |[-+*/%<>=!~&|^?:;,.()\[\]{}@\#'\\])
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)

BINARY = {
    "+": "-", "-": "+", "==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">",
    "&&": "||", "||": "&&", "&": "|", "|": "&", "<<": ">>", ">>": "<<", ">>>": ">>",
}  # fmt: skip

UNARY = {"!": "", "~": "", "&": "|", "|": "&", "-": ""}

NO_OPERANDS = {
    "return", "if", "else", "begin", "end", "case", "assign", "posedge", "negedge", "or", "iff",
    "inside", "always_comb", "do", "default",
}  # fmt: skip

_Found = tuple[str, int, int, str]

OPENING, CLOSING = "([{", ")]}"


@dataclass(frozen=True)
class Mutant:
    """A replaced piece of a file.

    Attributes:
        kind: one of `KINDS`.
        file: name of the file.
        line: of the piece, from 1.
        column: where it begins in that line, without blanks in front of this.
        begin, end: where the piece is in the text.
        old, new: the piece, and what it is replaced with.
        code: the line as it was.
    """

    kind: str
    file: str
    line: int
    column: int
    begin: int
    end: int
    old: str
    new: str
    code: str

    @property
    def name(self) -> str:
        """File, line, and what was replaced with what, in one line."""
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.file}:{self.line}: {old} -> {new or 'nothing'}"

    def lot(self, seed: int) -> tuple[str, int]:
        """Return what says when it is drawn: changes of other lines do not change it."""
        text = f"{seed} {self.file} {self.code} {self.column} {self.old} {self.new}"
        return hashlib.sha256(text.encode()).hexdigest(), self.line

    def applied(self, text: str) -> str:
        """Return the text of the file with the fault."""
        assert text[self.begin : self.end] == self.old
        return text[: self.begin] + self.new + text[self.end :]


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    begin: int
    end: int


def mutants(text: str, file: str) -> list[Mutant]:
    """Return all mutants of a text in the order in which they begin.

    Args:
        text: SystemVerilog.
        file: name of its file.
    """
    tokens = _tokens(text)
    found = [*_operators(tokens), *_constants(tokens), *_conditions(tokens, text)]
    return located(found, text, file)


def located(found: Iterable[_Found], text: str, file: str) -> list[Mutant]:
    """Return mutants in the order in which they begin.

    Args:
        found: kind, begin, end and new text of each; equal ones count once.
        text: of the file.
        file: its name.
    """
    lines = text.splitlines()
    result = []
    for kind, begin, end, new in sorted(set(found), key=lambda each: (each[1], each[2], each[3])):
        line = text.count("\n", 0, begin) + 1
        code = lines[line - 1].strip()
        column = begin - text.index(code, text.rfind("\n", 0, begin) + 1)
        result.append(Mutant(kind, file, line, column, begin, end, text[begin:end], new, code))
    return result


def drawn(files: Mapping[str, str], seed: int, top: str) -> Iterator[Mutant]:
    """Yield mutants of a design, each kind as often as the others; they do not repeat.

    Args:
        files: texts by name, in the order in which Verilator reads them.
        seed: equal seeds draw equal mutants.
        top: the module with the ports.
    """
    left: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
    for file, text in files.items():
        for mutant in mutants(text, file):
            left[mutant.kind].append(mutant)
    for each in left.values():
        each.sort(key=lambda mutant: mutant.lot(seed), reverse=True)
    before = translated(files, top)
    assert before is not None, "Verilator refuses the design without a fault"
    while any(left.values()):
        for kind in KINDS:
            while left[kind]:
                mutant = left[kind].pop()
                text = mutant.applied(files[mutant.file])
                after = translated({**files, mutant.file: text}, top)
                if after is not None and after != before:
                    yield mutant
                    break


def translated(files: Mapping[str, str], top: str) -> dict[str, str] | None:
    """Return the C++ that Verilator writes of a design, by file; None if it refuses it.

    Args:
        files: texts by name, in the order in which Verilator reads them.
        top: the module with the ports.
    """
    verilator = shutil.which("verilator")
    assert verilator is not None
    with tempfile.TemporaryDirectory(prefix="rtl-mutator-") as temporary:
        folder = Path(temporary)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        command = [verilator, "--cc", "-O3", "--no-timing", "-Wno-fatal", "-Wno-lint", "-Wno-style"]
        command += ["--x-assign", "unique", "--x-initial", "unique", "--Mdir", "cc"]
        command += ["--top-module", top, *files]
        if subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode:
            return None
        paths = sorted((folder / "cc").glob("*.[ch]*"))
        return {path.name: _without_comments(path.read_text()) for path in paths}


def _without_comments(code: str) -> str:
    return re.sub(r"//[^\n]*", "", code)


def _tokens(text: str) -> list[_Token]:
    """Return the tokens that matter: none of comments, blanks and directives."""
    found = []
    for match in TOKEN.finditer(text):
        kind = match.lastgroup or "other"
        if kind != "skip":
            found.append(_Token(kind, match[0], match.start(), match.end()))
    return found


def _operators(tokens: Sequence[_Token]) -> Iterator[_Found]:
    depth, is_value = 0, False
    for number, token in enumerate(tokens):
        text = token.text
        if text in OPENING:
            depth += 1
        elif text in CLOSING:
            depth -= 1
        # `x <= y` is an assignment in front of any other one of its statement.
        if depth == 0 and (text in (";", "begin", "end", "else", ":") or text == ")"):
            is_value = False
        is_assignment = depth == 0 and text == "<=" and not is_value
        if depth == 0 and text in ("=", "<=", "return", "?"):
            is_value = True
        if token.kind != "operator" or is_assignment:
            continue
        before = tokens[number - 1] if number else None
        is_binary = before is not None and _is_operand(before)
        if is_binary and text in BINARY:
            if tokens[number - 1].text == "(" or _is_sensitivity(tokens, number):
                continue
            yield "operator", token.begin, token.end, BINARY[text]
        elif not is_binary and text in UNARY:
            yield "operator", token.begin, token.end, UNARY[text]


def _is_operand(token: _Token) -> bool:
    if token.kind == "constant":
        return True
    if token.kind == "word":
        return token.text not in NO_OPERANDS
    return token.text in CLOSING


def _is_sensitivity(tokens: Sequence[_Token], number: int) -> bool:
    return any(token.text == "@" for token in tokens[max(0, number - 6) : number])


def _constants(tokens: Sequence[_Token]) -> Iterator[_Found]:
    for token in tokens:
        if token.kind != "constant":
            continue
        for new in _other_constants(token.text):
            yield "constant", token.begin, token.end, new


def _other_constants(text: str) -> list[str]:
    """Return what a constant becomes: one more within its width, and 1 for 0 and 0 for 1."""
    if "'" not in text:
        value = int(text.replace("_", ""))
        return [str(other) for other in dict.fromkeys((value + 1, 0 if value == 1 else value + 1))]
    if text in ("'0", "'1"):
        return ["'1" if text == "'0" else "'0"]
    width, _, rest = text.partition("'")
    sign = rest[0] if rest[0] in "sS" else ""
    base, digits = rest[len(sign)], rest[len(sign) + 1 :].replace("_", "")
    value = int(digits, {"b": 2, "o": 8, "d": 10, "h": 16}[base.lower()])
    bits = int(width) if width else 32
    form = {"b": "b", "o": "o", "d": "d", "h": "X"}[base.lower()]
    more = (value + 1) % (1 << bits)
    values = dict.fromkeys((more, 0 if value == 1 else more))
    return [f"{width}'{sign}{base}{other:{form}}" for other in values if other != value]


def _conditions(tokens: Sequence[_Token], text: str) -> Iterator[_Found]:
    """Yield mutants of the conditions of `if`, and of what is reset in them."""
    for number, token in enumerate(tokens):
        if token.text != "if" or tokens[number + 1].text != "(":
            continue
        close = _matching(tokens, number + 1)
        inner = tokens[number + 2 : close]
        names = {each.text for each in inner if each.kind == "word"}
        after = [each.text for each in tokens[close + 1 : close + 3]]
        if after == ["begin", ":"] or after[:1] == ["$error"]:
            continue  # chooses what is there, not what happens
        if names & set(RESETS) and len(inner) <= 8:
            yield from _resets(tokens, close + 1)
            continue
        begin, end = inner[0].begin, inner[-1].end
        for new in ("1'b0", "1'b1"):
            if text[begin:end] != new:
                yield "enable", begin, end, new


def _matching(tokens: Sequence[_Token], number: int) -> int:
    depth = 0
    for other in range(number, len(tokens)):
        depth += (tokens[other].text in OPENING) - (tokens[other].text in CLOSING)
        if depth == 0:
            return other
    raise ValueError("a parenthesis is not closed")


def _resets(tokens: Sequence[_Token], first: int) -> Iterator[_Found]:
    """Yield the assignments of the statement that begins at a token, each replaced by nothing."""
    last = first
    if tokens[first].text == "begin":
        depth = 0
        while True:
            depth += (tokens[last].text == "begin") - (tokens[last].text == "end")
            if depth == 0:
                break
            last += 1
    else:
        while tokens[last].text != ";":
            last += 1
    begin = first
    for number in range(first, last + 1):
        if tokens[number].text in ("begin", "end"):
            begin = number + 1
        elif tokens[number].text == ")" and tokens[begin].text == "for":
            begin = number + 1 if _matching(tokens, begin + 1) == number else begin
        elif tokens[number].text == ";" and tokens[begin].text != "for":
            if any(each.text == "<=" for each in tokens[begin:number]):
                yield "reset", tokens[begin].begin, tokens[number].begin, ""
            begin = number + 1
