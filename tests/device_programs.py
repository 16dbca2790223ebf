# SPDX-License-Identifier: Apache-2.0
"""C programs that the tests run on devices."""

COUNTING_PROGRAM = """
#include "umakit_platform.h"

static void loop(uint32_t times)
{
#if defined(__arm__)
    __asm__ volatile("cbz %0, 2f\\n1:\\tsubs %0, #1\\n\\tbne 1b\\n2:" : "+l"(times) : : "cc");
#else
    __asm__ volatile("beqz %0, 2f\\n1:\\taddi %0, %0, -1\\n\\tbnez %0, 1b\\n2:" : "+r"(times));
#endif
}

static void __attribute__((noinline)) count(uint32_t times)
{
    const uint64_t start = umakit_platform_instructions();
    loop(times);
    umakit_platform_print_number(umakit_platform_instructions() - start);
    umakit_platform_print("\\n");
}

#ifndef TIMES
#define TIMES 1000000
#endif

int main(void)
{
    count(0);
    count(1000);
    count(TIMES);
    return 0;
}
"""
"""Prints the instructions of loops of two instructions, 0, 1,000 and TIMES (1,000,000) times."""

FUNCTIONS = "expf(v) tanhf(v) erff(v) logf(p) sqrtf(p) sinf(v) cosf(v) powf(p,1.7f)".split()
BLOCK = 4096

FUNCTION_PROGRAM = (
    """
#include "umakit_platform.h"
#include <math.h>

static float values[4096], results[4096];

#define FUNCTION(result)                                            \\
    do {                                                            \\
        int index;                                                  \\
        for (index = 0; index < 4096; index++) {                    \\
            const float v = values[index], p = fabsf(v);            \\
            (void)p;                                                \\
            results[index] = result;                                \\
        }                                                           \\
        if (!umakit_platform_write(results, sizeof results)) {      \\
            return 1;                                               \\
        }                                                           \\
    } while (0)

int main(int argc, char **argv)
{
    if (argc != 3 || !umakit_platform_open(argv[1], argv[2])) {
        return 2;
    }
    while (umakit_platform_read(values, sizeof values)) {
"""
    + "\n".join(f"        FUNCTION({function});" for function in FUNCTIONS)
    + """
    }
    return umakit_platform_close() ? 0 : 1;
}
"""
)
"""Reads blocks of floats and writes for each block the values of each function."""

READING_PROGRAM = """
#include "umakit_platform.h"

int main(void)
{
    uint64_t last = umakit_platform_instructions();
    const uint64_t end = last + 200u * PERIOD;
    const uint64_t start = last;
    uint64_t backwards = 0, largest = 0;

    while (last < end) {
        const uint64_t now = umakit_platform_instructions();
        if (now < last) {
            backwards++;
        } else if (now - last > largest) {
            largest = now - last;
        }
        last = now;
    }
    umakit_platform_print_number(backwards);
    umakit_platform_print(" ");
    umakit_platform_print_number(largest);
    umakit_platform_print(" ");
    umakit_platform_print_number((last - start) / PERIOD);
    umakit_platform_print("\\n");
    return 0;
}
"""
"""Reads the counter until 200 periods of PERIOD instructions have passed: how often it ran
backwards, its largest step, and the periods."""

FAILURES = """
static int deepen(volatile int *above)
{
    volatile int here[64];

    here[0] = above[0] + 1;
    return deepen(here) + here[0];
}

static int32_t fail(int how, int32_t status)
{
    volatile int first[1] = {0};
    static int *volatile nothing;

    switch (how) {
    case 1:
        nothing[4] = 1;
        break;
    case 2:
        __builtin_trap();
        break;
    case 3:
        return deepen(first);
    case 4:
        for (;;) {
            first[0]++;
        }
    case 5:
        return 7;
    case 6:
        return -1;
    default:
        break;
    }
    return status;
}
"""
"""Ways to fail: NULL, a trap, the stack, no end, a driver's status, a bad argument."""
