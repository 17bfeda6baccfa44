// SPDX-License-Identifier: Apache-2.0
// An image in a format of its own (qcow2, VMDK, VDI, VHDX): QEMU's `qemu-nbd` reads and writes it,
// as a child process (image_server.h) that libnbd talks to. The child ends with us, however we end:
// it sees its connection close, writes what it holds back and closes the image.
#ifndef ALIBI_DEVICES_BLOCK_NBD_IMAGE_H_
#define ALIBI_DEVICES_BLOCK_NBD_IMAGE_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "devices/block/image.h"
#include "devices/block/references.h"

struct nbd_handle;

namespace alibi::block {

struct NbdOptions {
  std::string path;
  std::string format;  // a block driver of QEMU's; never left to a guess
  bool read_only = false;
  std::vector<NamedFile> others = {};  // that the image may use; none: it names none
  bool confined = true;                // the server can open these files alone
};

class NbdImage final : public BlockImage {
 public:
  // The program's full path, or empty if it is not installed.
  static std::string FindProgram();

  static Result<std::unique_ptr<BlockImage>> Open(const std::string& program,
                                                  const NbdOptions& options);
  // Waits until the child has closed the image.
  ~NbdImage() override;

  IoResult Read(u64 offset, std::span<u8> data) override;
  IoResult Write(u64 offset, std::span<const u8> data) override;
  IoResult Flush() override;
  IoResult Discard(u64 offset, u64 bytes) override;
  IoResult WriteZeroes(u64 offset, u64 bytes, bool may_unmap) override;

 private:
  NbdImage(nbd_handle* handle, pid_t server) : handle_(handle), server_(server) {}

  nbd_handle* const handle_;
  const pid_t server_;
  int flush_error_ = 0;
};

}  // namespace alibi::block

#endif  // ALIBI_DEVICES_BLOCK_NBD_IMAGE_H_
