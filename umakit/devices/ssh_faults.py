# SPDX-License-Identifier: Apache-2.0
"""What OpenSSH's client says when there is no connection, as errors."""

from __future__ import annotations

import re

from umakit.errors import DeviceError, InputError, UmakitError

NOISE = re.compile(
    r"^(debug\d: |Warning: Permanently added|\*\* |Pseudo-terminal|Connection to .* closed)"
)
"""Lines of the client that are no fault."""

NO_HOST = "Could not resolve hostname"
CHANGED = "REMOTE HOST IDENTIFICATION HAS CHANGED"
UNKNOWN_KEY = "Host key verification failed"
REFUSED_LOGIN = re.compile(
    r"Permission denied \(|Too many authentication failures|no such identity"
)
UNREACHABLE = re.compile(
    r"connect to host .*: (?P<reason>Connection refused|Connection timed out|Operation timed out"
    r"|No route to host|Network is unreachable|[^\n]+?)\s*$",
    re.MULTILINE,
)
LOST = re.compile(
    r"Connection (?:to \S+ )?(?:closed|reset|timed out)|client_loop|Broken pipe|not responding"
    r"|kex_exchange_identification|Connection aborted"
)
REFUSED = "Connection refused"


def ssh_error(where: str, code: int, messages: str, has_begun: bool) -> UmakitError:
    """Return the error of a conversation that did not come to its end.

    Args:
        where: the address, for people.
        code: exit code of ssh; negative if a signal ended it.
        messages: what it wrote to standard error.
        has_begun: whether the other side had said something.

    Returns:
        An `InputError` for what a user sets up (name, key of the host, login, options), else a
        `DeviceError`.
    """
    reason = UNREACHABLE.search(messages)
    if reason is not None:
        fix = "start the SSH server there, or correct the port"
        if reason["reason"] != REFUSED:
            fix = "see whether the machine is switched on and in this network"
        what = reason["reason"][:1].lower() + reason["reason"][1:]
        return DeviceError(f"there is no connection: {what}", where=where, fix=fix)
    if NO_HOST in messages:
        return InputError(
            "there is no host of this name",
            where=where,
            fix="correct it, or add it to ~/.ssh/config",
        )
    if CHANGED in messages:
        return InputError(
            "the host has another key than the known one: it may be another machine",
            where=where,
            fix="find out why, then remove the old key: ssh-keygen -R HOST",
        )
    if UNKNOWN_KEY in messages:
        return InputError(
            "the key of the host is not known",
            where=where,
            fix="connect once with ssh by hand, compare the key and accept it",
        )
    if REFUSED_LOGIN.search(messages):
        return InputError(
            "the login was refused",
            where=where,
            fix="let ssh log in without a question: ssh-copy-id, or ssh-add for a key with a "
            "passphrase",
        )
    said = _last_line(messages)
    if has_begun or LOST.search(messages):
        return DeviceError(f"the connection was lost{f': {said}' if said else ''}", where=where)
    if code == 255 or code < 0:
        return InputError(
            f"ssh ended with {code}{f': {said}' if said else ''}",
            where=where,
            fix="try it by hand, with the options that are printed above",
        )
    return DeviceError(
        f"the machine ran no script of sh: {said or f'exit code {code}'}",
        where=where,
        fix="log in there to a user who has a shell with sh, dd, head, tar and mktemp",
    )


def _last_line(messages: str) -> str:
    lines = [line.strip() for line in messages.splitlines() if not NOISE.match(line)]
    kept = [line for line in lines if line]
    return kept[-1] if kept else ""
