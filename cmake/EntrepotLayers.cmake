# Layers: the folders of core/src. Each has a CMakeLists.txt that calls
#
#   entrepot_library(<layer> <source>...)
#
# which defines the object library entrepot_<layer>. A source named main.cpp is left out of it, so that tests can link
# the layer; entrepot_add_daemon compiles it.
function(entrepot_library layer)
  set(sources ${ARGN})
  list(REMOVE_ITEM sources main.cpp)
  add_library(entrepot_${layer} OBJECT ${sources})
endfunction()

# Adds core/src/<layer> if it exists.
function(entrepot_add_layer layer)
  set(folder "${PROJECT_SOURCE_DIR}/core/src/${layer}")
  if(EXISTS "${folder}/CMakeLists.txt")
    add_subdirectory("${folder}" "${PROJECT_BINARY_DIR}/core/src/${layer}")
  endif()
endfunction()

# Collects the objects of the named layers that exist. An interface-only layer has none.
function(entrepot_objects result)
  set(objects)
  foreach(layer IN LISTS ARGN)
    if(TARGET entrepot_${layer})
      get_target_property(type entrepot_${layer} TYPE)
      if(type STREQUAL "OBJECT_LIBRARY")
        list(APPEND objects $<TARGET_OBJECTS:entrepot_${layer}>)
      endif()
    endif()
  endforeach()
  set(${result} ${objects} PARENT_SCOPE)
endfunction()

# libentrepot: the static library that clients link; installed only with the component "cpp".
function(entrepot_add_client_library)
  if(NOT TARGET entrepot_client)
    message(STATUS "Entrepot: core/src/client does not exist; libentrepot is not built")
    return()
  endif()
  entrepot_objects(objects base os shm net client)
  add_library(entrepot STATIC ${objects})
  target_include_directories(entrepot PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/core/include> $<INSTALL_INTERFACE:include>)
  install(TARGETS entrepot ARCHIVE DESTINATION lib COMPONENT cpp)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/core/include/" DESTINATION include COMPONENT cpp)
endfunction()

# entrepotd: keeper and daemon in one program, installed in the Python package, whose launcher runs it.
function(entrepot_add_daemon)
  set(main "${PROJECT_SOURCE_DIR}/core/src/daemon/main.cpp")
  if(NOT EXISTS "${main}" OR NOT TARGET entrepot_daemon)
    message(STATUS "Entrepot: core/src/daemon/main.cpp does not exist; entrepotd is not built")
    return()
  endif()
  if(NOT TARGET entrepotd)
    entrepot_objects(objects base os shm spill store net daemon)
    add_executable(entrepotd "${main}" ${objects})
  endif()
  if(NOT ENTREPOT_SANITIZE)
    # Independent of the machine's version of libstdc++.
    target_link_options(entrepotd PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  install(TARGETS entrepotd RUNTIME DESTINATION entrepot/bin COMPONENT python)
endfunction()

# entrepot-plasma-store: a client of the store that serves Plasma clients; installed beside entrepotd.
function(entrepot_add_plasma_store)
  if(NOT TARGET entrepot_plasma)
    return()
  endif()
  entrepot_objects(objects base os shm net client plasma)
  add_executable(entrepot-plasma-store "${PROJECT_SOURCE_DIR}/core/src/plasma/main.cpp" ${objects})
  if(NOT ENTREPOT_SANITIZE)
    target_link_options(entrepot-plasma-store PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  install(TARGETS entrepot-plasma-store RUNTIME DESTINATION entrepot/bin COMPONENT python)
endfunction()
