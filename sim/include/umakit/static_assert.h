/* SPDX-License-Identifier: Apache-2.0 */
#ifndef UMAKIT_STATIC_ASSERT_H
#define UMAKIT_STATIC_ASSERT_H

/* C99 has no _Static_assert: an array of negative size does the same. Use at
 * file scope; the name shows up in the compiler's message. */
#define UMAKIT_STATIC_ASSERT(condition, name) \
    typedef char umakit_static_assert_##name[(condition) ? 1 : -1]

#endif /* UMAKIT_STATIC_ASSERT_H */
