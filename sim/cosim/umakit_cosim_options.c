/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the co-simulation device, from the environment. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "umakit_cosim_internal.h"

/* Without UMAKIT_COSIM_CATCH_UP a design may be so many times slower than its model; with it,
 * only the cycles that it says, or a few times what the model took. */
#define CATCH_UP_CYCLES 1000000u
#define TIMES 1000u
#define TIMES_OF_GIVEN 4u

static char sentence[256];

static const char *complain(const char *name, const char *what)
{
    (void)snprintf(sentence, sizeof(sentence),
                   "the environment variable %s must be %s, not '%.100s'", name, what,
                   getenv(name));
    return sentence;
}

/* A number at the start of a text, at most `most`; what is behind it, or NULL. */
static const char *read_number(const char *text, uint64_t most, uint64_t *number)
{
    char *end = NULL;

    if (*text < '0' || *text > '9') { /* strtoull takes blanks and signs */
        return NULL;
    }
    errno = 0;
    *number = strtoull(text, &end, 0);
    return errno != 0 || *number > most ? NULL : end;
}

/* An element of a list, NUMBER or NUMBER:MASK; what is behind it, or NULL. */
static const char *read_element(const char *text, struct umakit_cosim_list *list)
{
    uint64_t number = 0u;
    uint64_t mask = UINT32_MAX;
    const char *end = read_number(text, UINT32_MAX, &number);

    if (end != NULL && *end == ':') {
        end = read_number(end + 1, UINT32_MAX, &mask);
    }
    list->numbers[list->count] = (uint32_t)number;
    list->masks[list->count] = (uint32_t)mask;
    ++list->count;
    return end;
}

static const char *read_list(const char *name, struct umakit_cosim_list *list)
{
    const char *text = getenv(name);
    size_t most;

    list->is_set = text != NULL;
    if (text == NULL || *text == '\0') {
        return NULL;
    }
    most = strlen(text); /* an element has a digit at least */
    list->numbers = malloc(most * sizeof(*list->numbers));
    list->masks = malloc(most * sizeof(*list->masks));
    if (list->numbers == NULL || list->masks == NULL) {
        return "there is no memory for the options of the co-simulation";
    }
    do {
        text = read_element(text, list);
    } while (text != NULL && *text == ',' && *++text != '\0');
    return text == NULL || *text != '\0' ? complain(name, "numbers with commas between them")
                                         : NULL;
}

/* Leaves the number as it is if the variable is not set. */
static const char *read_one(const char *name, uint64_t most, uint64_t *number)
{
    const char *text = getenv(name);
    const char *end;

    if (text == NULL) {
        return NULL;
    }
    end = read_number(text, most, number);
    return end == NULL || *end != '\0' ? complain(name, "a number") : NULL;
}

static const char *read_small(const char *name, uint32_t *number)
{
    uint64_t wide = *number;
    const char *wrong = read_one(name, UINT32_MAX, &wide);

    *number = (uint32_t)wide;
    return wrong;
}

/* FILE:FIRST:LAST; the file's name may have colons. */
static bool split_wave(struct umakit_cosim_options *options)
{
    char *last = strrchr(options->wave, ':');
    char *first;
    const char *end;

    if (last == NULL) {
        return false;
    }
    *last = '\0';
    first = strrchr(options->wave, ':');
    if (first == NULL || first == options->wave) {
        return false;
    }
    *first = '\0';
    end = read_number(last + 1, UINT64_MAX, &options->wave_last);
    if (end == NULL || *end != '\0') {
        return false;
    }
    end = read_number(first + 1, UINT64_MAX, &options->wave_first);
    return end != NULL && *end == '\0' && options->wave_first <= options->wave_last;
}

static const char *read_wave(struct umakit_cosim_options *options, const char *backend)
{
    const char *text = getenv("UMAKIT_COSIM_WAVE");
    const char *whose = getenv("UMAKIT_COSIM_WAVE_BACKEND");

    if (text == NULL || (whose != NULL && strcmp(whose, backend) != 0)) {
        return NULL;
    }
    options->wave = malloc(strlen(text) + 1u);
    if (options->wave == NULL) {
        return "there is no memory for the options of the co-simulation";
    }
    (void)strcpy(options->wave, text);
    return split_wave(options) ? NULL : complain("UMAKIT_COSIM_WAVE", "FILE:FIRST:LAST");
}

const char *umakit_cosim_read_options(struct umakit_cosim_options *options,
                                      const char *backend)
{
    const char *wrong;

    *options = (struct umakit_cosim_options){
        .tiles = UINT32_MAX, .catch_up = CATCH_UP_CYCLES, .times = TIMES,
        .corrupt = UINT32_MAX, .idle = UINT32_MAX, .watch_layer = UINT32_MAX};
    wrong = read_list("UMAKIT_COSIM_LAYERS", &options->layers);
    if (wrong == NULL) {
        wrong = read_list("UMAKIT_COSIM_DOORBELLS", &options->doorbells);
    }
    if (wrong == NULL) {
        wrong = read_list("UMAKIT_COSIM_VOLATILE", &options->not_compared);
    }
    if (wrong == NULL) {
        wrong = read_small("UMAKIT_COSIM_TILES", &options->tiles);
    }
    if (wrong == NULL) {
        wrong = read_one("UMAKIT_COSIM_CATCH_UP", UINT32_MAX, &options->catch_up);
        options->times = getenv("UMAKIT_COSIM_CATCH_UP") == NULL ? TIMES : TIMES_OF_GIVEN;
    }
    if (wrong == NULL) {
        wrong = read_small("UMAKIT_COSIM_CORRUPT", &options->corrupt);
    }
    if (wrong == NULL) {
        wrong = read_small("UMAKIT_COSIM_IDLE", &options->idle);
    }
    if (wrong == NULL) {
        wrong = read_small("UMAKIT_COSIM_WATCH_LAYER", &options->watch_layer);
    }
    if (wrong == NULL) {
        wrong = read_small("UMAKIT_COSIM_WATCH", &options->watch);
    }
    if (wrong == NULL) {
        wrong = read_small("UMAKIT_COSIM_WAVE_RESETS", &options->wave_resets);
    }
    return wrong == NULL ? read_wave(options, backend) : wrong;
}

static void free_list(struct umakit_cosim_list *list)
{
    free(list->numbers);
    free(list->masks);
}

void umakit_cosim_free_options(struct umakit_cosim_options *options)
{
    free_list(&options->layers);
    free_list(&options->doorbells);
    free_list(&options->not_compared);
    free(options->wave);
}

uint32_t umakit_cosim_listed(const struct umakit_cosim_list *list, uint32_t number)
{
    uint32_t mask = 0u;
    size_t i;

    for (i = 0u; i < list->count; ++i) {
        if (list->numbers[i] == number) {
            mask |= list->masks[i];
        }
    }
    return mask;
}
