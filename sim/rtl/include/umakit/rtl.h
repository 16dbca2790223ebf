/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Verilated design as a simulator of your own (umakit/own_simulator.h). templates/rtl/simulator.cc.j2
 * names its ports in a struct `Design`:
 *
 *     Model                       the class that Verilator wrote
 *     reset_cycles, reset_level, interrupt_level, map_alignment
 *     begins_random               whether state that no reset reaches begins random
 *     clock, reset, interrupt     functions that return a Port or Absent
 *     tie                         drives what is constant
 *     RegisterBus, MemoryBus      of rtl_registers.h, rtl_axi4_memory.h, rtl_plain_memory.h
 *
 * Verilator's sources and what it wrote are compiled with `-include umakit/rtl_messages.h`, and in
 * C++17 against a folder with its headers; waveforms need --trace-fst and UMAKIT_RTL_TRACE.
 *
 * A cycle begins with the clock low: inputs have their values, outputs settle. At the rising
 * edge both sides take what they see. The counter `clock` is rising edges since the reset ended.
 */
#ifndef UMAKIT_RTL_H
#define UMAKIT_RTL_H

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <utility>

#include <verilated.h>

#include "umakit/own_simulator.h"
#include "umakit/rtl_axi4_memory.h"
#include "umakit/rtl_bench.h"
#include "umakit/rtl_ends.h"
#include "umakit/rtl_plain_memory.h"
#include "umakit/rtl_ports.h"
#include "umakit/rtl_registers.h"
#include "umakit/rtl_trace.h"

