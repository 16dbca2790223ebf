// SPDX-License-Identifier: Apache-2.0
// What jobs compute.
#pragma once

#include <cstdint>

#include "memories.h"

// Height and width, from a word that has them in its lower and upper half.
struct Size {
    std::uint32_t height, width;
    explicit Size(std::uint32_t word = 0) : height(word & 0xFFFFu), width(word >> 16) {}
    std::uint64_t area() const { return std::uint64_t(height) * width; }
};

struct Scale {
    std::int32_t multiplier, shift;
};

// What CONFIGURE and ADD set.
struct Configuration {
    bool is_depthwise = false, is_float = false, adds = false;
    Size kernel, strides, dilation;
    std::int32_t input_zero_point = 0, zero_point = 0, lowest = 0, highest = 0;
    std::uint32_t left_shift = 0;
    std::int32_t addend_zero_point = 0;
    Scale result_scale = {}, addend_scale = {}, sum_scale = {};
    std::int32_t sum_zero_point = 0, sum_lowest = 0, sum_highest = 0;

    void add(const std::uint32_t *words);
};

Configuration configuration_of(const std::uint32_t *words);

class Job
{
public:
    Job(const Configuration &configuration, const std::uint32_t *words);
    std::uint64_t cycles() const;
    std::uint64_t macs() const;
    std::uint64_t reads(Memories &memories) const;  // a bit for each bank
    std::uint64_t writes(Memories &memories) const; // a bit for each bank
    void run(Memories &memories) const;

private:
    Configuration layer;
    bool continues, keeps;
    std::uint32_t data, weights, bias, multipliers, shifts, result, addend;
    Size input, output, padding;
    std::uint32_t input_channels, output_channels;

    std::uint64_t blocks() const { return divided_up(output_channels, LANES); }
    std::uint64_t passes() const; // a pass: a position of the window, a step, all positions
    std::uint64_t weight_lines() const;
    std::uint64_t weight_pitch() const;
    std::uint64_t result_bytes() const { return output.area() * pitch_of(output_channels); }
    void multiply(Memories &memories, std::uint32_t y, std::uint32_t x, std::uint64_t block,
                  std::int32_t *sums) const;
    std::int8_t scaled(Memories &memories, std::int32_t sum, std::uint64_t position,
                       std::uint32_t channel) const;
};
