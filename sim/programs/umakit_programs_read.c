/* SPDX-License-Identifier: Apache-2.0 */
/* Programs as text. */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "umakit_programs_internal.h"

static bool add_register(struct umakit_programs_list *list, uint32_t offset, uint32_t mask)
{
    uint32_t *const offsets = realloc(list->offsets, (list->count + 1u) * sizeof(*offsets));
    uint32_t *masks;

    if (offsets == NULL) {
        return false;
    }
    list->offsets = offsets;
    masks = realloc(list->masks, (list->count + 1u) * sizeof(*masks));
    if (masks == NULL) {
        return false;
    }
    list->masks = masks;
    list->offsets[list->count] = offset;
    list->masks[list->count++] = mask;
    return true;
}

static bool read_setting(char kind, const char *line, struct umakit_programs_setting *setting)
{
    uint32_t a = 0u, b = UINT32_MAX;

    if (sscanf(line, "%*c %" SCNx32 " %" SCNx32, &a, &b) < 1) {
        return false;
    }
    switch (kind) {
    case 'd':
        return add_register(&setting->starts, a, b);
    case 'q':
        return add_register(&setting->at_rest, a, b);
    case 'c':
        return add_register(&setting->at_end, a, b);
    case 'n':
        setting->has_idle = true;
        setting->idle = a;
        return true;
    case 'y':
        setting->has_busy = true;
        setting->busy = a;
        setting->busy_mask = b;
        return true;
    case 'v':
        setting->counts_work = true;
        return true;
    case 'x':
        setting->has_error = true;
        setting->error = a;
        setting->error_mask = b;
        return true;
    case 'o':
        setting->stays_inside = true;
        return true;
    default:
        return false;
    }
}

/* The value of a hexadecimal digit; 16 for another character. */
static unsigned int digit(char character)
{
    static const char digits[] = "0123456789abcdef";
    const char *const found = character == '\0' ? NULL : strchr(digits, character);

    return found == NULL ? 16u : (unsigned int)(found - digits);
}

/* The bytes of a buffer, of which there are enough digits. */
static unsigned char *read_bytes(const char *text, uint32_t bytes)
{
    unsigned char *const data = malloc(bytes == 0u ? 1u : bytes);
    uint32_t i;

    for (i = 0u; data != NULL && i < bytes; ++i) {
        const unsigned int high = digit(text[2u * i]), low = digit(text[2u * i + 1u]);

        if (high > 15u || low > 15u) {
            free(data);
            return NULL;
        }
        data[i] = (unsigned char)(16u * high + low);
    }
    return data;
}

static bool read_buffer(const char *line, struct umakit_programs_access *access)
{
    int begin = 0;

    if (sscanf(line, "m %" SCNx32 " %" SCNx32 " %" SCNx32 " %n", &access->offset, &access->value,
               &access->other, &begin) != 3 ||
        begin == 0 || strlen(line + begin) < 2u * (size_t)access->value) {
        return false;
    }
    access->data = read_bytes(line + begin, access->value);
    return access->data != NULL;
}

static bool read_access(const char *line, struct umakit_programs_access *access)
{
    int fields;

    *access = (struct umakit_programs_access){.kind = line[0]};
    switch (line[0]) {
    case 'w':
        return sscanf(line, "w %" SCNx32 " %" SCNx32, &access->offset, &access->value) == 2;
    case 'r':
        fields = sscanf(line, "r %" SCNx32 " %" SCNx32 " %" SCNx32 " %" SCNx32, &access->offset,
                        &access->value, &access->other, &access->expected);
        access->has_expected = fields == 4;
        return fields >= 3;
    case 'i':
    case 'u':
        return sscanf(line, "%*c %" SCNx32, &access->offset) == 1;
    case 'm':
        return read_buffer(line, access);
    case 's':
        fields = sscanf(line, "s %" SCNx32 " %" SCNx32 " %" SCNx32, &access->offset,
                        &access->value, &access->expected);
        access->has_expected = fields == 3;
        return true;
    default:
        return false;
    }
}

static bool add_access(struct umakit_programs_program *program, const char *line)
{
    /* It grows whenever the count is a power of two. */
    if ((program->count & (program->count - 1u)) == 0u) {
        const size_t capacity = program->count == 0u ? 1u : 2u * program->count;
        struct umakit_programs_access *const more =
            realloc(program->accesses, capacity * sizeof(*more));

        if (more == NULL) {
            return false;
        }
        program->accesses = more;
    }
    return read_access(line, &program->accesses[program->count++]);
}

/* A line without its end, in memory of its own; NULL at the end of the input. */
static char *read_line(FILE *input)
{
    size_t capacity = 256u, count = 0u;
    char *line = malloc(capacity);
    int character;

    while (line != NULL && (character = getc(input)) != EOF && character != '\n') {
        if (count + 1u == capacity) {
            char *const more = realloc(line, 2u * capacity);

            if (more == NULL) {
                break;
            }
            line = more;
            capacity *= 2u;
        }
        line[count++] = (char)character;
    }
    if (line != NULL && count == 0u && (feof(input) || ferror(input))) {
        free(line);
        return NULL;
    }
    if (line != NULL) {
        line[count] = '\0';
    }
    return line;
}

bool umakit_programs_read(FILE *input, struct umakit_programs_setting *setting,
                          struct umakit_programs_program *program, bool *is_sound)
{
    bool is_inside = false;
    char *line;

    *program = (struct umakit_programs_program){.count = 0u};
    while ((line = read_line(input)) != NULL) {
        const char kind = line[0];

        if (kind == 'p') {
            is_inside = sscanf(line, "p %23s %" SCNx32 " %" SCNx64, program->number,
                               &program->pauses, &program->cycles) == 3;
            *is_sound = *is_sound && is_inside;
        } else if (kind == 'e' && is_inside) {
            free(line);
            return true;
        } else if (kind != '\0') {
            *is_sound = (is_inside ? add_access(program, line)
                                   : read_setting(kind, line, setting)) &&
                        *is_sound;
        }
        free(line);
    }
    return false;
}

void umakit_programs_free(struct umakit_programs_program *program)
{
    size_t i;

    for (i = 0u; i < program->count; ++i) {
        free(program->accesses[i].data);
    }
    free(program->accesses);
    program->accesses = NULL;
    program->count = 0u;
}
