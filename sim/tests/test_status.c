/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <string.h>

#include "check.h"
#include "umakit/status.h"

int main(void)
{
    const char *unknown = umakit_status_string(INT_MAX);
    int left;
    int right;

    CHECK(strcmp(umakit_status_string(UMAKIT_OK), "no error") == 0);
    CHECK_EQUAL(UMAKIT_OK, 0);
    for (left = UMAKIT_OK; left <= UMAKIT_LAST_STATUS; ++left) {
        CHECK(strcmp(umakit_status_string(left), unknown) != 0);
        for (right = UMAKIT_OK; right < left; ++right) {
            CHECK(strcmp(umakit_status_string(left), umakit_status_string(right)) != 0);
        }
    }
    CHECK(strcmp(umakit_status_string(UMAKIT_LAST_STATUS + 1), unknown) == 0);
    CHECK(strcmp(umakit_status_string(-1), unknown) == 0);
    CHECK(strcmp(umakit_status_string(INT_MIN), unknown) == 0);
    return check_result();
}
