/* SPDX-License-Identifier: Apache-2.0 */
/* Bursts of AXI4: their addresses, and what a design must not ask for. */
#ifndef UMAKIT_RTL_AXI4_BURST_H
#define UMAKIT_RTL_AXI4_BURST_H

#include <cstdint>

#include "umakit/rtl_bench.h"

namespace umakit::rtl {

constexpr std::uint64_t BURST_BOUNDARY = 4096; /* bytes; no burst crosses a multiple of it */
constexpr unsigned MOST_BEATS = 256;

enum Response : std::uint8_t { OKAY = 0, SLVERR = 2, DECERR = 3 };
enum BurstKind : std::uint8_t { FIXED = 0, INCR = 1, WRAP = 2 };

/* Bytes that a beat moves. */
struct Lanes {
    std::uint64_t address;
    unsigned bytes;
};

struct Burst {
    std::uint64_t address = 0;
    std::uint64_t id = 0;
    unsigned beats = 0;
    unsigned size = 0; /* bytes of a beat */
    unsigned kind = INCR;
    std::uint64_t taken = 0; /* in which cycle */

    std::uint64_t aligned() const { return address & ~std::uint64_t(size - 1); }

    /* Bytes from `address` to the end of the last beat, of INCR. */
    unsigned bytes() const { return unsigned(aligned() + std::uint64_t(beats) * size - address); }

    Lanes lanes(unsigned beat) const
    {
        if (kind == FIXED || beat == 0) {
            return {address, unsigned(aligned() + size - address)};
        }
        std::uint64_t at = aligned() + std::uint64_t(beat) * size;
        if (kind == WRAP) {
            const std::uint64_t total = std::uint64_t(beats) * size;
            const std::uint64_t low = address & ~(total - 1);
            at = low + ((at - low) & (total - 1));
        }
        return {at, size};
    }
};

/* Fail if the burst is not one of AXI4 on a bus of `bus_bytes` bytes. `valid` and the others
 * are names of ports. */
inline void check_burst(Bench &bench, const Burst &burst, unsigned bus_bytes, const char *valid,
                        const char *length, const char *size, const char *kind)
{
    const unsigned long long address = burst.address;

    if (burst.size > bus_bytes) {
        bench.fail("%s asks for beats of %u bytes on a bus of %u bytes (%s)", size, burst.size,
                   bus_bytes, valid);
    } else if (burst.kind > WRAP) {
        bench.fail("%s is 3, which is reserved (%s)", kind, valid);
    } else if (burst.kind == INCR &&
               burst.aligned() % BURST_BOUNDARY + std::uint64_t(burst.beats) * burst.size >
                   BURST_BOUNDARY) {
        bench.fail("a burst of %u beats of %u bytes at 0x%llx crosses an address that is a "
                   "multiple of 4096 (%s)",
                   burst.beats, burst.size, address, valid);
    } else if (burst.kind == WRAP && burst.beats != 2 && burst.beats != 4 && burst.beats != 8 &&
               burst.beats != 16) {
        bench.fail("%s asks for a WRAP burst of %u beats, not of 2, 4, 8 or 16 (%s)", length,
                   burst.beats, valid);
    } else if (burst.kind == WRAP && burst.address != burst.aligned()) {
        bench.fail("a WRAP burst at 0x%llx begins at no multiple of its %u bytes a beat (%s)",
                   address, burst.size, valid);
    } else if (burst.kind == FIXED && burst.beats > 16) {
        bench.fail("%s asks for a FIXED burst of %u beats, more than 16 (%s)", length,
                   burst.beats, valid);
    }
}

/* Bursts that were taken and have not ended, in their order. */
class Bursts {
public:
    static constexpr unsigned CAPACITY = 16;

    bool is_empty() const { return count_ == 0; }
    bool is_full() const { return count_ == CAPACITY; }
    unsigned count() const { return count_; }
    Burst &first() { return bursts_[first_]; }
    Burst &at(unsigned i) { return bursts_[(first_ + i) % CAPACITY]; }
    void add(const Burst &burst) { bursts_[(first_ + count_++) % CAPACITY] = burst; }
    void remove_first()
    {
        first_ = (first_ + 1) % CAPACITY;
        --count_;
    }

private:
    Burst bursts_[CAPACITY];
    unsigned first_ = 0;
    unsigned count_ = 0;
};

} // namespace umakit::rtl

#endif /* UMAKIT_RTL_AXI4_BURST_H */
