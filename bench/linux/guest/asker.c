/* SPDX-License-Identifier: Apache-2.0 */
// The client of a server that a machine runs: it is on the host, beside the machine, and begins
// when a row of debian.inc asks for it (tools/linux/debian/web.sh), as ApacheBench with so many
// clients would: one connection for each page.
//
// The row sends a line "/PAGE COUNT" to the asker's port and gets a line back, which is the same on
// every machine: how many pages came, how many bytes, and a checksum; or "failed: REASON".
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/linux/guest/linuxbench.h"

// libslirp listens at a forwarded port for as many connections at once as wait here, two: the host
// would lose more, and they would come seconds later or never, on every VMM that forwards by it.
enum { kClients = 2, kMostBytes = 4 << 20, kPatienceSeconds = 60 };

// Of one client, as it goes through a pipe.
struct Pages {
  uint64_t count, bytes, sum;
  char error[64];  // "": all came
};

// A socket with a port that nobody had, and that port.
static int Bind(struct in_addr host, unsigned* port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = host};
  socklen_t size = sizeof(address);
  if (fd < 0 || bind(fd, (struct sockaddr*)&address, sizeof(address)) != 0 ||
      getsockname(fd, (struct sockaddr*)&address, &size) != 0) {
    Die("no port");
  }
  *port = ntohs(address.sin_port);
  return fd;
}

// The whole answer, or less than nothing.
static ssize_t Get(const struct sockaddr_in* server, const char* page, char* answer) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const struct timeval patience = {.tv_sec = kPatienceSeconds};
  char request[256];
  const int length = snprintf(request, sizeof(request), "GET %s HTTP/1.0\r\n\r\n", page);
  ssize_t n = -1, size = 0;
  if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0 &&
      connect(fd, (const struct sockaddr*)server, sizeof(*server)) == 0 &&
      write(fd, request, (size_t)length) == length) {
    while ((n = read(fd, answer + size, (size_t)(kMostBytes - size))) > 0) size += n;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return n < 0 ? -1 : size;
}

static struct Pages AskFor(const struct sockaddr_in* server, const char* page, unsigned count) {
  static char answer[kMostBytes], earlier[kMostBytes];
  static const char kProtocol[] = "HTTP/1.1", kGood[] = " 200 ", kEnd[] = "\r\n\r\n";
  struct Pages pages = {0};
  size_t earlier_size = 0;
  uint64_t sum = kSumStart;
  for (unsigned i = 0; i < count; ++i) {
    const ssize_t size = Get(server, page, answer);
    if (size < 0) {
      snprintf(pages.error, sizeof(pages.error), "%s", strerror(errno));
      return pages;
    }
    const char* body = memmem(answer, (size_t)size, kEnd, sizeof(kEnd) - 1);
    if (body == NULL || memcmp(answer + sizeof(kProtocol) - 1, kGood, sizeof(kGood) - 1) != 0) {
      const char* line_end = memchr(answer, '\r', (size_t)size);
      snprintf(pages.error, sizeof(pages.error), "the answer: %.*s",
               line_end == NULL ? 0 : (int)(line_end - answer), answer);
      return pages;
    }
    body += sizeof(kEnd) - 1;
    const size_t bytes = (size_t)(answer + size - body);
    // The client's own time shall be small beside the server's.
    if (i == 0 || bytes != earlier_size || memcmp(body, earlier, bytes) != 0) {
      sum = Sum(kSumStart, body, bytes);
      memcpy(earlier, body, bytes);
      earlier_size = bytes;
    }
    ++pages.count;
    pages.bytes += bytes;
    pages.sum += sum;
  }
  return pages;
}

// Answers one row, whose server is where it asked from.
static void Serve(int row, unsigned port) {
  char line[256] = "", page[128];
  unsigned count;
  struct sockaddr_in server;
  socklen_t address_size = sizeof(server);
  if (getpeername(row, (struct sockaddr*)&server, &address_size) != 0) Die("getpeername");
  server.sin_port = htons((uint16_t)port);
  const ssize_t n = read(row, line, sizeof(line) - 1);
  if (n <= 0 || sscanf(line, "%127s %u", page, &count) != 2) return;
  int ends[2];
  if (pipe(ends) != 0) Die("pipe");
  for (unsigned i = 0; i < kClients; ++i) {
    const int child = fork();
    if (child < 0) Die("fork");
    if (child != 0) continue;
    const struct Pages pages = AskFor(&server, page, (count + i) / kClients);
    _exit(write(ends[1], &pages, sizeof(pages)) == sizeof(pages) ? 0 : 1);
  }
  close(ends[1]);
  struct Pages all = {0}, one;
  while (read(ends[0], &one, sizeof(one)) == sizeof(one)) {
    all.count += one.count;
    all.bytes += one.bytes;
    all.sum += one.sum;
    if (one.error[0] != 0) memcpy(all.error, one.error, sizeof(all.error));
  }
  close(ends[0]);
  for (unsigned i = 0; i < kClients; ++i) WaitFor(-1);
  if (all.error[0] != 0 || all.count != count) {
    dprintf(row, "failed: %llu of %u pages came; %s\n", (unsigned long long)all.count, count,
            all.error);
  } else {
    dprintf(row, "%u pages, %llu bytes, check %016llx\n", count, (unsigned long long)all.bytes,
            (unsigned long long)all.sum);
  }
}

// `word` with the ports' numbers in their places.
static char* WithPorts(const char* word, unsigned asker, unsigned server) {
  char* text = NULL;
  size_t size = 0;
  FILE* out = open_memstream(&text, &size);
  if (out == NULL) Die("memory");
  while (*word != 0) {
    const int is_asker = strncmp(word, kAskerPlace, strlen(kAskerPlace)) == 0;
    if (is_asker || strncmp(word, kServerPlace, strlen(kServerPlace)) == 0) {
      fprintf(out, "%u", is_asker ? asker : server);
      word += strlen(is_asker ? kAskerPlace : kServerPlace);
    } else {
      fputc(*word++, out);
    }
  }
  fclose(out);
  return text;
}

void RunBeside(const char* address, char** words) {
  unsigned asker, server;
  struct in_addr host;
  if (inet_aton(address, &host) == 0) Die(address);
  const int rows = Bind(host, &asker);
  if (listen(rows, 1) != 0) Die("listen");
  // Free again for the machine.
  close(Bind(host, &server));
  const int parent = getpid(), child = fork();
  if (child < 0) Die("fork");
  if (child == 0) {
    // Ends with the machine, whose output and whose CPU time are its own.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    setpgid(0, 0);
    close(STDIN_FILENO);
    if (freopen("/dev/null", "w", stdout) == NULL) _exit(1);
    dup2(STDOUT_FILENO, STDERR_FILENO);
    for (;;) {
      const int row = accept(rows, NULL, NULL);
      if (row < 0) _exit(1);
      Serve(row, server);
      close(row);
    }
  }
  for (char** word = words; *word != NULL; ++word) *word = WithPorts(*word, asker, server);
  execvp(words[0], words);
  Die(words[0]);
}
