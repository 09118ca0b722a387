# SPDX-License-Identifier: Apache-2.0
# Makes each folder of ours one target, with its tests beside it.

find_package(Threads REQUIRED)
# The programs and libraries that tests below tests/ start. ./dev test changed builds these, and no needless unit test.
add_custom_target(programs)
set(SUBLET_SIMGPU_DIR ${CMAKE_SOURCE_DIR}/simgpu)
if(SUBLET_STATIC)
  set(Boost_USE_STATIC_LIBS ON)
  set(fmt_DIR ${CMAKE_SOURCE_DIR}/cmake/static)
endif()
find_package(Boost 1.79 REQUIRED)   # headers only: Asio, Beast, System (1.79: boost::system::result)
find_package(nlohmann_json 3.10 REQUIRED)
find_package(fmt 8 REQUIRED)

add_library(sublet_flags INTERFACE)
target_compile_options(sublet_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough
  -Werror=return-type -fno-strict-aliasing -fvisibility-inlines-hidden
  $<$<CXX_COMPILER_ID:GNU>:-Wduplicated-cond -Wlogical-op>)
# A backtrace needs line numbers, but not one of a unit test; full debug information takes a third of the build time.
# This option stands after CMake's own -g on the command line, so this one counts. (For a debugger's view of variables:
# CMAKE_BUILD_TYPE=Debug.)
target_compile_options(sublet_flags INTERFACE
  $<$<CONFIG:RelWithDebInfo>:-g$<NOT:$<STREQUAL:$<TARGET_PROPERTY:SUBLET_OPTIMIZE>,0>>>)
# Most of our code waits for users, programs and the card: -O2 gains nothing noticeable there, and costs a fifth of the
# build time. The folders that compute say SUBLET_OPTIMIZE 2; a release has -O2 everywhere.
define_property(TARGET PROPERTY SUBLET_OPTIMIZE INITIALIZE_FROM_VARIABLE SUBLET_OPTIMIZE)
set(SUBLET_OPTIMIZE 1)
if(NOT SUBLET_STATIC)
  target_compile_options(sublet_flags INTERFACE $<$<CONFIG:RelWithDebInfo>:-O$<TARGET_PROPERTY:SUBLET_OPTIMIZE>>)
endif()
# The compiler collects its garbage whenever its heap has grown by a third. In small files this takes a tenth of the
# time for nothing, so the first collection comes late.
target_compile_options(sublet_flags INTERFACE
  "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-heapsize=600000>")
