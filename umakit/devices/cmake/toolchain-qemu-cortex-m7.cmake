# SPDX-License-Identifier: Apache-2.0
# cmake -DCMAKE_TOOLCHAIN_FILE=...: a Cortex-M7 without an operating system, as QEMU's mps2-an500.
set(CMAKE_SYSTEM_PROCESSOR cortex-m7)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(architecture "-mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-d16")
set(start_up cortex_m)
set(linker_script cortex_m3)
set(replaced expf.c tanhf.c)
include(${CMAKE_CURRENT_LIST_DIR}/bare_metal.cmake)
