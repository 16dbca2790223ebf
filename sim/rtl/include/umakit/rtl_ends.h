/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Verilator calls when a design ends its simulation, and where its texts go. The functions
 * are weak: programs with several designs have one of each.
 */
#ifndef UMAKIT_RTL_ENDS_H
#define UMAKIT_RTL_ENDS_H

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <verilated.h>

#include "umakit/rtl_messages.h"

namespace umakit::rtl {

/* The last error that a design printed, and why it ended its simulation. */
inline char last_error[256];
inline char ending[384];

[[gnu::cold]] inline void end_design(const char *file, int line, const char *what)
{
    if (ending[0] == '\0') {
        const char *separator = last_error[0] == '\0' ? "" : ": ";

        std::snprintf(ending, sizeof ending, "the design ended its simulation by %s%s%s", what,
                      separator, last_error);
        if (last_error[0] == '\0' && file != nullptr && file[0] != '\0') {
            std::snprintf(ending, sizeof ending, "the design ended its simulation by %s in %s:%d",
                          what, file, line);
        }
    }
    Verilated::threadContextp()->gotFinish(true);
}

/* Keep a line such as "[12] %Error: file.sv:3: Assertion failed in top: text". */
inline void keep_error(const char *text)
{
    const char *begin = std::strstr(text, "%Error: ");
    const char *fatal = std::strstr(text, "%Fatal: ");

    begin = begin == nullptr ? fatal : begin;
    if (begin != nullptr) {
        begin += std::strlen("%Error: ");
        std::snprintf(last_error, sizeof last_error, "%.*s", int(std::strcspn(begin, "\n")),
                      begin);
        while (last_error[0] != '\0' && std::strchr(" .", last_error[std::strlen(last_error) - 1])) {
            last_error[std::strlen(last_error) - 1] = '\0';
        }
    }
}

} // namespace umakit::rtl

extern "C" __attribute__((weak)) int umakit_rtl_print(const char *format, ...)
{
    char text[1024];
    std::va_list arguments;

    va_start(arguments, format);
    const int length = std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    std::fputs(text, stderr);
    umakit::rtl::keep_error(text);
    return length;
}

__attribute__((weak)) void vl_finish(const char *file, int line, const char *)
{
    umakit::rtl::end_design(file, line, "$finish");
}

__attribute__((weak)) void vl_stop(const char *file, int line, const char *)
{
    umakit::rtl::end_design(file, line, "$stop, $fatal, $error or an assertion");
}

__attribute__((weak)) void vl_fatal(const char *file, int line, const char *, const char *text)
{
    /* Verilator's code would go on where it cannot: what is wrong is in `text`. */
    std::snprintf(umakit::rtl::last_error, sizeof umakit::rtl::last_error, "%s", text);
    umakit::rtl::end_design(file, line, "an error of Verilator");
}

#endif /* UMAKIT_RTL_ENDS_H */
