/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls the functions of a form of umakit/dot_products.h with arguments from a file and writes what
 * they store: `program INPUTS OUTPUTS`. Macros CALL_... name the functions (test_dot_products.py).
 *
 * Records of the file: a header, then the arrays that the function reads, each filled up to 4
 * bytes. Arrays have exactly their size: accesses outside of them end the program with
 * AddressSanitizer, and on Linux, where pages without permissions surround them.
 */
#define _DEFAULT_SOURCE /* for MAP_ANONYMOUS */

#if defined(CALL_INSTRUCTIONS) && !CALL_INSTRUCTIONS
#error "the compiler has no instructions of the form"
#endif

#include CALL_HEADER
#include CALL_OTHER_HEADER

#include "umakit_platform.h"

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#else
#include "semihosting.h"
#endif

enum kind { COPY, FILL, PRODUCTS, DEPTHWISE, RESULTS, ADD, END };

struct header {
    int32_t kind;
    int32_t is_unsigned;    /* data or results are uint8_t, not int8_t */
    int32_t is_ort;         /* the rounding of results is that of ONNX Runtime */
    int32_t at_end;         /* arrays end, and do not begin, where memory does */
    int32_t offset;         /* elements by which arrays are not aligned */
    int32_t arguments[15];
};

/* --- arrays ----------------------------------------------------------------------------------- */

#define MOST_ARRAYS 6
#define FILLING 0xA5

struct array {
    unsigned char *first;
    size_t size;
    unsigned char *allocated;
    size_t allocated_size;
};

static struct array arrays[MOST_ARRAYS];
static int number_of_arrays;

static void fail(const char *why)
{
    umakit_platform_complain(why);
#if defined(__linux__)
    exit(3);
#else
    umakit_semihosting_exit(3);
#endif
}

#if !IS_SANITIZED
static size_t rounded_up(size_t size, size_t multiple)
{
    return (size + multiple - 1) / multiple * multiple;
}
#endif

#if IS_SANITIZED

static void allocate(struct array *array, const struct header *header, size_t alignment)
{
    const size_t before = (size_t)header->offset * alignment;

    array->allocated = malloc(before + array->size);
    if (array->allocated == NULL) {
        fail("there is no memory");
    }
    array->first = array->allocated + before;
}

static void check_and_free(struct array *array)
{
    free(array->allocated);
}

#elif defined(__linux__)

static void allocate(struct array *array, const struct header *header, size_t alignment)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t size = rounded_up(array->size + (array->size == 0), page);
    unsigned char *memory;

    (void)alignment;
    array->allocated_size = size + 2 * page;
    memory = mmap(NULL, array->allocated_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + page, size, PROT_READ | PROT_WRITE) != 0) {
        fail("there is no memory");
    }
    array->allocated = memory;
    array->first = memory + page + (header->at_end != 0 ? size - array->size : 0);
}

static void check_and_free(struct array *array)
{
    if (munmap(array->allocated, array->allocated_size) != 0) {
        fail("memory cannot be freed");
    }
}

#else

#define AROUND 32

/* Memory behind all variables, which accesses cannot pass: the start-up files see to it. One array
 * of a call ends there; around the others stores are found, loads are not. */
extern unsigned char __bss_end[];
extern unsigned char __memory_end[];
static size_t used;
static size_t used_before_end;

static void allocate(struct array *array, const struct header *header, size_t alignment)
{
    const size_t before = AROUND + (size_t)header->offset * alignment;
    const size_t available = (size_t)((uintptr_t)__memory_end - (uintptr_t)__bss_end);
    const int is_last = header->at_end != 0 && array == &arrays[header->offset];

    array->allocated_size = is_last ? array->size : rounded_up(before + array->size + AROUND, 8);
    used += array->allocated_size;
    if (used > available) {
        fail("there is no memory");
    }
    if (is_last) {
        array->first = array->allocated = __memory_end - array->size;
    } else {
        array->allocated = __bss_end + used_before_end;
        array->first = array->allocated + before;
        used_before_end += array->allocated_size;
        memset(array->allocated, FILLING, array->allocated_size);
    }
}

static void check_and_free(struct array *array)
{
    const unsigned char *at;

    for (at = array->allocated; at != array->allocated + array->allocated_size; ++at) {
        const int inside = at >= array->first && at < array->first + array->size;

        if (!inside && *at != FILLING) {
            fail("a function stored outside of its arrays");
        }
    }
    used = used_before_end = 0;
}

#endif

static unsigned char *new_array(const struct header *header, int32_t count, size_t element)
{
    struct array *const array = &arrays[number_of_arrays++];

    array->size = (size_t)count * element;
    allocate(array, header, element);
    return array->first;
}

/* An array whose contents come from the file. */
static void *input(const struct header *header, int32_t count, size_t element)
{
    unsigned char *const first = new_array(header, count, element);
    const size_t size = (size_t)count * element;
    unsigned char rest[4];

    if ((size != 0 && !umakit_platform_read(first, size)) ||
        (size % 4 != 0 && !umakit_platform_read(rest, 4 - size % 4))) {
        fail("the file of inputs is too short");
    }
    return first;
}

/* An array that a function stores to; written to the file by `finish`. */
static void *output(const struct header *header, int32_t count, size_t element)
{
    unsigned char *const first = new_array(header, count, element);

    memset(first, FILLING, (size_t)count * element);
    return first;
}

/* Write an array, the last one for NULL, and free all. */
static void finish(const void *written)
{
    if (written == NULL) {
        written = arrays[number_of_arrays - 1].first;
    }
    while (number_of_arrays != 0) {
        const struct array *const last = &arrays[number_of_arrays - 1];

        if (last->first == written && last->size != 0 &&
            !umakit_platform_write(last->first, last->size)) {
            fail("outputs cannot be written");
        }
        check_and_free(&arrays[--number_of_arrays]);
    }
}