# Assertions state our own bugs and stay on in every build type.
target_compile_options(sublet_flags INTERFACE -UNDEBUG)
target_compile_definitions(sublet_flags INTERFACE SUBLET_VERSION="${PROJECT_VERSION}")
# g++ 12 takes the operator delete of Asio's coroutine frames for another allocator's; theirs match.
target_compile_options(sublet_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-mismatched-new-delete>)
target_link_libraries(sublet_flags INTERFACE Threads::Threads)
if(SUBLET_SANITIZE)
  target_compile_options(sublet_flags INTERFACE
    -fsanitize=${SUBLET_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(sublet_flags INTERFACE -fsanitize=${SUBLET_SANITIZE})
endif()
if(SUBLET_COVERAGE)
  # Unit tests, which have degree 0, are not counted.
  set(counted $<NOT:$<STREQUAL:$<TARGET_PROPERTY:SUBLET_OPTIMIZE>,0>>)
  target_compile_options(sublet_flags INTERFACE $<${counted}:-O1> $<${counted}:--coverage>)
  target_link_options(sublet_flags INTERFACE --coverage)
endif()
if(SUBLET_FUZZ)
  target_compile_options(sublet_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(SUBLET_STATIC)
  target_link_options(sublet_flags INTERFACE -static-libstdc++ -static-libgcc -Wl,--gc-sections)
  target_compile_options(sublet_flags INTERFACE -ffunction-sections -fdata-sections)
  # A release has the same bytes wherever it was built. The compiler cache passes paths relative to the build folder.
  target_compile_options(sublet_flags INTERFACE -ffile-prefix-map=${CMAKE_SOURCE_DIR}/= -ffile-prefix-map=../=)
endif()

# Programs are compiled like libraries (-fPIC, not -fPIE), because g++ takes a precompiled header only with the flags
# that it was made with.
set(CMAKE_CXX_COMPILE_OPTIONS_PIE -fPIC)

# Unit tests are compiled often and run for seconds. Without optimisation, and with the test framework precompiled, they
# cost half. They still test the optimised library.
if(SUBLET_TESTS)
  find_package(GTest REQUIRED)
endif()

# Asio and Beast, compiled once. All targets that use them must link this, or they compile them otherwise.
add_library(sublet_asio STATIC ${CMAKE_SOURCE_DIR}/cmake/asio.cpp)
target_compile_definitions(sublet_asio PUBLIC BOOST_ASIO_SEPARATE_COMPILATION BOOST_BEAST_SEPARATE_COMPILATION)
target_link_libraries(sublet_asio PUBLIC sublet_flags Boost::headers)

# sublet_precompiled(TARGET NAME): makes the target use the heavy headers of cmake/NAME.h, parsed once for all: pch for
# C++ of src/, pch_json, pch_net and pch_http for code that uses JSON, an event loop, or both. There is one for each
# degree of optimisation, because g++ may crash if the degrees differ, and one with the test framework for tests.
function(sublet_precompiled target name)
  get_target_property(degree ${target} SUBLET_OPTIMIZE)
  set(precompiled sublet_${name}_${degree})
  if(NOT TARGET ${precompiled})
    set(SUBLET_OPTIMIZE ${degree})
    add_library(${precompiled} OBJECT ${CMAKE_SOURCE_DIR}/cmake/pch.cpp)
    # Named without its folder: CMake writes the name into a file that the compiler cache compares between checkouts.
    target_precompile_headers(${precompiled} PRIVATE "\"${name}.h\"")
    target_include_directories(${precompiled} PRIVATE ${CMAKE_SOURCE_DIR}/cmake)
    target_link_libraries(${precompiled} PRIVATE
      sublet_flags Boost::headers nlohmann_json::nlohmann_json fmt::fmt
      $<$<IN_LIST:${name},pch_net;pch_http>:sublet_asio> $<$<EQUAL:${degree},0>:GTest::gtest>)
    if(degree EQUAL 0)
      target_precompile_headers(${precompiled} PRIVATE <gtest/gtest.h>)
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM ${precompiled})
endfunction()

# sublet_together(TARGET COUNT): compiles so many of its files at a time, which halves what small ones cost: most of
# that is the containers of our types, which each would compile for itself. More at a time make one changed file slow.
# Their names must differ for that, those in anonymous namespaces too. Not for folders whose files are compiled once
# more with mutants in them (tests/sim), nor for coroutines, of whose frames g++ then warns.
function(sublet_together target count)
  if(SUBLET_UNITY)  # at the end of the folder, when each file has its properties
    cmake_language(EVAL CODE "cmake_language(DEFER CALL sublet_bundle [[${target}]] [[${count}]])")
  endif()
endfunction()

# In place of CMake's UNITY_BUILD, which writes absolute paths into its files: the compiler cache compares the files of
# checkouts in different folders. C, generated files and files with flags of their own are compiled alone.
function(sublet_bundle target count)
  get_target_property(sources ${target} SOURCES)
  set(alone)
  set(bundled)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
    set(own OFF)
    foreach(property COMPILE_OPTIONS COMPILE_DEFINITIONS SKIP_PRECOMPILE_HEADERS GENERATED)
      get_source_file_property(value ${source} ${property})
      if(value)
        set(own ON)
      endif()
    endforeach()
    if(own OR NOT source MATCHES "\\.cpp$")
      list(APPEND alone ${source})
    else()
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
      list(APPEND bundled ${source})
    endif()
  endforeach()
  set(number 0)
  while(bundled)
    list(SUBLIST bundled 0 ${count} batch)
    list(REMOVE_ITEM bundled ${batch})
    list(TRANSFORM batch REPLACE "(.+)" "#include \"\\1\"\n")
    list(JOIN batch "" text)
    set(bundle ${CMAKE_CURRENT_BINARY_DIR}/${target}_${number}.cpp)
    file(CONFIGURE OUTPUT ${bundle} CONTENT "${text}" @ONLY)
    list(APPEND alone ${bundle})
    math(EXPR number "${number} + 1")
  endwhile()
  set_target_properties(${target} PROPERTIES SOURCES "${alone}")
  target_compile_options(${target} PRIVATE "SHELL:-iquote ${CMAKE_SOURCE_DIR}")
endfunction()

# sublet_library(NAME DEPS a b LIBS external...): makes the static library sublet_NAME of this folder's *.cpp (except
# main.cpp and *_main.cpp), and the test program NAME_test of its *_test.cpp. DEPS are folders, LIBS are foreign
# targets. PCH is the precompiled header, if it differs from the common one. UNITY is the number of files that are
# compiled at a time.
function(sublet_library name)
  cmake_parse_arguments(ARG "" "PCH;UNITY" "DEPS;LIBS" ${ARGN})
  if(NOT ARG_PCH)
    set(ARG_PCH pch)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "(_test|main)\\.cpp$")
  list(TRANSFORM ARG_DEPS PREPEND sublet_)
  add_library(sublet_${name} STATIC ${sources})
  target_include_directories(sublet_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(sublet_${name} PUBLIC
    sublet_flags ${ARG_DEPS} ${ARG_LIBS} Boost::headers nlohmann_json::nlohmann_json fmt::fmt)
  sublet_precompiled(sublet_${name} ${ARG_PCH})
  if(ARG_UNITY)
    sublet_together(sublet_${name} ${ARG_UNITY})
  endif()
  if(SUBLET_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE sublet_${name} GTest::gtest_main)
    set_target_properties(${name}_test PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test SUBLET_OPTIMIZE 0)
    sublet_together(${name}_test 4)
    sublet_precompiled(${name}_test ${ARG_PCH})
    add_test(NAME ${name} COMMAND ${name}_test)
  endif()
endfunction()

# sublet_program(NAME SOURCES main.cpp DEPS a b): makes the executable NAME in build/bin, installed. UNREADABLE: only
# its owner may read it, so by the kernel's rule no other user traces a process that runs it. Programs of simgpu/ are
# the component "simgpu", which `cmake --install` leaves out unless it is requested: a simulated card has no place in a
# product.
function(sublet_program name)
  cmake_parse_arguments(ARG "UNREADABLE" "PCH;COMPONENT" "SOURCES;DEPS;LIBS" ${ARGN})
  if(NOT ARG_PCH)
    set(ARG_PCH pch)
  endif()
  list(TRANSFORM ARG_DEPS PREPEND sublet_)
  add_executable(${name} ${ARG_SOURCES})
  add_dependencies(programs ${name})
  target_link_libraries(${name} PRIVATE sublet_flags ${ARG_DEPS} ${ARG_LIBS})
  sublet_precompiled(${name} ${ARG_PCH})
  cmake_path(IS_PREFIX SUBLET_SIMGPU_DIR "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE simulated)
  if(simulated)
    set(ARG_COMPONENT simgpu)
  endif()
  if(ARG_COMPONENT)
    install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${ARG_COMPONENT} EXCLUDE_FROM_ALL)
  elseif(ARG_UNREADABLE)
    install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
      PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_EXECUTE WORLD_EXECUTE)
  else()
    install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endfunction()
