/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strawberry's AXI4-Lite slave: reads and writes that overlap, halves of a write in any order, byte
 * strobes, masters that are slow to take an answer. Prints what is wrong; arguments: cycles, seed.
 *
 * A read may return what its register held at any time between the cycle in which its address was
 * taken and the one in which its data was; a write may take effect between the cycle in which its
 * second half was taken and the one of its response.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>

#include "Vstrawberry.h"

#include "umakit/rtl_ends.h" /* what the design's object calls */

namespace {

constexpr std::uint32_t FIRST = 0xA8; /* IFMAP_START, and those behind it */
constexpr unsigned COUNT = 4;

Vstrawberry *design;
std::mt19937 generator;
long problems;

bool draw(unsigned of)
{
    return generator() % of == 0;
}

void complain(const char *what, unsigned long long found, unsigned long long expected)
{
    if (problems++ < 10) {
        std::printf("%s: found 0x%llx, expected 0x%llx\n", what, found, expected);
    }
}

std::uint32_t merged(std::uint32_t old, std::uint32_t data, unsigned strobe)
{
    std::uint32_t mask = 0;
    for (unsigned i = 0; i < 4; ++i) {
        mask |= (strobe >> i & 1u) != 0 ? 0xFFu << 8 * i : 0u;
    }
    return (old & ~mask) | (data & mask);
}

/* A cycle up to the point at which the rising edge sees all signals, and that edge. */
void settle()
{
    design->clk = 0;
    design->eval();
}

void edge()
{
    design->clk = 1;
    design->eval();
}

void reset()
{
    design->rst_n = 0;
    for (int i = 0; i < 3; ++i) {
        settle();
        edge();
    }
    design->rst_n = 1;
}

void write(std::uint32_t offset, std::uint32_t data, unsigned strobe)
{
    bool address = true, value = true, answered = false;
    design->s_axil_awaddr = static_cast<SData>(offset);
    design->s_axil_wdata = data;
    design->s_axil_wstrb = static_cast<CData>(strobe);
    design->s_axil_bready = 1;
    while (!answered) {
        design->s_axil_awvalid = address;
        design->s_axil_wvalid = value;
        settle();
        address = address && !design->s_axil_awready;
        value = value && !design->s_axil_wready;
        answered = design->s_axil_bvalid;
        edge();
    }
    design->s_axil_awvalid = design->s_axil_wvalid = design->s_axil_bready = 0;
}

std::uint32_t read(std::uint32_t offset)
{
    bool address = true, answered = false;
    std::uint32_t data = 0;
    design->s_axil_araddr = static_cast<SData>(offset);
    design->s_axil_rready = 1;
    while (!answered) {
        design->s_axil_arvalid = address;
        settle();
        address = address && !design->s_axil_arready;
        answered = design->s_axil_rvalid;
        data = design->s_axil_rdata;
        edge();
    }
    design->s_axil_arvalid = design->s_axil_rready = 0;
    return data;
}

void expect(const char *what, std::uint32_t offset, std::uint32_t expected)
{
    const std::uint32_t found = read(offset);
    if (found != expected) {
        complain(what, found, expected);
    }
}

/* Registers of commands with strobes that leave their bytes out. */
void try_strobes()
{
    enum { CONTROL = 0x08, STATUS = 0x0C, ENABLE = 0x10, PENDING = 0x14, ERROR = 0x18 };

    write(CONTROL, 2, 0xE);
    expect("STATUS after a START that is not strobed", STATUS, 1);
    write(CONTROL, 0xFFFFFF00, 1);
    expect("ERROR after bits of CONTROL that are not strobed", ERROR, 0);
    write(CONTROL, 2, 0xF); /* a job of zeros */
    expect("ERROR after a wrong job", ERROR, 1);
    expect("PENDING after a wrong job", PENDING, 4);
    write(PENDING, 4, 0xE);
    expect("PENDING after a write that is not strobed", PENDING, 4);
    write(PENDING, 4, 1);
    expect("PENDING after a write", PENDING, 0);
    write(ENABLE, 7, 0x2);
    expect("ENABLE after a write that is not strobed", ENABLE, 0);
    write(ENABLE, 5, 0x1);
    write(ENABLE, 7, 0x8);
    expect("ENABLE keeps bytes", ENABLE, 5);
    write(CONTROL, 4, 0x1);
    expect("ERROR after CLEAR", ERROR, 0);
}

} // namespace

