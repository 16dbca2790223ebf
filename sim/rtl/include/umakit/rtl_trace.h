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

/* Which cycles are written where. A reset before the last of them begins the file anew. */
struct Window {
    std::string file;
    std::uint64_t first = UINT64_MAX; /* no cycle: nothing is to be written (any more) */
    std::uint64_t last = 0;
    bool ends_run = false; /* nothing is simulated behind the last of them */

    static void prepare(VerilatedContext &context) { context.traceEverOn(true); }

    void set(const char *its_file, std::uint64_t first_cycle, std::uint64_t last_cycle)
    {
        file = its_file;
        first = first_cycle;
        last = last_cycle;
    }
};

template <class Model> class Trace {
public:
    Trace(Window &window, Model &model) : window_(window) { model.trace(&fst_, 99); }
    Trace(const Trace &) = delete;
    Trace &operator=(const Trace &) = delete;
    ~Trace() { close(); }

    /* False if the run ends here, as the window wants it. */
    bool dump(std::uint64_t time)
    {
        const std::uint64_t cycle = time / 2;

        if (cycle < window_.first) {
            return true;
        }
        if (cycle > window_.last) {
            window_.first = UINT64_MAX;
            close();
            return !window_.ends_run;
        }
        if (!fst_.isOpen()) {
            fst_.open(window_.file.c_str());
        }
        fst_.dump(time);
        return true;
    }

    /* Only a closed file can be read. */
    void close()
    {
        if (fst_.isOpen()) {
            fst_.close();
        }
    }

private:
    Window &window_;
    VerilatedFstC fst_;
};

} // namespace umakit::rtl

#else

namespace umakit::rtl {

struct Window {
    static void prepare(VerilatedContext &) {}
};

template <class Model> struct Trace {
    Trace(Window &, Model &) {}
    bool dump(std::uint64_t) { return true; }
    void close() {}
};

} // namespace umakit::rtl

#endif

#endif /* UMAKIT_RTL_TRACE_H */
