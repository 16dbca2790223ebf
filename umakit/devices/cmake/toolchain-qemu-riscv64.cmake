# SPDX-License-Identifier: Apache-2.0
# cmake -DCMAKE_TOOLCHAIN_FILE=...: RISC-V with 64 bits, without an operating system, as QEMU's virt.
set(CMAKE_SYSTEM_PROCESSOR riscv64)
set(CMAKE_C_COMPILER riscv64-unknown-elf-gcc)
set(architecture "--specs=picolibc.specs -march=rv64imafdc -mabi=lp64d -mcmodel=medany")
set(start_up riscv)
set(linker_script riscv)
set(replaced expf.c)
include(${CMAKE_CURRENT_LIST_DIR}/bare_metal.cmake)
