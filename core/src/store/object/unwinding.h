// Whether a scope is left by an exception. The daemon throws none, and dies of those of the standard library; tests
// throw one to simulate a death. What a death leaves is for the next daemon to adopt: nothing may tidy it up on the way.
#pragma once

#include <exception>

namespace entrepot {

// A member of what tidies up in its destructor.
class Unwinding {
 public:
  [[nodiscard]] bool in_progress() const { return std::uncaught_exceptions() > before_; }

 private:
  int before_ = std::uncaught_exceptions();
};

}  // namespace entrepot
