# The extension entrepot._core. core/src/bindings/CMakeLists.txt calls
#
#   entrepot_extension(<source>...)
#
# One binary serves every Python from 3.12 on (stable ABI); older versions need one each, and so do free-threaded ones,
# for which FREE_THREADED declares that the extension does without the GIL.
function(entrepot_extension)
  nanobind_add_module(_core NB_STATIC STABLE_ABI FREE_THREADED LTO NOMINSIZE ${ARGN})
  target_link_libraries(_core PRIVATE entrepot)
endfunction()

macro(entrepot_add_python_extension)
  if(EXISTS "${PROJECT_SOURCE_DIR}/core/src/bindings/CMakeLists.txt" AND TARGET entrepot)
    if(CMAKE_VERSION VERSION_LESS 3.26)
      # Without Development.SABIModule (CMake 3.26), the extension is built for one Python version.
      find_package(Python 3.10 COMPONENTS Interpreter Development.Module)
    else()
      find_package(Python 3.10 COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.SABIModule)
    endif()
    if(NOT Python_FOUND)
      message(FATAL_ERROR "Python headers are missing. On Debian or Ubuntu: apt-get install python3-dev. "
                          "To build without the Python extension: -DENTREPOT_BUILD_PYTHON=OFF.")
    endif()
    execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
                    OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE nanobind_ROOT RESULT_VARIABLE nanobind_result
                    ERROR_QUIET)
    if(NOT nanobind_result EQUAL 0)
      message(FATAL_ERROR "nanobind is missing in ${Python_EXECUTABLE}. In an environment of the project: make setup. "
                          "To build without the Python extension: -DENTREPOT_BUILD_PYTHON=OFF.")
    endif()
    find_package(nanobind CONFIG REQUIRED)
    add_subdirectory("${PROJECT_SOURCE_DIR}/core/src/bindings" "${PROJECT_BINARY_DIR}/core/src/bindings")
    foreach(target nanobind-static nanobind-static-abi3 nanobind-static-ft _core)
      if(TARGET ${target} AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
        # nanobind uses stderr without including <cstdio>; libc++ does not include it indirectly.
        target_compile_options(${target} PRIVATE "SHELL:-include cstdio")
      endif()
    endforeach()
    foreach(target nanobind-static nanobind-static-abi3 nanobind-static-ft)
      if(TARGET ${target})
        target_compile_options(${target} PRIVATE -w)
      endif()
    endforeach()
    foreach(target nanobind-static nanobind-static-abi3 nanobind-static-ft _core)
      if(TARGET ${target})
        set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)  # nanobind's sources clash
      endif()
    endforeach()
    if(TARGET _core)
      install(TARGETS _core LIBRARY DESTINATION entrepot COMPONENT python)
      # For `entrepot explain`, which takes them from docs in a source tree.
      install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs/errors/" DESTINATION entrepot/error_pages COMPONENT python
              FILES_MATCHING PATTERN "E*.md")
    endif()
  else()
    message(STATUS "Entrepot: core/src/bindings does not exist; the Python extension is not built")
  endif()
endmacro()
