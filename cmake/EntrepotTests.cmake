# Tests: the folders of core/tests. Each has a CMakeLists.txt that calls
#
#   entrepot_test(<name> SOURCES <file>... [LIBS <target>...] [ARGS <argument>...] [TIMEOUT <seconds>]
#                 [LABELS <label>...] [NO_MAIN] [PROCESSES <n>] [SINGLE_THREADED] [UNSANITIZED]
#                 [FIRST])
#
# for each GoogleTest program. LIBS names layers (entrepot_shm, ...) and other targets. Object libraries are not linked
# transitively, so a test lists every layer that it needs, and may use a fake instead of one. NO_MAIN: the sources have
# their own main(). The label `slow` excludes a test from the fast tier. PROCESSES: the cores that it keeps busy, by
# default one. SINGLE_THREADED: the program starts no thread, so ThreadSanitizer would find nothing in it, and it is not
# built with it. UNSANITIZED: the program checks something that it cannot check in a sanitized build, which is the only
# one that `make test` makes of the other tests; the target unsanitized_tests builds these programs, the label
# `unsanitized` selects them. FIRST: the program takes longest, so it is started before the others, which fill the time
# that it leaves.
function(entrepot_test name)
  cmake_parse_arguments(arg "NO_MAIN;SINGLE_THREADED;UNSANITIZED;FIRST" "TIMEOUT;PROCESSES" "SOURCES;LIBS;ARGS;LABELS" ${ARGN})
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "entrepot_test(${name}): SOURCES is empty")
  endif()
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "entrepot_test(${name}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(arg_SINGLE_THREADED AND ENTREPOT_SANITIZE MATCHES "thread")
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  if(arg_SINGLE_THREADED)
    entrepot_refuse_threads(${name})
  endif()
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/core/tests")
  # Only the layers need optimization; tests take most of the compile time, and this halves it.
  target_compile_options(${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1> $<$<CONFIG:RelWithDebInfo>:-g1>
                                         $<$<CONFIG:Debug>:-O0>)
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gtest)
  if(NOT arg_NO_MAIN)
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
  endif()
  add_test(NAME ${name} COMMAND ${ENTREPOT_TEST_LAUNCHER} $<TARGET_FILE:${name}> ${arg_ARGS})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT})
  if(arg_UNSANITIZED)
    list(APPEND arg_LABELS unsanitized)
    add_dependencies(unsanitized_tests ${name})
  endif()
  if(arg_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}")
  endif()
  if(arg_FIRST)
    set_tests_properties(${name} PROPERTIES COST 1000)
  endif()
  if(arg_PROCESSES)
    set_tests_properties(${name} PROPERTIES PROCESSORS ${arg_PROCESSES})
  endif()
endfunction()

# Makes a program abort when it starts a thread. Sanitizers have a pthread_create() of their own.
function(entrepot_refuse_threads name)
  if(NOT ENTREPOT_SANITIZE)
    target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/core/tests/fakes/no_threads.cpp")
  endif()
endfunction()

macro(entrepot_add_tests)
  find_package(GTest QUIET)
  if(NOT GTest_FOUND)
    message(FATAL_ERROR "GoogleTest is missing. On Debian or Ubuntu: apt-get install libgtest-dev. "
                        "To build without the C++ tests: -DENTREPOT_BUILD_TESTS=OFF.")
  endif()
  enable_testing()
  add_custom_target(unsanitized_tests)
  # ThreadSanitizer's fixed shadow does not fit every randomized address space (mmap_rnd_bits above 28).
  set(ENTREPOT_TEST_LAUNCHER "")
  if(ENTREPOT_SANITIZE MATCHES "thread")
    find_program(ENTREPOT_SETARCH setarch)
    if(ENTREPOT_SETARCH)
      execute_process(COMMAND ${ENTREPOT_SETARCH} ${CMAKE_HOST_SYSTEM_PROCESSOR} -R true
                      RESULT_VARIABLE setarch_result OUTPUT_QUIET ERROR_QUIET)
      if(setarch_result EQUAL 0)
        set(ENTREPOT_TEST_LAUNCHER ${ENTREPOT_SETARCH} ${CMAKE_HOST_SYSTEM_PROCESSOR} -R)
      endif()
    endif()
  endif()
  file(GLOB test_folders CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/core/tests/*/CMakeLists.txt")
  # Fakes first, because the other folders link them.
  foreach(list_file IN LISTS test_folders)
    get_filename_component(folder "${list_file}" DIRECTORY)
    get_filename_component(folder_name "${folder}" NAME)
    if(folder_name STREQUAL "fakes")
      add_subdirectory("${folder}" "${PROJECT_BINARY_DIR}/core/tests/${folder_name}")
    endif()
  endforeach()
  foreach(list_file IN LISTS test_folders)
    get_filename_component(folder "${list_file}" DIRECTORY)
    get_filename_component(folder_name "${folder}" NAME)
    if(NOT folder_name STREQUAL "fakes")
      add_subdirectory("${folder}" "${PROJECT_BINARY_DIR}/core/tests/${folder_name}")
    endif()
  endforeach()
  add_subdirectory("${PROJECT_SOURCE_DIR}/core/fuzz" "${PROJECT_BINARY_DIR}/core/fuzz")
endmacro()
