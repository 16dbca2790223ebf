// SPDX-License-Identifier: Apache-2.0
// A simulator that adds 1 to bytes, as a table of umakit/own_simulator.h that is served as a
// program. With an argument it fails when it is created.
#include <cstdint>
#include <cstdio>
#include <map>
#include <vector>

#include "umakit/serve_simulator.h"

namespace {

bool fails = false;

struct Adder {
    umakit_host *host;
    std::map<std::uint32_t, std::uint32_t> registers;
    std::uint64_t clock;
};

Adder adder;

Adder &from(void *simulator)
{
    return *static_cast<Adder *>(simulator);
}

void *create(umakit_host *host)
{
    std::puts("printed"); // to standard error
    std::fflush(stdout);
    if (fails) {
        umakit_host_fail(host, "there are no weights");
    }
    adder.host = host;
    return &adder;
}

void reset(void *simulator)
{
    from(simulator).registers.clear();
    from(simulator).clock = 0;
}

std::uint32_t read32(void *simulator, std::uint32_t offset)
{
    return from(simulator).registers[offset];
}

void run(Adder &self)
{
    std::vector<unsigned char> bytes(self.registers[12]);
    const std::uint64_t begin = self.clock;

    if (umakit_host_read(self.host, self.registers[4], bytes.size(), bytes.data()) != UMAKIT_OK) {
        umakit_host_fail(self.host, "cannot read");
    }
    for (unsigned char &byte : bytes) {
        byte = static_cast<unsigned char>(byte + 1);
    }
    if (umakit_host_write(self.host, self.registers[8], bytes.size(), bytes.data()) != UMAKIT_OK) {
        umakit_host_fail(self.host, "cannot write");
    }
    self.clock += bytes.size();
    const umakit_event event = {"adder", "add 1", begin, self.clock, self.clock};
    umakit_host_event(self.host, &event);
    self.registers[0] = 1;
}

void write32(void *simulator, std::uint32_t offset, std::uint32_t value)
{
    from(simulator).registers[offset] = value;
    if (offset == 16) {
        run(from(simulator));
    }
}

bool wait(void *simulator, std::uint64_t)
{
    return from(simulator).registers[0] == 1;
}

void counters(void *simulator, umakit_own_counters *counters)
{
    counters->clock = from(simulator).clock;
}

const umakit_own_simulator table = {UMAKIT_OWN_SIMULATOR_VERSION, 0, create, reset, read32, write32,
                                    wait, counters, nullptr, nullptr, nullptr, nullptr};

} // namespace

int main(int argc, char **)
{
    fails = argc > 1;
    return umakit_serve_simulator(&table);
}
