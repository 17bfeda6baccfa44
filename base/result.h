// Result<T>: a value, or an environment failure with a message a person can act on.
#ifndef ALIBI_BASE_RESULT_H_
#define ALIBI_BASE_RESULT_H_

#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace alibi {

// One clear line: what is wrong and what to do. No trailing newline.
struct Error {
  std::string message;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }
  T& value() {
    ALIBI_CHECK(ok(), "Result::value() of a failure");
    return std::get<T>(state_);
  }
  const T& value() const {
    ALIBI_CHECK(ok(), "Result::value() of a failure");
    return std::get<T>(state_);
  }
  const Error& error() const {
    ALIBI_CHECK(!ok(), "Result::error() of a success");
    return std::get<Error>(state_);
  }
  T& operator*() { return value(); }
  T* operator->() { return &value(); }

 private:
  std::variant<T, Error> state_;
};

struct Ok {};
using Status = Result<Ok>;

}  // namespace alibi

#endif  // ALIBI_BASE_RESULT_H_
