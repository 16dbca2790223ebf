# SPDX-License-Identifier: Apache-2.0
"""Texts of unknown origin in other languages: one function for each.

Names of layers and tensors, paths and descriptions hold any characters. Where such a text is shown
or written, it goes through the function of that language; JSON (`json.dumps`) and HTML
(`umakit.text.rendering.render_html`, which escapes every value) have theirs in libraries. Names
that become part of code, of build files or of paths are made plain by `umakit.text.names` before.
"""

from __future__ import annotations

import re
import shlex

COMMENT_LENGTH = 300
"""Characters of a text in a comment; longer ones are cut in the middle."""

SHOWN_LENGTH = 4000
"""Characters of a line on a terminal or in a picture; longer ones are cut in the middle."""


def visible(text: str) -> str:
    """A text that shows what is in it, on one line, and changes nothing around it.

    Control characters (line breaks and the escape sequences of terminals among them), characters
    that change the direction of writing, unpaired surrogates and unassigned code points become
    escapes as in Python: `\\x1b`, `\\u202e`. What is left can be encoded as UTF-8 and stand in XML.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    if character in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shortened(text: str, most: int = SHOWN_LENGTH) -> str:
    """A text of at most `most` characters: the middle of a longer one is left out."""
    if len(text) <= most:
        return text
    start = max(most // 2, 1)
    return f"{text[:start]}\N{HORIZONTAL ELLIPSIS}{text[len(text) - (most - start - 1) :]}"


def shown(text: str, most: int = SHOWN_LENGTH) -> str:
    """A line for a terminal, a picture or a page: visible and not too long."""
    return visible(shortened(text, most))


def c_comment(text: str) -> str:
    """What a comment of C, from `/*` to `*/`, may hold: visible, with no comment mark of its own.

    Marks are split after everything else, so that nothing can put one together again; so is `??/`,
    which is a backslash to a C99 compiler.
    """
    apart = shown(text, COMMENT_LENGTH)
    return re.sub(r"(?<=\*)(?=/)|(?<=/)(?=\*)|(?<=\?\?)(?=/)", " ", apart)


def c_string(text: str) -> str:
    """A string literal of C and C++; all but printable ASCII become octal escapes of UTF-8."""
    out = []
    for byte in text.encode("utf-8", "surrogatepass"):
        character = chr(byte)
        if character in '"\\?':
            out.append("\\" + character)
        elif 32 <= byte < 127:
            out.append(character)
        else:
            out.append(f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def markdown_code(text: str) -> str:
    """A text as code in a line or a cell of a table of Markdown (CommonMark 0.31, 6.1)."""
    code = shown(text, COMMENT_LENGTH).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", code)), default=0) + 1)
    space = " " if not code.strip() or "`" in (code[0], code[-1]) else ""
    return f"{fence}{space}{code}{space}{fence}"


def shell_word(text: str) -> str:
    """A path or argument as one word of a POSIX shell; never taken for an option."""
    word = f"./{text}" if text.startswith("-") else text
    return shlex.quote(word)
