// SPDX-License-Identifier: Apache-2.0
// Whether a debugger that connects is this user's: who reaches the stub owns the guest.
#ifndef ALIBI_INSPECT_GDB_PEER_H_
#define ALIBI_INSPECT_GDB_PEER_H_

#include "base/file_descriptor.h"
#include "base/types.h"

namespace alibi::vmm::gdb {

class PeerCheck {
 public:
  // What it reads later is opened now.
  PeerCheck();

  enum class Verdict : u8 {
    kMine,     // this user's or root's; or from another host, where the user said to listen
    kForeign,  // another user's of this host
    kUnknown,  // from this host, and the kernel does not say whose
  };
  Verdict Judge(int client_fd) const;

 private:
  const FileDescriptor tcp_, tcp6_;  // the kernel's tables of connections
};

}  // namespace alibi::vmm::gdb

#endif  // ALIBI_INSPECT_GDB_PEER_H_
