# SPDX-License-Identifier: Apache-2.0
# cmake -DCMAKE_TOOLCHAIN_FILE=...: Linux on a 64-bit RISC-V processor.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR riscv64)
set(CMAKE_C_COMPILER clang-16)
set(architecture
  "--target=riscv64-linux-gnu -march=rv64gc -mabi=lp64d -mllvm -vectorize-loops=0 -mllvm -vectorize-slp=0")
set(CMAKE_C_FLAGS_INIT "${architecture} -ffp-contract=off")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-static")
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-riscv64;-cpu;rv64,v=true,vext_spec=v1.0")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

# What an exported library's program is linked with.
set(UMAKIT_PLATFORM_SOURCES
  runtime/umakit_platform_hosted.c
  ${CMAKE_CURRENT_LIST_DIR}/../support/tanhf.c)
