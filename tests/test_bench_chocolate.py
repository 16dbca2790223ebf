# SPDX-License-Identifier: Apache-2.0
"""`make bench-chocolate` on a network of five layers: its figures hang together."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "bench"

pytestmark = pytest.mark.skipif("UMAKIT_EXAMPLES" not in os.environ, reason="make soak")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tiny network, without two features."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        import chocolate
        import image_networks

        net = image_networks.ImageNetwork(12, 10, 3)
        x = net.convolution(net.input, 20, 3, 2)
        x = net.addition(net.convolution(net.depthwise(x, 3), 20, 1, relu=False), x)
        file = net.finish(net.max_pool(x, 2, 2), 5)
        variants = [chocolate.VARIANTS[2], chocolate.VARIANTS[-1]]
        cases = [chocolate.Network("tiny", file)]
        yield chocolate.bench(cases, variants, (1, 2), tmp_path_factory.mktemp("bench"))


def test_every_layer_is_measured_and_predicted(results: Any) -> None:
    (network,) = results.networks
    kinds = ["conv 3x3 / 2", "depthwise 3x3", "conv 1x1 + add", "max pool 2x2 / 2"]
    assert [layer.kind for layer in network.layers] == [*kinds, "fully connected"]
    assert [layer.is_convolution for layer in network.layers] == [True] * 3 + [False] * 2
    assert network.on_cpu == ["reshape"]
    # 6 x 5 positions; 9 x 3 and 9 products for each of 20 channels, 20 x 20 each.
    assert [layer.macs for layer in network.layers[:3]] == [30 * 20 * 27, 30 * 20 * 9, 30 * 400]
    for layer in network.layers:
        assert layer.simulated >= layer.bound >= layer.macs / 256
        assert abs(layer.predicted / layer.simulated - 1) < 0.02
        assert sum(layer.spent.values()) == layer.predicted and min(layer.spent.values()) >= 0


def test_what_is_taken_away_costs_cycles(results: Any) -> None:
    (network,) = results.networks
    full = sum(layer.predicted for layer in network.layers[:3])
    in_turn, nothing = (each.cycles["tiny"] for each in results.variants)
    assert full < in_turn < nothing
    assert all(abs(each.checked) < 0.02 for each in results.variants)
    narrow, chosen, wide = results.widths
    assert chosen.cycles["tiny"] == full
    assert narrow.bound["tiny"] > chosen.bound["tiny"] > wide.bound["tiny"]


def test_tuning_finds_nothing_worse(results: Any) -> None:
    (network,), (tuning, *chains) = results.networks, results.tuning
    assert [each.layers for each in chains] == [2, 3]  # with the fully connected one
    assert tuning.layers == 5 and tuning.seen > 100 and tuning.seconds > 0
    cycles = [(new.simulated, old.simulated)
              for new, old in zip(network.tuned, network.layers, strict=True)]  # fmt: skip
    assert all(new <= old for new, old in cycles)


def test_tables_say_what_was_measured(results: Any) -> None:
    from chocolate_tables import markdown

    text = markdown(results)
    layers = results.networks[0].layers[:3]
    simulated, bound = (sum(asdict(e)[n] if n == "simulated" else e.bound for e in layers)
                        for n in ("simulated", "bound"))  # fmt: skip
    rows = [line for line in text.splitlines() if line.startswith("| tiny")]
    assert f"{simulated:,}" in rows[0] and f"{simulated / bound:.3f}" in rows[0]
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) == 7
    for lines in tables:  # aligned
        bars = [[n for n, char in enumerate(line) if char == "|"] for line in lines]
        assert all(each == bars[0] for each in bars)
