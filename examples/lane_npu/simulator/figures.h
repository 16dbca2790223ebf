// SPDX-License-Identifier: Apache-2.0
// The figures of the machine, which accel.toml defines.
#pragma once

#include <cstdint>

constexpr std::uint32_t ROW_BYTES = 32;       // of the memories of data and weights
constexpr std::uint32_t STEP = INPUT_STEP;    // input channels of a pass
constexpr std::uint32_t LANES = OUTPUT_LANES; // output channels of a pass

struct MemoryFigures {
    std::uint32_t bytes, banks;
};
constexpr MemoryFigures DATA_MEMORY = {DATA_BYTES, DATA_BANKS};
constexpr MemoryFigures WEIGHT_MEMORY = {WEIGHT_BYTES, WEIGHT_BANKS};
constexpr std::uint32_t SUMS = SUM_BYTES / 4;

// A DMA channel: bytes in a cycle, cycles until the first byte, transfers on their way at a time.
struct ChannelFigures {
    std::uint32_t width, latency, outstanding;
};
constexpr ChannelFigures CHANNELS[] = {
    {CHANNEL0_WIDTH, CHANNEL0_LATENCY, CHANNEL0_OUTSTANDING},
    {CHANNEL1_WIDTH, CHANNEL1_LATENCY, CHANNEL1_OUTSTANDING},
};
constexpr std::uint32_t CHANNEL_COUNT = DMA_CHANNELS;

constexpr std::uint32_t PIPELINE = PIPELINE_CYCLES; // from the last product to its result
constexpr std::uint32_t QUEUE = QUEUE_ENTRIES;      // instructions of an engine that wait or run

static_assert(DATA_BANKS + WEIGHT_BANKS <= 64, "a bit for each bank");
static_assert(DATA_BYTES % DATA_BANKS == 0 && WEIGHT_BYTES % WEIGHT_BANKS == 0, "equal banks");
