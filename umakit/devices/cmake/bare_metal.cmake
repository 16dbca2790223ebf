# SPDX-License-Identifier: Apache-2.0
# What the toolchain files of machines without an operating system share. They set first:
#     architecture    flags of the processor
#     start_up        stem of the start-up files in ../support
#     linker_script   stem of the linker script there
#     replaced        files there with functions of math.h
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_ASM_FLAGS_INIT "${architecture}")
get_filename_component(UMAKIT_RUNTIME "${CMAKE_CURRENT_LIST_DIR}/../../library/runtime" ABSOLUTE)
set(CMAKE_C_FLAGS_INIT
  "${architecture} -I${UMAKIT_RUNTIME} -ffp-contract=off -ffunction-sections -fdata-sections")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_C_STANDARD_LIBRARIES "-lm")

# What an exported library's program is linked with.
get_filename_component(UMAKIT_SUPPORT "${CMAKE_CURRENT_LIST_DIR}/../support" ABSOLUTE)
set(CMAKE_EXE_LINKER_FLAGS_INIT
  "-nostartfiles -Wl,--gc-sections -L${UMAKIT_SUPPORT} -T ${UMAKIT_SUPPORT}/${linker_script}.ld")
list(TRANSFORM replaced PREPEND ${UMAKIT_SUPPORT}/)
set(UMAKIT_PLATFORM_SOURCES
  ${UMAKIT_SUPPORT}/${start_up}.S
  ${UMAKIT_SUPPORT}/${start_up}.c
  ${replaced}
  ${UMAKIT_SUPPORT}/platform_semihosting.c
  ${UMAKIT_SUPPORT}/semihosting.c)
