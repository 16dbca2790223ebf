# SPDX-License-Identifier: Apache-2.0
"""Names that end comments, strings, lines or paths in some language, and how to draw them."""

from __future__ import annotations

from hypothesis import strategies as st

PARTS = (
    *("*/", "/*", "*\\", "\\*", "*\\/", "*/*", "/*/", "//", "\\", "\\\n", "??/", "??/\n", "*??/"),
    *('"', "'", "`", "``", "$(touch RAN)", "`touch RAN`", "${PATH}", "$ENV{PATH}", "@PATH@"),
    *(";", "]]", "]=]", "#", "%", "%s%n", "{", "}", "{{ 7 * 7 }}", "{% raw %}", "<script>", "]]>"),
    *("&amp;", "-->", "</title>", "|", "\n", "\r", "\r\n", "\t", "\x1b[31m", "\x1b]0;x\x07", "\b"),
    *("\x00", "\x7f", "\x85", "\u2028", "\u2029", "\u202e", "\u2066", "\ufeff", "\u200b", "\ufffe"),
    *("..", "../", "/", "/etc/passwd", "con", "nul.c", "-", "--help", "-rf", "~", " ", ":", "::"),
    *(":smile:", "%VAR%", "!x"),
    *("\u05d0\u05d1", "\u0627", "e\u0301", "\u0301", "\U0001f600", "[red]", "[/0]", "[bold"),
    *("$x_1$", "$\\frac{1}$", "_", "__", "0", "name", "conv1/Relu", "system(\"touch RAN\");"),
    *("NaN", "null", "true", "yes", "y", "1e3"),
)  # fmt: skip

WORDS = (
    *("__LINE__", "__FILE__", "_Bool", "_Pragma", "linux", "unix", "i386", "arm", "errno", "stdin"),
    *("EOF", "INT8_MAX", "I", "NULL", "assert", "signed", "int", "char8_t", "co_await", "requires"),
    *("PI", "B1", "HIGH", "F", "min", "abs", "KERNEL", "WAIT", "AFTER_LAYER", "ALIGNED", "SLACK"),
    *("status", "arena", "workspace", "workspace_size", "weights", "pools", "inputs", "outputs"),
    *("blob", "data", "layers", "figures", "before", "main", "memcpy", "uint8_t", "size_t", "expf"),
    *("tvmgen_net_run", "tvmgen_net_run_in", "TVMGEN_NET_OK", "umakit_status_string", "aligned"),
    *("maximum_float32", "register", "class", "template", "x", "X", "unnamed", "complex"),
)

HOSTILE = (*PARTS, *WORDS, "", " ", "n" * 300, "\u00e4" * 300, "*/" * 200, "long " * 20_000)


def names() -> st.SearchStrategy[str]:
    """Any text that UTF-8 can hold, and mixtures of what is known to hurt."""
    mixed = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("".join)
    return st.one_of(st.sampled_from(HOSTILE), mixed, st.text(max_size=20))
