/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buses over which the driver's accesses reach the registers of a Verilated design: AXI4-Lite,
 * APB, and a plain request that is answered when it is taken. `Ports` has a function for each
 * signal of the bus, which returns a Port or Absent.
 *
 * An access ends when the design has answered; the clock runs meanwhile. Where pauses are switched
 * on (Bench), it begins some cycles late; on AXI4-Lite the address may come before the data of a write
 * or behind them, and an answer is not taken in the first cycle. An error response
 * (SLVERR, DECERR, pslverr) is told to the host; a read of it gives all ones, as on a board.
 */
#ifndef UMAKIT_RTL_REGISTERS_H
#define UMAKIT_RTL_REGISTERS_H

#include <cstdint>

#include "umakit/rtl_bench.h"
#include "umakit/rtl_ports.h"

namespace umakit::rtl {

/* Cycles within which an access has to be answered. */
constexpr std::uint64_t MOST_ACCESS_CYCLES = 100000;

/* Say that an access was not answered, because `name` stayed 0. */
[[gnu::cold]] inline void fail_access(Bench &bench, bool is_write, std::uint32_t offset,
                                      const char *name)
{
    const bool may_be_in_reset = bench.has_reset && !bench.has_answered;

    bench.fail("%sthe register bus did not answer a %s at offset 0x%x within %llu cycles: %s stayed "
               "0",
               may_be_in_reset ? "the design does not leave its reset, by reset and reset_level "
                                 UMAKIT_RTL_DESCRIBED ": "
                               : "",
               is_write ? "write" : "read", static_cast<unsigned int>(offset),
               static_cast<unsigned long long>(MOST_ACCESS_CYCLES), name);
}

/* Name of an error response of AXI. */
inline const char *response_name(std::uint64_t response)
{
    return response == 3 ? "DECERR" : "SLVERR";
}

/* Cycles without an access, in front of one, where pauses are switched on; false once the run has
 * failed. */
template <class Step> bool begin_late(Bench &bench, Step step)
{
    bool goes_on = true;

    for (std::uint32_t left = bench.late_cycles(); left != 0 && goes_on; --left) {
        goes_on = step([] {});
    }
    return goes_on;
}

/* A data bus of 64 bits has a register in each half. */
inline std::uint64_t on_lane(std::uint32_t value, std::uint32_t offset, unsigned data_bits)
{
    return std::uint64_t(value) << (data_bits == 64 ? 8 * (offset & 4u) : 0);
}

inline std::uint32_t from_lane(std::uint64_t data, std::uint32_t offset, unsigned data_bits)
{
    return static_cast<std::uint32_t>(data >> (data_bits == 64 ? 8 * (offset & 4u) : 0));
}

template <class Ports> class AxiLiteRegisters {
public:
    static_assert(Ports::data_bits == 32 || Ports::data_bits == 64, "those of AXI4-Lite");

    template <class Model> AxiLiteRegisters(Bench &bench, Model &model)
        : bench_(bench), ports_{model}
    {
        set(ports_.awvalid(), 0);
        set(ports_.awprot(), 0);
        set(ports_.wvalid(), 0);
        set(ports_.bready(), 0);
        set(ports_.arvalid(), 0);
        set(ports_.arprot(), 0);
        set(ports_.rready(), 0);
    }

    /* `step(settled)` runs a cycle, and calls `settled` when all signals have the values that
     * the rising edge sees. */
    template <class Step> std::uint32_t read(std::uint32_t offset, Step step)
    {
        bool is_taken = false;
        Answer answer;
        std::uint64_t data = 0, response = 0;

        if (!begin_late(bench_, step) || !is_quiet()) {
            return UINT32_MAX;
        }
        set(ports_.araddr(), offset);
        for (std::uint64_t i = 0; i < MOST_ACCESS_CYCLES && !answer.is_taken; ++i) {
            set(ports_.arvalid(), !is_taken);
            set(ports_.rready(), !bench_.stalls());
            const bool goes_on = step([&] {
                is_taken = is_taken || get(ports_.arready()) != 0;
                if (get(ports_.rvalid()) != 0) {
                    check(is_taken, ports_.rvalid().name, ports_.arready().name);
                    data = get(ports_.rdata());
                    response = get(ports_.rresp());
                }
                take(answer, ports_.rvalid(), ports_.rready());
            });
            if (!goes_on) {
                return UINT32_MAX;
            }
        }
        set(ports_.arvalid(), 0);
        set(ports_.rready(), 0);
        if (!answer.is_taken) {
            fail_access(bench_, false, offset,
                        is_taken ? ports_.rvalid().name : ports_.arready().name);
            return UINT32_MAX;
        }
        if (response > 1) {
            bench_.end_in_bus_error(offset, false, response_name(response));
            return UINT32_MAX;
        }
        return from_lane(data, offset, Ports::data_bits);
    }

    template <class Step> void write(std::uint32_t offset, std::uint32_t value, Step step)
    {
        bool is_address_taken = false, is_data_taken = false;
        std::uint64_t response = 0;
        Answer answer;

        if (!begin_late(bench_, step) || !is_quiet()) {
            return;
        }
        const std::uint64_t address_begin = bench_.late_cycles();
        const std::uint64_t data_begin = bench_.late_cycles();
        set(ports_.awaddr(), offset);
        set(ports_.wdata(), on_lane(value, offset, Ports::data_bits));
        set(ports_.wstrb(), 15u << (Ports::data_bits == 64 ? offset & 4u : 0u));
        for (std::uint64_t i = 0; i < MOST_ACCESS_CYCLES && !answer.is_taken; ++i) {
            set(ports_.awvalid(), i >= address_begin && !is_address_taken);
            set(ports_.wvalid(), i >= data_begin && !is_data_taken);
            set(ports_.bready(), !bench_.stalls());
            const bool goes_on = step([&] {
                is_address_taken = is_address_taken || are_1(ports_.awvalid(), ports_.awready());
                is_data_taken = is_data_taken || are_1(ports_.wvalid(), ports_.wready());
                if (get(ports_.bvalid()) != 0) {
                    check(is_address_taken && is_data_taken, ports_.bvalid().name,
                          is_data_taken ? ports_.awready().name : ports_.wready().name);
                    response = get(ports_.bresp());
                }
                take(answer, ports_.bvalid(), ports_.bready());
            });
            if (!goes_on) {
                return;
            }
        }
        set(ports_.awvalid(), 0);
        set(ports_.wvalid(), 0);
        set(ports_.bready(), 0);
        if (!answer.is_taken) {
            fail_access(bench_, true, offset,
                        !is_address_taken ? ports_.awready().name
                        : !is_data_taken  ? ports_.wready().name
                                          : ports_.bvalid().name);
        } else if (response > 1) {
            bench_.end_in_bus_error(offset, true, response_name(response));
        }
    }

private:
    /* The response of an access. */
    struct Answer {
        bool is_offered = false; /* valid was 1, and ready was not */
        bool is_taken = false;
    };

    template <class Valid, class Ready> static bool are_1(Valid valid, Ready ready)
    {
        return get(valid) != 0 && get(ready) != 0;
    }

    /* In each cycle: a response that was not taken has to stay. */
    template <class Valid, class Ready> void take(Answer &answer, Valid valid, Ready ready)
    {
        if (answer.is_offered && get(valid) == 0) {
            bench_.fail("%s went back to 0 before %s was 1", valid.name, ready.name);
        }
        answer.is_offered = get(valid) != 0;
        answer.is_taken = are_1(valid, ready);
    }

    void check(bool is_taken, const char *answer, const char *request)
    {
        if (!is_taken) {
            bench_.fail("%s is 1 before %s took the access to a register", answer, request);
        }
    }

    /* Answers of before would be taken for those of the next access. */
    bool is_quiet()
    {
        if (get(ports_.rvalid()) != 0 || get(ports_.bvalid()) != 0) {
            bench_.fail("%s is 1, but no access to a register waits for it",
                        get(ports_.rvalid()) != 0 ? ports_.rvalid().name : ports_.bvalid().name);
        }
        return !bench_.has_failed;
    }

    Bench &bench_;
    Ports ports_;
};

template <class Ports> class ApbRegisters {
public:
    static_assert(Ports::data_bits == 32, "registers of 32 bits");

    template <class Model> ApbRegisters(Bench &bench, Model &model) : bench_(bench), ports_{model}
    {
        set(ports_.psel(), 0);
        set(ports_.penable(), 0);
        set(ports_.pprot(), 0);
    }

    template <class Step> std::uint32_t read(std::uint32_t offset, Step step)
    {
        std::uint32_t value = UINT32_MAX;

        set(ports_.pstrb(), 0);
        access(false, offset, step, value);
        return value;
    }

    template <class Step> void write(std::uint32_t offset, std::uint32_t value, Step step)
    {
        set(ports_.pwdata(), value);
        set(ports_.pstrb(), 15);
        access(true, offset, step, value);
    }

private:
    template <class Step>
    void access(bool is_write, std::uint32_t offset, Step step, std::uint32_t &value)
    {
        bool is_answered = false, is_error = false;

        if (!begin_late(bench_, step)) {
            return;
        }
        set(ports_.paddr(), offset);
        set(ports_.pwrite(), is_write);
        set(ports_.psel(), 1);
        if (!step([] {})) { /* the setup phase */
            return;
        }
        set(ports_.penable(), 1);
        for (std::uint64_t i = 0; i < MOST_ACCESS_CYCLES && !is_answered; ++i) {
            const bool goes_on = step([&] {
                is_answered = get(ports_.pready(), 1) != 0;
                is_error = is_answered && get(ports_.pslverr()) != 0;
                if (is_answered && !is_write && !is_error) {
                    value = static_cast<std::uint32_t>(get(ports_.prdata()));
                }
            });
            if (!goes_on) {
                return;
            }
        }
        if (!is_answered) {
            fail_access(bench_, is_write, offset, ports_.pready().name);
        } else if (is_error) {
            bench_.end_in_bus_error(offset, is_write, "pslverr");
        }
        set(ports_.psel(), 0);
        set(ports_.penable(), 0);
    }

    Bench &bench_;
    Ports ports_;
};

/* The request is taken in the cycle in which ready is 1; rdata has the answer in that cycle. */
template <class Ports> class PlainRegisters {
public:
    static_assert(Ports::data_bits == 32, "registers of 32 bits");

    template <class Model> PlainRegisters(Bench &bench, Model &model)
        : bench_(bench), ports_{model}
    {
        set(ports_.valid(), 0);
    }

    template <class Step> std::uint32_t read(std::uint32_t offset, Step step)
    {
        std::uint32_t value = UINT32_MAX;

        set(ports_.strobe(), 0);
        access(false, offset, step, value);
        return value;
    }

    template <class Step> void write(std::uint32_t offset, std::uint32_t value, Step step)
    {
        set(ports_.wdata(), value);
        set(ports_.strobe(), 15);
        access(true, offset, step, value);
    }

private:
    template <class Step>
    void access(bool is_write, std::uint32_t offset, Step step, std::uint32_t &value)
    {
        bool is_answered = false;

        if (!begin_late(bench_, step)) {
            return;
        }
        set(ports_.address(), offset);
        set(ports_.write(), is_write);
        set(ports_.valid(), 1);
        for (std::uint64_t i = 0; i < MOST_ACCESS_CYCLES && !is_answered; ++i) {
            const bool goes_on = step([&] {
                is_answered = get(ports_.ready(), 1) != 0;
                if (is_answered && !is_write) {
                    value = static_cast<std::uint32_t>(get(ports_.rdata()));
                }
            });
            if (!goes_on) {
                return;
            }
        }
        if (!is_answered) {
            fail_access(bench_, is_write, offset, ports_.ready().name);
        }
        set(ports_.valid(), 0);
    }

    Bench &bench_;
    Ports ports_;
};

} // namespace umakit::rtl

#endif /* UMAKIT_RTL_REGISTERS_H */
