// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include <algorithm>
#include <utility>

#include "lane_npu_isa.h"

namespace
{

constexpr std::uint64_t NEVER = UINT64_MAX;
const char *const ENGINES[] = {"array", "dma0", "dma1"};
static_assert(CHANNEL_COUNT <= 2, "the machine has one or two DMA channels");

std::size_t words_of(std::uint32_t first)
{
    switch (first & 15u) {
    case LANE_NPU_LOAD:
    case LANE_NPU_STORE:
        return LANE_NPU_COPY_WORDS;
    case LANE_NPU_CONFIGURE:
        return LANE_NPU_CONFIGURE_WORDS;
    case LANE_NPU_ADD:
        return LANE_NPU_ADD_WORDS;
    case LANE_NPU_JOB:
        return LANE_NPU_JOB_WORDS;
    default:
        return 1;
    }
}

// How many instructions an engine works on at a time: one, and others that are in their tail.
std::uint32_t depth_of(unsigned engine)
{
    return engine == 0 ? 2 : CHANNELS[engine - 1].outstanding;
}

} // namespace

std::uint32_t Machine::read(std::uint32_t offset)
{
    advance(counters.clock + 1);
    switch (offset) {
    case LANE_NPU_ID:
        return LANE_NPU_IS;
    case LANE_NPU_SHAPE:
        return LANES | STEP << 16;
    case LANE_NPU_STATUS:
        return error_ != 0 ? static_cast<std::uint32_t>(error_)
                           : (instructions_.empty() ? 0 : LANE_NPU_BUSY);
    default:
        umakit_host_fail(host_, "lane_npu: the driver read a register that does not exist");
        return 0;
    }
}

void Machine::write(std::uint32_t offset, std::uint32_t value)
{
    if (offset == LANE_NPU_INSTRUCTION) {
        take_word(value);
        return;
    }
    advance(counters.clock + 1);
    if (offset != LANE_NPU_CLEAR) {
        umakit_host_fail(host_, "lane_npu: the driver wrote a register that does not exist");
        return;
    }
    instructions_.clear();
    words_.clear();
    error_ = 0;
}

// The interrupt is raised while nothing is left to do, or there is an error.
bool Machine::wait(std::uint64_t cycles)
{
    const std::uint64_t limit = counters.clock + cycles;
    while (error_ == 0 && !instructions_.empty() && counters.clock < limit) {
        advance(std::min(next_event(), limit));
    }
    return error_ != 0 || instructions_.empty();
}

// Before its last word an instruction has to be decoded, and waits until there is room.
void Machine::take_word(std::uint32_t word)
{
    words_.push_back(word);
    if (words_.size() < words_of(words_[0])) {
        advance(counters.clock + 1);
        return;
    }
    try {
        if (error_ == 0) {
            decode();
        }
    } catch (const Fault &fault) {
        fail(fault.status);
    }
    words_.clear();
}

void Machine::decode()
{
    switch (words_[0] & 15u) {
    case LANE_NPU_CONFIGURE:
        configuration_ = configuration_of(words_.data());
        break;
    case LANE_NPU_ADD:
        configuration_.add(words_.data());
        break;
    case LANE_NPU_LOAD:
    case LANE_NPU_STORE:
        enqueue_transfer();
        return;
    case LANE_NPU_JOB:
        enqueue_job();
        return;
    default:
        throw Fault{UMAKIT_UNSUPPORTED};
    }
    advance(counters.clock + 1);
}

void Machine::enqueue_job()
{
    const Job job(configuration_, words_.data());
    enqueue({0, false, configuration_.is_depthwise ? "depthwise" : "products", job.cycles(),
             PIPELINE, job.reads(memories_), job.writes(memories_), [this, job] {
                 counters.macs += job.macs();
                 job.run(memories_);
             }});
}