int main(int argument_count, char **arguments)
{
    const long cycles = argument_count > 1 ? std::atol(arguments[1]) : 300000;
    std::uint32_t committed[COUNT] = {};
    bool writing = false, address_left = false, data_left = false, effective = false;
    bool reading = false, read_left = false;
    unsigned written = 0, strobe = 0, looked_at = 0;
    std::uint32_t data = 0;
    std::set<std::uint32_t> allowed;
    long writes = 0, reads = 0;

    design = new Vstrawberry; /* for the whole program */
    generator.seed(argument_count > 2 ? static_cast<unsigned>(std::atol(arguments[2])) : 1u);
    reset();
    try_strobes();
    for (long cycle = 0; cycle < cycles; ++cycle) {
        const unsigned pace = cycle / 1000 % 2 == 0 ? 1 : 3;
        if (!writing && draw(pace)) {
            writing = address_left = data_left = true;
            effective = false;
            written = generator() % COUNT;
            strobe = generator() % 16;
            data = static_cast<std::uint32_t>(generator());
        }
        if (!reading && draw(pace)) {
            reading = read_left = true;
            looked_at = draw(2) ? written : generator() % COUNT;
            allowed.clear();
        }
        /* What is valid stays so until it is taken. */
        design->s_axil_awvalid = address_left && (design->s_axil_awvalid || draw(pace));
        design->s_axil_wvalid = data_left && (design->s_axil_wvalid || draw(pace));
        design->s_axil_arvalid = read_left && (design->s_axil_arvalid || draw(pace));
        design->s_axil_awaddr = static_cast<SData>(FIRST + 4 * written);
        design->s_axil_wdata = data;
        design->s_axil_wstrb = static_cast<CData>(strobe);
        design->s_axil_araddr = static_cast<SData>(FIRST + 4 * looked_at);
        design->s_axil_bready = draw(pace);
        design->s_axil_rready = draw(pace);
        settle();

        address_left = address_left && !(design->s_axil_awvalid && design->s_axil_awready);
        data_left = data_left && !(design->s_axil_wvalid && design->s_axil_wready);
        read_left = read_left && !(design->s_axil_arvalid && design->s_axil_arready);
        effective = effective || (writing && !address_left && !data_left);
        if (reading && !read_left) {
            allowed.insert(committed[looked_at]);
            if (effective && looked_at == written) {
                allowed.insert(merged(committed[written], data, strobe));
            }
        }
        if (design->s_axil_rvalid && (!reading || read_left)) {
            complain("rvalid without a read in cycle", static_cast<unsigned long long>(cycle), 0);
        } else if (design->s_axil_rvalid && design->s_axil_rready) {
            if (allowed.count(design->s_axil_rdata) == 0 || design->s_axil_rresp != 0) {
                complain("a read", design->s_axil_rdata, *allowed.begin());
            }
            reading = false;
            ++reads;
        }
        if (design->s_axil_bvalid && (!writing || address_left || data_left)) {
            complain("bvalid without a write in cycle", static_cast<unsigned long long>(cycle), 0);
        } else if (design->s_axil_bvalid && design->s_axil_bready) {
            committed[written] = merged(committed[written], data, strobe);
            writing = effective = false;
            ++writes;
        }
        edge();
    }
    if (writes < cycles / 8 || reads < cycles / 8) {
        complain("accesses were answered", static_cast<unsigned long long>(writes + reads), 0);
    }
    std::printf("%ld writes, %ld reads, %ld problems\n", writes, reads, problems);
    return problems == 0 ? 0 : 1;
}
