// SPDX-License-Identifier: Apache-2.0
// The program that measures a network: what Sugerman, Venkitachalam and Lim call nettest (section
// 3.1). One static program for the guest, the host's end, and native runs.
//
//   nettest OPERATION...             does them, a line of result each
//   nettest boot                     those behind "nettest=" on the kernel's command line, by +
//   nettest bridge TAP OWN PEER COMMAND [WORD...]   becomes the command, beside who carries frames
//                                    between the TAP interface and the machine behind two UNIX
//                                    datagram sockets: OWN is its own, PEER the machine's
//   nettest with ADDRESS COMMAND [WORD...]   runs the command with a server beside it, which
//                                    listens there; %PORT% in a word is its port
//
// Operations: send:ADDRESS:PORT:BYTES:SIZE and receive:... copy BYTES of the same memory by one TCP
// connection, SIZE at a time; datagrams:ADDRESS:PORT:COUNT:SIZE sends COUNT UDP datagrams;
// idle:SECONDS sleeps.
//
// A result: "@nettest NAME bytes=N us=N idle=N": how long it took, and how many of these
// microseconds this system was idle, as far as its kernel tells (/proc/stat, all CPUs). The server
// adds "@nettest used NAME busiest=N all=N": microseconds of CPU time meanwhile of the command's
// busiest thread, and of all its threads and its children's; and "@nettest sampled NAME
// translated=N program=N libraries=N kernel=N", samples of the busiest one's CPU time by the code
// that ran, if the host permits to take some.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sampler.h"

enum { kMostSize = 1 << 20, kMostWords = 1024 };

// What the client wants, before the data.
struct Wish {
  char what[16];  // "send", "receive", "datagrams": what the client does
  uint64_t bytes, size;
};

static char buffer[kMostSize];

static _Noreturn void Die(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int error = errno;
  fprintf(stderr, "nettest: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "%s%s\n", error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
  exit(1);
}

static uint64_t NowUs(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

// Microseconds that the CPUs were idle since boot; 0 where nobody says.
static uint64_t IdleUs(void) {
  FILE* file = fopen("/proc/stat", "r");
  if (file == NULL) return 0;
  uint64_t user, nice, system, idle = 0, waiting = 0;
  const int got = fscanf(file, "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
                         &user, &nice, &system, &idle, &waiting);
  fclose(file);
  if (got != 5) return 0;
  return (idle + waiting) * (1000000 / (uint64_t)sysconf(_SC_CLK_TCK));
}

static void WriteAll(int fd, uint64_t bytes, uint64_t size) {
  while (bytes != 0) {
    const size_t most = bytes < size ? bytes : size;
    const ssize_t done = send(fd, buffer, most, MSG_NOSIGNAL);
    if (done < 0) Die("send");
    bytes -= (uint64_t)done;
  }
}

// The bytes that came until the other end closed, at most `bytes`.
static uint64_t ReadAll(int fd, uint64_t bytes, uint64_t size) {
  uint64_t got = 0;
  while (got < bytes) {
    const uint64_t left = bytes - got;
    const ssize_t done = recv(fd, buffer, left < size ? left : size, 0);
    if (done < 0) Die("recv");
    if (done == 0) break;
    got += (uint64_t)done;
  }
  return got;
}

// --- What the command uses, for the host's end ---

enum { kMostThreads = 64 };

struct Usage {
  unsigned count;
  int thread[kMostThreads];
  uint64_t ns[kMostThreads];
  struct Sampler* sampler[kMostThreads];  // only if they are wanted; some may be NULL
};

static volatile pid_t* command_id;  // shared with the server

static void AddThreads(int process, struct Usage* usage) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/task", process);
  DIR* folder = opendir(path);
  if (folder == NULL) return;
  for (struct dirent* entry; (entry = readdir(folder)) != NULL;) {
    const int thread = atoi(entry->d_name);
    if (thread == 0 || usage->count == kMostThreads) continue;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", process, thread);
    FILE* file = fopen(path, "r");
    if (file == NULL) continue;
    uint64_t ns;
    if (fscanf(file, "%" SCNu64, &ns) == 1) {
      usage->thread[usage->count] = thread;
      usage->ns[usage->count++] = ns;
    }
    fclose(file);
  }
  closedir(folder);
}

static struct Usage UsageNow(void) {
  struct Usage usage = {0};
  const int command = *command_id;
  AddThreads(command, &usage);
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/task/%d/children", command, command);
  FILE* file = fopen(path, "r");
  if (file == NULL) return usage;
  for (int child; fscanf(file, "%d", &child) == 1;) AddThreads(child, &usage);
  fclose(file);
  return usage;
}

static struct Usage BeginUsage(void) {
  struct Usage usage = UsageNow();
  for (unsigned i = 0; i < usage.count; ++i) usage.sampler[i] = StartSampler(usage.thread[i]);
  return usage;
}

// What the server has to tell until the command has ended: a machine's console comes in pieces, and
// would be cut by it.
static int told;  // a file of all processes' that serve

static void Tell(const char* format, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  if (write(told, line, (size_t)length) != length) exit(1);
}

static void PrintTold(void) {
  lseek(told, 0, SEEK_SET);
  for (ssize_t size; (size = read(told, buffer, sizeof(buffer))) > 0;) {
    if (fwrite(buffer, 1, (size_t)size, stdout) != (size_t)size) Die("stdout");
  }
}

static void TellUsage(const char* what, uint64_t size, const struct Usage* before) {
  const struct Usage now = UsageNow();
  uint64_t busiest = 0, all = 0;
  int busiest_thread = 0;
  for (unsigned i = 0; i < now.count; ++i) {
    uint64_t used = now.ns[i];
    for (unsigned k = 0; k < before->count; ++k) {
      if (before->thread[k] == now.thread[i]) used -= before->ns[k];
    }
    all += used;
    if (used <= busiest) continue;
    busiest = used;
    busiest_thread = now.thread[i];
  }
  Tell("@nettest used %s-%" PRIu64 " busiest=%" PRIu64 " all=%" PRIu64 "\n", what, size,
       busiest / 1000, all / 1000);
  for (unsigned i = 0; i < before->count; ++i) {
    unsigned long counts[kSampleKinds] = {0};
    if (before->sampler[i] == NULL) continue;
    EndSampler(before->sampler[i], *command_id, counts);
    if (before->thread[i] != busiest_thread) continue;
    Tell("@nettest sampled %s-%" PRIu64 " translated=%lu program=%lu libraries=%lu kernel=%lu\n",
         what, size, counts[kTranslated], counts[kProgram], counts[kLibraries], counts[kKernel]);
  }
}

static struct sockaddr_in AddressOf(const char* host, unsigned port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  if (inet_pton(AF_INET, host, &address.sin_addr) != 1) Die("%s: no address", host);
  return address;
}

static int Connect(const char* host, unsigned port) {
  const struct sockaddr_in address = AddressOf(host, port);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0 || connect(fd, (const struct sockaddr*)&address, sizeof(address)) != 0) {
    Die("%s:%u", host, port);
  }
  return fd;
}

