// Status and Result: error handling throughout the core, which throws no exceptions.
//
// A message says what was wrong, with which value, and what to do next. A success allocates no memory, so both types
// may be used on the hot path.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "entrepot/codes.h"

namespace entrepot {

// Upper-camel-case name of a code, as in the Python exceptions, e.g. "StoreFull". "Unknown" for unlisted numbers.
[[nodiscard]] std::string_view code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  Status(Code code, std::string message, bool retryable = false)
      : code_(code), retryable_(retryable), message_(std::move(message)) {}

  static Status ok() { return {}; }

  [[nodiscard]] bool is_ok() const { return code_ == Code::kOk; }
  [[nodiscard]] Code code() const { return code_; }
  // True if the same request may succeed later without any action by the caller.
  [[nodiscard]] bool retryable() const { return retryable_; }
  [[nodiscard]] const std::string& message() const { return message_; }
  [[nodiscard]] std::string to_string() const;  // "StoreFull: message", or "Ok"

  // Prepends `context` and ": " to the message of a failure; a success stays a success.
  Status with_context(std::string_view context) const;

 private:
  Code code_ = Code::kOk;
  bool retryable_ = false;
  std::string message_;
};

// A value, or the Status that says why there is none. Never a success without a value.
template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor): `return value;`
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor): `return status;`
    if (status_.is_ok()) status_ = Status(Code::kInternal, "a result was made from a success without a value");
  }

  [[nodiscard]] bool is_ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] Code code() const { return status_.code(); }

  // Valid only if is_ok().
  [[nodiscard]] T& value() & { return *value_; }
  [[nodiscard]] const T& value() const& { return *value_; }
  [[nodiscard]] T&& value() && { return std::move(*value_); }
  [[nodiscard]] T take() { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

namespace internal {
inline const Status& status_of(const Status& status) { return status; }
template <class T>
const Status& status_of(const Result<T>& result) {
  return result.status();
}
}  // namespace internal

}  // namespace entrepot

#define ENTREPOT_JOIN_INNER(a, b) a##b
#define ENTREPOT_JOIN(a, b) ENTREPOT_JOIN_INNER(a, b)

// Returns the Status of `expression` (a Status or a Result) from the current function if it is a failure.
#define RETURN_IF_ERROR(expression)                                                          \
  do {                                                                                       \
    auto&& entrepot_outcome = (expression);                                                  \
    if (!entrepot_outcome.is_ok()) return ::entrepot::internal::status_of(entrepot_outcome); \
  } while (false)

// ASSIGN_OR_RETURN(auto x, function()): assigns the value of a Result, or returns its Status.
#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_IMPL(ENTREPOT_JOIN(entrepot_result_, __LINE__), target, expression)
#define ASSIGN_OR_RETURN_IMPL(result, target, expression) \
  auto result = (expression);                             \
  if (!result.is_ok()) return result.status();            \
  target = std::move(result).value()
