/* SPDX-License-Identifier: Apache-2.0 */
/* The strict mock: it accepts exactly what it expects, and says what is wrong. */
#include <string.h>

#include "check.h"
#include "traced_driver.h"
#include "umakit/device_mock.h"

static struct umakit_trace_entry expected[TRACED_CALLS];
static struct umakit_device device;
static char message[UMAKIT_MOCK_MESSAGE_BYTES];

static void set_up(void)
{
    memcpy(expected, traced_calls, sizeof(expected));
    umakit_mock_expect(&device, expected, TRACED_CALLS);
}

static void expect_message(const char *text)
{
    CHECK(!umakit_mock_verify(&device, message, sizeof(message)));
    if (strcmp(message, text) != 0) {
        printf("got '%s'\n", message);
    }
    CHECK(strcmp(message, text) == 0);
}

static void test_right_calls(void)
{
    set_up();
    CHECK_EQUAL(traced_driver(&device), UMAKIT_OK);
    CHECK(umakit_mock_verify(&device, message, sizeof(message)));
    CHECK(strcmp(message, "") == 0);
    CHECK(umakit_mock_verify(&device, NULL, 0u));

    umakit_mock_expect(&device, NULL, 0u);
    CHECK(umakit_mock_verify(&device, NULL, 0u));
}

/* What a board or a fault would answer. */
static void test_answers(void)
{
    set_up();
    expected[0].value = 7u;
    umakit_mock_expect(&device, expected, 1u);
    CHECK_EQUAL(traced_driver(&device), UMAKIT_NO_DEVICE);
    CHECK(umakit_mock_verify(&device, message, sizeof(message)));

    set_up();
    expected[1] = (struct umakit_trace_entry)UMAKIT_TRACE_FAILING_MAP(16u, UMAKIT_TO_DEVICE,
                                                                      UMAKIT_TABLE_FULL);
    umakit_mock_expect(&device, expected, 2u);
    CHECK_EQUAL(traced_driver(&device), UMAKIT_TABLE_FULL);
    CHECK(umakit_mock_verify(&device, message, sizeof(message)));

    set_up();
    expected[8].value = 4u;
    CHECK_EQUAL(traced_driver(&device), UMAKIT_DMA_STOPPED);
    CHECK(umakit_mock_verify(&device, message, sizeof(message)));

    set_up();
    expected[7].status = UMAKIT_TIMEOUT;
    memmove(&expected[8], &expected[9], sizeof(expected[8]));
    umakit_mock_expect(&device, expected, TRACED_CALLS - 1u);
    CHECK_EQUAL(traced_driver(&device), UMAKIT_TIMEOUT);
    CHECK(umakit_mock_verify(&device, message, sizeof(message)));
}

static void test_wrong_calls(void)
{
    set_up();
    expected[0].offset = 4u;
    CHECK_EQUAL(traced_driver(&device), UMAKIT_NO_DEVICE);
    expect_message("call 1: expected read 0x4, got read 0x0");

    set_up();
    expected[1].value = 12u;
    CHECK_EQUAL(traced_driver(&device), UMAKIT_DEVICE_ERROR);
    expect_message("call 2: expected map of 12 bytes, direction 1, "
                   "got map of 16 bytes, direction 1");

    set_up();
    expected[1].direction = UMAKIT_FROM_DEVICE;
    CHECK_EQUAL(traced_driver(&device), UMAKIT_DEVICE_ERROR);
    expect_message("call 2: expected map of 16 bytes, direction 2, "
                   "got map of 16 bytes, direction 1");

    set_up();
    expected[4].value = 0xABCDEFu;
    CHECK_EQUAL(traced_driver(&device), UMAKIT_DEVICE_ERROR); /* from then on: gone */
    expect_message("call 5: expected write 0x6c = 0xabcdef, got write 0x6c = 0x10");

    set_up();
    expected[5] = expected[6];
    CHECK_EQUAL(traced_driver(&device), UMAKIT_DEVICE_ERROR);
    expect_message("call 6: expected write 0x8 = 0x1, got barrier");

    set_up();
    expected[7].value = 4294967295u;
    CHECK_EQUAL(traced_driver(&device), UMAKIT_DEVICE_ERROR);
    expect_message("call 8: expected wait of 4294967295 cycles, got wait of 1000 cycles");

    set_up();
    expected[9].offset = 4u;
    CHECK_EQUAL(traced_driver(&device), UMAKIT_OK);
    expect_message("call 10: expected unmap 0x4, got unmap 0x10000000");
    CHECK_EQUAL(umakit_device_read32(&device, 0u), UINT32_MAX);
}

static void test_too_few_and_too_many(void)
{
    set_up();
    umakit_mock_expect(&device, expected, TRACED_CALLS - 1u);
    CHECK_EQUAL(traced_driver(&device), UMAKIT_OK);
    expect_message("call 10: expected no call, got unmap 0x10000000");

    set_up();
    CHECK(!umakit_mock_verify(&device, NULL, 0u));
    expect_message("call 1: expected read 0x0, got no call");
    /* Cut off, but a string. */
    CHECK(!umakit_mock_verify(&device, message, 8u));
    CHECK(strcmp(message, "call 1:") == 0);
}

int main(void)
{
    uint32_t address;

    test_right_calls();
    test_answers();
    test_wrong_calls();
    test_too_few_and_too_many();
    CHECK_EQUAL(umakit_device_map(&device, NULL, 4u, UMAKIT_TO_DEVICE, &address),
                UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(umakit_device_read32(NULL, 0u), UINT32_MAX);
    return check_result();
}
