/* SPDX-License-Identifier: Apache-2.0 */
/* Start-up, faults and instruction counter of a Cortex-M3, -M4, -M7 or -M55. */
#include "bare_metal.h"
#include "umakit_platform.h"

#include <string.h>

#define REGISTER(address) (*(volatile uint32_t *)(uintptr_t)(address))

#define SYSTICK_CONTROL REGISTER(0xE000E010u)
#define SYSTICK_CONTROL_ENABLE 1u
#define SYSTICK_CONTROL_INTERRUPT 2u
#define SYSTICK_CONTROL_PROCESSOR_CLOCK 4u
#define SYSTICK_RELOAD REGISTER(0xE000E014u)
#define SYSTICK_CURRENT REGISTER(0xE000E018u)
#define INTERRUPT_CONTROL REGISTER(0xE000ED04u)
#define INTERRUPT_CONTROL_SYSTICK_PENDING (1u << 26)
#define FAULT_STATUS REGISTER(0xE000ED28u)
#define FAULT_STATUS_MEMORY_ADDRESS_VALID (1u << 7)
#define FAULT_STATUS_BUS_ADDRESS_VALID (1u << 15)
#define MEMORY_FAULT_ADDRESS REGISTER(0xE000ED34u)
#define BUS_FAULT_ADDRESS REGISTER(0xE000ED38u)
#define MEMORY_MODEL REGISTER(0xE000ED50u) /* ID_MMFR0 */
#define MEMORY_MODEL_PROTECTION 0xF0u
#define MEMORY_MODEL_PROTECTION_V8 0x40u
#define MPU_CONTROL REGISTER(0xE000ED94u)
#define MPU_CONTROL_ENABLE 1u
#define MPU_CONTROL_DEFAULT_MAP 4u
#define MPU_REGION_NUMBER REGISTER(0xE000ED98u)
#define MPU_REGION_BASE REGISTER(0xE000ED9Cu)

/* Registers of ARMv7-M: a region has a power of two as its size. */
#define MPU_REGION_ATTRIBUTES REGISTER(0xE000EDA0u)
#define MPU_ATTRIBUTES_NO_ACCESS ((1u << 28) | (0u << 24)) /* nor execution */
#define MPU_ATTRIBUTES_READ_ONLY (6u << 24)
#define MPU_ATTRIBUTES_NORMAL_MEMORY (2u << 16)
#define MPU_ATTRIBUTES_4_MIB (21u << 1)
#define MPU_ATTRIBUTES_512_MIB (28u << 1)
#define MPU_ATTRIBUTES_ENABLE 1u

/* Registers of ARMv8-M: a region has a first and a last block of 32 bytes. */
#define MPU_REGION_LIMIT REGISTER(0xE000EDA0u)
#define MPU_REGION_LIMIT_ENABLE 1u
#define MPU_BASE_NO_EXECUTION 1u
#define MPU_BASE_READ_ONLY (2u << 1)
#define MPU_MEMORY_TYPES REGISTER(0xE000EDC0u)
#define MPU_MEMORY_TYPE_NORMAL 0x44u /* without caches */

/* Ticks from one overflow to the next: SysTick has 24 bits. A test makes it smaller. */
#ifndef UMAKIT_SYSTICK_PERIOD
#define UMAKIT_SYSTICK_PERIOD 0x1000000u
#endif

extern uint32_t __data_image[], __data_start[], __data_end[], __bss_start[], __bss_end[];
extern uint32_t __stack_bottom[], __stack_top[];
extern uint32_t __code_start[], __code_end[], __memory_start[], __memory_end[];

/* Its address is the time from one tick of SysTick to the next, in quarters of a nanosecond.
 * `-icount shift=0` makes an instruction last four of them. */
extern uint32_t __tick_quarter_nanoseconds[];
#define QUARTER_NANOSECONDS_AN_INSTRUCTION 4u

void umakit_reset(void) __attribute__((noreturn));
void umakit_initialize(void) __attribute__((noreturn));
void umakit_fault_entry(void);
void umakit_fault(uintptr_t stack, uintptr_t address) __attribute__((noreturn));
void umakit_systick(void);

static volatile uint32_t overflows;

typedef void (*handler)(void);

/* The initial stack pointer, then the handlers by their number. */
static const struct {
    /* cppcheck-suppress unusedStructMember; the processor reads it */
    uint32_t *stack;
    /* cppcheck-suppress unusedStructMember */
    handler handlers[15];
} vectors __attribute__((section(".vectors"), used)) = {
    __stack_top,
    {
        umakit_reset,
        umakit_fault_entry, umakit_fault_entry, umakit_fault_entry, umakit_fault_entry,
        umakit_fault_entry, umakit_fault_entry, umakit_fault_entry, umakit_fault_entry,
        umakit_fault_entry, umakit_fault_entry, umakit_fault_entry, umakit_fault_entry,
        umakit_fault_entry,
        umakit_systick,
    },
};

