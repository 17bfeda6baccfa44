// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value, or a failure with a message a person can act on.
#ifndef ALIBI_INCLUDE_ALIBI_RESULT_H_
#define ALIBI_INCLUDE_ALIBI_RESULT_H_

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <variant>

namespace alibi {

// One clear line: what is wrong and what to do. No trailing newline.
struct Error {
  std::string message;
};

// Asking a Result for what it does not hold is a bug of the caller: it says so and aborts.
[[noreturn, gnu::noinline, gnu::cold]] inline void ResultMisused(const char* what,
                                                                 const char* message) {
  std::fprintf(stderr, "alibi: %s%s\n", what, message);
  std::abort();
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }
  // Only if ok().
  T& value() {
    RequireValue();
    return *std::get_if<T>(&state_);
  }
  const T& value() const {
    RequireValue();
    return *std::get_if<T>(&state_);
  }
  // Only if not ok().
  const Error& error() const {
    if (ok()) ResultMisused("Result::error() of a success", "");
    return *std::get_if<Error>(&state_);
  }
  T& operator*() { return value(); }
  T* operator->() { return &value(); }

 private:
  void RequireValue() const {
    if (ok()) return;
    ResultMisused("Result::value() of a failure: ", std::get_if<Error>(&state_)->message.c_str());
  }

  std::variant<T, Error> state_;
};

struct Ok {};
using Status = Result<Ok>;

}  // namespace alibi

#endif  // ALIBI_INCLUDE_ALIBI_RESULT_H_
