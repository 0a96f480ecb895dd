# Stamps of the formats that processes of different builds share. Version numbers protect only if they are raised; a
# stamp is a hash of the sources that define a format, so a change without a new version number is refused instead of
# misread. Comments and white space are ignored. Only these sources are hashed, so the stamps are the same in a clone,
# in an unpacked archive and on every machine.

# Sets <result> to a 32-bit hash of the files' text, as a C++ literal.
function(entrepot_stamp result)
  set(text "")
  foreach(file IN LISTS ARGN)
    set(path "${PROJECT_SOURCE_DIR}/${file}")
    set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
    file(READ "${path}" part)
    string(REGEX REPLACE "//[^\n]*" "" part "${part}")
    string(REGEX REPLACE "[ \t\r\n]+" " " part "${part}")
    string(APPEND text "${part}")
  endforeach()
  string(SHA256 digest "${text}")
  string(SUBSTRING "${digest}" 0 8 digest)
  set(${result} "0x${digest}U" PARENT_SCOPE)
endfunction()

# The control memory, and the hash function of its index.
entrepot_stamp(layout_stamp core/src/shm/layout.h core/src/shm/locality.h core/src/base/id.h core/src/base/id.cpp core/src/base/hash.h)
# The socket's messages and their encoding.
entrepot_stamp(protocol_stamp core/src/net/frame.h core/src/net/handshake.h core/src/net/object_messages.h
               core/src/net/session_messages.h core/src/net/stream_messages.h core/src/base/wire.h core/include/entrepot/codes.h)
add_compile_definitions(ENTREPOT_LAYOUT_STAMP=${layout_stamp} ENTREPOT_PROTOCOL_STAMP=${protocol_stamp})

# The stub declares the interface that the Python sources expect of the extension. Its hash is compiled into the
# extension, and the package compares it with that of its own stub.
set(stub "${PROJECT_SOURCE_DIR}/core/python/entrepot/_core.pyi")
set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${stub}")
file(SHA256 "${stub}" ENTREPOT_API_STAMP)
