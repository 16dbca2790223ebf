// SPDX-License-Identifier: Apache-2.0
// The simulator of model.py in C++, to be linked or to be started.
#include <cstdint>
#include <vector>

#ifdef IS_PROGRAM
#include "umakit/serve_simulator.h"
#else
#include "umakit/own_simulator.h"
#endif

namespace {

struct Relu {
    umakit_host *host;
    std::uint32_t registers[5];
    std::uint64_t clock, done_at, compute, moved;
};

Relu relu;

void *create(umakit_host *host)
{
    relu.host = host;
    return &relu;
}

void reset(void *)
{
    umakit_host *const host = relu.host;
    relu = Relu();
    relu.host = host;
}

std::uint32_t read32(void *, std::uint32_t offset)
{
    return relu.registers[offset / 4];
}

void start(std::uint32_t count)
{
    std::vector<float> values(count / sizeof(float));

    if (umakit_host_read(relu.host, relu.registers[1], count, values.data()) != UMAKIT_OK) {
        umakit_host_fail(relu.host, "cannot read");
        return;
    }
    for (float &value : values) {
        value = value > 0.0f ? value : 0.0f;
    }
    if (umakit_host_write(relu.host, relu.registers[2], count, values.data()) != UMAKIT_OK) {
        umakit_host_fail(relu.host, "cannot write");
        return;
    }
    const std::uint64_t cycles = (values.size() + 3) / 4;
    relu.done_at = relu.clock + cycles;
    const umakit_event event = {"relu", "values", relu.clock, relu.done_at, relu.done_at};
    umakit_host_event(relu.host, &event);
    relu.compute += cycles;
    relu.moved += count;
}

void write32(void *, std::uint32_t offset, std::uint32_t value)
{
    relu.clock += 1;
    relu.registers[offset / 4] = value;
    if (offset == 16) {
        start(relu.registers[3]);
    }
}

bool wait(void *, std::uint64_t cycles)
{
    if (relu.done_at > relu.clock + cycles) {
        relu.clock += cycles;
        return false;
    }
    relu.clock = relu.done_at > relu.clock ? relu.done_at : relu.clock;
    relu.registers[0] = 1;
    return true;
}

void counters(void *, umakit_own_counters *counters)
{
    counters->clock = relu.clock;
    counters->compute_cycles = relu.compute;
    counters->bytes_read = relu.moved;
}

const umakit_own_simulator table = {UMAKIT_OWN_SIMULATOR_VERSION, 0, create, reset, read32, write32,
                                    wait, counters, nullptr, nullptr, nullptr, nullptr};

} // namespace

extern "C" const umakit_own_simulator *relu_npu_simulator(void);

extern "C" const umakit_own_simulator *relu_npu_simulator(void)
{
    return &table;
}

#ifdef IS_PROGRAM
int main()
{
    return umakit_serve_simulator(&table);
}
#endif
