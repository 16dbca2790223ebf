/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory behind plain requests of a Verilated design, one beat of the bus each. Addresses are
 * bytes; their lowest bits, within a beat, are ignored. `Ports` as for Axi4Memory.
 *
 *   read   taken in the cycle t in which read_valid and read_ready are 1; read_data and
 *          read_data_valid answer in cycle t + latency, in order, a beat a cycle. The design takes it:
 *          there is no ready. Up to 64 requests may be on their way.
 *   write  taken in the cycle in which write_valid and write_ready are 1; there is no answer.
 *
 * Errors: read_error and write_error, if the design has them, are 1 with read_data_valid, and in
 * the cycle after the write was taken. Read data with an error are 0.
 */
#ifndef UMAKIT_RTL_PLAIN_MEMORY_H
#define UMAKIT_RTL_PLAIN_MEMORY_H

#include <cstdint>
#include <cstring>
#include <utility>

#include "umakit/rtl_bench.h"
#include "umakit/rtl_ports.h"

namespace umakit::rtl {

template <class Ports> class PlainMemory {
public:
    template <class Model> PlainMemory(Bench &bench, Model &model) : bench_(bench), ports_{model}
    {
        set(ports_.read_ready(), 0);
        set(ports_.write_ready(), 0);
        set(ports_.write_error(), 0);
        no_data();
    }

    static constexpr bool is_counted = true;
    std::uint64_t bytes_read() const { return read_.bytes(); }
    std::uint64_t bytes_written() const { return write_.bytes(); }

    void begin(bool has_reset)
    {
        if (has_reset && (get(ports_.read_valid()) != 0 || get(ports_.write_valid()) != 0)) {
            bench_.fail_in_reset(get(ports_.read_valid()) != 0 ? ports_.read_valid().name
                                                               : ports_.write_valid().name);
        }
        drive();
    }

    void sample()
    {
        if (get(ports_.read_valid()) != 0) {
            check(is_read_waiting_, read_address_, ports_.read_address());
            is_read_waiting_ = !is_read_ready_;
            if (is_read_ready_) {
                requests_[(first_ + count_++) % CAPACITY] = {get(ports_.read_address()),
                                                             bench_.cycle};
            }
        } else if (is_read_waiting_) {
            bench_.fail("%s fell before %s was 1", ports_.read_valid().name,
                        ports_.read_ready().name);
        }
        write_error_ = false;
        if (get(ports_.write_valid()) != 0) {
            check(is_write_waiting_, write_address_, ports_.write_address());
            is_write_waiting_ = !is_write_ready_;
            if (is_write_ready_) {
                write();
            }
        } else if (is_write_waiting_) {
            bench_.fail("%s fell before %s was 1", ports_.write_valid().name,
                        ports_.write_ready().name);
        }
    }

    void drive()
    {
        update(ports_.read_ready(), is_read_ready_, count_ < CAPACITY && !bench_.stalls());
        update(ports_.write_ready(), is_write_ready_, !bench_.stalls());
        update(ports_.write_error(), is_write_error_, write_error_);
        if (count_ != 0 && bench_.cycle >= requests_[first_].taken + LATENCY) {
            answer();
        } else if (is_valid_) {
            no_data();
        }
    }

    void flush()
    {
        if (count_ == 0) {
            read_.flush(bench_);
            write_.flush(bench_);
        }
    }

private:
    static constexpr unsigned BYTES = Ports::data_bits / 8;
    static_assert(has_bytes<decltype(std::declval<Ports>().read_data())>(BYTES),
                  "the width of read_data is not data_bits of the memory bus");
    static_assert(has_bytes<decltype(std::declval<Ports>().write_data())>(BYTES),
                  "the width of write_data is not data_bits of the memory bus");
    static constexpr unsigned CAPACITY = 64;
    static constexpr std::uint64_t LATENCY = Ports::latency == 0 ? 1 : Ports::latency;

    struct Request {
        std::uint64_t address;
        std::uint64_t taken;
    };

    template <class P> static void update(P port, bool &state, bool value)
    {
        if (state != value) {
            state = value;
            set(port, value);
        }
    }

    template <class P> void check(bool is_waiting, std::uint64_t &before, P address)
    {
        const std::uint64_t now = get(address);

        if (is_waiting && now != before) {
            bench_.fail("%s changed while the request waited", address.name);
        }
        before = now;
    }

    void write()
    {
        const std::uint64_t address = get(ports_.write_address()) & ~std::uint64_t(BYTES - 1);
        std::uint8_t data[BYTES];
        unsigned bytes = 0, begin = 0;

        get_bytes(ports_.write_data(), data);
        /* Strobed bytes that follow each other are written together. */
        for (unsigned i = 0; i <= BYTES; ++i) {
            const bool is_strobed = i < BYTES && bit(ports_.write_strobe(), i);
            if (!is_strobed && i > begin) {
                write_error_ = write_error_ || !store(address + begin, i - begin, data + begin);
                bytes += i - begin;
            }
            begin = is_strobed ? begin : i + 1;
        }
        write_.add(bench_, bench_.cycle, bench_.cycle + 1, bytes);
    }

    bool store(std::uint64_t address, unsigned bytes, const std::uint8_t *data)
    {
        return address <= UINT32_MAX &&
               bench_.write(std::uint32_t(address), bytes, data) == UMAKIT_OK;
    }

    int load(std::uint64_t address, unsigned bytes, std::uint8_t *to)
    {
        return address > UINT32_MAX
                   ? int(UMAKIT_OUT_OF_RANGE)
                   : umakit_host_read(bench_.host, std::uint32_t(address), bytes, to);
    }

    void answer()
    {
        const Request request = requests_[first_];
        const std::uint64_t address = request.address & ~std::uint64_t(BYTES - 1);
        std::uint8_t data[BYTES] = {};
        int status = load(address, BYTES, data);

        if (status != UMAKIT_OK && status != UMAKIT_BUS_ERROR) {
            status = load_bytes(address, data);
        }
        if (status != UMAKIT_OK) {
            std::memset(data, 0, sizeof data);
        }
        set_bytes(ports_.read_data(), data);
        set(ports_.read_error(), status != UMAKIT_OK);
        set(ports_.read_data_valid(), 1);
        is_valid_ = true;
        first_ = (first_ + 1) % CAPACITY;
        --count_;
        read_.add(bench_, request.taken, bench_.cycle + 1, BYTES);
    }

    /* A beat of which the part that lies outside of a buffer reads as 0. */
    int load_bytes(std::uint64_t address, std::uint8_t *data)
    {
        int result = UMAKIT_OUT_OF_RANGE;

        for (unsigned i = 0; i < BYTES; ++i) {
            const int status = load(address + i, 1, data + i);
            if (status == UMAKIT_BUS_ERROR) {
                return status;
            }
            result = status == UMAKIT_OK ? status : result;
        }
        return result;
    }

    void no_data()
    {
        std::uint8_t data[BYTES];

        std::memset(data, 0xa5, sizeof data);
        set_bytes(ports_.read_data(), data);
        set(ports_.read_error(), 0);
        set(ports_.read_data_valid(), 0);
        is_valid_ = false;
    }

    Bench &bench_;
    Ports ports_;
    Activity read_{"memory read"};
    Activity write_{"memory write"};
    Request requests_[CAPACITY] = {};
    unsigned first_ = 0;
    unsigned count_ = 0;
    bool is_valid_ = false;
    bool is_read_ready_ = false;
    bool is_write_ready_ = false;
    bool is_write_error_ = false;
    bool write_error_ = false;
    bool is_read_waiting_ = false;
    bool is_write_waiting_ = false;
    std::uint64_t read_address_ = 0;
    std::uint64_t write_address_ = 0;
};

} // namespace umakit::rtl

#endif /* UMAKIT_RTL_PLAIN_MEMORY_H */
