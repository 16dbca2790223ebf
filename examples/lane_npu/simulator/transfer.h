// SPDX-License-Identifier: Apache-2.0
// What a DMA channel copies.
#pragma once

#include <cstdint>
#include <vector>

#include "memories.h"

class Transfer
{
public:
    explicit Transfer(const std::uint32_t *words);
    std::uint64_t cycles() const;
    std::uint64_t bytes() const { return std::uint64_t(planes) * rows * row_bytes; }
    std::uint64_t banks(Memories &memories) const; // a bit for each bank
    void run(Memories &memories, umakit_host *host) const;

    bool is_store, is_weights;
    unsigned channel;

private:
    Memory &memory(Memories &memories) const
    {
        return is_weights ? memories.weights : memories.data;
    }
    std::uint64_t extent() const; // bytes of the memory from the first to the last
    std::uint64_t place_of(std::uint64_t byte) const;
    void copy_row(Memories &memories, umakit_host *host, std::uint32_t from, std::uint64_t first,
                  std::vector<std::int8_t> &row) const;

    bool by_planes;
    std::uint32_t address, place, planes, rows, row_bytes, plane_stride, row_stride, line;
};
