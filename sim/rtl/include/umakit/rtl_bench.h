/* SPDX-License-Identifier: Apache-2.0 */
/* What all parts of the harness of a Verilated design share: the host, the clock and failures. */
#ifndef UMAKIT_RTL_BENCH_H
#define UMAKIT_RTL_BENCH_H

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>

#include "umakit/own_simulator.h"

/* Libraries of earlier versions of umakit do not have these. */
extern "C" __attribute__((weak)) void umakit_host_cycle(umakit_host *host, std::uint64_t cycle);
extern "C" __attribute__((weak)) void umakit_host_bus_error(umakit_host *host,
                                                            std::uint32_t offset, bool is_write,
                                                            const char *response);

namespace umakit::rtl {

/* Bursts whose events are merged lie at most as many cycles apart. */
constexpr std::uint64_t MOST_CYCLES_BETWEEN = 16;

/* What ends a run of a design: processor time, where it never answers, and bus errors. */
struct Limit {
    double seconds = 0;       /* 0: there is no limit */
    std::uint64_t cycles = 0; /* since the driver's last write; 0: there is no limit */
    bool has_bus_errors = true; /* false: a read of a register that ends in one ends the run */
    std::clock_t begin = 0;

    void set(double its_seconds)
    {
        seconds = its_seconds;
        begin = std::clock();
    }

    bool is_over() const
    {
        return seconds > 0 && double(std::clock() - begin) > seconds * CLOCKS_PER_SEC;
    }
};

/* In sentences on what contradicts the description of a design, behind its key; SENTENCES of
 * umakit/devices/execution.py. */
#define UMAKIT_RTL_DESCRIBED "of [rtl] in accel.toml"

/* By how many cycles an access to a register, or a part of it, is late at most. */
constexpr std::uint32_t MOST_LATE_CYCLES = 3;

struct Bench {
    umakit_host *host;
    std::uint64_t cycle = 0; /* rising edges of the clock since the reset */
    bool has_failed = false;
    bool has_reset = false;
    bool has_answered = false; /* an access to a register, since the reset */
    std::uint64_t bus_errors = 0; /* accesses to registers that ended in one */
    const char *response = "";    /* name of the last one */
    std::uint32_t stall_state = 0; /* of random numbers of pauses; 0: there are none */

    explicit Bench(umakit_host *its_host) : host(its_host) {}

    /* End the run with a sentence, to which the cycle is added. The first one counts. */
    [[gnu::format(printf, 2, 3), gnu::cold]] void fail(const char *format, ...)
    {
        char sentence[400];
        char whole[480];
        std::va_list arguments;

        va_start(arguments, format);
        std::vsnprintf(sentence, sizeof sentence, format, arguments);
        va_end(arguments);
        std::snprintf(whole, sizeof whole, "%s, in cycle %llu", sentence,
                      static_cast<unsigned long long>(cycle));
        umakit_host_fail(host, whole);
        has_failed = true;
    }

    /* Write bytes to the memory of the host; returns an enum umakit_status. */
    int write(std::uint32_t address, std::size_t bytes, const void *from)
    {
        if (umakit_host_cycle != nullptr) {
            umakit_host_cycle(host, cycle);
        }
        return umakit_host_write(host, address, bytes, from);
    }

    /* An access to a register ends in a bus error. */
    [[gnu::cold]] void end_in_bus_error(std::uint32_t offset, bool is_write, const char *name)
    {
        ++bus_errors;
        response = name;
        if (umakit_host_bus_error != nullptr) {
            umakit_host_bus_error(host, offset, is_write, name);
        }
    }

    /* The memory port `name` is 1 while the design is in reset. */
    [[gnu::cold]] void fail_in_reset(const char *name)
    {
        fail("%s is 1 during the reset, by reset and reset_level " UMAKIT_RTL_DESCRIBED, name);
    }

    /* Whether a channel that could go on pauses in this cycle: a quarter of the cycles, where
     * pauses are switched on. */
    bool stalls() { return advance() && (stall_state >> 11 & 3u) == 0; }

    /* Cycles for which something that could begin is late: 0 to MOST_LATE_CYCLES, where pauses are
     * switched on. */
    std::uint32_t late_cycles()
    {
        return advance() ? (stall_state >> 11) % (MOST_LATE_CYCLES + 1u) : 0u;
    }

private:
    /* The next random number; false where pauses are switched off. */
    bool advance()
    {
        stall_state ^= stall_state << 13;
        stall_state ^= stall_state >> 17;
        stall_state ^= stall_state << 5;
        return stall_state != 0; /* 0 stays 0, and nothing else becomes 0 */
    }
};

/* Bursts of a direction for the timeline, those in a row as one event. */
class Activity {
public:
    explicit Activity(const char *engine) : engine_(engine) {}

    std::uint64_t bytes() const { return bytes_; }

    void add(Bench &bench, std::uint64_t begin, std::uint64_t end, std::uint64_t bytes)
    {
        if (is_pending_ && begin > end_ + MOST_CYCLES_BETWEEN) {
            flush(bench);
        }
        if (!is_pending_) {
            is_pending_ = true;
            begin_ = begin;
            event_bytes_ = 0;
        }
        end_ = end;
        event_bytes_ += bytes;
        bytes_ += bytes;
    }

    void flush(Bench &bench)
    {
        char label[32];

        if (is_pending_) {
            std::snprintf(label, sizeof label, "%llu bytes",
                          static_cast<unsigned long long>(event_bytes_));
            const umakit_event event = {engine_, label, begin_, end_, end_};
            umakit_host_event(bench.host, &event);
            is_pending_ = false;
        }
    }

private:
    const char *engine_;
    bool is_pending_ = false;
    std::uint64_t begin_ = 0;
    std::uint64_t end_ = 0;
    std::uint64_t event_bytes_ = 0;
    std::uint64_t bytes_ = 0;
};

} // namespace umakit::rtl

#endif /* UMAKIT_RTL_BENCH_H */
