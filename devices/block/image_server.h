// SPDX-License-Identifier: Apache-2.0
// Starts qemu-nbd as a child that can do nothing but serve its image: it opens the files that it is
// for (base/sandbox/file_rules.h) besides the system's libraries, has no network, makes no
// processes and reaches none.
#ifndef ALIBI_DEVICES_BLOCK_IMAGE_SERVER_H_
#define ALIBI_DEVICES_BLOCK_IMAGE_SERVER_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "devices/block/references.h"

namespace alibi::block {

struct ImageServer {
  pid_t process;
  int connection;  // a socket that speaks NBD; the server ends when it is closed
};

struct ServerOptions {
  std::vector<std::string> command;  // the program's path and its arguments
  std::vector<NamedFile> files;
  bool confined = true;
  int messages = -1;  // a file for what it says
};
Result<ImageServer> StartImageServer(const ServerOptions& options);

}  // namespace alibi::block

#endif  // ALIBI_DEVICES_BLOCK_IMAGE_SERVER_H_
