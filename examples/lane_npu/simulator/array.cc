// SPDX-License-Identifier: Apache-2.0
#include "array.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lane_npu_isa.h"

namespace
{

std::int32_t sign(std::uint32_t word)
{
    return static_cast<std::int32_t>(word);
}

// Sums wrap around, as those of the adders do.
std::int32_t plus(std::int32_t left, std::int32_t right)
{
    return sign(static_cast<std::uint32_t>(left) + static_cast<std::uint32_t>(right));
}

// In fixed point: to 31 bits with ties up, then shifted right with ties away from 0.
std::int32_t fixed_point(std::int32_t value, Scale scale)
{
    const int left = std::max(scale.shift, 0), right = std::max(-scale.shift, 0);
    const std::int64_t shifted = sign(static_cast<std::uint32_t>(value) << left);
    const std::int64_t high = (shifted * scale.multiplier + (std::int64_t(1) << 30)) >> 31;
    const std::int64_t half = (std::int64_t(1) << right) >> 1;
    const std::int64_t size = ((high < 0 ? -high : high) + half) >> right;
    return static_cast<std::int32_t>(high < 0 ? -size : size);
}

// In float32: to the nearest integer, ties to even.
std::int32_t floating_point(std::int32_t value, Scale scale)
{
    const float factor = std::ldexp(static_cast<float>(scale.multiplier), scale.shift - 31);
    const float result = std::nearbyint(static_cast<float>(value) * factor);
    if (result >= 2147483648.0f) {
        return INT32_MAX;
    }
    return result < -2147483648.0f ? INT32_MIN : static_cast<std::int32_t>(result);
}

std::int32_t rescaled(bool is_float, std::int32_t value, Scale scale)
{
    if (scale.shift < -31 || scale.shift > 30) {
        throw Fault{UMAKIT_INVALID_ARGUMENT};
    }
    return is_float ? floating_point(value, scale) : fixed_point(value, scale);
}

std::int32_t clamped(std::int64_t value, std::int32_t zero_point, std::int32_t lowest,
                     std::int32_t highest)
{
    return static_cast<std::int32_t>(
        std::min<std::int64_t>(std::max<std::int64_t>(value + zero_point, lowest), highest));
}

std::int32_t word_at(Memory &memory, std::uint64_t place)
{
    std::int32_t word;
    std::memcpy(&word, memory.at(place, 4), 4);
    return word;
}

} // namespace

Configuration configuration_of(const std::uint32_t *words)
{
    Configuration found;
    found.is_depthwise = (words[0] & LANE_NPU_DEPTHWISE) != 0;
    found.is_float = (words[0] & LANE_NPU_FLOAT) != 0;
    found.kernel = Size(words[1]);
    found.strides = Size(words[2]);
    found.dilation = Size(words[3]);
    found.input_zero_point = sign(words[4]);
    found.zero_point = sign(words[5]);
    found.lowest = sign(words[6]);
    found.highest = sign(words[7]);
    return found;
}

void Configuration::add(const std::uint32_t *words)
{
    adds = true;
    addend_zero_point = sign(words[1]);
    if (words[2] > 30) {
        throw Fault{UMAKIT_INVALID_ARGUMENT};
    }
    left_shift = words[2];
    result_scale = {sign(words[3]), sign(words[4])};
    addend_scale = {sign(words[5]), sign(words[6])};
    sum_scale = {sign(words[7]), sign(words[8])};
    sum_zero_point = sign(words[9]);
    sum_lowest = sign(words[10]);
    sum_highest = sign(words[11]);
}

Job::Job(const Configuration &configuration, const std::uint32_t *words)
    : layer(configuration), continues((words[0] & LANE_NPU_CONTINUES) != 0),
      keeps((words[0] & LANE_NPU_KEEPS) != 0), data(words[1]), weights(words[2]), bias(words[3]),
      multipliers(words[4]), shifts(words[5]), result(words[6]), addend(words[7]), input(words[8]),
      output(words[10]), padding(words[12]), input_channels(words[9]), output_channels(words[11])
{
    const bool is_empty = input.area() == 0 || output.area() == 0 || layer.kernel.area() == 0 ||
                          input_channels == 0 || output_channels == 0;
    if (is_empty || (layer.is_depthwise && output_channels % input_channels != 0)) {
        throw Fault{UMAKIT_INVALID_ARGUMENT};
    }
    if (blocks() * output.area() * LANES > SUMS) {
        throw Fault{UMAKIT_OUT_OF_RANGE};
    }
}

std::uint64_t Job::passes() const
{
    const std::uint64_t steps = layer.is_depthwise ? 1 : divided_up(input_channels, STEP);
    return blocks() * layer.kernel.area() * steps;
}

// The weights of a pass, a row a cycle, enter while the pass before runs.
std::uint64_t Job::cycles() const
{
    const std::uint64_t rows = layer.is_depthwise ? 1 : STEP;
    return rows + passes() * std::max(output.area(), rows);
}

std::uint64_t Job::macs() const
{
    const std::uint64_t inputs = layer.is_depthwise ? 1 : input_channels;
    return output.area() * output_channels * layer.kernel.area() * inputs;
}

std::uint64_t Job::weight_lines() const
{
    return layer.kernel.area() * (layer.is_depthwise ? 1 : blocks() * input_channels);
}

