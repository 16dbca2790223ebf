# SPDX-License-Identifier: Apache-2.0
"""Node tests of ONNX with one integer changed: right, or refused, and no access out of bounds.

    python tests/limit_sweep.py --seconds 600 --seed 3    draws for ten minutes
    python tests/limit_sweep.py -k Pad --count 50         of operators whose names match

The integer is an attribute's, or one of a constant input: pads, axes, sizes, indices. It becomes
one more, one less, its negative, or a number near the sizes of the first input. C is compiled with
sanitizers. Where ONNX Runtime or ONNX's reference evaluator computes the network, the results are
equal; where neither does, umakit refuses it, or runs without a report. Columns are those of
`dtype_sweep.py`; the exit code is 1 if a network is wrong or a traceback.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_sweep
from dtype_sweep import COLUMNS, Case, Network, check
from onnx import numpy_helper
from onnx_node_tests import as_child, isolated
from test_onnx_invalid import models


def places_of(model: onnx.ModelProto) -> list[tuple[Any, int]]:
    """Attributes and initializers with integers, each with the number of one of its integers."""
    (node,) = model.graph.node
    found: list[tuple[Any, int]] = []
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.INT:
            found.append((attribute, 0))
        elif attribute.type == onnx.AttributeProto.INTS:
            found += [(attribute, number) for number in range(len(attribute.ints))]
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype in (np.int32, np.int64):
            found += [(tensor, number) for number in range(min(array.size, 8))]
    return found


def mutant(model: onnx.ModelProto, first: Any, chance: random.Random) -> onnx.ModelProto | None:
    """A copy of a model with another integer; None if it has none."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    places = places_of(changed)
    if not places:
        return None
    part, number = chance.choice(places)
    sizes = [size + more for size in np.shape(first) for more in (-1, 0, 1)]

    def other(old: int) -> int:
        return int(
            chance.choice([old + 1, old - 1, -old, old * 2 + 1, 0, *sizes, *(-s for s in sizes)])
        )

    if isinstance(part, onnx.TensorProto):
        array = numpy_helper.to_array(part).copy()
        array.reshape(-1)[number] = other(int(array.reshape(-1)[number]))
        part.CopyFrom(numpy_helper.from_array(array, part.name))
    elif part.type == onnx.AttributeProto.INT:
        part.i = other(part.i)
    else:
        part.ints[number] = other(part.ints[number])
    for value in changed.graph.output:
        for size, dimension in enumerate(value.type.tensor_type.shape.dim):
            dimension.dim_param = f"{value.name}{size}"
    return changed


def network_of(model: onnx.ModelProto, first: Any) -> Network | None:
    """A network with its oracles; None if ONNX's checker refuses it."""
    try:
        onnx.checker.check_model(model)
    except Exception:
        return None
    expected = list(onnx_sweep.expectations(model, {model.graph.input[0].name: first}))
    oracles = [lambda values=values: [[np.asarray(v) for v in values]] for values in expected]
    doubtful = not onnx_sweep.is_newest(model)
    return Network(model.SerializeToString(), [first[None]], oracles, "onnx", doubtful)


def cases(pattern: str, seed: int) -> Iterator[tuple[int, Case]]:
    """Mutants of drawn node tests, without end."""
    by_operator: dict[str, list[Any]] = {}
    for _, model, given, _ in models(1):
        operator, values = model.graph.node[0].op_type, list(given.values())
        kinds = {value.type.WhichOneof("value") for value in model.graph.output}
        if len(values) != 1 or kinds != {"tensor_type"} or not re.search(pattern, operator):
            continue
        if np.asarray(values[0]).dtype.kind in "fiub":
            by_operator.setdefault(operator, []).append((model, values[0]))
    number = 0
    while by_operator:
        chance = random.Random(f"{seed}:{number}")
        operator = chance.choice(sorted(by_operator))
        model, first = chance.choice(by_operator[operator])
        found = mutant(model, first, chance)
        if found is not None:
            make = partial(network_of, found, first)
            yield number, Case("onnx", operator, str(number), make)
        number += 1


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="node tests of ONNX with one integer changed")
    parser.add_argument("-k", default="", help="regular expression of operators")
    parser.add_argument("-j", type=int, default=2, help="processes")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for networks that fail")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    end, counts, operators = time.monotonic() + options.seconds, Counter[str](), set()
    kept: dict[str, Case] = {}

    def jobs() -> Iterator[Any]:
        for number, case in cases(options.k, options.seed):
            if time.monotonic() > end or number >= options.count:
                return
            kept[case.dtype] = case
            yield case, lambda pipe, case=case: as_child(lambda: check(case), pipe, 2**45)

    for case, (column, message) in isolated(jobs(), options.j):
        counts[column] += 1
        if column in COLUMNS[:3]:
            operators.add(case.operator)
        if column in ("wrong", "traceback"):
            place = f"{case.operator}, seed {options.seed}, number {case.dtype}"
            print(f"{column}: {place}: {message[-400:]}")
            network = case.make()
            if options.keep and network is not None:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{case.operator}-{case.dtype}.onnx").write_bytes(network.source)
    print(f"{dict(counts)}; {len(operators)} operators")
    return int(bool(counts["wrong"] + counts["traceback"]))


if __name__ == "__main__":
    sys.exit(main())
