/* SPDX-License-Identifier: Apache-2.0 */
#include "umakit/status.h"

const char *umakit_status_string(int status)
{
    switch (status) {
    case UMAKIT_OK:
        return "no error";
    case UMAKIT_INVALID_ARGUMENT:
        return "invalid argument";
    case UMAKIT_INVALID_REGISTER:
        return "no such register, or not with this access";
    case UMAKIT_OUT_OF_RANGE:
        return "address or size out of range";
    case UMAKIT_MISALIGNED:
        return "misaligned address";
    case UMAKIT_WRONG_DIRECTION:
        return "buffer is not mapped for this direction";
    case UMAKIT_BUSY:
        return "device is busy";
    case UMAKIT_TIMEOUT:
        return "timeout";
    case UMAKIT_BUS_ERROR:
        return "bus error";
    case UMAKIT_NO_DEVICE:
        return "no device of the expected kind";
    case UMAKIT_TABLE_FULL:
        return "too many mapped buffers";
    case UMAKIT_DEVICE_ERROR:
        return "device error";
    case UMAKIT_DMA_STOPPED:
        return "transfer stopped half way";
    case UMAKIT_PARITY_ERROR:
        return "parity error in on-chip memory";
    case UMAKIT_LOST_INTERRUPT:
        return "interrupt lost";
    case UMAKIT_STUCK_BUSY:
        return "device stays busy";
    case UMAKIT_UNSUPPORTED:
        return "not supported by this device";
    default:
        return "unknown status";
    }
}
