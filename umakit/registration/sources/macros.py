# SPDX-License-Identifier: Apache-2.0
"""Possible expansions of macros, whichever of their definitions applies.

A macro has several definitions where `#if` chooses. All definitions are followed, so results hold
for every core and compiler; no compiler sees all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from umakit.registration.sources.declarations import Macro, Tokens, is_identifier, tokens_of

MOST_ALTERNATIVES = 64
"""Maximum number of texts of one macro call."""

MOST_TOKENS = 20_000
"""Maximum number of tokens of one text."""

DEEPEST = 40


class Macros(dict[str, Sequence[Macro]]):
    """Definitions of macros by name.

    Attributes:
        pasting: names of macros that join tokens, directly or through other macros.
    """

    def __init__(self, definitions: Mapping[str, Sequence[Macro]]) -> None:
        super().__init__(definitions)
        self.pasting = {
            name
            for name, each in definitions.items()
            if any("##" in macro.body or _calls_a_parameter(macro) for macro in each)
        }
        users: dict[str, set[str]] = {}
        for name, each in definitions.items():
            for token in {token for macro in each for token in macro.body}:
                users.setdefault(token, set()).add(name)
        waiting = list(self.pasting)
        while waiting:
            more = users.get(waiting.pop(), set()) - self.pasting
            self.pasting |= more
            waiting += more


def _calls_a_parameter(macro: Macro) -> bool:
    return any(
        token in (macro.parameters or ()) and behind == "("
        for token, behind in zip(macro.body, macro.body[1:], strict=False)
    )


class TooManyTextsError(Exception):
    """A macro has too many expansions to follow."""


def macros_of(defines: Iterable[str]) -> dict[str, list[Macro]]:
    """Return the macros of `NAME` and `NAME=value`."""
    found: dict[str, list[Macro]] = {}
    for define in defines:
        name, _, value = define.partition("=")
        found.setdefault(name, []).append(Macro(None, tokens_of(value or "1"), value or "1"))
    return found


def call_at(tokens: Sequence[str], start: int) -> tuple[list[Tokens], int] | None:
    """Return the arguments of a call and the place after it; None if no call starts there."""
    if start >= len(tokens) or tokens[start] != "(":
        return None
    arguments: list[list[str]] = [[]]
    depth = 1
    for place in range(start + 1, len(tokens)):
        token = tokens[place]
        depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
        if depth == 0:
            return [tuple(each) for each in arguments], place + 1
        if token == "," and depth == 1:
            arguments.append([])
        else:
            arguments[-1].append(token)
    return None


def texts_of(tokens: Tokens, macros: Macros, depth: int = 0) -> list[Tokens]:
    """Return all possible expansions of tokens, the tokens first.

    Raises:
        TooManyTextsError: there are too many expansions.
    """
    if depth > DEEPEST:
        return [tokens]
    texts: list[Tokens] = [()]
    place = 0
    while place < len(tokens):
        token = tokens[place]
        place += 1
        choices: list[Tokens] = [(token,)]
        if token in macros:
            call = call_at(tokens, place)
            if call is not None:
                behind = call[1]
                choices = [tokens[place - 1 : behind]]
                for each in called_texts(token, call[0], macros, depth + 1):
                    choices += texts_of(each, macros, depth + 1)
                place = behind
            else:
                for macro in macros[token]:
                    if macro.parameters is None and token not in macro.body:
                        choices += texts_of(macro.body, macros, depth + 1)
        choices = list(dict.fromkeys(choices))
        texts = [(*text, *choice) for text in texts for choice in choices]
        _check(texts)
    return texts


def called_texts(
    name: str, arguments: Sequence[Tokens], macros: Macros, depth: int = 0
) -> list[Tokens]:
    """Return the texts of a macro call after `##`, before the texts are scanned again.

    Raises:
        TooManyTextsError: there are too many expansions.
    """
    found: list[Tokens] = []
    for macro in macros.get(name, ()):
        if macro.parameters is None:  # stands for the name of another macro
            if name in macro.body:
                continue
            listed = [t for argument in arguments for t in (*argument, ",")][:-1]
            found.append((*macro.body, "(", *listed, ")"))
        else:
            found += _substituted(macro, arguments, macros, depth, name in macros.pasting)
    found = list(dict.fromkeys(found))
    _check(found)
    return found


def _substituted(
    macro: Macro, arguments: Sequence[Tokens], macros: Macros, depth: int, pastes: bool
) -> list[Tokens]:
    assert macro.parameters is not None
    names = [each.removesuffix("...") or "__VA_ARGS__" for each in macro.parameters]
    given: dict[str, Tokens] = {}
    for number, name in enumerate(names):
        rest = arguments[number : number + 1]
        if macro.parameters[number].endswith("..."):
            rest = arguments[number:]
        given[name] = tuple(t for argument in rest for t in (*argument, ","))[:-1]
    if not pastes:  # macros in arguments are expanded in the resulting text
        return [_pasted(macro.body, given)]
    used = [name for name in names if name in macro.body]
    choices = []
    for argument in (given[name] for name in used):
        # A long argument is code, examined by itself.
        expands = len(argument) <= MOST_ALTERNATIVES and any(token in macros for token in argument)
        choices.append(texts_of(argument, macros, depth + 1) if expands else [argument])
    found = [_pasted(macro.body, given)]
    found += [
        _pasted(macro.body, dict(zip(used, chosen, strict=True))) for chosen in _products(choices)
    ]
    return list(dict.fromkeys(found))


def _products(choices: Sequence[Sequence[Tokens]]) -> Iterable[tuple[Tokens, ...]]:
    if math.prod(map(len, choices)) > MOST_ALTERNATIVES:
        raise TooManyTextsError
    return product(*choices)


def _pasted(body: Tokens, values: Mapping[str, Tokens]) -> Tokens:
    """Return a macro's body with arguments instead of parameters, and joined tokens."""
    found: list[str] = []
    joins = False
    for token in body:
        if token == "##":
            joins = True
            continue
        text = list(values.get(token, (token,)))
        if joins and found and text:
            found[-1] += text.pop(0)
        found += text
        joins = joins and not text and token in values and not values[token]
    if len(found) > MOST_TOKENS:
        raise TooManyTextsError
    return tuple(t for token in found for t in ((token,) if _is_one(token) else tokens_of(token)))


def _is_one(token: str) -> bool:
    return len(token) == 1 or is_identifier(token)


def _check(texts: Sequence[Tokens]) -> None:
    if len(texts) > MOST_ALTERNATIVES or any(len(text) > MOST_TOKENS for text in texts):
        raise TooManyTextsError
