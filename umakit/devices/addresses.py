# SPDX-License-Identifier: Apache-2.0
"""Addresses of remote machines that run programs.

The forms are `ssh://[USER@]HOST[:PORT][/FOLDER]` and `rpc://HOST:PORT`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from umakit.errors import InputError

SSH, RPC = "ssh", "rpc"

FORM = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9._@\\-]*)@)?"
    r"(?:\[(?P<literal>[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?)\]|(?P<host>[A-Za-z0-9_][A-Za-z0-9._-]*))"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<folder>/[^\x00-\x1f\x7f]*)?"
)
"""No part begins with a hyphen, which programs would take for an option."""

FORMS = {SSH: "ssh://[USER@]HOST[:PORT][/FOLDER]", RPC: "rpc://HOST:PORT"}


@dataclass(frozen=True)
class Address:
    """The address of a machine."""

    scheme: str
    host: str
    user: str = ""
    port: int | None = None
    folder: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{self.user}@" if self.user else ""
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{user}{host}{port}{self.folder}"


def is_address(text: str) -> bool:
    """Whether a device is given by an address, possibly malformed."""
    return text.startswith(tuple(f"{scheme}://" for scheme in FORMS))


def parse_address(text: str) -> Address:
    """Return the parts of an address."""
    scheme, _, rest = text.partition("://")
    if scheme not in FORMS:
        raise InputError(f"{text!r} is no address", fix=f"write {' or '.join(FORMS.values())}")
    found = FORM.fullmatch(rest)
    port = None if found is None or found["port"] is None else int(found["port"])
    is_wrong = port is not None and not 0 < port < 65536
    if found is None or is_wrong or (scheme == RPC and _has_more(found, port)):
        raise InputError(f"{text!r} is no address of a machine", fix=f"write {FORMS[scheme]}")
    folder = (found["folder"] or "").rstrip("/")
    return Address(scheme, found["literal"] or found["host"], found["user"] or "", port, folder)


def _has_more(found: re.Match[str], port: int | None) -> bool:
    """Whether an `rpc://` address lacks a port or has parts that `rpc://` does not allow."""
    return port is None or bool(found["user"]) or bool((found["folder"] or "").strip("/"))
