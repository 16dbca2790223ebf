/* SPDX-License-Identifier: Apache-2.0 */
/* Programs on the model and on the RTL. */
#define _DEFAULT_SOURCE /* NOLINT: for MAP_ANONYMOUS, which POSIX does not have */
#define _XOPEN_SOURCE 700 /* NOLINT: the name is POSIX's */

#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "umakit_programs_internal.h"

/* Seconds that the processor works for a model's runs of one program. */
#define MODEL_SECONDS 1
#define SETTLED_SECONDS 10

/* The same for the RTL's runs of one program, which is not compared if that is not enough. */
#define RTL_SECONDS 120

/* Cycles for which each rest of the model goes on where it is not certain that it is one, and times
 * that its layer takes. */
#define LEAST_SETTLING 100000u
#define SETTLING 16u

/* Cycles in which a transfer moves something. */
#define STILL_MOVING 2000u

/* How the model's accesses are delayed. The RTL's bus takes some cycles for an access, and its
 * engines are not as fast as the model's: a program is compared if none of that matters. */
struct pace {
    uint32_t cycles;
    bool is_random;
};

static const struct pace at_once = {0u, false};
static const struct pace usual[] = {{12u, false}, {100u, true}};
static const struct pace further[] = {{1u, false}, {2u, false},  {4u, false},  {7u, false},
                                      {20u, false}, {40u, false}, {400u, true}, {10u, true},
                                      {30u, true},  {100u, true}, {400u, true}, {1500u, true}};

#define USUAL (sizeof(usual) / sizeof(usual[0]))
#define FURTHER (sizeof(further) / sizeof(further[0]))

struct pair {
    struct umakit_programs_setting setting;
    umakit_device *model;
    umakit_device rtl;
    umakit_programs_randomize *randomize;
    umakit_programs_trace *trace;
    FILE *answers;
    struct umakit_programs_notes *first;  /* of the model */
    struct umakit_programs_notes *second; /* of the model at another pace */
    bool settles;                         /* each rest of the model goes on far longer */
};

/* Seconds of the processor after which this process ends with SIGVTALRM. */
static void limit_seconds(int seconds)
{
    const struct itimerval limit = {.it_value = {.tv_sec = seconds}};

    (void)setitimer(ITIMER_VIRTUAL, &limit, NULL);
}

/* ---- The model ---- */

/* Each run has a process of its own: not every model can be reset, and with values that no driver
 * writes one may work for ever, or crash. */
static void run_in_child(struct pair *pair, const struct umakit_programs_program *program,
                         struct umakit_programs_notes *notes, struct pace pace)
{
    const uint64_t settling = SETTLING * program->cycles;
    struct umakit_programs_run run = {.setting = &pair->setting,
                                      .program = program,
                                      .device = pair->model,
                                      .delay = pace.cycles,
                                      .random = pace.is_random ? 0x2545f491u + pace.cycles : 0u,
                                      .notes = notes};
    const int status = umakit_simulator_reset(pair->model);

    if (pair->settles) {
        run.settling = settling > LEAST_SETTLING ? settling : LEAST_SETTLING;
    }
    limit_seconds(pair->settles ? SETTLED_SECONDS : MODEL_SECONDS);
    if (status != UMAKIT_OK && status != UMAKIT_UNSUPPORTED) {
        (void)snprintf(notes->failure, sizeof(notes->failure), "its reset failed");
        return;
    }
    notes->end = umakit_programs_run(&run);
    notes->is_beyond = pair->model->unresolved != 0u;
    (void)snprintf(notes->failure, sizeof(notes->failure), "%s",
                   umakit_simulator_failure(pair->model));
}

static enum umakit_programs_end run_model(struct pair *pair,
                                          const struct umakit_programs_program *program,
                                          struct umakit_programs_notes *notes, struct pace pace)
{
    int status = 0;
    pid_t child;

