// SPDX-License-Identifier: Apache-2.0
// Engines that run instructions at the same time where they use different banks.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "array.h"
#include "transfer.h"

// Instructions of a stream start in their order. Loads and stores of a channel are two streams.
struct Instruction {
    unsigned engine; // 0 is the array, the others are the DMA channels
    bool is_store;
    const char *label;
    std::uint64_t cycles, tail, reads, writes;
    std::function<void()> run;
    bool has_started = false;
    std::uint64_t start = 0, end_of_busy = 0, end = 0;
};

class Machine
{
public:
    explicit Machine(umakit_host *host) : host_(host) {}

    std::uint32_t read(std::uint32_t offset);
    void write(std::uint32_t offset, std::uint32_t value);
    bool wait(std::uint64_t cycles);

    umakit_own_counters counters = {0, 0, 0, 0, 0, 0, 0};

private:
    void take_word(std::uint32_t word);
    void decode();
    void enqueue_job();
    void enqueue_transfer();
    void enqueue(Instruction instruction);
    void advance(std::uint64_t to);
    std::uint64_t next_event() const;
    void retire();
    void start_what_can();
    bool can_start(std::deque<Instruction>::const_iterator wanted) const;
    void fail(int status);

    umakit_host *host_;
    Memories memories_;
    Configuration configuration_;
    std::vector<std::uint32_t> words_;     // of the instruction that is being written
    std::deque<Instruction> instructions_; // those that have not ended, in order
    int error_ = 0;
};
