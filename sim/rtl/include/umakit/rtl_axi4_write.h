/* SPDX-License-Identifier: Apache-2.0 */
/* The write channels of an AXI4 memory; see rtl_axi4_memory.h. */
#ifndef UMAKIT_RTL_AXI4_WRITE_H
#define UMAKIT_RTL_AXI4_WRITE_H

#include <algorithm>
#include <cstdint>
#include <utility>

#include "umakit/rtl_axi4_burst.h"
#include "umakit/rtl_bench.h"
#include "umakit/rtl_ports.h"

namespace umakit::rtl {

template <class Ports> class Axi4Write {
public:
    Axi4Write(Bench &bench, Ports ports) : bench_(bench), ports_(ports)
    {
        set(ports_.awready(), 0);
        set(ports_.wready(), 0);
        set(ports_.bvalid(), 0);
        set(ports_.bresp(), DECERR); /* arbitrary while it is not valid: what nobody expects */
    }

    Activity activity{"memory write"};

    bool is_idle() const { return bursts_.is_empty() && !is_waiting_ && !is_data_waiting_; }
    bool is_requested() const { return get(ports_.awvalid()) != 0 || get(ports_.wvalid()) != 0; }

    /* What the rising edge sees. */
    void sample()
    {
        if (is_answering_ && get(ports_.bready()) != 0) {
            end_burst();
        }
        check_data();
        if (get(ports_.wvalid()) != 0) {
            if (is_data_ready_) {
                is_data_waiting_ = false;
                take_beat();
            } else {
                is_data_waiting_ = true;
                keep(ports_.wdata(), data_);
                keep(ports_.wstrb(), strobes_);
                last_ = get(ports_.wlast());
            }
        }
        check_request();
        if (get(ports_.awvalid()) != 0) {
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
        update(ports_.awready(), is_ready_, !bursts_.is_full() && !bench_.stalls());
        update(ports_.wready(), is_data_ready_, complete_ < bursts_.count() && !bench_.stalls());
        if (!is_answering_ && complete_ != 0 && bench_.cycle >= answers_[answer_] &&
            !bench_.stalls()) {
            set(ports_.bresp(), responses_[answer_]);
            set(ports_.bid(), bursts_.first().id);
            is_answering_ = true;
        }
        if (is_valid_ && !is_answering_) {
            set(ports_.bresp(), DECERR);
        }
        update(ports_.bvalid(), is_valid_, is_answering_);
    }

private:
    static constexpr unsigned BYTES = Ports::data_bits / 8;
    static_assert(has_bytes<decltype(std::declval<Ports>().wdata())>(BYTES),
                  "the width of wdata is not data_bits of the memory bus");
    static constexpr std::uint64_t LATENCY = Ports::latency == 0 ? 1 : Ports::latency;

    template <class P> static void update(P port, bool &state, bool value)
    {
        if (state != value) {
            state = value;
            set(port, value);
        }
    }

    Burst request() const
    {
        Burst burst;
        burst.address = get(ports_.awaddr());
        burst.id = get(ports_.awid());
        burst.beats = unsigned(get(ports_.awlen())) + 1;
        burst.size = 1u << get(ports_.awsize(), __builtin_ctz(BYTES));
        burst.kind = unsigned(get(ports_.awburst(), INCR));
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
        if (get(ports_.awvalid()) == 0) {
            bench_.fail("%s fell before %s was 1", ports_.awvalid().name, ports_.awready().name);
        } else if (now.address != request_.address) {
            bench_.fail("%s changed while %s waited for %s", ports_.awaddr().name,
                        ports_.awvalid().name, ports_.awready().name);
        } else if (now.beats != request_.beats || now.size != request_.size ||
                   now.kind != request_.kind || now.id != request_.id) {
            bench_.fail("%s or what belongs to it changed while %s waited for %s",
                        ports_.awlen().name, ports_.awvalid().name, ports_.awready().name);
        }
    }

    /* A beat that waits stays as it is. */
    void check_data()
    {
        if (!is_data_waiting_) {
            return;
        }
        if (get(ports_.wvalid()) == 0) {
            bench_.fail("%s fell before %s was 1", ports_.wvalid().name, ports_.wready().name);
        } else if (!is_kept(ports_.wdata(), data_) || !is_kept(ports_.wstrb(), strobes_) ||
                   last_ != get(ports_.wlast())) {
            bench_.fail("%s, its strobes or %s changed while %s waited for %s",
                        ports_.wdata().name, ports_.wlast().name, ports_.wvalid().name,
                        ports_.wready().name);
        }
    }

    void take()
    {
        const Burst burst = request();

        is_waiting_ = false;
        check_burst(bench_, burst, BYTES, ports_.awvalid().name, ports_.awlen().name,
                    ports_.awsize().name, ports_.awburst().name);
        if (!bench_.has_failed) {
            bursts_.add(burst);
        }
    }

    void take_beat()
    {
        const Burst &burst = bursts_.at(complete_);
        const bool is_last = beat_ + 1 == burst.beats;
        const Lanes lanes = burst.lanes(beat_);

        if (is_last != (get(ports_.wlast(), is_last) != 0)) {
            bench_.fail("%s is %d in beat %u of a burst of %u beats at 0x%llx",
                        ports_.wlast().name, int(!is_last), beat_ + 1, burst.beats,
                        static_cast<unsigned long long>(burst.address));
            return;
        }
        check_strobes(lanes);
        store(lanes);
        ++beat_;
        if (is_last) {
            commit();
            complete_burst(burst);
        }
    }

    void check_strobes(Lanes lanes)
    {
        const unsigned low = lanes.address % BYTES;

        for (unsigned i = 0; lanes.bytes != BYTES && i < BYTES && ports_.wstrb().is_present; ++i) {
            if ((i < low || i >= low + lanes.bytes) && bit(ports_.wstrb(), i)) {
                bench_.fail("%s has a strobe for byte %u of the bus, which is not among the %u "
                            "bytes of the beat at 0x%llx",
                            ports_.wstrb().name, i, lanes.bytes,
                            static_cast<unsigned long long>(lanes.address));
                return;
            }
        }
    }

    /* Collect strobed bytes that follow each other, and write those that do not separately. */
    void store(Lanes lanes)
    {
        const unsigned low = lanes.address % BYTES;
        std::uint8_t data[BYTES];

        get_bytes(ports_.wdata(), data);
        for (unsigned i = 0; i < lanes.bytes; ++i) {
            if (!bit(ports_.wstrb(), low + i)) {
                continue;
            }
            if (collected_ == 0 || lanes.address + i != collected_at_ + collected_) {
                commit();
                collected_at_ = lanes.address + i;
            }
            collection_[collected_++] = data[low + i];
        }
    }

    void commit()
    {
        int status = UMAKIT_OK;

        if (collected_ != 0) {
            status = collected_at_ > UINT32_MAX
                         ? int(UMAKIT_OUT_OF_RANGE)
                         : bench_.write(std::uint32_t(collected_at_), collected_, collection_);
        }
        if (status != UMAKIT_OK && response_ != SLVERR) {
            response_ = status == UMAKIT_BUS_ERROR ? SLVERR : DECERR;
        }
        burst_bytes_ += collected_;
        collected_ = 0;
    }

    /* The answer may be taken in the cycle `latency` + beats - 1 after that of the request, so that
     * a design that requests in the next one takes latency + beats cycles a burst. Bursts
     * that overlap take a cycle a beat. */
    void complete_burst(const Burst &burst)
    {
        const unsigned i = (answer_ + complete_) % Bursts::CAPACITY;

        answers_[i] = std::max({burst.taken + LATENCY + burst.beats - 1,
                                last_answer_ + burst.beats, bench_.cycle + 1});
        last_answer_ = answers_[i];
        responses_[i] = response_;
        bytes_[i] = burst_bytes_;
        response_ = OKAY;
        burst_bytes_ = 0;
        beat_ = 0;
        ++complete_;
    }

    void end_burst()
    {
        activity.add(bench_, bursts_.first().taken, bench_.cycle + 1, bytes_[answer_]);
        answer_ = (answer_ + 1) % Bursts::CAPACITY;
        is_answering_ = false;
        bursts_.remove_first();
        --complete_;
    }

    Bench &bench_;
    Ports ports_;
    Bursts bursts_;
    unsigned complete_ = 0; /* bursts whose data were taken, the first ones */
    unsigned beat_ = 0;     /* of the burst whose data come next */
    bool is_ready_ = false;
    bool is_data_ready_ = false;
    bool is_answering_ = false;
    bool is_valid_ = false; /* what bvalid is */

    bool is_waiting_ = false; /* a request was seen, and not taken */
    Burst request_;           /* that waits */
    bool is_data_waiting_ = false;
    typename decltype(std::declval<Ports>().wdata())::Value data_{};
    typename decltype(std::declval<Ports>().wstrb())::Value strobes_{};
    std::uint64_t last_ = 0;

    std::uint8_t collection_[BURST_BOUNDARY] = {};
    std::uint64_t collected_at_ = 0;
    unsigned collected_ = 0;
    std::uint64_t burst_bytes_ = 0;
    Response response_ = OKAY;

    unsigned answer_ = 0; /* of the first burst, in those of all */
    std::uint64_t answers_[Bursts::CAPACITY] = {}; /* cycles from which they are due */
    Response responses_[Bursts::CAPACITY] = {};
    std::uint64_t bytes_[Bursts::CAPACITY] = {};
    std::uint64_t last_answer_ = 0;
};

} // namespace umakit::rtl

#endif /* UMAKIT_RTL_AXI4_WRITE_H */
