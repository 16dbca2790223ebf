/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ports of a Verilated design, which are CData, SData, IData, QData or VlWide<words>, with one
 * set of functions for all of them.
 */
#ifndef UMAKIT_RTL_PORTS_H
#define UMAKIT_RTL_PORTS_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <verilated.h>

namespace umakit::rtl {

/* Words of wide ports follow each other from the lowest bits on, and bytes of the bus are
 * copied as they are. */
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a little-endian host");

/* A port and its name, for sentences. Bits: its width; 0: that of its type. */
template <class T, unsigned Bits> struct Port {
    static constexpr bool is_present = true;
    using Value = T;

    T &value;
    const char *name;
};

template <unsigned Bits = 0, class T> Port<T, Bits> port(T &value, const char *name)
{
    return {value, name};
}

/* A signal that the design does not have. */
struct Absent {
    static constexpr bool is_present = false;
    struct Value {};

    const char *name = "";
};

/* The value of a port, of a wide one its lowest 64 bits; `missing` if there is no such port. */
template <class T, unsigned Bits> std::uint64_t get(Port<T, Bits> from, std::uint64_t = 0)
{
    if constexpr (std::is_integral_v<T>) {
        return from.value;
    } else {
        return from.value.m_storage[0] | std::uint64_t(from.value.m_storage[1]) << 32;
    }
}

inline std::uint64_t get(Absent, std::uint64_t missing = 0)
{
    return missing;
}

/* Drive a port; bits that it does not have are dropped. */
template <class T, unsigned Bits> void set(Port<T, Bits> to, std::uint64_t value)
{
    if constexpr (std::is_integral_v<T>) {
        constexpr unsigned bits = Bits == 0 ? 8 * sizeof(T) : Bits;
        to.value = static_cast<T>(value & (~std::uint64_t(0) >> (64 - bits)));
    } else {
        std::memset(to.value.m_storage, 0, sizeof(to.value.m_storage));
        to.value.m_storage[0] = static_cast<EData>(value);
        to.value.m_storage[1] = static_cast<EData>(value >> 32);
    }
}

inline void set(Absent, std::uint64_t) {}

/* Bit number `i` of a port. */
template <class T, unsigned Bits> bool bit(Port<T, Bits> from, unsigned i)
{
    if constexpr (std::is_integral_v<T>) {
        return (from.value >> i & 1u) != 0;
    } else {
        return (from.value.m_storage[i / 32] >> i % 32 & 1u) != 0;
    }
}

/* Of strobes that are not there all are set. */
inline bool bit(Absent, unsigned)
{
    return true;
}

/* Bytes of a data port, the lowest bits first. */
template <class T, unsigned Bits> void get_bytes(Port<T, Bits> from, std::uint8_t *bytes)
{
    std::memcpy(bytes, &from.value, sizeof(T));
}

template <class T, unsigned Bits> void set_bytes(Port<T, Bits> to, const std::uint8_t *bytes)
{
    std::memcpy(&to.value, bytes, sizeof(T));
}

/* Whether a port has as many bits as a bus of `bytes` bytes: what is copied into it. */
template <class P> constexpr bool has_bytes(unsigned bytes)
{
    return sizeof(typename P::Value) == bytes;
}

/* A copy of a port's value, to see whether it changes. */
template <class T, unsigned Bits> void keep(Port<T, Bits> from, T &copy)
{
    std::memcpy(&copy, &from.value, sizeof(T));
}

template <class T, unsigned Bits> bool is_kept(Port<T, Bits> from, const T &copy)
{
    return std::memcmp(&copy, &from.value, sizeof(T)) == 0;
}

inline void keep(Absent, Absent::Value &) {}

inline bool is_kept(Absent, const Absent::Value &)
{
    return true;
}

} // namespace umakit::rtl

#endif /* UMAKIT_RTL_PORTS_H */
