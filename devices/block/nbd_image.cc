// SPDX-License-Identifier: Apache-2.0
#include "devices/block/nbd_image.h"

#include <errno.h>
#include <libnbd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <vector>

#include "base/file_descriptor.h"
#include "base/memory_file.h"
#include "devices/block/image_server.h"

namespace alibi::block {
namespace {

// The protocol's lengths have 32 bits, and the server takes 32 MB of data at once.
constexpr u64 kMaxData = u64{16} << 20;
constexpr u64 kMaxRange = u64{1} << 30;
constexpr u64 kMaxWords = 4096;  // of the server's messages; it can write no more

int LastError() {
  const int error = nbd_get_errno();
  return error == 0 ? EIO : error;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<u8>(c) < 0x20) {
      constexpr char kDigits[] = "0123456789abcdef";
      quoted += {'\\', 'u', '0', '0', kDigits[c >> 4], kDigits[c & 15]};
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

bool IsBlockDevice(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISBLK(info.st_mode);
}

// The image as a node of QEMU's. Without other files none is looked for, whatever the image says.
std::string Description(const NbdOptions& options) {
  const bool may_have_backing = options.format == "qcow2" || options.format == "vmdk";
  std::string node = "json:{\"driver\":" + Quoted(options.format);
  if (may_have_backing && options.others.empty()) node += ",\"backing\":null";
  for (const NamedFile& file : options.others) {
    if (!file.holds_data) continue;
    node += ",\"data-file\":{\"driver\":\"file\",\"filename\":" + Quoted(file.path) + "}";
    break;
  }
  return node + ",\"file\":{\"driver\":\"" +
         (IsBlockDevice(options.path) ? "host_device" : "file") +
         "\",\"filename\":" + Quoted(options.path) + "}}";
}

// What the child said on stderr: its last line, without the program's name. Behind it are zeroes.
std::string LastWords(int fd) {
  char text[kMaxWords];
  const ssize_t size = pread(fd, text, sizeof text, 0);
  std::istringstream lines(std::string(text, size > 0 ? strnlen(text, kMaxWords) : 0));
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) last = line;
  }
  if (const std::size_t colon = last.find("': "); colon != std::string::npos) {
    last = last.substr(colon + 3);
  }
  return last;
}

template <class Step>
IoResult InPieces(u64 offset, u64 bytes, u64 most, Step step) {
  while (bytes != 0) {
    const u64 piece = std::min(bytes, most);
    if (step(offset, piece) != 0) return {LastError()};
    offset += piece;
    bytes -= piece;
  }
  return {};
}

}  // namespace

std::string NbdImage::FindProgram() {
  const char* path = getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string program = folder + "/qemu-nbd";
    if (!folder.empty() && access(program.c_str(), X_OK) == 0) return program;
  }
  return "";
}

Result<std::unique_ptr<BlockImage>> NbdImage::Open(const std::string& program,
                                                   const NbdOptions& options) {
  const FileDescriptor words(CreateMemoryFile("qemu-nbd", kMaxWords));
  ServerOptions server;
  server.command = {program, "--cache=writeback", "--discard=unmap"};
  if (options.read_only) server.command.push_back("--read-only");
  server.command.push_back(Description(options));
  server.files = options.others;
  for (NamedFile& file : server.files) file.written = file.written && !options.read_only;
  server.files.push_back({options.path, !options.read_only});
  server.confined = options.confined;
  server.messages = words.get();
  auto started = StartImageServer(server);
  if (!started.ok()) return started.error();
  nbd_handle* handle = nbd_create();
  if (handle == nullptr) {
    close(started->connection);
    return Error{std::string("libnbd: ") + nbd_get_error()};
  }
  const bool connected = nbd_connect_socket(handle, started->connection) == 0;
  const std::string problem = connected ? "" : nbd_get_error();
  std::unique_ptr<NbdImage> opened(new NbdImage(handle, started->process));
  if (!connected) {
    opened.reset();  // when it has ended, it has said why
    const std::string said = words.get() < 0 ? "" : LastWords(words.get());
    const bool locked = said.find("lock") != std::string::npos;
    return Error{"'" + options.path + "' as " + options.format + ": " +
                 (said.empty() ? problem : said) +
                 (locked ? " Is it open in another program?" : "")};
  }
  const i64 size = nbd_get_size(handle);
  if (size < static_cast<i64>(kSectorBytes)) {
    return Error{"'" + options.path + "' as " + options.format + ": the disk is empty"};
  }
  opened->size_bytes_ = static_cast<u64>(size) / kSectorBytes * kSectorBytes;
  opened->read_only_ = options.read_only || nbd_is_read_only(handle) == 1;
  return std::unique_ptr<BlockImage>(std::move(opened));
}

NbdImage::~NbdImage() {
  nbd_shutdown(handle_, 0);
  nbd_close(handle_);
  while (waitpid(server_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

IoResult NbdImage::Read(u64 offset, std::span<u8> data) {
  u8* const to = data.data();
  return InPieces(offset, data.size(), kMaxData, [&](u64 at, u64 bytes) {
    return nbd_pread(handle_, to + (at - offset), bytes, at, 0);
  });
}

IoResult NbdImage::Write(u64 offset, std::span<const u8> data) {
  if (read_only_) return {EROFS};
  const u8* const from = data.data();
  return InPieces(offset, data.size(), kMaxData, [&](u64 at, u64 bytes) {
    return nbd_pwrite(handle_, from + (at - offset), bytes, at, 0);
  });
}

IoResult NbdImage::Flush() {
  if (flush_error_ == 0 && !read_only_ && nbd_flush(handle_, 0) != 0) flush_error_ = LastError();
  return {flush_error_};
}

IoResult NbdImage::Discard(u64 offset, u64 bytes) {
  if (read_only_) return {EROFS};
  if (nbd_can_trim(handle_) != 1) return {};
  return InPieces(offset, bytes, kMaxRange,
                  [&](u64 at, u64 piece) { return nbd_trim(handle_, piece, at, 0); });
}

IoResult NbdImage::WriteZeroes(u64 offset, u64 bytes, bool may_unmap) {
  if (read_only_) return {EROFS};
  return InPieces(offset, bytes, kMaxRange, [&](u64 at, u64 piece) {
    return nbd_zero(handle_, piece, at, may_unmap ? 0 : LIBNBD_CMD_FLAG_NO_HOLE);
  });
}

}  // namespace alibi::block
