# Stamps of the formats that processes of different builds share. Version numbers say what fits together, but only if
# somebody raises them; a stamp is computed from the text that defines a format, so that a change which nobody raised
# a version for is refused and not misread. Comments and white space do not count. Nothing but the sources takes part:
# the stamps are the same in a clone, in an unpacked archive and on every machine.

# Sets <result> to 32 bits, as a C++ literal, of the text of the files.
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

# The control memory, and the hash by which its index is read.
entrepot_stamp(layout_stamp core/src/shm/layout.h core/src/shm/locality.h core/src/base/id.h core/src/base/id.cpp core/src/base/hash.h)
# The messages of the socket and how they are encoded.
entrepot_stamp(protocol_stamp core/src/net/frame.h core/src/net/handshake.h core/src/net/object_messages.h
               core/src/net/session_messages.h core/src/base/wire.h core/include/entrepot/codes.h)
add_compile_definitions(ENTREPOT_LAYOUT_STAMP=${layout_stamp} ENTREPOT_PROTOCOL_STAMP=${protocol_stamp})

# What the Python sources expect of the extension is written in its stub. The extension is told which stub it was built
# beside, and the package checks that it is the one it has.
set(stub "${PROJECT_SOURCE_DIR}/core/python/entrepot/_core.pyi")
set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${stub}")
file(SHA256 "${stub}" ENTREPOT_API_STAMP)
