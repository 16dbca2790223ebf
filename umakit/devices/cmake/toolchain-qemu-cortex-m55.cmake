# SPDX-License-Identifier: Apache-2.0
# cmake -DCMAKE_TOOLCHAIN_FILE=...: a Cortex-M55 without an operating system, as QEMU's mps3-an547.
set(CMAKE_SYSTEM_PROCESSOR cortex-m55)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(architecture "-mcpu=cortex-m55 -mthumb -mfloat-abi=hard")
set(start_up cortex_m)
set(linker_script cortex_m55)
set(replaced expf.c tanhf.c)
include(${CMAKE_CURRENT_LIST_DIR}/bare_metal.cmake)
