// SPDX-License-Identifier: Apache-2.0
// A key of the host's CPU (SDM vol. 3, 4.6.2) that keeps memory of this process shut, except to a
// thread in a ProtectionKey::Scope.
#ifndef ALIBI_BASE_PROTECTION_KEY_H_
#define ALIBI_BASE_PROTECTION_KEY_H_

#include <sys/mman.h>

#include "base/types.h"

namespace alibi {

class ProtectionKey {
 public:
  // One for the whole process: there are 15, and as many machines as a process likes.
  static const ProtectionKey& OfProcess() {
    static const ProtectionKey key;
    return key;
  }
  ProtectionKey(const ProtectionKey&) = delete;
  ProtectionKey& operator=(const ProtectionKey&) = delete;

  // False: the host's CPU or kernel has none, or the process has used them up.
  bool exists() const { return key_ >= 0; }

  // Shuts memory that can be read and written. False if it stays open.
  bool Shut(void* memory, u64 bytes) const {
    return exists() && pkey_mprotect(memory, bytes, PROT_READ | PROT_WRITE, key_) == 0;
  }

  // Opens what is shut to this thread. Scopes nest, and the inner ones are cheap. A signal handler
  // begins outside of all of them, and what it interrupted goes on inside: Linux gives handlers a
  // PKRU of their own.
  class Scope {
   public:
    explicit Scope(const ProtectionKey& key) : key_(key) {
      if (!key_.exists()) return;
      before_ = ReadPkru();
      const u32 open = before_ & ~(3u << (2 * key_.key_));
      opens_ = open != before_;
      if (opens_) WritePkru(open);
    }
    ~Scope() {
      if (opens_) WritePkru(before_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    static u32 ReadPkru() {
      u32 value;
      asm volatile("rdpkru" : "=a"(value) : "c"(0) : "rdx");
      return value;
    }
    static void WritePkru(u32 value) {
      asm volatile("wrpkru" : : "a"(value), "c"(0), "d"(0) : "memory");
    }
    const ProtectionKey& key_;
    u32 before_ = 0;
    bool opens_ = false;
  };

 private:
  // Other threads have no access, either: so Linux starts them.
  ProtectionKey() : key_(pkey_alloc(0, PKEY_DISABLE_ACCESS)) {}
  const int key_;
};

}  // namespace alibi

#endif  // ALIBI_BASE_PROTECTION_KEY_H_