std::uint64_t Job::weight_pitch() const
{
    return pitch_of(layer.is_depthwise ? output_channels : LANES);
}

std::uint64_t Job::reads(Memories &memories) const
{
    std::uint64_t banks = memories.data.banks(data, input.area() * pitch_of(input_channels));
    banks |= memories.weights.banks(weights, weight_lines() * weight_pitch());
    if (!continues) {
        banks |= memories.weights.banks(bias, 4ull * output_channels);
    }
    if (!keeps) {
        banks |= memories.weights.banks(multipliers, 4ull * output_channels);
        banks |= memories.weights.banks(shifts, output_channels);
    }
    if (layer.adds && !keeps) {
        banks |= memories.data.banks(addend, result_bytes());
    }
    return banks;
}

std::uint64_t Job::writes(Memories &memories) const
{
    return keeps ? 0 : memories.data.banks(result, result_bytes());
}

// Add the products of a position of the result to the sums of a block of channels.
void Job::multiply(Memories &memories, std::uint32_t y, std::uint32_t x, std::uint64_t block,
                   std::int32_t *sums) const
{
    const std::uint64_t pitch = pitch_of(input_channels), first = block * LANES;
    const std::uint64_t lanes = std::min<std::uint64_t>(LANES, output_channels - first);
    const std::uint64_t inputs = layer.is_depthwise ? 1 : input_channels;
    for (std::uint32_t tap = 0; tap < layer.kernel.area(); ++tap) {
        const std::int64_t row = std::int64_t(y) * layer.strides.height - padding.height +
                                 std::int64_t(tap / layer.kernel.width) * layer.dilation.height;
        const std::int64_t column = std::int64_t(x) * layer.strides.width - padding.width +
                                    std::int64_t(tap % layer.kernel.width) * layer.dilation.width;
        if (row < 0 || column < 0 || row >= input.height || column >= input.width) {
            continue; // padding is the zero point
        }
        const std::uint64_t position = static_cast<std::uint64_t>(row * input.width + column);
        const std::int8_t *const pixel = memories.data.at(data + position * pitch, input_channels);
        const std::uint64_t line =
            layer.is_depthwise ? tap : (block * layer.kernel.area() + tap) * inputs;
        const std::int8_t *const matrix =
            memories.weights.at(weights + line * weight_pitch(), inputs * weight_pitch());
        for (std::uint64_t lane = 0; layer.is_depthwise && lane < lanes; ++lane) {
            const std::uint64_t channel = first + lane;
            const std::int32_t value = pixel[channel / (output_channels / input_channels)];
            sums[lane] = plus(sums[lane], (value - layer.input_zero_point) * matrix[channel]);
        }
        for (std::uint64_t channel = 0; !layer.is_depthwise && channel < inputs; ++channel) {
            const std::int32_t value = pixel[channel] - layer.input_zero_point;
            const std::int8_t *const row_of_weights = matrix + channel * weight_pitch();
            for (std::uint64_t lane = 0; lane < lanes; ++lane) {
                sums[lane] = plus(sums[lane], value * row_of_weights[lane]);
            }
        }
    }
}

// A result of a sum: scaled, limited and added to the addend.
std::int8_t Job::scaled(Memories &memories, std::int32_t sum, std::uint64_t position,
                        std::uint32_t channel) const
{
    const Scale scale = {word_at(memories.weights, multipliers + 4ull * channel),
                         *memories.weights.at(shifts + std::uint64_t(channel), 1)};
    const std::int32_t value = clamped(rescaled(layer.is_float, sum, scale), layer.zero_point,
                                       layer.lowest, layer.highest);
    if (!layer.adds) {
        return static_cast<std::int8_t>(value);
    }
    const std::int32_t other =
        *memories.data.at(addend + position * pitch_of(output_channels) + channel, 1);
    const std::int32_t up = std::int32_t(1) << layer.left_shift;
    const std::int32_t left =
        rescaled(layer.is_float, (value - layer.zero_point) * up, layer.result_scale);
    const std::int32_t right =
        rescaled(layer.is_float, (other - layer.addend_zero_point) * up, layer.addend_scale);
    return static_cast<std::int8_t>(
        clamped(rescaled(layer.is_float, plus(left, right), layer.sum_scale), layer.sum_zero_point,
                layer.sum_lowest, layer.sum_highest));
}

void Job::run(Memories &memories) const
{
    std::int32_t *sums = memories.sums.data();
    for (std::uint64_t block = 0; block < blocks(); ++block) {
        const auto first = static_cast<std::uint32_t>(block * LANES);
        const std::uint32_t lanes = std::min(LANES, output_channels - first);
        for (std::uint64_t position = 0; position < output.area(); ++position, sums += LANES) {
            for (std::uint32_t lane = 0; !continues && lane < lanes; ++lane) {
                sums[lane] = word_at(memories.weights, bias + 4ull * (first + lane));
            }
            multiply(memories, static_cast<std::uint32_t>(position / output.width),
                     static_cast<std::uint32_t>(position % output.width), block, sums);
            for (std::uint32_t lane = 0; !keeps && lane < lanes; ++lane) {
                const std::uint64_t place =
                    result + position * pitch_of(output_channels) + first + lane;
                *memories.data.at(place, 1) = scaled(memories, sums[lane], position, first + lane);
            }
        }
    }
}