static int Wished(const char* what, const char* host, unsigned port, uint64_t bytes,
                  uint64_t size) {
  const int fd = Connect(host, port);
  struct Wish wish = {.bytes = bytes, .size = size};
  memcpy(wish.what, what, strnlen(what, sizeof(wish.what) - 1));
  if (send(fd, &wish, sizeof(wish), MSG_NOSIGNAL) != sizeof(wish)) Die("send");
  return fd;
}

static void Copy(const char* what, const char* host, unsigned port, uint64_t bytes, uint64_t size) {
  const int fd = Wished(what, host, port, bytes, size);
  uint64_t arrived = 0;
  if (strcmp(what, "send") == 0) {
    WriteAll(fd, bytes, size);
    shutdown(fd, SHUT_WR);
    // Sent is what has arrived.
    if (recv(fd, &arrived, sizeof(arrived), MSG_WAITALL) != sizeof(arrived)) Die("no answer");
  } else {
    arrived = ReadAll(fd, bytes, size);
  }
  errno = 0;
  if (arrived != bytes) Die("%" PRIu64 " bytes of %" PRIu64 " arrived", arrived, bytes);
  close(fd);
}

static void SendDatagrams(const char* host, unsigned port, uint64_t count, uint64_t size) {
  const int control = Wished("datagrams", host, port, 0, size);
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  const struct sockaddr_in address = AddressOf(host, port);
  if (fd < 0 || connect(fd, (const struct sockaddr*)&address, sizeof(address)) != 0) Die("socket");
  for (uint64_t i = 0; i < count; ++i) {
    memcpy(buffer, &i, sizeof(i));  // whoever checks the order finds it here
    // Without room in the interface's queue: once more. Somebody refuses them: so be it.
    while (send(fd, buffer, size, 0) < 0) {
      if (errno != ENOBUFS && errno != EAGAIN && errno != ECONNREFUSED) Die("datagram");
      if (errno == ENOBUFS) usleep(100);
    }
  }
  close(fd);
  close(control);
}

