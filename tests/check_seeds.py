# SPDX-License-Identifier: Apache-2.0
"""Checks backends that are right with many seeds: none may fail, however busy the machine is.

python tests/check_seeds.py [--seeds 10] [--busy 4] [WORD]...    backends whose name has a word
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from check_projects import project_names
from drawn_bugs import EXAMPLES
from planted_bugs import checked, unmodified


def _work() -> None:
    while True:
        pass


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep so many processes working."""
    started = [multiprocessing.Process(target=_work, daemon=True) for _ in range(processes)]
    for each in started:
        each.start()
    try:
        yield
    finally:
        for each in started:
            each.terminate()
            each.join()


def main(arguments: Sequence[str]) -> int:
    """Print the verdict of each backend and seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--busy", type=int, default=0, help="processes that work meanwhile")
    parser.add_argument("--options", default="--jobs 1", help="further options of uma check")
    parser.add_argument("--json", type=Path, help="where to write the verdicts")
    given = parser.parse_args(arguments)
    names = [each for each in (*EXAMPLES, *project_names())
             if not given.words or any(word in each for word in given.words)]  # fmt: skip
    verdicts: list[dict[str, object]] = []
    with busy(given.busy):
        for seed in range(given.first, given.first + given.seeds):
            for name in names:
                started = time.monotonic()
                options = [*given.options.split(), "--seed", str(seed)]
                code, report, messages = checked(unmodified(name), options)
                took = time.monotonic() - started
                failures = [each["what"] for each in report.get("failures", ())]
                said = failures or (messages.strip().splitlines()[-1:] if code else [])
                ran = sum(each["ran"] for each in report.get("operators", {}).values())
                verdicts.append({"backend": name, "seed": seed, "busy": given.busy, "code": code,
                                 "ran": ran, "seconds": took, "said": said})  # fmt: skip
                first = "".join(said[:1])
                print(f"{name:20} seed {seed} busy {given.busy}: exit code {code}, {ran:4} layers"
                      f" ran, {took:6.1f} s  {first}", flush=True)  # fmt: skip
                if given.json:
                    given.json.write_text(json.dumps(verdicts, indent=1))
    wrong = [each for each in verdicts if each["code"]]
    print(f"{len(verdicts) - len(wrong)} of {len(verdicts)} checks ended with 0")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
