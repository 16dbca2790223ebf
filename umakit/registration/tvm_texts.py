# SPDX-License-Identifier: Apache-2.0
"""Texts of TVM's exceptions without what only its developers can use.

A text of TVM may hold the whole program with a place marked in it, a backtrace of C++ files, the
condition of a check in C++, and numbers of nodes that only the program printed with it explains.
"""

from __future__ import annotations

import re

MESSAGE = "Error message: "
"""Begins the message of a schedule primitive, behind the program."""

NODE = re.compile(r"\b(?:s_tir\.SBlock|tirx\.For|tirx\.\w+)#\d+")
BLOCK = re.compile(r'with T\.s?block\("([^"]+)"')
LOOP = re.compile(r"for ([\w, ]+) in ")
LOG_PREFIX = re.compile(r"^\[[\d:.]+\] \S+:\d+: ")
CHECK = re.compile(
    r"^Check failed: (?:\((?P<bracketed>.*?)\) is false|(?P<plain>.*?)): ?(?P<text>.*)$"
)
ARGUMENT = re.compile(
    r"^Mismatched type on argument #(\d+) when calling: `([\w.]+)\(.*`\. "
    r"Expected `(.*)` but got `(.*)`$"
)
KIND = re.compile(r"^(?:\w+Error|\w+\.\w+Error): ")


def plain_tvm_text(text: str) -> str:
    """Return the sentence in an exception's text, which may come from TVM, on one line.

    Args:
        text: what `str` says of the exception.
    """
    program, _, message = text.rpartition(MESSAGE)
    lines = [line.strip() for line in message.splitlines()]
    lines = [line for line in lines if line and not line.startswith("note: run with `TVM_")]
    if not lines:
        return ""
    if any(line.startswith(("Traceback", "Stack trace", "File ")) for line in lines):
        lines = lines[-1:]
    sentence = LOG_PREFIX.sub("", " ".join(lines))
    if program or sentence.startswith("InternalError"):
        sentence = KIND.sub("", sentence)
    sentence = ARGUMENT.sub(r"argument \1 of \2 is `\4` instead of `\3`", sentence)
    if found := CHECK.match(sentence):
        condition = found["bracketed"] or found["plain"]
        sentence = found["text"].strip() or f"{condition} does not hold"
    return _with_names(sentence, program)


def _with_names(sentence: str, program: str) -> str:
    """Replace numbers of nodes by the names of blocks and loops that the program has."""

    def named(found: re.Match[str]) -> str:
        _, _, behind = program.partition(f"# {found[0]}\n")
        line = behind.lstrip().partition("\n")[0]
        name = (BLOCK if "SBlock" in found[0] else LOOP).match(line)
        if name:
            return f"'{name[1]}'"
        return ""

    return " ".join(NODE.sub(named, sentence).split()).replace(" .", ".")
