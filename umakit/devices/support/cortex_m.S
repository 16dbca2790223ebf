/* SPDX-License-Identifier: Apache-2.0 */
    .syntax unified
    .thumb

/* intptr_t umakit_semihosting_call(uintptr_t operation, const uintptr_t *arguments) */
    .section .text.umakit_semihosting_call, "ax", %progbits
    .global umakit_semihosting_call
    .type umakit_semihosting_call, %function
    .thumb_func
umakit_semihosting_call:
    bkpt 0xAB
    bx lr
    .size umakit_semihosting_call, . - umakit_semihosting_call

/* Where the processor starts. Floating point and vectors are off, and C may be compiled for them:
 * nothing of C runs before they are on. */
#define COPROCESSOR_ACCESS 0xE000ED88
#define COPROCESSORS_10_AND_11 (0xF << 20)

    .section .text.umakit_reset, "ax", %progbits
    .global umakit_reset
    .type umakit_reset, %function
    .thumb_func
umakit_reset:
#ifdef __ARM_FP
    ldr r0, =COPROCESSOR_ACCESS
    ldr r1, [r0]
    orr r1, r1, #COPROCESSORS_10_AND_11
    str r1, [r0]
    dsb
    isb
#endif
    b umakit_initialize
    .size umakit_reset, . - umakit_reset
    .pool

/*
 * Every exception but SysTick ends here, and the program with it. The stack may be what broke:
 * take a fresh one, which forgets the old, after reading where the program was. The processor
 * left eight words there, the seventh is the address; with the stack overflown it left none.
 * Registers of floating point, which it saves behind them at their next use, are not saved.
 */
#define FLOATING_POINT_CONTEXT 0xE000EF34
#define SAVING_IS_PENDING 1

    .section .text.umakit_fault_entry, "ax", %progbits
    .global umakit_fault_entry
    .type umakit_fault_entry, %function
    .thumb_func
umakit_fault_entry:
    mov r0, sp
    movs r1, #0
    ldr r2, =__stack_bottom
    cmp r0, r2
    it hs
    ldrhs r1, [r0, #24]
    ldr r2, =__stack_top
    mov sp, r2
#ifdef __ARM_FP
    ldr r2, =FLOATING_POINT_CONTEXT
    ldr r3, [r2]
    bic r3, r3, #SAVING_IS_PENDING
    str r3, [r2]
#endif
    b umakit_fault
    .size umakit_fault_entry, . - umakit_fault_entry
    .pool
