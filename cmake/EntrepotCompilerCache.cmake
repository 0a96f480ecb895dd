# Compiles through ccache where it is installed (presets only: ENTREPOT_COMPILER_CACHE). Paths below the source folder are
# hashed relative to it, so that all clones and worktrees on a machine share their objects.
option(ENTREPOT_COMPILER_CACHE "Compile through ccache if it is installed" OFF)
if(ENTREPOT_COMPILER_CACHE)
  find_program(ENTREPOT_CCACHE ccache)
  if(ENTREPOT_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER
        "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
        "${ENTREPOT_CCACHE}")
    message(STATUS "Entrepot: compiling through ${ENTREPOT_CCACHE}")
  endif()
endif()
