// SPDX-License-Identifier: Apache-2.0
// A system call that a signal has interrupted is made again.
#ifndef ALIBI_DIRECT_RETRIED_H_
#define ALIBI_DIRECT_RETRIED_H_

#include <cerrno>

namespace alibi::direct {

template <class Call>
auto Retried(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_RETRIED_H_