    notes->end = UMAKIT_PROGRAMS_FAILED;
    notes->failure[0] = '\0';
    notes->is_beyond = false;
    notes->count = 0u;
    notes->used = 0u;
    fflush(pair->answers);
    child = fork();
    if (child == 0) {
        run_in_child(pair, program, notes, pace);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        (void)snprintf(notes->failure, sizeof(notes->failure), "there is no process for it");
        return UMAKIT_PROGRAMS_FAILED;
    }
    if (WIFSIGNALED(status)) {
        const int number = WTERMSIG(status);

        (void)snprintf(notes->failure, sizeof(notes->failure), "it ended with signal %d", number);
        notes->end = number == SIGVTALRM ? UMAKIT_PROGRAMS_LONG : UMAKIT_PROGRAMS_FAILED;
    }
    return notes->end;
}

/* Whether the model does the same at other paces; bits of registers that depend on it are left out
 * of the first notes. */
static bool is_steady(struct pair *pair, const struct umakit_programs_program *program,
                      enum umakit_programs_end end, const struct pace *paces, size_t count)
{
    size_t i;

    for (i = 0u; i < count; ++i) {
        if (run_model(pair, program, pair->second, paces[i]) != end ||
            !umakit_programs_agree(pair->first, pair->second)) {
            return false;
        }
    }
    return true;
}

/* Whether the model does the same if each of its rests goes on far longer. If not, it was still at
 * work when it was looked at, and it is run in this way from here on. */
static bool is_settled(struct pair *pair, const struct umakit_programs_program *program,
                       enum umakit_programs_end end)
{
    pair->settles = true;
    pair->settles = run_model(pair, program, pair->second, at_once) != end ||
                    !umakit_programs_agree(pair->first, pair->second);
    return !pair->settles;
}

static enum umakit_programs_end run_rtl(struct pair *pair,
                                        const struct umakit_programs_program *program,
                                        struct umakit_programs_run *run, bool is_patient)
{
    *run = (struct umakit_programs_run){.setting = &pair->setting,
                                        .program = program,
                                        .device = &pair->rtl,
                                        .is_rtl = true,
                                        .is_patient = is_patient,
                                        .notes = pair->first};

    pair->randomize(0u, program->pauses);
    if (umakit_simulator_reset(&pair->rtl) != UMAKIT_OK) {
        return UMAKIT_PROGRAMS_FAILED;
    }
    return umakit_programs_run(run);
}

static void answer_difference(struct pair *pair, const struct umakit_programs_program *program,
                              const struct umakit_programs_run *run)
{
    const struct umakit_programs_difference *const found = &run->difference;
    const char *why = umakit_simulator_failure(&pair->rtl);

    if (strcmp(found->kind, "failure") != 0) {
        const struct umakit_simulator_bus_errors *const errors = &pair->rtl.bus_errors;
        const bool is_register =
            strcmp(found->kind, "register") == 0 || strcmp(found->kind, "error") == 0;

        why = is_register && errors->count != 0u && !errors->is_write &&
                      errors->offset == found->address
                  ? errors->response
                  : "";
    } else if (why[0] == '\0') {
        why = "the RTL does not follow the program";
    }
    fprintf(pair->answers, "%s differs %zu %s %s %" PRIx32 " %" PRIx32 " %" PRIx32 " %s\n",
            program->number, found->access, found->kind, found->refused, found->address,
            found->expected, found->found, why);
}

/* Whether the RTL is still at work on a command that the model has refused: a design may find out
 * only when it gets to what is wrong. */
static bool is_still_moving(struct umakit_programs_run *run)
{
    struct umakit_own_counters before, after;

    umakit_simulator_measure(run->device, &before);
    umakit_programs_pass(run, STILL_MOVING);
    umakit_simulator_measure(run->device, &after);
    return before.bytes_read != after.bytes_read || before.bytes_written != after.bytes_written;
}

/* How a program ended. */
enum outcome { EQUAL, DEPENDS_ON_TIME, TOO_LONG, MODEL_FAILED, BEYOND, DIFFERENT };

/* The error that the model says when it next comes to rest; 0 is none. */
static uint32_t next_error_of_model(const struct pair *pair, size_t next)
{
    size_t i;

    for (i = next == 0u ? 0u : next - 1u; i < pair->first->count; ++i) {
        if (pair->first->notes[i].kind == UMAKIT_PROGRAMS_ERROR) {
            return pair->first->notes[i].value;
        }
    }
    return 0u;
}