static void Operate(const char* text) {
  char what[16], host[64];
  unsigned port;
  uint64_t amount = 0, size = 0;
  const uint64_t idle = IdleUs(), begin = NowUs();
  uint64_t bytes = 0;
  if (sscanf(text, "%15[a-z]:%63[0-9.]:%u:%" SCNu64 ":%" SCNu64, what, host, &port, &amount,
             &size) == 5 &&
      size >= sizeof(uint64_t) && size <= kMostSize) {
    if (strcmp(what, "datagrams") == 0) {
      bytes = amount * size;
      SendDatagrams(host, port, amount, size);
    } else if (strcmp(what, "send") == 0 || strcmp(what, "receive") == 0) {
      bytes = amount;
      Copy(what, host, port, amount, size);
    } else {
      errno = 0;
      Die("%s: no operation", text);
    }
  } else if (sscanf(text, "%15[a-z]:%" SCNu64, what, &amount) == 2 && strcmp(what, "idle") == 0) {
    sleep((unsigned)amount);
  } else {
    errno = 0;
    Die("%s: no operation", text);
  }
  const uint64_t end = NowUs();
  printf("@nettest %s-%" PRIu64 " bytes=%" PRIu64 " us=%" PRIu64 " idle=%" PRIu64 "\n", what,
         size != 0 ? size : amount, bytes, end - begin, IdleUs() - idle);
  fflush(stdout);
}

static void OperateFromKernel(void) {
  static char line[8192];
  FILE* file = fopen("/proc/cmdline", "r");
  if (file == NULL || fgets(line, sizeof(line), file) == NULL) Die("/proc/cmdline");
  char* words = strstr(line, "nettest=");
  errno = 0;
  if (words == NULL) Die("no nettest= on the kernel's command line");
  words += strlen("nettest=");
  words[strcspn(words, " \n")] = '\0';
  for (char *state, *word = strtok_r(words, "+", &state); word != NULL;
       word = strtok_r(NULL, "+", &state)) {
    Operate(word);
  }
  printf("@nettest done\n");
}

// --- The host's end ---

static void Serve(int fd) {
  struct Wish wish;
  if (recv(fd, &wish, sizeof(wish), MSG_WAITALL) != sizeof(wish)) exit(0);
  if (wish.size == 0 || wish.size > kMostSize) exit(1);
  wish.what[sizeof(wish.what) - 1] = '\0';
  const struct Usage before = BeginUsage();
  if (strcmp(wish.what, "receive") == 0) {
    WriteAll(fd, wish.bytes, wish.size);
    shutdown(fd, SHUT_WR);
    ReadAll(fd, 1, 1);  // the client has all when it closes
    TellUsage(wish.what, wish.size, &before);
  } else {
    // As much at once as there is: the guest's writes are measured, not these reads.
    const uint64_t got = ReadAll(fd, UINT64_MAX, kMostSize);
    TellUsage(wish.what, wish.size, &before);
    if (strcmp(wish.what, "send") == 0 &&
        send(fd, &got, sizeof(got), MSG_NOSIGNAL) != sizeof(got)) {
      exit(1);
    }
  }
  exit(0);
}

struct Server {
  int connections, datagrams;
  unsigned port;
};

// Both sockets have the same port.
static struct Server Listen(const char* host) {
  for (int tries = 0; tries < 100; ++tries) {
    struct Server server = {.connections = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                            .datagrams = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_in address = AddressOf(host, 0);
    socklen_t size = sizeof(address);
    if (bind(server.connections, (struct sockaddr*)&address, sizeof(address)) != 0 ||
        listen(server.connections, 16) != 0 ||
        getsockname(server.connections, (struct sockaddr*)&address, &size) != 0) {
      Die("no server");
    }
    server.port = ntohs(address.sin_port);
    if (bind(server.datagrams, (struct sockaddr*)&address, sizeof(address)) == 0) return server;
    close(server.connections);
    close(server.datagrams);
  }
  Die("no server");
}

// A child that ends with its parent; who becomes the parent of those that are left is not always 1.
static pid_t ForkBeside(void) {
  const pid_t parent = getpid(), child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) exit(0);
  return 0;
}

static pid_t StartServer(struct Server server) {
  const pid_t child = ForkBeside();
  if (child < 0) Die("fork");
  if (child != 0) return child;
  // Nobody waits for those who serve.
  struct sigaction ignored = {.sa_handler = SIG_IGN};
  sigaction(SIGCHLD, &ignored, NULL);
  if (ForkBeside() == 0) {
    for (;;) recv(server.datagrams, buffer, sizeof(buffer), 0);
  }
  for (;;) {
    const int fd = accept(server.connections, NULL, NULL);
    if (fd < 0) exit(1);
    if (fork() == 0) Serve(fd);
    close(fd);
  }
}