namespace umakit::rtl {

/* Without an interrupt, waits return after an eighth of the time since the last write to a
 * register, so that a driver that polls is late by as much at most. */
constexpr std::uint64_t LEAST_SLICE = 32;
constexpr std::uint64_t SLICES = 8;

/* Cycles from one look at the time to the next one, a power of two. */
constexpr std::uint64_t CYCLES_BETWEEN_LOOKS = 4096;

/* With a seed of this, state that no reset brings into one begins with ones. */
constexpr int ALL_ONES = -1;

/* What the state of a design is in front of every reset, which does not bring all of it into one. */
struct PowerOn {
    bool is_random = false; /* else 0 */
    int seed = 1;
    std::uint32_t stall_seed = 0;
};

/* A design from one reset to the next. */
template <class Design> class Machine {
public:
    using Model = typename Design::Model;

    Machine(umakit_host *host, const PowerOn &power_on, Window &window, const Limit &limit)
        : context_(power_on), bench_(host), limit_(limit), model_(&context_.context, "TOP"),
          registers_(bench_, model_), memory_(bench_, model_), trace_(window, model_)
    {
        activate();
        Design::tie(model_);
        set(Design::reset(model_), Design::reset_level);
        for (unsigned i = 0; HAS_RESET && i < Design::reset_cycles; ++i) {
            set(Design::clock(model_), 0);
            model_.eval();
            set(Design::clock(model_), 1);
            model_.eval();
        }
        bench_.has_reset = HAS_RESET;
        memory_.begin(HAS_RESET);
        set(Design::reset(model_), !Design::reset_level);
        if (!HAS_RESET) {
            set(Design::clock(model_), 0);
            model_.eval();
        }
        bench_.stall_state = power_on.stall_seed;
        has_always_interrupted_ = HAS_INTERRUPT && is_interrupted();
        fail_if_ended();
    }

    /* Before anything else: texts and ends of designs go to the one that is active. */
    void activate() { Verilated::threadContextp(&context_.context); }

    std::uint32_t read32(std::uint32_t offset)
    {
        const std::uint64_t bus_errors = bench_.bus_errors;

        access_ = {false, true, offset, 0, bench_.cycle};
        access_.value =
            registers_.read(offset, [this](auto settled) { return this->step(settled); });
        if (bench_.bus_errors != bus_errors && !limit_.has_bus_errors) {
            bench_.fail("the read of the register at offset 0x%x ended in the bus error %s",
                        unsigned(offset), bench_.response);
        }
        bench_.has_answered = true;
        memory_.flush();
        return access_.value;
    }

    void write32(std::uint32_t offset, std::uint32_t value)
    {
        access_ = {true, true, offset, value, bench_.cycle};
        registers_.write(offset, value, [this](auto settled) { return this->step(settled); });
        bench_.has_answered = true;
        has_been_written_ = true;
        last_write_ = bench_.cycle;
        write_ = access_;
    }

    bool wait(std::uint64_t cycles)
    {
        bool is_raised = true;

        is_waiting_ = true;
        if constexpr (HAS_INTERRUPT) {
            if (has_always_interrupted_ && has_been_written_) {
                bench_.fail("%s has been %d since the reset, which interrupts by interrupt_level "
                            UMAKIT_RTL_DESCRIBED, Design::interrupt(model_).name,
                            Design::interrupt_level ? 1 : 0);
            }
            std::uint64_t left = cycles;
            while (!is_interrupted() && left != 0 && step([] {})) {
                --left;
            }
            is_raised = is_interrupted();
        } else {
            std::uint64_t left =
                std::min(cycles, std::max(LEAST_SLICE, (bench_.cycle - last_write_) / SLICES));
            while (left != 0 && step([] {})) {
                --left;
            }
        }
        is_waiting_ = false;
        memory_.flush();
        return is_raised;
    }

    void close_trace() { trace_.close(); }

    void counters(umakit_own_counters *counters)
    {
        memory_.flush();
        counters->clock = bench_.cycle;
        counters->bytes_read = memory_.bytes_read();
        counters->bytes_written = memory_.bytes_written();
    }

private:
    struct Context {
        VerilatedContext context;

        explicit Context(const PowerOn &power_on)
        {
            context.randReset(!power_on.is_random ? 0 : power_on.seed == ALL_ONES ? 1 : 2);
            context.randSeed(std::max(power_on.seed, 1));
            Window::prepare(context);
            last_error[0] = '\0';
            ending[0] = '\0';
        }
    };

    static constexpr bool HAS_RESET =
        decltype(Design::reset(std::declval<Model &>()))::is_present;
    static constexpr bool HAS_INTERRUPT =
        decltype(Design::interrupt(std::declval<Model &>()))::is_present;

    /* The last access of the driver to a register. */
    struct Access {
        bool is_write = false;
        bool is_there = false;
        std::uint32_t offset = 0;
        std::uint32_t value = 0; /* of a read that goes on: 0 */
        std::uint64_t cycle = 0; /* its first one */
    };

    [[gnu::cold]] void fail_late()
    {
        const char *const interrupt = HAS_INTERRUPT ? " for the interrupt" : "";

        if (!is_waiting_) {
            bench_.fail("the driver %s the register at offset 0x%x, and the time limit of %g s is "
                        "over",
                        access_.is_write ? "writes" : "reads", unsigned(access_.offset),
                        limit_.seconds);
        } else if (!access_.is_there) {
            bench_.fail("the driver waits%s, and the time limit of %g s is over", interrupt,
                        limit_.seconds);
        } else {
            bench_.fail("the driver waits%s since its %s of 0x%x %s the register at offset 0x%x in "
                        "cycle %llu, and the time limit of %g s is over",
                        interrupt, access_.is_write ? "write" : "read", unsigned(access_.value),
                        access_.is_write ? "to" : "from", unsigned(access_.offset),
                        static_cast<unsigned long long>(access_.cycle), limit_.seconds);
        }
    }

    [[gnu::cold]] void fail_idle()
    {
        bench_.fail("the driver %s%s since its write of 0x%x to the register at offset 0x%x in cycle "
                    "%llu, and is given up after %llu cycles",
                    is_waiting_ ? "waits" : "reads registers",
                    is_waiting_ && HAS_INTERRUPT ? " for the interrupt" : "",
                    unsigned(write_.value), unsigned(write_.offset),
                    static_cast<unsigned long long>(write_.cycle),
                    static_cast<unsigned long long>(limit_.cycles));
    }

    bool is_interrupted()
    {
        return (get(Design::interrupt(model_)) != 0) == Design::interrupt_level;
    }

    /* A cycle; false once the run has failed. `settled` is called before the rising edge. */
    template <class Settled> bool step(Settled settled)
    {
        set(Design::clock(model_), 0);
        model_.eval();
        if (!trace_.dump(2 * bench_.cycle)) {
            bench_.fail("the waveform is complete");
        }
        settled();
        memory_.sample();
        set(Design::clock(model_), 1);
        model_.eval();
        trace_.dump(2 * bench_.cycle + 1);
        context_.context.timeInc(1);
        ++bench_.cycle;
        memory_.drive();
        has_always_interrupted_ = has_always_interrupted_ && is_interrupted();
        if (context_.context.gotFinish()) {
            fail_if_ended();
        }
        if (bench_.cycle % CYCLES_BETWEEN_LOOKS == 0 && limit_.is_over()) {
            fail_late();
        } else if (limit_.cycles != 0 && has_been_written_ &&
                   bench_.cycle - last_write_ > limit_.cycles) {
            fail_idle();
        }
        if (bench_.has_failed) {
            trace_.close();
        }
        return !bench_.has_failed;
    }

    void fail_if_ended()
    {
        if (context_.context.gotFinish() && !bench_.has_failed) {
            bench_.fail("%s", ending[0] != '\0' ? ending : "the design ended its simulation");
        }
    }

    Context context_;
    Bench bench_;
    const Limit &limit_;
    Model model_;
    typename Design::RegisterBus registers_;
    typename Design::MemoryBus memory_;
    Trace<Model> trace_;
    std::uint64_t last_write_ = 0;
    Access access_;
    Access write_; /* the last one of a value */
    bool is_waiting_ = false;
    bool has_been_written_ = false;       /* a register, since the reset */
    bool has_always_interrupted_ = false; /* since the reset: no job can have ended */
};

/* The functions of umakit_own_simulator of a design. */
template <class Design> class Simulator {
public:
    static const umakit_own_simulator *table()
    {
        static const umakit_own_simulator functions = [] {
            umakit_own_simulator table{};
            table.version = UMAKIT_OWN_SIMULATOR_VERSION;
            table.map_alignment = Design::map_alignment;
            table.create = create;
            table.reset = reset;
            table.read32 = read32;
            table.write32 = write32;
            table.wait = wait;
            table.counters = counters;
            return table;
        }();
        return &functions;
    }

    /* From the next reset on. */
    static PowerOn &power_on() { return state().power_on; }

    static Limit &limit() { return state().limit; }

    /* A file that is still written is closed when the program ends. */
    static Window &window()
    {
        static const bool is_registered = std::atexit([] {
                                              if (state().machine != nullptr) {
                                                  state().machine->close_trace();
                                              }
                                          }) == 0;
        static_cast<void>(is_registered);
        return state().window;
    }

private:
    struct State {
        umakit_host *host = nullptr;
        std::unique_ptr<Machine<Design>> machine;
        PowerOn power_on = {Design::begins_random, 1, 0};
        Window window;
        Limit limit;
    };

    /* Never destroyed: what Verilator's code uses may be gone at the program's end. */
    static State &state()
    {
        static State &the_state = *new State;
        return the_state;
    }

    /* Nothing may be thrown through the functions of the table. */
    template <class Function> static void guarded(Function function)
    {
        try {
            function();
        } catch (const std::exception &error) {
            umakit_host_fail(state().host, error.what());
        } catch (...) {
            umakit_host_fail(state().host, "the design's simulation threw an exception");
        }
    }

    template <class Function> static void on_machine(Function function)
    {
        Machine<Design> *const machine = state().machine.get();

        if (machine != nullptr) {
            guarded([&] {
                machine->activate();
                function(*machine);
            });
        }
    }

    static void *create(umakit_host *host)
    {
        state().host = host;
        return &state();
    }

    static void reset(void *)
    {
        guarded([] {
            State &it = state();
            it.machine.reset();
            it.machine = std::make_unique<Machine<Design>>(it.host, it.power_on, it.window, it.limit);
            if (it.power_on.seed != ALL_ONES) {
                ++it.power_on.seed; /* the next reset meets another state */
            }
        });
    }

    static std::uint32_t read32(void *, std::uint32_t offset)
    {
        std::uint32_t value = UINT32_MAX;
        on_machine([&](Machine<Design> &machine) { value = machine.read32(offset); });
        return value;
    }

    static void write32(void *, std::uint32_t offset, std::uint32_t value)
    {
        on_machine([&](Machine<Design> &machine) { machine.write32(offset, value); });
    }

    static bool wait(void *, std::uint64_t cycles)
    {
        bool is_raised = false;
        on_machine([&](Machine<Design> &machine) { is_raised = machine.wait(cycles); });
        return is_raised;
    }

    static void counters(void *, umakit_own_counters *counters)
    {
        on_machine([&](Machine<Design> &machine) { machine.counters(counters); });
    }
};

} // namespace umakit::rtl

#endif /* UMAKIT_RTL_H */
