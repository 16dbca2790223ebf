# SPDX-License-Identifier: Apache-2.0
"""A separate process as client of TVM's RPC server, which its parent can end.

TVM's client waits without a limit, and its waiting cannot be interrupted. `python -m
umakit.devices.rpc_worker` reads requests from standard input and writes answers to standard output,
one line of JSON each. See `answer`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from umakit.errors import one_line

STREAMS = ("outputs", "report", "messages")
"""Outputs of a program, in the order of platform_rpc.c."""


def answer(request: Mapping[str, Any], at: list[str]) -> dict[str, Any]:
    """Return the answer to a request.

    Args:
        request: `host`, `port` and `seconds`, the time after which the server ends the session. To
            run a program, also `library`, `words`, `inputs` and `folder`: paths of the shared
            object and of its inputs, arguments of `main`, and the folder for outputs; and `limit`,
            the time limit in seconds.
        at: receives the names of steps: `connect`, `ask`, `upload`, `load`, `run`, `fetch`.

    Returns:
        `machine`, the server's target; or `ending` and `number` of umakit_ending.
    """
    from umakit import tvm_api

    at.append("connect")
    with tvm_api.rpc_session(request["host"], request["port"], request["seconds"]) as session:
        if "library" not in request:
            at.append("ask")
            return {"machine": tvm_api.rpc_machine(session)}
        library = Path(request["library"])
        at.append("upload")
        name = f"{library.name}.so"
        content = library.read_bytes()
        with tvm_api.uploaded(session, name, content):
            # TVM's server does not check for room when it writes a file. Loading a truncated shared
            # object would crash the server.
            if bytes(session.download(name)) != content:
                return {"truncated": True}
            at.append("load")
            module = session.load_module(name)
            at.append("run")
            words = b"".join(word.encode() + b"\0" for word in request["words"])
            inputs = Path(request["inputs"])
            data = inputs.read_bytes() if inputs.is_file() else b""
            code = module["umakit_program"](
                tvm_api.bytes_there(session, words),
                tvm_api.bytes_there(session, data),
                int(request["limit"] * 1000),
            )
            if code != 0:
                raise RuntimeError(os.strerror(code))
            at.append("fetch")
            for number, stream in enumerate(STREAMS):
                content = tvm_api.bytes_from(session, module, number)
                (Path(request["folder"]) / f".{stream}").write_bytes(content)
            return {"ending": module["umakit_ending"](0), "number": module["umakit_ending"](1)}


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # nothing else gets between answers
    for line in sys.stdin:
        at: list[str] = []
        try:
            given = answer(json.loads(line), at)
        except Exception as error:  # any exception of TVM
            text = one_line(str(error).strip().rpartition("\n")[2]) or type(error).__name__
            given = {"error": text, "kind": type(error).__name__, "at": at[-1] if at else "start"}
        print(json.dumps(given), file=answers, flush=True)


if __name__ == "__main__":
    main()
