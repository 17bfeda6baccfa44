// An image in a format of its own (qcow2, VMDK, VDI, VHDX): QEMU's `qemu-nbd` reads and writes it,
// as a child process that libnbd talks to. The child ends with us, however we end: it sees its
// connection close, writes what it holds back and closes the image.
#ifndef ALIBI_DEVICES_BLOCK_NBD_IMAGE_H_
#define ALIBI_DEVICES_BLOCK_NBD_IMAGE_H_

#include <memory>
#include <string>

#include "base/result.h"
#include "devices/block/image.h"

struct nbd_handle;

namespace alibi::block {

struct NbdOptions {
  std::string path;
  std::string format;  // a block driver of QEMU's; never left to a guess
  bool read_only = false;
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
  explicit NbdImage(nbd_handle* handle) : handle_(handle) {}

  nbd_handle* const handle_;
  int flush_error_ = 0;
};

}  // namespace alibi::block

#endif  // ALIBI_DEVICES_BLOCK_NBD_IMAGE_H_