/* --- functions -------------------------------------------------------------------------------- */

static void copy(const struct header *header)
{
    const int32_t count = header->arguments[0];
    const void *const from = input(header, count, 1);

    if (header->arguments[1] != 0) { /* to the dtype of the data */
        void *const to = output(header, count, 1);

        if (header->is_unsigned != 0) {
            umakit_plain_copy_uint8_uint8(to, from, count);
        } else {
            umakit_plain_copy_int8_int8(to, from, count);
        }
    } else {
        CALL_WINDOW_TYPE *const to = output(header, count, sizeof *to);

        if (header->is_unsigned != 0) {
            CALL_COPY_UINT8(to, from, count);
        } else {
            CALL_COPY_INT8(to, from, count);
        }
    }
    finish(NULL);
}

static void fill(const struct header *header)
{
    const int32_t count = header->arguments[0];

    if (header->is_unsigned != 0) {
        umakit_plain_fill_uint8(output(header, count, 1), count, header->arguments[1]);
    } else {
        CALL_FILL(output(header, count, sizeof(CALL_WINDOW_TYPE)), count, header->arguments[1]);
    }
    finish(NULL);
}

static void products(const struct header *header)
{
    const int32_t positions = header->arguments[0];
    const int32_t elements = header->arguments[1];
    const int32_t blocks = header->arguments[2];
    const int32_t sums_step = header->arguments[3];
    const int32_t windows_step = header->arguments[4];
    const CALL_WINDOW_TYPE *const windows =
        input(header, (positions - 1) * windows_step + elements, sizeof *windows);
    const int8_t *const weights = input(header, blocks * CALL_CHANNELS * elements, 1);
    int32_t *const sums =
        output(header, (positions - 1) * sums_step + blocks * CALL_CHANNELS, sizeof *sums);

    CALL_PRODUCTS(sums, sums_step, windows, windows_step, positions, weights, elements, blocks);
    finish(NULL);
}

static void depthwise(const struct header *header)
{
    const int32_t rows = header->arguments[0];
    const int32_t columns = header->arguments[1];
    const int32_t channels = header->arguments[2];
    const int32_t row_step = header->arguments[3];
    const int32_t column_step = header->arguments[4];
    const int32_t elements = (rows * columns + CALL_DEPTHWISE_GROUP - 1) / CALL_DEPTHWISE_GROUP;
    const void *const data =
        input(header, (rows - 1) * row_step + (columns - 1) * column_step + channels, 1);
    const int8_t *const weights = input(header, elements * CALL_DEPTHWISE_GROUP * channels, 1);
    int32_t *const sums = output(header, channels, sizeof *sums);

    if (header->is_unsigned != 0) {
        CALL_DEPTHWISE_UINT8(sums, data, row_step, column_step, weights, rows, columns, channels);
    } else {
        CALL_DEPTHWISE_INT8(sums, data, row_step, column_step, weights, rows, columns, channels);
    }
    finish(NULL);
}

static void results(const struct header *header)
{
    const int32_t count = header->arguments[0];
    const int32_t step = header->arguments[1];
    const int32_t zero_point = header->arguments[2];
    const int32_t lowest = header->arguments[3];
    const int32_t highest = header->arguments[4];
    const int32_t scales = step != 0 ? count : 1;
    const int32_t *const sums = input(header, count, sizeof *sums);
    const int32_t *const bias = input(header, count, sizeof *bias);
    const int32_t *const multipliers = input(header, scales, sizeof *multipliers);
    const int8_t *const shifts = input(header, scales, 1);
    void *const to = output(header, count, 1);

    switch (2 * header->is_ort + header->is_unsigned) {
    case 0:
        CALL_RESULTS_TFLM_INT8(to, sums, count, bias, multipliers, shifts, step, zero_point, lowest,
                          highest);
        break;
    case 1:
        CALL_RESULTS_TFLM_UINT8(to, sums, count, bias, multipliers, shifts, step, zero_point, lowest,
                           highest);
        break;
    case 2:
        CALL_RESULTS_ORT_INT8(to, sums, count, bias, multipliers, shifts, step, zero_point, lowest,
                         highest);
        break;
    default:
        CALL_RESULTS_ORT_UINT8(to, sums, count, bias, multipliers, shifts, step, zero_point, lowest,
                          highest);
        break;
    }
    finish(NULL);
}

/* Results may lie where an operand does. */
static void add(const struct header *header)
{
    const int32_t *const a = header->arguments;
    const int32_t count = a[0];
    void *const left = input(header, count, 1);
    void *const right = input(header, count, 1);
    void *const to = a[1] == 0 ? output(header, count, 1) : a[1] == 1 ? left : right;

    if (header->is_unsigned != 0) {
        CALL_ADD_UINT8(to, left, right, count, a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9],
                       a[10], a[11], a[12], a[13]);
    } else {
        CALL_ADD_INT8(to, left, right, count, a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9],
                      a[10], a[11], a[12], a[13]);
    }
    finish(to);
}

int main(int argc, char **argv)
{
    static void (*const functions[])(const struct header *) = {copy, fill, products, depthwise,
                                                               results, add};
    struct header header;

    if (argc != 3 || !umakit_platform_open(argv[1], argv[2])) {
        return 2;
    }
    while (umakit_platform_read(&header, sizeof header) && header.kind != END) {
        functions[header.kind](&header);
    }
    return umakit_platform_close() && header.kind == END ? 0 : 1;
}
