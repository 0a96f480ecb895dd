#include "os/library.h"

#include <dlfcn.h>

#include "base/text.h"

namespace entrepot::os {

Result<std::shared_ptr<const Library>> Library::open(const std::string& name) {
  void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return Status(Code::kStoreUnavailable,
                  concat("cannot load the library ", name, ": ", why != nullptr ? why : "unknown"));
  }
  return std::shared_ptr<const Library>(new Library(handle));
}

Library::~Library() { ::dlclose(handle_); }

void* Library::symbol(const char* name) const { return ::dlsym(handle_, name); }

}  // namespace entrepot::os
