# SPDX-License-Identifier: Apache-2.0
"""Integer layers for CPUs with dot products: ONNX Runtime and TensorFlow Lite Micro say what is
right, bit by bit, in working memory that holds garbage before."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from comparisons import examples
from cpu_programs import DEVICES, run_on_garbage
from hypothesis import given
from hypothesis import strategies as st
from integer_networks import Network, networks

from umakit.cpu.description import cpu_names, find_cpu

CPUS = [name for name in cpu_names() if find_cpu(name).dot_products]


def assert_exact(network: Network, cpu: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = run_on_garbage(network.content, network.suffix, network.inputs, cpu, Path(folder))
        source = next(Path(folder).rglob("tvmgen_net.c")).read_text(encoding="utf-8")
    if network.has_dense:  # of convolutions some have no such kernel
        assert f"umakit_{find_cpu(cpu).dot_products}_products(" in source
    for name, expected in network.expected.items():
        np.testing.assert_array_equal(found[name].reshape(expected.shape), expected, name)


def test_every_cpu_has_a_device() -> None:
    assert sorted(DEVICES) == sorted(cpu_names())


@examples(4)
@given(network=networks(), cpu=st.sampled_from(["x86-64-v3", "x86-64-v4-vnni"]))
def test_drawn_networks_on_this_machine(network: Network, cpu: str) -> None:
    assert_exact(network, cpu)


@pytest.mark.parametrize("cpu", CPUS)
@examples(1)
@given(network=networks())
def test_drawn_networks(cpu: str, network: Network) -> None:
    """One network each; `make soak` and UMAKIT_EXAMPLES draw more."""
    assert_exact(network, cpu)
