# SPDX-License-Identifier: Apache-2.0
"""What Zephyr's CMake functions do, for modules that are built without Zephyr."""

FUNCTIONS = """\
cmake_minimum_required(VERSION 3.20)
project(app C)
add_library(zephyr_interface INTERFACE)
macro(zephyr_library_named name)
  set(ZEPHYR_CURRENT_LIBRARY ${name})
  add_library(${name} STATIC "")
  set_property(GLOBAL APPEND PROPERTY ZEPHYR_LIBS ${name})
  target_link_libraries(${name} PUBLIC zephyr_interface)
endmacro()
function(zephyr_library_sources source)
  target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${source} ${ARGN})
endfunction()
function(zephyr_library_sources_ifdef feature source)
  if(${${feature}})
    zephyr_library_sources(${source} ${ARGN})
  endif()
endfunction()
function(zephyr_library_compile_options option)
  target_compile_options(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${option} ${ARGN})
endfunction()
function(zephyr_include_directories)
  target_include_directories(zephyr_interface INTERFACE ${ARGV})
endfunction()
function(zephyr_link_libraries)
  target_link_libraries(zephyr_interface INTERFACE ${ARGV})
endfunction()
"""
"""The beginning of a CMakeLists.txt; the static libraries are the global property ZEPHYR_LIBS."""