static void protect_v7(uint32_t region, uint32_t attributes)
{
    MPU_REGION_NUMBER = region;
    MPU_REGION_BASE = 0;
    MPU_REGION_ATTRIBUTES = attributes | MPU_ATTRIBUTES_ENABLE;
}

static void protect_v8(uint32_t region, uintptr_t start, uintptr_t end, uint32_t access)
{
    MPU_REGION_NUMBER = region;
    MPU_REGION_BASE = start | access;
    MPU_REGION_LIMIT = (end - 32u) | MPU_REGION_LIMIT_ENABLE;
}

/*
 * ARMv7-M: below the start of RAM, nothing but reading and executing of code; the region with the
 * higher number wins. The emulated board would not notice: its code memory is RAM, so that writing
 * through NULL changes the vectors, and what lies between code and RAM, where the stack would
 * grow into, ignores what is written.
 *
 * ARMv8-M has no regions without access and none that overlap, but nothing is accessible outside
 * of them: reading and executing of code, reading and writing of RAM. The stack, at the start of
 * RAM, grows down to code.
 */
static void protect_memory(void)
{
    if ((MEMORY_MODEL & MEMORY_MODEL_PROTECTION) == MEMORY_MODEL_PROTECTION_V8) {
        MPU_MEMORY_TYPES = MPU_MEMORY_TYPE_NORMAL;
        protect_v8(0, (uintptr_t)__code_start, (uintptr_t)__code_end, MPU_BASE_READ_ONLY);
        protect_v8(1, (uintptr_t)__memory_start, (uintptr_t)__memory_end, MPU_BASE_NO_EXECUTION);
        MPU_CONTROL = MPU_CONTROL_ENABLE;
    } else {
        protect_v7(0, MPU_ATTRIBUTES_NO_ACCESS | MPU_ATTRIBUTES_512_MIB);
        protect_v7(1, MPU_ATTRIBUTES_READ_ONLY | MPU_ATTRIBUTES_NORMAL_MEMORY |
                          MPU_ATTRIBUTES_4_MIB);
        MPU_CONTROL = MPU_CONTROL_ENABLE | MPU_CONTROL_DEFAULT_MAP;
    }
    __asm__ volatile("dsb\n\tisb" ::: "memory");
}

static void start_counter(void)
{
    SYSTICK_RELOAD = UMAKIT_SYSTICK_PERIOD - 1u;
    SYSTICK_CURRENT = 0; /* any value clears it */
    SYSTICK_CONTROL =
        SYSTICK_CONTROL_ENABLE | SYSTICK_CONTROL_INTERRUPT | SYSTICK_CONTROL_PROCESSOR_CLOCK;
}

void umakit_initialize(void)
{
    memcpy(__data_start, __data_image, (uintptr_t)__data_end - (uintptr_t)__data_start);
    memset(__bss_start, 0, (uintptr_t)__bss_end - (uintptr_t)__bss_start);
    protect_memory();
    start_counter();
    umakit_start();
}

void umakit_fault(uintptr_t stack, uintptr_t address)
{
    const uint32_t status = FAULT_STATUS;
    struct umakit_fact facts[3];
    unsigned count = 0;

    if (address != 0) {
        facts[count].name = "at";
        facts[count++].value = address;
    }
    if ((status & FAULT_STATUS_MEMORY_ADDRESS_VALID) != 0) {
        facts[count].name = "accessing";
        facts[count++].value = MEMORY_FAULT_ADDRESS;
    } else if ((status & FAULT_STATUS_BUS_ADDRESS_VALID) != 0) {
        facts[count].name = "accessing";
        facts[count++].value = BUS_FAULT_ADDRESS;
    }
    facts[count].name = "fault status";
    facts[count++].value = status;
    umakit_stop(stack < (uintptr_t)__stack_bottom ? "stack overflow" : "HardFault", facts, count);
}

void umakit_systick(void)
{
    overflows++;
}

/*
 * SysTick counts down and interrupts when it comes to 0, before it starts again from the top.
 * With interrupts held off, an overflow that is pending has not been added yet; the counter is
 * read again then, as it may have been read before the overflow.
 */
uint64_t umakit_platform_instructions(void)
{
    uint64_t periods;
    uint32_t current;

    __asm__ volatile("cpsid i" ::: "memory");
    periods = overflows;
    current = SYSTICK_CURRENT;
    if ((INTERRUPT_CONTROL & INTERRUPT_CONTROL_SYSTICK_PENDING) != 0) {
        periods++;
        current = SYSTICK_CURRENT;
    }
    __asm__ volatile("cpsie i" ::: "memory");
    if (current != 0) {
        current = UMAKIT_SYSTICK_PERIOD - current;
    }
    return (periods * UMAKIT_SYSTICK_PERIOD + current) * (uintptr_t)__tick_quarter_nanoseconds /
           QUARTER_NANOSECONDS_AN_INSTRUCTION;
}
