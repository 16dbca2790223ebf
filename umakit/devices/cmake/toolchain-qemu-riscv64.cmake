# SPDX-License-Identifier: Apache-2.0
# cmake -DCMAKE_TOOLCHAIN_FILE=...: RISC-V with 64 bits, without an operating system, as QEMU's virt.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR riscv64)
set(CMAKE_C_COMPILER riscv64-unknown-elf-gcc)
set(architecture "--specs=picolibc.specs -march=rv64imafdc -mabi=lp64d -mcmodel=medany")
set(CMAKE_ASM_FLAGS_INIT "${architecture}")
set(CMAKE_C_FLAGS_INIT
  "${architecture} -ffp-contract=off -ffunction-sections -fdata-sections")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

set(CMAKE_C_STANDARD_LIBRARIES "-lm")

# What an exported library's program is linked with.
get_filename_component(UMAKIT_SUPPORT "${CMAKE_CURRENT_LIST_DIR}/../support" ABSOLUTE)
set(CMAKE_EXE_LINKER_FLAGS_INIT
  "-nostartfiles -Wl,--gc-sections -T ${UMAKIT_SUPPORT}/riscv.ld")
set(UMAKIT_PLATFORM_SOURCES
  ${UMAKIT_SUPPORT}/riscv.S
  ${UMAKIT_SUPPORT}/riscv.c
  ${UMAKIT_SUPPORT}/expf.c
  ${UMAKIT_SUPPORT}/platform_semihosting.c
  ${UMAKIT_SUPPORT}/semihosting.c)
