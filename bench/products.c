/* SPDX-License-Identifier: Apache-2.0 */
/* The rival of the simulated array: matrix products in plain loops. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* C[m x n] = A[m x k] * B[k x n], `count` of them, row by row without gaps. The
 * order of the loops is the one that compilers vectorise. */
void multiply(const int8_t *restrict a, const int8_t *restrict b, int32_t *restrict c,
              size_t count, size_t m, size_t n, size_t k);

void multiply(const int8_t *restrict a, const int8_t *restrict b, int32_t *restrict c,
              size_t count, size_t m, size_t n, size_t k)
{
    size_t product;
    size_t row;
    size_t i;
    size_t column;

    memset(c, 0, count * m * n * sizeof(c[0]));
    for (product = 0u; product < count; ++product) {
        for (row = 0u; row < m; ++row) {
            for (i = 0u; i < k; ++i) {
                for (column = 0u; column < n; ++column) {
                    c[row * n + column] += a[row * k + i] * b[i * n + column];
                }
            }
        }
        a += m * k;
        b += k * n;
        c += m * n;
    }
}