/* Which side says an error where the other one says none. */
static const char *refused_by(struct pair *pair, const struct umakit_programs_program *program,
                              const struct umakit_programs_run *run)
{
    const struct umakit_programs_setting *const setting = &pair->setting;
    const struct umakit_programs_difference *const found = &run->difference;
    const bool is_failure = strcmp(found->kind, "failure") == 0;
    bool model, rtl;

    if (umakit_simulator_failure(&pair->rtl)[0] != '\0' || strcmp(found->kind, "memory") == 0) {
        return "none";
    }
    if (setting->has_error) {
        const uint32_t now = umakit_device_read32(&pair->rtl, setting->error) & setting->error_mask;

        rtl = !is_failure && now != 0u;
        model = !is_failure && next_error_of_model(pair, run->next) != 0u;
    } else {
        const struct umakit_programs_access *const access =
            found->access < program->count ? &program->accesses[found->access] : NULL;

        model = is_failure && pair->first->end == UMAKIT_PROGRAMS_ENDED;
        rtl = !is_failure && access != NULL && access->kind == 'r' && access->has_expected &&
              access->offset == found->address &&
              ((found->expected ^ access->expected) & access->value) == 0u;
    }
    return model && rtl ? "both" : model ? "model" : rtl ? "rtl" : "none";
}

static enum outcome outcome_of(struct pair *pair, const struct umakit_programs_program *program,
                               struct umakit_programs_run *run)
{
    const enum umakit_programs_end end = run_model(pair, program, pair->first, at_once);
    enum umakit_programs_end end_of_rtl;
    unsigned int tries = 0u;

    if (end == UMAKIT_PROGRAMS_LONG || end == UMAKIT_PROGRAMS_FAILED) {
        return end == UMAKIT_PROGRAMS_LONG ? TOO_LONG : MODEL_FAILED;
    }
    if (pair->setting.stays_inside && pair->first->is_beyond) {
        return BEYOND;
    }
    if (!is_steady(pair, program, end, usual, USUAL)) {
        return DEPENDS_ON_TIME;
    }
    do { /* a design that differs may only be slower: that costs most, so it comes last */
        end_of_rtl = run_rtl(pair, program, run, tries != 0u);
        if (end_of_rtl == end && run->next == pair->first->count) {
            return EQUAL;
        }
        if (tries == 0u && !pair->settles && !is_settled(pair, program, end)) {
            return outcome_of(pair, program, run);
        }
        if (tries == 0u && !is_steady(pair, program, end, further, FURTHER)) {
            return DEPENDS_ON_TIME;
        }
    } while (++tries < 2u && umakit_simulator_failure(&pair->rtl)[0] == '\0');
    if (end_of_rtl != UMAKIT_PROGRAMS_DIFFERS || run->difference.kind == NULL) {
        run->difference.kind = "failure";
        run->difference.access = run->access;
    }
    if (end == UMAKIT_PROGRAMS_ENDED && is_still_moving(run)) {
        return TOO_LONG;
    }
    run->difference.refused = refused_by(pair, program, run);
    return DIFFERENT;
}

/* Of two mistakes the model may find the one first and the RTL the other: whether both say the same
 * if each command ends before anything else happens. */
static bool has_other_mistake(struct pair *pair, const struct umakit_programs_program *program,
                              const struct umakit_programs_run *run)
{
    struct umakit_programs_program alone = *program;
    struct umakit_programs_run again;

    if (strcmp(run->difference.kind, "error") != 0 || run->difference.expected == 0u ||
        run->difference.found == 0u) {
        return false;
    }
    alone.rests_at_once = true;
    return outcome_of(pair, &alone, &again) != DIFFERENT;
}

/* From its next reset on the RTL writes a waveform, each reset anew: of a run in which the RTL fails
 * there is no repetition. */
static void begin_wave(struct pair *pair)
{
    const char *const file = getenv("UMAKIT_RTL_WAVE");
    const char *const most = getenv("UMAKIT_RTL_WAVE_CYCLES");
    const uint64_t last = most == NULL ? UINT64_MAX : (uint64_t)strtoull(most, NULL, 10);

    if (file != NULL && pair->trace != NULL) {
        (void)pair->trace(file, 0u, last - 1u);
    }
}

