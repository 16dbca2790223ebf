/* SPDX-License-Identifier: Apache-2.0 */
/* Start-up, traps, semihosting and instruction counter of RISC-V with 32 or 64 bits. */
    .option arch, +zicsr

#if __riscv_xlen == 32
#define STORE sw
#define WORD 4
#else
#define STORE sd
#define WORD 8
#endif

/*
 * Physical memory protection, locked so that it binds machine mode too, each entry from where
 * the one before ends: nothing below RAM, where a NULL pointer or the machine's devices would
 * answer; only reading and executing of code and constants. The stack is right above them and
 * grows down, so that an overflow is a fault and not a wrong result.
 */
#define PMP_LOCKED 0x80
#define PMP_UP_TO 0x08
#define PMP_READ_EXECUTE 0x05
#define PMP_ENTRIES (((PMP_LOCKED | PMP_UP_TO | PMP_READ_EXECUTE) << 8) | PMP_LOCKED | PMP_UP_TO)

#define MSTATUS_FLOAT_INITIAL 0x2000

    .section .text.start, "ax", @progbits
    .global _start
_start:
    .option push
    .option norelax
    la gp, __global_pointer$
    .option pop
    la sp, __stack_top
    la t0, trap_entry
    csrw mtvec, t0
    la t0, __code_start
    srli t0, t0, 2
    csrw pmpaddr0, t0
    la t0, __stack_bottom
    srli t0, t0, 2
    csrw pmpaddr1, t0
    li t0, PMP_ENTRIES
    csrw pmpcfg0, t0
#ifdef __riscv_flen
    li t0, MSTATUS_FLOAT_INITIAL
    csrs mstatus, t0
    csrw fcsr, zero
#endif
    la t0, __bss_start
    la t1, __bss_end
1:  bgeu t0, t1, 2f
    STORE zero, 0(t0)
    addi t0, t0, WORD
    j 1b
2:  call umakit_start

/*
 * Every trap ends the program. The stack may be what broke: take a fresh one, which forgets the
 * old. A trap on the way there has nothing left to do but to wait for the debugger.
 */
    .section .text.trap_entry, "ax", @progbits
    .balign 4
trap_entry:
    la t0, stuck
    csrw mtvec, t0
    csrr a0, mcause
    csrr a1, mepc
    csrr a2, mtval
    mv a3, sp
    la sp, __stack_top
    call umakit_trap
    .balign 4
stuck:
    j stuck

/* intptr_t umakit_semihosting_call(uintptr_t operation, const uintptr_t *arguments)
 * The three instructions are the mark of a call: never compressed, and all in one page. */
    .section .text.umakit_semihosting_call, "ax", @progbits
    .balign 16
    .global umakit_semihosting_call
    .type umakit_semihosting_call, @function
umakit_semihosting_call:
    .option push
    .option norvc
    slli zero, zero, 0x1f
    ebreak
    srai zero, zero, 7
    .option pop
    ret
    .size umakit_semihosting_call, . - umakit_semihosting_call

/* uint64_t umakit_platform_instructions(void) */
    .section .text.umakit_platform_instructions, "ax", @progbits
    .balign 4
    .global umakit_platform_instructions
    .type umakit_platform_instructions, @function
umakit_platform_instructions:
#if __riscv_xlen == 32
    csrr a1, minstreth
    csrr a0, minstret
    csrr t0, minstreth
    bne a1, t0, umakit_platform_instructions
#else
    csrr a0, minstret
#endif
    ret
    .size umakit_platform_instructions, . - umakit_platform_instructions
