// SPDX-License-Identifier: Apache-2.0
#include "transfer.h"

#include "lane_npu_isa.h"

Transfer::Transfer(const std::uint32_t *words)
    : is_store((words[0] & 15u) == LANE_NPU_STORE),
      is_weights((words[0] & LANE_NPU_OF_WEIGHTS) != 0),
      channel(words[0] >> LANE_NPU_CHANNEL_SHIFT), by_planes((words[0] & LANE_NPU_BY_PLANES) != 0),
      address(words[1]), place(words[2]), planes(words[3]), rows(words[4]), row_bytes(words[5]),
      plane_stride(words[6]), row_stride(words[7]), line(words[8])
{
    if (channel >= CHANNEL_COUNT) {
        throw Fault{UMAKIT_UNSUPPORTED};
    }
    if (bytes() == 0 || bytes() > UINT32_MAX || (line != 0 && bytes() % line != 0)) {
        throw Fault{UMAKIT_INVALID_ARGUMENT};
    }
    line = line == 0 ? static_cast<std::uint32_t>(bytes()) : line;
}

std::uint64_t Transfer::cycles() const
{
    return std::uint64_t(planes) * rows * divided_up(row_bytes, CHANNELS[channel].width);
}

std::uint64_t Transfer::extent() const
{
    return (bytes() / line - 1) * pitch_of(line) + line;
}

std::uint64_t Transfer::banks(Memories &memories) const
{
    return memory(memories).banks(place, extent());
}

// Where a byte of the host's order lies.
std::uint64_t Transfer::place_of(std::uint64_t byte) const
{
    const std::uint64_t lines = bytes() / line;
    return by_planes ? place + byte % lines * pitch_of(line) + byte / lines
                     : place + byte / line * pitch_of(line) + byte % line;
}

void Transfer::copy_row(Memories &memories, umakit_host *host, std::uint32_t from,
                        std::uint64_t first, std::vector<std::int8_t> &row) const
{
    std::int8_t *const bytes = memory(memories).at(0, place + extent());
    if (!is_store) {
        const int status = umakit_host_read(host, from, row.size(), row.data());
        if (status != UMAKIT_OK) {
            throw Fault{status};
        }
    }
    for (std::size_t byte = 0; byte < row.size(); ++byte) {
        std::int8_t &inside = bytes[place_of(first + byte)];
        (is_store ? row[byte] : inside) = is_store ? inside : row[byte];
    }
    if (is_store) {
        const int status = umakit_host_write(host, from, row.size(), row.data());
        if (status != UMAKIT_OK) {
            throw Fault{status};
        }
    }
}

void Transfer::run(Memories &memories, umakit_host *host) const
{
    std::vector<std::int8_t> row(row_bytes);
    for (std::uint32_t plane = 0; plane < planes; ++plane) {
        for (std::uint32_t number = 0; number < rows; ++number) {
            const std::uint64_t first = (std::uint64_t(plane) * rows + number) * row_bytes;
            copy_row(memories, host, address + plane * plane_stride + number * row_stride, first,
                     row);
        }
    }
}
