// SPDX-License-Identifier: Apache-2.0
// Memories in rows of 32 bytes, and the sums.
#pragma once

#include <cstdint>
#include <vector>

#include "figures.h"
#include "umakit/own_simulator.h"

// What ends all work: an instruction that the machine cannot execute.
struct Fault {
    int status;
};

inline std::uint64_t divided_up(std::uint64_t value, std::uint64_t by)
{
    return (value + by - 1) / by;
}

// The distance of lines of so many bytes: whole rows.
inline std::uint64_t pitch_of(std::uint64_t line)
{
    return divided_up(line, ROW_BYTES) * ROW_BYTES;
}

class Memory
{
public:
    Memory(MemoryFigures figures, unsigned first_bank)
        : bytes_(figures.bytes), bank_(figures.bytes / figures.banks), first_(first_bank)
    {
    }

    // The bytes from a place on, all of which exist.
    std::int8_t *at(std::uint64_t place, std::uint64_t size)
    {
        if (place > bytes_.size() || size > bytes_.size() - place) {
            throw Fault{UMAKIT_OUT_OF_RANGE};
        }
        return bytes_.data() + place;
    }

    // The banks that bytes lie in, a bit each.
    std::uint64_t banks(std::uint64_t place, std::uint64_t size)
    {
        at(place, size);
        std::uint64_t found = 0;
        for (std::uint64_t bank = place / bank_; bank * bank_ < place + size; ++bank) {
            found |= std::uint64_t(1) << (first_ + bank);
        }
        return found;
    }

private:
    std::vector<std::int8_t> bytes_;
    std::uint64_t bank_;
    unsigned first_;
};

struct Memories {
    Memory data{DATA_MEMORY, 0}, weights{WEIGHT_MEMORY, DATA_BANKS};
    std::vector<std::int32_t> sums = std::vector<std::int32_t>(SUMS);
};
