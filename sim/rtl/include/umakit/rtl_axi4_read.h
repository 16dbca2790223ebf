/* SPDX-License-Identifier: Apache-2.0 */
/* The read channels of an AXI4 memory; see rtl_axi4_memory.h. */
#ifndef UMAKIT_RTL_AXI4_READ_H
#define UMAKIT_RTL_AXI4_READ_H

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "umakit/rtl_axi4_burst.h"
#include "umakit/rtl_bench.h"
#include "umakit/rtl_ports.h"

namespace umakit::rtl {

template <class Ports> class Axi4Read {
public:
    Axi4Read(Bench &bench, Ports ports) : bench_(bench), ports_(ports)
    {
        set(ports_.arready(), 0);
        no_beat();
    }

    Activity activity{"memory read"};

    bool is_idle() const { return bursts_.is_empty() && !is_waiting_; }
    bool is_requested() const { return get(ports_.arvalid()) != 0; }

    /* What the rising edge sees. */
    void sample()
    {
        if (is_valid_ && get(ports_.rready()) != 0) {
            end_beat();
        }
        check_request();
        if (is_requested()) {
            if (is_ready_) {
                take();
            } else if (!is_waiting_) {
                is_waiting_ = true;
                request_ = request();
            }
        }
    }

    /* What the design sees until the next rising edge. */
    void drive()
    {
        const bool is_ready = !bursts_.is_full() && !bench_.stalls();

        if (is_ready != is_ready_) {
            is_ready_ = is_ready;
            set(ports_.arready(), is_ready);
        }
        if (!is_valid_ && !bursts_.is_empty() && !bench_.has_failed &&
            bench_.cycle >= bursts_.first().taken + LATENCY && !bench_.stalls()) {
            next_beat();
        } else if (!is_valid_ && !is_driven_idle_) {
            no_beat();
        }
    }

private:
    static constexpr unsigned BYTES = Ports::data_bits / 8;
    static_assert(has_bytes<decltype(std::declval<Ports>().rdata())>(BYTES),
                  "the width of rdata is not data_bits of the memory bus");
    static constexpr std::uint64_t LATENCY = Ports::latency == 0 ? 1 : Ports::latency;

    Burst request() const
    {
        Burst burst;
        burst.address = get(ports_.araddr());
        burst.id = get(ports_.arid());
        burst.beats = unsigned(get(ports_.arlen())) + 1;
        burst.size = 1u << get(ports_.arsize(), __builtin_ctz(BYTES));
        burst.kind = unsigned(get(ports_.arburst(), INCR));
        burst.taken = bench_.cycle;
        return burst;
    }

    /* A request that waits stays as it is. */
    void check_request()
    {
        if (!is_waiting_) {
            return;
        }
        const Burst now = request();
        if (!is_requested()) {
            bench_.fail("%s fell before %s was 1", ports_.arvalid().name, ports_.arready().name);
        } else if (now.address != request_.address) {
            bench_.fail("%s changed while %s waited for %s", ports_.araddr().name,
                        ports_.arvalid().name, ports_.arready().name);
        } else if (now.beats != request_.beats || now.size != request_.size ||
                   now.kind != request_.kind || now.id != request_.id) {
            bench_.fail("%s or what belongs to it changed while %s waited for %s",
                        ports_.arlen().name, ports_.arvalid().name, ports_.arready().name);
        }
    }

    void take()
    {
        const Burst burst = request();

        is_waiting_ = false;
        check_burst(bench_, burst, BYTES, ports_.arvalid().name, ports_.arlen().name,
                    ports_.arsize().name, ports_.arburst().name);
        if (!bench_.has_failed) {
            bursts_.add(burst);
        }
    }

    void end_beat()
    {
        Burst &burst = bursts_.first();

        is_valid_ = false;
        if (++beat_ == burst.beats) {
            activity.add(bench_, burst.taken, bench_.cycle + 1,
                         burst.kind == INCR ? burst.bytes() : burst.beats * burst.size);
            bursts_.remove_first();
            beat_ = 0;
        }
    }

    void next_beat()
    {
        const Burst &burst = bursts_.first();

        if (beat_ == 0) {
            fetch(burst);
        }
        /* The bytes of the beat, on the lanes of their addresses. */
        const Lanes lanes = burst.lanes(beat_);
        std::uint8_t data[BYTES] = {};
        std::memcpy(data + lanes.address % BYTES, data_ + place(burst, beat_), lanes.bytes);
        set_bytes(ports_.rdata(), data);
        set(ports_.rresp(), responses_[beat_]);
        set(ports_.rlast(), beat_ + 1 == burst.beats);
        set(ports_.rid(), burst.id);
        set(ports_.rvalid(), 1);
        is_valid_ = true;
        is_driven_idle_ = false;
    }

    /* Data and response are arbitrary while nothing is valid: values that nobody expects. */
    void no_beat()
    {
        std::uint8_t data[BYTES];

        std::memset(data, 0xa5, sizeof data);
        set_bytes(ports_.rdata(), data);
        set(ports_.rresp(), DECERR);
        set(ports_.rlast(), 0);
        set(ports_.rvalid(), 0);
        is_driven_idle_ = true;
    }

    /* Where the first byte of a beat lies in `data_`. */
    static unsigned place(const Burst &burst, unsigned beat)
    {
        return beat * burst.size + (burst.kind == FIXED || beat == 0
                                        ? unsigned(burst.address - burst.aligned())
                                        : 0);
    }

    /* Read all of a burst from the host. A fault is met once by a burst, if it ends then. */
    void fetch(const Burst &burst)
    {
        int status = UMAKIT_OUT_OF_RANGE;

        if (burst.kind == INCR && burst.address <= UINT32_MAX) {
            status = umakit_host_read(bench_.host, std::uint32_t(burst.address), burst.bytes(),
                                      data_ + place(burst, 0));
        }
        if (status == UMAKIT_OK) {
            std::fill_n(responses_, burst.beats, OKAY);
            return;
        }
        bool has_error = false;
        for (unsigned beat = 0; beat < burst.beats; ++beat) {
            responses_[beat] = fetch_beat(burst.lanes(beat), data_ + place(burst, beat));
            has_error = has_error || responses_[beat] == SLVERR;
        }
        if (status == UMAKIT_BUS_ERROR && !has_error) {
            std::fill_n(responses_, burst.beats, SLVERR);
        }
    }

    /* A beat, of which the part that lies outside of a buffer reads as 0. */
    Response fetch_beat(Lanes lanes, std::uint8_t *to)
    {
        int status = read(lanes.address, lanes.bytes, to);
        unsigned readable = 0;

        if (status == UMAKIT_OK || status == UMAKIT_BUS_ERROR) {
            return status == UMAKIT_OK ? OKAY : SLVERR;
        }
        for (unsigned i = 0; i < lanes.bytes; ++i) {
            to[i] = 0;
            status = read(lanes.address + i, 1, to + i);
            if (status == UMAKIT_BUS_ERROR) {
                return SLVERR;
            }
            readable += status == UMAKIT_OK;
        }
        return readable == 0 ? DECERR : OKAY;
    }

    int read(std::uint64_t address, unsigned bytes, std::uint8_t *to)
    {
        return address > UINT32_MAX ? int(UMAKIT_OUT_OF_RANGE)
                                    : umakit_host_read(bench_.host, std::uint32_t(address), bytes,
                                                       to);
    }

    Bench &bench_;
    Ports ports_;
    Bursts bursts_;
    unsigned beat_ = 0; /* of the first burst: the one that is valid, or comes next */
    bool is_valid_ = false;
    bool is_ready_ = false;
    bool is_driven_idle_ = false;
    bool is_waiting_ = false; /* a request was seen, and not taken */
    Burst request_;           /* that waits */
    std::uint8_t data_[BURST_BOUNDARY] = {};
    Response responses_[MOST_BEATS] = {};
};

} // namespace umakit::rtl

#endif /* UMAKIT_RTL_AXI4_READ_H */
