/* SPDX-License-Identifier: Apache-2.0 */
#ifndef UMAKIT_STATUS_H
#define UMAKIT_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* What drivers and devices answer. Functions return it as int, the device's
 * ERROR register holds it as a number: never change the value of a code. */
enum umakit_status {
    UMAKIT_OK = 0,
    UMAKIT_INVALID_ARGUMENT = 1, /* a value that is never right: NULL, size 0 */
    UMAKIT_INVALID_REGISTER = 2, /* no register there, or not with this access */
    UMAKIT_OUT_OF_RANGE = 3,     /* an address or size outside what is mapped */
    UMAKIT_MISALIGNED = 4,       /* an address that is no multiple of 4 */
    UMAKIT_WRONG_DIRECTION = 5,  /* mapped, but not for this kind of access */
    UMAKIT_BUSY = 6,             /* not while a job is running */
    UMAKIT_TIMEOUT = 7,          /* no interrupt in the time allowed */
    UMAKIT_BUS_ERROR = 8,        /* the bus refused, or a buffer went away under a job */
    UMAKIT_NO_DEVICE = 9,        /* no device of the expected kind answers */
    UMAKIT_TABLE_FULL = 10,      /* too many buffers mapped at once */
    UMAKIT_DEVICE_ERROR = 11,    /* the device failed and does not say why */
    UMAKIT_DMA_STOPPED = 12,     /* a transfer ended before its last byte */
    UMAKIT_PARITY_ERROR = 13,    /* an on-chip memory did not hold what was written */
    UMAKIT_LOST_INTERRUPT = 14,  /* a job was done and no interrupt came */
    UMAKIT_STUCK_BUSY = 15,      /* busy, with nothing left to do */
    UMAKIT_UNSUPPORTED = 16      /* right, but not on this device */
};

#define UMAKIT_LAST_STATUS UMAKIT_UNSUPPORTED

/* A dropped status is a wrong result somewhere else, hours later. */
#if defined(__GNUC__) || defined(__clang__)
#define UMAKIT_MUST_USE __attribute__((warn_unused_result))
#else
#define UMAKIT_MUST_USE
#endif

/* A short English text without a full stop; never NULL. */
const char *umakit_status_string(int status);

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_STATUS_H */
