// An optional shared library: loaded at run time if present, never linked.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"

namespace entrepot::os {

class Library {
 public:
  // `name` as the loader knows it, e.g. "liblz4.so.1". kStoreUnavailable if it is not installed.
  [[nodiscard]] static Result<std::shared_ptr<const Library>> open(const std::string& name);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Null if there is no such symbol. The caller must know its type.
  template <class Function>
  [[nodiscard]] Function* function(const char* name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }

 private:
  explicit Library(void* handle) : handle_(handle) {}
  [[nodiscard]] void* symbol(const char* name) const;

  void* handle_;
};

}  // namespace entrepot::os