static char* WithPort(const char* word, unsigned port) {
  static const char kPlace[] = "%PORT%";
  char number[16];
  snprintf(number, sizeof(number), "%u", port);
  char* text = calloc(1, strlen(word) * sizeof(number) + 1);
  if (text == NULL) Die("memory");
  for (char* out = text;;) {
    const char* place = strstr(word, kPlace);
    if (place == NULL) return strcpy(out, word), text;
    out += sprintf(out, "%.*s%s", (int)(place - word), word, number);
    word = place + strlen(kPlace);
  }
}

static int RunWith(const char* address, char** words) {
  command_id =
      mmap(NULL, sizeof(*command_id), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  told = memfd_create("told", MFD_CLOEXEC);
  if (command_id == MAP_FAILED || told < 0) Die("memory");
  const struct Server sockets = Listen(address);
  const pid_t server = StartServer(sockets);
  char* command[kMostWords] = {NULL};
  for (int i = 0; words[i] != NULL && i < kMostWords - 1; ++i)
    command[i] = WithPort(words[i], sockets.port);
  // User-Mode Linux makes a session of its own, which nobody would end with us.
  const pid_t child = ForkBeside();
  if (child < 0) Die("fork");
  if (child == 0) {
    execvp(command[0], command);
    Die("%s", command[0]);
  }
  *command_id = child;
  int status;
  struct rusage used;
  while (wait4(child, &status, 0, &used) < 0) {
    if (errno != EINTR) Die("wait");
  }
  kill(server, SIGTERM);
  PrintTold();
  // CPU time of the command, and of those it waited for.
  printf("@nettest host user=%" PRIu64 " system=%" PRIu64 "\n",
         (uint64_t)used.ru_utime.tv_sec * 1000000 + (uint64_t)used.ru_utime.tv_usec,
         (uint64_t)used.ru_stime.tv_sec * 1000000 + (uint64_t)used.ru_stime.tv_usec);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// --- The bridge ---

static struct sockaddr_un SocketAddress(const char* path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof(address.sun_path)) Die("%s: too long", path);
  strcpy(address.sun_path, path);
  return address;
}

static int OpenTap(const char* name) {
  struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
  if (strlen(name) >= sizeof(request.ifr_name)) Die("%s: too long", name);
  strcpy(request.ifr_name, name);
  const int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0) Die("%s", name);
  return fd;
}

// Becomes the command, beside who carries the frames, and waits 10 ms at most for a machine that
// has no room.
static _Noreturn void RunBridge(const char* tap_name, const char* own, const char* peer,
                                char** command) {
  const int tap = OpenTap(tap_name), wire = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const struct sockaddr_un here = SocketAddress(own), there = SocketAddress(peer);
  const struct timeval patience = {.tv_usec = 10000};
  unlink(own);
  if (bind(wire, (const struct sockaddr*)&here, sizeof(here)) != 0 ||
      setsockopt(wire, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) != 0) {
    Die("%s", own);
  }
  // Ends with the command, whose CPU time is its own.
  const pid_t child = ForkBeside();
  if (child < 0) Die("fork");
  if (child != 0) {
    execvp(command[0], command);
    Die("%s", command[0]);
  }
  for (struct pollfd fds[] = {{.fd = tap, .events = POLLIN}, {.fd = wire, .events = POLLIN}};;) {
    poll(fds, 2, -1);
    for (ssize_t size; (size = read(tap, buffer, sizeof(buffer))) > 0;) {
      sendto(wire, buffer, (size_t)size, 0, (const struct sockaddr*)&there, sizeof(there));
    }
    for (ssize_t size; (size = recv(wire, buffer, sizeof(buffer), MSG_DONTWAIT)) > 0;) {
      if (write(tap, buffer, (size_t)size) < 0) continue;  // lost, as on a wire
    }
  }
}

int main(int argc, char** argv) {
  memset(buffer, 0x5a, sizeof(buffer));
  if (argc > 5 && strcmp(argv[1], "bridge") == 0) RunBridge(argv[2], argv[3], argv[4], argv + 5);
  if (argc > 3 && strcmp(argv[1], "with") == 0) return RunWith(argv[2], argv + 3);
  if (argc == 2 && strcmp(argv[1], "boot") == 0) {
    OperateFromKernel();
    return 0;
  }
  if (argc < 2) Die("an operation, please");
  for (int i = 1; i < argc; ++i) Operate(argv[i]);
  return 0;
}