void Machine::enqueue_transfer()
{
    const Transfer copied(words_.data());
    const std::uint64_t banks = copied.banks(memories_);
    const char *const label =
        copied.is_store ? "store" : (copied.is_weights ? "load weights" : "load data");
    enqueue({copied.channel + 1, copied.is_store, label, copied.cycles(),
             CHANNELS[copied.channel].latency, copied.is_store ? banks : 0,
             copied.is_store ? 0 : banks, [this, copied] {
                 copied.run(memories_, host_);
                 (copied.is_store ? counters.bytes_written : counters.bytes_read) += copied.bytes();
             }});
}

// The access of the last word takes until its engine's queue has room.
void Machine::enqueue(Instruction instruction)
{
    const auto is_full = [&] {
        return std::count_if(instructions_.begin(), instructions_.end(), [&](const auto &each) {
                   return each.engine == instruction.engine;
               }) >= QUEUE;
    };
    while (error_ == 0 && is_full()) {
        advance(next_event());
    }
    advance(counters.clock + 1);
    if (error_ == 0) {
        instructions_.push_back(std::move(instruction));
        start_what_can();
    }
}

// ---- Time ----

void Machine::advance(std::uint64_t to)
{
    while (counters.clock < to) {
        const std::uint64_t next = std::min(next_event(), to), cycles = next - counters.clock;
        bool computes = false, moves = false;
        for (const Instruction &each : instructions_) {
            (each.engine == 0 ? computes : moves) |= each.has_started;
        }
        counters.compute_cycles += computes ? cycles : 0;
        counters.dma_cycles += moves ? cycles : 0;
        counters.busy_cycles += computes || moves ? cycles : 0;
        counters.clock = next;
        retire();
        start_what_can();
    }
}

// The time at which something ends; NEVER if nothing runs.
std::uint64_t Machine::next_event() const
{
    std::uint64_t next = NEVER;
    for (const Instruction &each : instructions_) {
        if (each.has_started) {
            next = std::min(next, each.end_of_busy > counters.clock ? each.end_of_busy : each.end);
        }
    }
    return next;
}

// Drop instructions that have ended.
void Machine::retire()
{
    for (auto each = instructions_.begin(); each != instructions_.end();) {
        if (!each->has_started || each->end > counters.clock) {
            ++each;
            continue;
        }
        const umakit_event event = {ENGINES[each->engine], each->label, each->start,
                                    each->end_of_busy, each->end};
        umakit_host_event(host_, &event);
        each = instructions_.erase(each);
    }
}

void Machine::start_what_can()
{
    for (auto each = instructions_.begin(); each != instructions_.end(); ++each) {
        if (each->has_started || !can_start(each)) {
            continue;
        }
        each->has_started = true;
        each->start = counters.clock;
        each->end_of_busy = each->start + each->cycles;
        each->end = each->end_of_busy + each->tail;
        for (const Instruction &other : instructions_) { // they end in the order of their starts
            if (other.has_started && other.engine == each->engine) {
                each->end = std::max(each->end, other.end);
            }
        }
        try {
            each->run();
        } catch (const Fault &fault) {
            fail(fault.status);
            return;
        }
    }
}

// An instruction waits for older ones of its stream to start, for its engine, and for the end of
// older ones that use the same banks: a bank has one port.
bool Machine::can_start(std::deque<Instruction>::const_iterator wanted) const
{
    std::uint32_t running = 0;
    for (const Instruction &other : instructions_) {
        if (other.engine == wanted->engine && other.has_started) {
            if (++running == depth_of(wanted->engine) || other.end_of_busy > counters.clock) {
                return false;
            }
        }
    }
    for (auto older = instructions_.begin(); older != wanted; ++older) {
        const bool is_other_engine = older->engine != wanted->engine;
        if (!is_other_engine && older->is_store == wanted->is_store && !older->has_started) {
            return false;
        }
        std::uint64_t shared = (older->reads & wanted->writes) | (older->writes & wanted->reads);
        if (is_other_engine) {
            shared |= (older->reads | older->writes) & (wanted->reads | wanted->writes);
        }
        if (shared != 0) {
            return false;
        }
    }
    return true;
}

// What runs is stopped, what waits is dropped.
void Machine::fail(int status)
{
    error_ = status;
    instructions_.clear();
}
