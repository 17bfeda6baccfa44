// SPDX-License-Identifier: Apache-2.0
#include "base/memory_file.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "base/file_descriptor.h"

namespace alibi {
namespace {

constexpr u64 kBytes = 16384;

TEST_CASE("A memory file keeps its size") {
  const FileDescriptor file(CreateMemoryFile("test", kBytes));
  REQUIRE(file.get() >= 0);
  struct stat info {};
  REQUIRE(fstat(file.get(), &info) == 0);
  CHECK(info.st_size == kBytes);
  for (const u64 bytes : {u64{0}, kBytes - 4096, kBytes + 4096}) {
    INFO(bytes);
    CHECK((ftruncate(file.get(), static_cast<off_t>(bytes)) == -1 && errno == EPERM));
  }
  const char byte = 1;
  CHECK((pwrite(file.get(), &byte, 1, kBytes) == -1 && errno == EPERM));
  CHECK(pwrite(file.get(), &byte, 1, kBytes - 1) == 1);
  CHECK((fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE) == -1 && errno == EPERM));
  CHECK((fcntl(file.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

// As translated code needs it; and a removed memory slot gives its pages back.
TEST_CASE("A memory file can be mapped as code and have holes punched") {
  const FileDescriptor file(CreateMemoryFile("test", kBytes));
  void* code = mmap(nullptr, kBytes, PROT_READ | PROT_EXEC, MAP_SHARED, file.get(), 0);
  REQUIRE(code != MAP_FAILED);
  CHECK(fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0);
  munmap(code, kBytes);
}

}  // namespace
}  // namespace alibi
