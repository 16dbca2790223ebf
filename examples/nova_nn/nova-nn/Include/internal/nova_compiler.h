/*
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef NOVA_COMPILER_H
#define NOVA_COMPILER_H

#if defined(__GNUC__) || defined(__clang__)
#define NOVA_FORCE_INLINE static inline __attribute__((always_inline))
#define NOVA_CLZ(x) __builtin_clz(x)
#elif defined(__ICCARM__)
#include <intrinsics.h>
#define NOVA_FORCE_INLINE static inline
#define NOVA_CLZ(x) __CLZ(x)
#else
#error "nova-nn: unknown compiler"
#endif

/* Cores with instructions on pairs of 16 bits keep widened columns. */
#ifndef NOVA_DSP
#define NOVA_DSP 0
#endif

#endif /* NOVA_COMPILER_H */
