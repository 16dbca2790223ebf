/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For `-include` when the sources of Verilator are compiled: what a design prints goes to the
 * standard error output, and $finish, $stop, $fatal and failed assertions end the run with a
 * sentence, not the program.
 */
#ifndef UMAKIT_RTL_MESSAGES_H
#define UMAKIT_RTL_MESSAGES_H

#ifdef __cplusplus
extern "C" {
#endif

/* As printf, to the standard error output; the last line of an error is kept for the sentence. */
__attribute__((format(printf, 1, 2))) int umakit_rtl_print(const char *format, ...);

#ifdef __cplusplus
}
#endif

#ifndef VL_PRINTF /* not included first */
#define VL_PRINTF umakit_rtl_print
#endif
#define VL_USER_FINISH
#define VL_USER_STOP
#define VL_USER_FATAL

#endif /* UMAKIT_RTL_MESSAGES_H */