/* Repeat the RTL's run with a waveform. */
static void write_wave(struct pair *pair, const struct umakit_programs_program *program,
                       bool is_patient)
{
    const char *const file = getenv("UMAKIT_RTL_WAVE");
    struct umakit_programs_run run;
    uint64_t clock;

    if (file == NULL || pair->trace == NULL || umakit_simulator_failure(&pair->rtl)[0] != '\0') {
        return;
    }
    (void)run_model(pair, program, pair->first, at_once); /* its notes, if another run had them */
    (void)run_rtl(pair, program, &run, is_patient);
    clock = umakit_programs_clock(&run);
    (void)pair->trace(file, 0u, clock == UMAKIT_UNKNOWN || clock == 0u ? 0u : clock - 1u);
    umakit_programs_pass(&run, 2u); /* closes the file */
    (void)umakit_device_read32(run.device, 0u); /* where an interrupt ends all waits at once */
    (void)umakit_device_read32(run.device, 0u);
}

static void run_program(struct pair *pair, const struct umakit_programs_program *program)
{
    struct umakit_programs_run run = {.is_rtl = true};
    enum outcome outcome;
    uint64_t cycles;
    bool has_error;

    limit_seconds(RTL_SECONDS);
    pair->settles = false;
    begin_wave(pair);
    outcome = outcome_of(pair, program, &run);
    cycles = outcome == EQUAL ? umakit_programs_clock(&run) : 0u;
    has_error = pair->first->end != UMAKIT_PROGRAMS_OK;
    if (outcome == DIFFERENT && has_other_mistake(pair, program, &run)) {
        outcome = DEPENDS_ON_TIME;
    }
    if (outcome == EQUAL || outcome == DIFFERENT) {
        write_wave(pair, program, run.is_patient); /* who reads the answer may end the process */
    }
    switch (outcome) {
    case EQUAL:
        fprintf(pair->answers, "%s %s %" PRIu64 "\n", program->number,
                has_error ? "error" : "ok", cycles);
        break;
    case DEPENDS_ON_TIME:
        fprintf(pair->answers, "%s time\n", program->number);
        break;
    case TOO_LONG:
        fprintf(pair->answers, "%s long\n", program->number);
        break;
    case BEYOND:
        fprintf(pair->answers, "%s beyond\n", program->number);
        break;
    case MODEL_FAILED:
        fprintf(pair->answers, "%s model %s\n", program->number, pair->first->failure);
        break;
    case DIFFERENT:
        answer_difference(pair, program, &run);
        break;
    }
}

static struct umakit_programs_notes *shared_notes(void)
{
    void *const memory = mmap(NULL, sizeof(struct umakit_programs_notes), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

/* The RTL must not have failed: it is done with then. A model that is reset may be talked to by all
 * its processes, so that one that was ended may leave it in the middle of an answer. */
static bool can_go_on(const struct pair *pair)
{
    const bool is_ended = pair->first->end == UMAKIT_PROGRAMS_LONG ||
                          pair->second->end == UMAKIT_PROGRAMS_LONG;

    return umakit_simulator_failure(&pair->rtl)[0] == '\0' &&
           !(is_ended && pair->model->operations->reset != NULL);
}

int umakit_programs_replay(umakit_device *model, const struct umakit_own_simulator *rtl,
                           umakit_programs_randomize *randomize, umakit_programs_trace *trace)
{
    static struct pair pair;
    struct umakit_programs_program program;
    bool is_sound = true, goes_on = true;

    pair.model = model;
    pair.randomize = randomize;
    pair.trace = trace;
    pair.first = shared_notes();
    pair.second = shared_notes();
    pair.answers = fdopen(dup(STDOUT_FILENO), "w");
    if (model == NULL || pair.first == NULL || pair.second == NULL || pair.answers == NULL || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        return 1;
    }
    randomize(0u, 0u);
    umakit_simulator_open(&pair.rtl, rtl);
    while (goes_on && umakit_programs_read(stdin, &pair.setting, &program, &is_sound)) {
        goes_on = is_sound;
        if (is_sound) {
            run_program(&pair, &program);
            goes_on = can_go_on(&pair);
        }
        fflush(pair.answers);
        umakit_programs_free(&program);
    }
    return is_sound ? 0 : 2;
}
