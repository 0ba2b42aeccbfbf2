# SPDX-License-Identifier: Apache-2.0
# One static library per module, so that the allowed directions between modules
# are also the link directions. scripts/check-includes checks the #include edges.

add_library(thimble_flags INTERFACE)
target_compile_options(thimble_flags INTERFACE -Wall -Wextra -Wconversion -Wshadow
  # Designated initializers leave out fields on purpose.
  -Wno-missing-field-initializers)
if(THIMBLE_WERROR)
  target_compile_options(thimble_flags INTERFACE -Werror)
endif()
if(THIMBLE_SANITIZE)
  # Without the checks for which AddressSanitizer stops too, and which take most
  # of the time of compiling. A test's own code is compiled without UndefinedBehaviorSanitizer, which takes
  # two thirds of the time there; one that only starts programs without any.
  target_compile_options(thimble_flags INTERFACE
    "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:THIMBLE_STARTS_PROGRAMS>>>:-fsanitize=${THIMBLE_SANITIZE};-fno-sanitize=null,object-size,vptr;-fno-omit-frame-pointer;-fno-sanitize-recover=all>"
    "$<$<BOOL:$<TARGET_PROPERTY:THIMBLE_IS_TEST>>:-fno-sanitize=undefined>")
  target_link_options(thimble_flags INTERFACE -fsanitize=${THIMBLE_SANITIZE})
endif()
# So that the linker can leave out what nobody calls.
target_compile_options(thimble_flags INTERFACE -ffunction-sections -fdata-sections)
target_include_directories(thimble_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(thimble_flags INTERFACE Threads::Threads)

# Compiled once: see the file.
add_library(thimble_fmt STATIC ${PROJECT_SOURCE_DIR}/src/base/fmt.cc)
target_link_libraries(thimble_fmt PRIVATE thimble_flags)

# Headers take most of the time: with THIMBLE_UNITY a target's sources are
# compiled as one. So names in its anonymous namespaces must differ between its
# files.
function(thimble_unity TARGET)
  if(THIMBLE_UNITY OR THIMBLE_SANITIZE)
    set_target_properties(${TARGET} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  endif()
endfunction()

# thimble_module(NAME SOURCES a.cc … DEPENDS graph … [PRIVATE_LIBS thimble_fmt …])
function(thimble_module NAME)
  cmake_parse_arguments(M "" "" "SOURCES;DEPENDS;PRIVATE_LIBS" ${ARGN})
  add_library(thimble_${NAME} STATIC ${M_SOURCES})
  target_link_libraries(thimble_${NAME} PUBLIC thimble_flags)
  foreach(DEP ${M_DEPENDS})
    target_link_libraries(thimble_${NAME} PUBLIC thimble_${DEP})
  endforeach()
  target_link_libraries(thimble_${NAME} PRIVATE ${M_PRIVATE_LIBS})
  thimble_unity(thimble_${NAME})
endfunction()

# thimble_headers(NAME header…): the headers, compiled once. A target with the same
# compile options takes them with target_precompile_headers(… REUSE_FROM NAME).
function(thimble_headers NAME)
  add_library(${NAME} OBJECT ${PROJECT_SOURCE_DIR}/cmake/headers.cc)
  target_link_libraries(${NAME} PRIVATE thimble_flags GTest::gtest)
  target_precompile_headers(${NAME} PRIVATE ${ARGN})
endfunction()

if(THIMBLE_TESTS)
  # Half of what tests cost is compiling them. At -O1, which is for those that
  # compute much themselves, GCC 12 warns of std::string's own operator+.
  set(THIMBLE_TEST_OPTIONS -O1 -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow)
  set(THIMBLE_QUICK_OPTIONS -O0)
  if(THIMBLE_SANITIZE)
    set(THIMBLE_QUICK_OPTIONS ${THIMBLE_TEST_OPTIONS})
  endif()
  foreach(KIND TEST QUICK)
    string(TOLOWER thimble_${KIND}_headers NAME)
    thimble_headers(${NAME}
      <gtest/gtest.h> <algorithm> <cmath> <functional> <map> <random> <string> <vector>)
    target_compile_options(${NAME} PRIVATE ${THIMBLE_${KIND}_OPTIONS})
    set_target_properties(${NAME} PROPERTIES THIMBLE_IS_TEST ON)
  endforeach()
endif()

# All tests with the label tsan, so that they can be built alone.
add_custom_target(tsan_tests)

# thimble_test(NAME [COMPUTES] SOURCES a_test.cc … DEPENDS base … [PRIVATE_LIBS …]
#              [LABELS tsan …] [HEADERS what thimble_headers made])
# Makes the executable NAME and registers it with ctest. COMPUTES: what the test's
# own code computes takes longer than to compile it optimized. Labels that scripts/test
# knows: tsan (also run under ThreadSanitizer), long (only run with --long), plain
# (not built with sanitizers but for --long), full (not built without --full: what
# they cover is covered elsewhere more narrowly). Those with emulated are made elsewhere.
function(thimble_test NAME)
  if(NOT THIMBLE_TESTS)
    return()
  endif()
  cmake_parse_arguments(T "COMPUTES" "HEADERS" "SOURCES;DEPENDS;PRIVATE_LIBS;LABELS" ${ARGN})
  # Sanitizers take minutes for these, and other tests run the same code there.
  if(THIMBLE_SANITIZE AND NOT THIMBLE_SANITIZE_ALL AND "plain" IN_LIST T_LABELS)
    return()
  endif()
  if("full" IN_LIST T_LABELS AND NOT THIMBLE_FULL_TESTS)
    return()
  endif()
  add_executable(${NAME} ${T_SOURCES})
  foreach(DEP ${T_DEPENDS})
    target_link_libraries(${NAME} PRIVATE thimble_${DEP})
  endforeach()
  target_link_libraries(${NAME} PRIVATE thimble_flags ${T_PRIVATE_LIBS} GTest::gtest GTest::gtest_main)
  set_target_properties(${NAME} PROPERTIES THIMBLE_IS_TEST ON)
  if(THIMBLE_STATIC_TESTS AND NOT THIMBLE_SANITIZE)
    target_link_options(${NAME} PRIVATE -static)
  endif()
  if(NOT T_HEADERS)
    set(KIND QUICK)
    if(T_COMPUTES)
      set(KIND TEST)
    endif()
    string(TOLOWER thimble_${KIND}_headers T_HEADERS)
    target_compile_options(${NAME} PRIVATE ${THIMBLE_${KIND}_OPTIONS})
  endif()
  target_precompile_headers(${NAME} REUSE_FROM ${T_HEADERS})
  thimble_unity(${NAME})
  add_test(NAME ${NAME} COMMAND ${NAME} --gtest_brief=1)
  set_tests_properties(${NAME} PROPERTIES LABELS "${T_LABELS}" TIMEOUT 300)
  if("tsan" IN_LIST T_LABELS)
    add_dependencies(tsan_tests ${NAME})
  endif()
endfunction()

# thimble_cost(SECONDS test…): what takes longest starts first, so that nothing is
# left to run alone.
function(thimble_cost SECONDS)
  foreach(NAME ${ARGN})
    if(TARGET ${NAME})
      set_tests_properties(${NAME} PROPERTIES COST ${SECONDS})
    endif()
  endforeach()
endfunction()
