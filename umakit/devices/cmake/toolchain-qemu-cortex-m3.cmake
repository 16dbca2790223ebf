# SPDX-License-Identifier: Apache-2.0
# cmake -DCMAKE_TOOLCHAIN_FILE=...: a Cortex-M3 without an operating system, as QEMU's mps2-an385.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR cortex-m3)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(architecture "-mcpu=cortex-m3 -mthumb")
set(CMAKE_ASM_FLAGS_INIT "${architecture}")
set(CMAKE_C_FLAGS_INIT
  "${architecture} -ffp-contract=off -ffunction-sections -fdata-sections")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

set(CMAKE_C_STANDARD_LIBRARIES "-lm")

# What an exported library's program is linked with.
get_filename_component(UMAKIT_SUPPORT "${CMAKE_CURRENT_LIST_DIR}/../support" ABSOLUTE)
set(CMAKE_EXE_LINKER_FLAGS_INIT
  "-nostartfiles -Wl,--gc-sections -T ${UMAKIT_SUPPORT}/cortex_m3.ld")
set(UMAKIT_PLATFORM_SOURCES
  ${UMAKIT_SUPPORT}/cortex_m3.S
  ${UMAKIT_SUPPORT}/cortex_m3.c
  ${UMAKIT_SUPPORT}/expf.c
  ${UMAKIT_SUPPORT}/platform_semihosting.c
  ${UMAKIT_SUPPORT}/semihosting.c)
