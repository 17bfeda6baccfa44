// SPDX-License-Identifier: Apache-2.0
// The labels of stub.S that the VMM knows. The stub is copied; its own place in this program means
// nothing.
#ifndef ALIBI_DIRECT_STUB_SYMBOLS_H_
#define ALIBI_DIRECT_STUB_SYMBOLS_H_

#include "base/types.h"

extern "C" {
extern const char alibi_stub[], alibi_stub_end[];
extern const char alibi_stub_handler[], alibi_stub_first[], alibi_stub_start_watch[];
extern const char alibi_stub_restorer[];
// Behind its system calls.
extern const char alibi_stub_after_stop[], alibi_stub_after_call[], alibi_stub_after_return[];
extern const char alibi_stub_after_exit[];
}

namespace alibi::direct {

inline u64 StubOffset(const char* label) { return static_cast<u64>(label - alibi_stub); }

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_STUB_SYMBOLS_H_
