# SPDX-License-Identifier: Apache-2.0
"""Escaping of untrusted text, with one function per target language.

Names of layers and tensors, paths and descriptions may hold any characters. Before such a text is
shown or written, the function of the target language escapes it. Libraries escape JSON
(`json.dumps`) and HTML (`umakit.text.rendering.render_html` escapes every value).
`umakit.text.names` makes names plain before they become part of code, build files or paths.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

COMMENT_LENGTH = 300
"""Maximum number of characters of a text in a C comment; longer texts are cut in the middle."""

CONTEXT = 4
"""Characters that stay in front of where texts differ that are shortened apart."""

SHOWN_LENGTH = 4000
"""Maximum number of characters of a line on a terminal or in a picture; longer lines are cut in
the middle."""


def visible(text: str) -> str:
    """Return the text on one line, with characters that are invisible or affect others escaped.

    Control characters (line breaks and the escape sequences of terminals among them), characters
    that change the direction of writing, unpaired surrogates and unassigned code points become
    escapes as in Python: `\\x1b`, `\\u202e`. The result is valid in UTF-8 and XML.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, most: int = SHOWN_LENGTH) -> str:
    """Return a text of at most `most` characters, with the middle of a longer text omitted."""
    if len(text) <= most:
        return text
    start = max(most // 2, 1)
    return f"{text[:start]}\N{HORIZONTAL ELLIPSIS}{text[len(text) - (most - start - 1) :]}"


def shortened_apart(texts: Sequence[str], most: int) -> list[str]:
    """Return texts of at most `most` characters. Different texts stay different if possible.

    Texts that would be shortened to equal ones keep the part from their first difference on.
    """
    found = [shortened(text, most) for text in texts]
    for short in {each for each in found if found.count(each) > 1}:
        alike = [text for text, each in zip(texts, found, strict=True) if each == short]
        if len(set(alike)) == 1:
            continue
        letters = enumerate(zip(*alike, strict=False))
        same = next((n for n, each in letters if len(set(each)) > 1), min(map(len, alike)))
        for number, text in enumerate(texts):
            if found[number] == short:
                found[number] = _from(text, max(same - CONTEXT, 0), most)
    return found


def _from(text: str, first: int, most: int) -> str:
    """Return the start of a text and the part from a character on, with an ellipsis between."""
    end = text[first:]
    if len(end) >= most:
        return "\N{HORIZONTAL ELLIPSIS}" + shortened(end, most - 1)
    return f"{text[: most - len(end) - 1]}\N{HORIZONTAL ELLIPSIS}{end}"


def shown(text: str, most: int = SHOWN_LENGTH) -> str:
    """Return a line for a terminal, picture or page, escaped by `visible` and shortened."""
    return visible(shortened(text, most))


def c_comment(text: str) -> str:
    """Return the text for use inside a C comment: escaped, without `/*`, `*/` or trigraphs.

    Comment marks are split last, so that no later step can recreate one. `??/`, a backslash to a
    C99 compiler, is split too.
    """
    apart = shown(text, COMMENT_LENGTH)
    return re.sub(r"(?<=\*)(?=/)|(?<=/)(?=\*)|(?<=\?\?)(?=/)", " ", apart)


def c_string(text: str) -> str:
    """Return a C and C++ string literal. Characters other than printable ASCII become octal escapes
    of UTF-8."""
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
    """Return a Markdown code span for a line or a table cell (CommonMark 0.31, section 6.1)."""
    code = shown(text, COMMENT_LENGTH).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", code)), default=0) + 1)
    space = " " if not code.strip() or "`" in (code[0], code[-1]) else ""
    return f"{fence}{space}{code}{space}{fence}"


def shell_word(text: str) -> str:
    """Quote a path or argument as one word of a POSIX shell that is never parsed as an option."""
    word = f"./{text}" if text.startswith("-") else text
    return shlex.quote(word)
