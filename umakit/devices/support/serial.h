/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The platform of a board that has nothing but a serial line to the host.
 *
 * Both sides send frames; other bytes between frames are ignored, so that a boot loader may print:
 *
 *     bytes   content
 *         4   0xA5 'u' 'm' 'k'
 *         1   type, see below
 *         1   number: of the board's frames from 0, of an answer that of the request
 *         2   length of the payload, at most UMAKIT_SERIAL_CHUNK; the low byte comes first
 *    length   payload
 *         4   CRC-32 (that of zlib) of type, number, length and payload; the low byte comes first
 *
 *     type    from    payload
 *     'S'     board   it has started: the version of this protocol, 1
 *     'A'     host    words for main, each with a 0 behind it; sent again until the board answers
 *     'O'     board   names of the files of inputs and outputs, each with a 0 behind it
 *     'R'     board   request of so many bytes of inputs, 4 bytes
 *     'D'     host    these bytes, fewer at the end of the inputs
 *     'W'     board   outputs
 *     'P'     board   a part of the report
 *     'C'     board   a part of a message
 *     'X'     board   the program ended with this code, 4 bytes; then the board waits for ever
 */
#ifndef UMAKIT_SERIAL_H
#define UMAKIT_SERIAL_H

#include <stdint.h>

#ifndef UMAKIT_SERIAL_CHUNK
#define UMAKIT_SERIAL_CHUNK 256u
#endif

/* The two functions of the board: they wait until there is a byte, or room for one. The line passes
 * all 8 bits. It need not store more than the board reads meanwhile: the host only sends what it was
 * asked for, and words for main. */
uint8_t umakit_serial_get(void);
void umakit_serial_put(uint8_t byte);

#endif /* UMAKIT_SERIAL_H */
