# Layers: the folders of core/src. Each has a CMakeLists.txt that calls
#
#   entrepot_library(<layer> <source>...)
#
# which makes the object library entrepot_<layer>. A source named main.cpp does not belong in it: it is the
# program's own (see entrepot_add_daemon), so that tests can link the layer.
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

# libentrepot: what a client links. Static; installed only with the component "cpp".
function(entrepot_add_client_library)
  if(NOT TARGET entrepot_client)
    message(STATUS "Entrepot: core/src/client is not there yet; libentrepot is left out")
    return()
  endif()
  entrepot_objects(objects base os shm net client)
  add_library(entrepot STATIC ${objects})
  target_include_directories(entrepot PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/core/include> $<INSTALL_INTERFACE:include>)
  install(TARGETS entrepot ARCHIVE DESTINATION lib COMPONENT cpp)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/core/include/" DESTINATION include COMPONENT cpp)
endfunction()

# entrepotd: keeper and daemon, one program. It lies inside the Python package, where its launcher looks for it.
function(entrepot_add_daemon)
  set(main "${PROJECT_SOURCE_DIR}/core/src/daemon/main.cpp")
  if(NOT EXISTS "${main}" OR NOT TARGET entrepot_daemon)
    message(STATUS "Entrepot: core/src/daemon/main.cpp is not there yet; entrepotd is left out")
    return()
  endif()
  if(NOT TARGET entrepotd)
    entrepot_objects(objects base os shm spill store net daemon)
    add_executable(entrepotd "${main}" ${objects})
  endif()
  if(NOT ENTREPOT_SANITIZE)
    # One file that runs wherever glibc does, whatever libstdc++ the machine has.
    target_link_options(entrepotd PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  install(TARGETS entrepotd RUNTIME DESTINATION entrepot/bin COMPONENT python)
endfunction()
