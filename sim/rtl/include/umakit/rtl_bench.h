/* SPDX-License-Identifier: Apache-2.0 */
/* What all parts of the harness of a Verilated design share: the host, the clock and failures. */
#ifndef UMAKIT_RTL_BENCH_H
#define UMAKIT_RTL_BENCH_H

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <ctime>

#include "umakit/own_simulator.h"

namespace umakit::rtl {

/* Bursts whose events are merged lie at most as many cycles apart. */
constexpr std::uint64_t MOST_CYCLES_BETWEEN = 16;

/* How much processor time a run may take, for designs that never answer. */
struct Limit {
    double seconds = 0;       /* 0: there is no limit */
    std::uint64_t cycles = 0; /* since the driver's last write; 0: there is no limit */
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

/* In sentences on what contradicts the description of a design; DESCRIBED of
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
