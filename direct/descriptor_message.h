// SPDX-License-Identifier: Apache-2.0
// Messages with a descriptor in them, over a UNIX socket. System calls only.
#ifndef ALIBI_DIRECT_DESCRIPTOR_MESSAGE_H_
#define ALIBI_DIRECT_DESCRIPTOR_MESSAGE_H_

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "base/types.h"
#include "direct/retried.h"

namespace alibi::direct {

class DescriptorMessage {
 public:
  DescriptorMessage(void* data, u64 bytes) : data_{data, bytes} {
    message_.msg_iov = &data_;
    message_.msg_iovlen = 1;
    message_.msg_control = control_;
    message_.msg_controllen = sizeof(control_);
  }
  msghdr* get() { return &message_; }
  cmsghdr* header() { return reinterpret_cast<cmsghdr*>(control_); }

 private:
  iovec data_;
  alignas(cmsghdr) char control_[CMSG_SPACE(sizeof(int))] = {};
  msghdr message_{};
};

// fd: -1, none. False: nobody will read it.
inline bool SendDescriptor(int socket, const void* data, u64 bytes, int fd) {
  DescriptorMessage message(const_cast<void*>(data), bytes);
  message.header()->cmsg_level = SOL_SOCKET;
  message.header()->cmsg_type = SCM_RIGHTS;
  message.header()->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(message.header()), &fd, sizeof(int));
  if (fd < 0) message.get()->msg_controllen = 0;
  return Retried([&] { return syscall(SYS_sendmsg, socket, message.get(), MSG_NOSIGNAL); }) ==
         static_cast<long>(bytes);
}

// Waits for one. *fd: the caller's from now on; -1: there was none. False: whoever could send one
// has gone, or has sent something else.
inline bool ReceiveDescriptor(int socket, void* data, u64 bytes, int* fd) {
  DescriptorMessage message(data, bytes);
  const long received =
      Retried([&] { return syscall(SYS_recvmsg, socket, message.get(), MSG_CMSG_CLOEXEC); });
  *fd = -1;
  if (received >= 0 && message.get()->msg_controllen >= CMSG_LEN(sizeof(int)) &&
      message.header()->cmsg_type == SCM_RIGHTS) {
    std::memcpy(fd, CMSG_DATA(message.header()), sizeof(int));
  }
  return received == static_cast<long>(bytes);
}

}  // namespace alibi::direct

#endif  // ALIBI_DIRECT_DESCRIPTOR_MESSAGE_H_
