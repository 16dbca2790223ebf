/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory behind an AXI4 master of a Verilated design: the buffers that the driver mapped.
 * `Ports` has data_bits, latency, and a function for each signal, which returns a Port or Absent.
 *
 * Time. A burst of B beats that is requested in cycle t (valid and ready are 1 at the clock's
 * rising edge t) and a memory with the latency L:
 *
 *   read   its beats come in the cycles t + L to t + L + B - 1
 *   write  its beats are taken from the cycle t + 1 on, one a cycle; the response comes in the
 *          cycle t + L + B - 1, or in the one after the last beat if that is later
 *
 * A design that requests the next burst in the cycle after the last beat, or after the response,
 * so takes L + B cycles a burst in both directions. Up to 16 bursts a direction may be requested
 * before the first one ends: their latencies overlap, their beats follow each other. They are
 * answered in order. Reads and writes do not delay each other. A latency of 0 is taken as 1.
 *
 * Errors. A read beat of which no byte may be read by the device, and a burst with a strobed byte
 * that may not be written, get DECERR; what a test injected (umakit/faults.h), SLVERR. A read
 * beat that sticks out of a buffer reads 0 there. What AXI4 forbids ends the run with a sentence.
 */
#ifndef UMAKIT_RTL_AXI4_MEMORY_H
#define UMAKIT_RTL_AXI4_MEMORY_H

#include <cstdint>

#include "umakit/rtl_axi4_read.h"
#include "umakit/rtl_axi4_write.h"
#include "umakit/rtl_bench.h"
#include "umakit/rtl_ports.h"

namespace umakit::rtl {

template <class Ports> class Axi4Memory {
public:
    template <class Model> Axi4Memory(Bench &bench, Model &model)
        : bench_(bench), ports_{model}, read_(bench, ports_), write_(bench, ports_)
    {
    }

    static constexpr bool is_counted = true;
    std::uint64_t bytes_read() const { return read_.activity.bytes(); }
    std::uint64_t bytes_written() const { return write_.activity.bytes(); }

    /* Called when the reset ends. */
    void begin(bool has_reset)
    {
        const char *name = get(ports_.arvalid()) != 0   ? ports_.arvalid().name
                           : get(ports_.awvalid()) != 0 ? ports_.awvalid().name
                           : get(ports_.wvalid()) != 0  ? ports_.wvalid().name
                                                        : nullptr;

        if (has_reset && name != nullptr) {
            bench_.fail_in_reset(name);
        }
        read_.drive();
        write_.drive();
    }

    void sample()
    {
        is_active_ = !read_.is_idle() || read_.is_requested() || !write_.is_idle() ||
                     write_.is_requested() || bench_.stall_state != 0;
        if (is_active_) {
            read_.sample();
            write_.sample();
        }
    }

    void drive()
    {
        if (is_active_) {
            read_.drive();
            write_.drive();
        }
    }

    void flush()
    {
        if (read_.is_idle()) {
            read_.activity.flush(bench_);
        }
        if (write_.is_idle()) {
            write_.activity.flush(bench_);
        }
    }

private:
    Bench &bench_;
    Ports ports_;
    Axi4Read<Ports> read_;
    Axi4Write<Ports> write_;
    bool is_active_ = false;
};

/* Of a design that reaches no memory. */
struct NoMemory {
    template <class Model> NoMemory(Bench &, Model &) {}

    static constexpr bool is_counted = false;
    static std::uint64_t bytes_read() { return UMAKIT_UNKNOWN; }
    static std::uint64_t bytes_written() { return UMAKIT_UNKNOWN; }
    void begin(bool) {}
    void sample() {}
    void drive() {}
    void flush() {}
};

} // namespace umakit::rtl

#endif /* UMAKIT_RTL_AXI4_MEMORY_H */
