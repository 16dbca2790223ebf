/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waveforms of a window of cycles. Compiled in with UMAKIT_RTL_TRACE, for designs that Verilator
 * translated with --trace-fst. The clock is low at time 2 * cycle and rises at 2 * cycle + 1.
 */
#ifndef UMAKIT_RTL_TRACE_H
#define UMAKIT_RTL_TRACE_H

#include <cstdint>

#include <verilated.h>

#ifdef UMAKIT_RTL_TRACE

#include <string>

#include <verilated_fst_c.h>

namespace umakit::rtl {

/* Which cycles are written where; it stays through resets. */
struct Window {
    std::string file;
    std::uint64_t first = UINT64_MAX;
    std::uint64_t last = 0;
    std::uint64_t version = 0; /* how often it was set */

    static void prepare(VerilatedContext &context) { context.traceEverOn(true); }

    void set(const char *its_file, std::uint64_t first_cycle, std::uint64_t last_cycle)
    {
        file = its_file;
        first = first_cycle;
        last = last_cycle;
        ++version;
    }
};

template <class Model> class Trace {
public:
    Trace(Window &window, Model &model) : window_(window) { model.trace(&fst_, 99); }
    ~Trace() { fst_.close(); }

    void dump(std::uint64_t time)
    {
        const std::uint64_t cycle = time / 2;

        if (cycle < window_.first) {
            return;
        }
        if (version_ != window_.version && cycle <= window_.last) {
            fst_.close();
            fst_.open(window_.file.c_str());
            version_ = window_.version;
        }
        if (cycle <= window_.last) {
            fst_.dump(time);
        } else if (fst_.isOpen()) {
            fst_.close();
        }
    }

    /* Let what was written reach the file. */
    void flush() { fst_.flush(); }

private:
    Window &window_;
    VerilatedFstC fst_;
    std::uint64_t version_ = 0;
};

} // namespace umakit::rtl

#else

namespace umakit::rtl {

struct Window {
    static void prepare(VerilatedContext &) {}
};

template <class Model> struct Trace {
    Trace(Window &, Model &) {}
    void dump(std::uint64_t) {}
};

} // namespace umakit::rtl

#endif

#endif /* UMAKIT_RTL_TRACE_H */
