// SPDX-License-Identifier: Apache-2.0
// The machine as umakit calls it.
#include <memory>

#include "machine.h"

namespace
{

// There is one machine; a reset makes a new one.
struct Instance {
    umakit_host *host = nullptr;
    std::unique_ptr<Machine> machine;
};

Machine &machine_of(void *simulator)
{
    return *static_cast<Instance *>(simulator)->machine;
}

void *create(umakit_host *host)
{
    static Instance instance;
    instance.host = host;
    return &instance;
}

void reset(void *simulator)
{
    Instance &instance = *static_cast<Instance *>(simulator);
    instance.machine.reset(new Machine(instance.host));
}

std::uint32_t read32(void *simulator, std::uint32_t offset)
{
    return machine_of(simulator).read(offset);
}

void write32(void *simulator, std::uint32_t offset, std::uint32_t value)
{
    machine_of(simulator).write(offset, value);
}

bool wait(void *simulator, std::uint64_t cycles)
{
    return machine_of(simulator).wait(cycles);
}

void counters(void *simulator, umakit_own_counters *counters)
{
    *counters = machine_of(simulator).counters;
}

umakit_own_simulator table()
{
    umakit_own_simulator functions = umakit_own_simulator();
    functions.version = UMAKIT_OWN_SIMULATOR_VERSION;
    functions.create = create;
    functions.reset = reset;
    functions.read32 = read32;
    functions.write32 = write32;
    functions.wait = wait;
    functions.counters = counters;
    return functions;
}

} // namespace

extern "C" const umakit_own_simulator *lane_npu_simulator(void)
{
    static const umakit_own_simulator functions = table();
    return &functions;
}
