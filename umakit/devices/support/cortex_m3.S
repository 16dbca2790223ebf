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

/*
 * Every exception but SysTick ends here, and the program with it. The stack may be what broke:
 * take a fresh one, which forgets the old, after reading where the program was. The processor
 * left eight words there, the seventh is the address; with the stack overflown it left none.
 */
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
    b umakit_fault
    .size umakit_fault_entry, . - umakit_fault_entry
    .pool
