// SPDX-License-Identifier: Apache-2.0
#include "devices/block/image_server.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/file_descriptor.h"
#include "base/sandbox/call_filter.h"
#include "base/sandbox/file_rules.h"

extern char** environ;

namespace alibi::block {
namespace {

// systemd's protocol, sd_listen_fds(3): the first socket, whose process is meant, how many.
constexpr int kListenFd = 3;
constexpr char kListenPid[] = "LISTEN_PID=";

// What reaches beyond the files that are open or named. It is another's program, which may need
// anything else.
std::vector<sandbox::CallRule> DeniedCalls() {
  constexpr int kDenied[] = {
      // Networks.
      SYS_socket, SYS_connect, SYS_bind, SYS_listen,
      // Other processes.
      SYS_kill, SYS_tkill, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_open,
      SYS_pidfd_getfd, SYS_pidfd_send_signal, SYS_fork, SYS_vfork, SYS_setpgid, SYS_setsid,
      // The system.
      SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_unshare, SYS_setns, SYS_bpf,
      SYS_perf_event_open, SYS_userfaultfd, SYS_keyctl, SYS_add_key, SYS_request_key,
      SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_reboot, SYS_swapon,
      SYS_swapoff, SYS_open_by_handle_at, SYS_shmget, SYS_msgget, SYS_semget, SYS_mq_open};
  std::vector<sandbox::CallRule> rules;
  // These are made by other ways if they fail so; io_uring would get past this filter.
  rules.push_back({SYS_clone3, sandbox::FailWith(ENOSYS)});
  for (const int call : {SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register}) {
    rules.push_back({call, sandbox::FailWith(ENOSYS)});
  }
  rules.push_back({SYS_clone, sandbox::kAllow, 0, CLONE_THREAD, CLONE_THREAD});
  rules.push_back({SYS_clone, sandbox::FailWith(EPERM)});
  for (const int call : kDenied) rules.push_back({call, sandbox::FailWith(EPERM)});
  return rules;
}

void AllowFiles(const ServerOptions& options, sandbox::FileRules& rules) {
  using sandbox::FileAccess;
  rules.AllowSystemLibraries();
  rules.Allow(options.command[0], FileAccess::kRun);
  rules.Allow("/dev/null", FileAccess::kWrite);
  rules.Allow("/dev/urandom", FileAccess::kRead);
  // How large a block device's requests may be, which CPUs and memory there are.
  rules.Allow("/sys/dev/block", FileAccess::kRead);
  rules.Allow("/sys/devices", FileAccess::kRead);
  for (const NamedFile& file : options.files) {
    rules.Allow(file.path, file.written ? FileAccess::kWrite : FileAccess::kRead);
  }
}

Error CannotStart(const char* what) {
  return Error{std::string("the image server cannot be started: ") + what + ": " +
               std::strerror(errno)};
}

struct SocketPair {
  int listening = -1, connection = -1;
};

// A listening socket and a connection to it. Nobody else finds it: it has lost its name.
Result<SocketPair> MakeSockets() {
  const char* folder = getenv("TMPDIR");
  std::string name = folder == nullptr || *folder == '\0' ? "/tmp" : folder;
  name += "/alibi-nbd-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) return CannotStart("a folder in $TMPDIR");
  const FileDescriptor place(open(name.c_str(), O_PATH | O_CLOEXEC | O_DIRECTORY));
  // Long names do not fit into an address.
  const std::string path = "/proc/self/fd/" + std::to_string(place.get()) + "/nbd";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const auto* at = reinterpret_cast<const sockaddr*>(&address);
  FileDescriptor listening(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  FileDescriptor connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool connected = listening.get() >= 0 && connection.get() >= 0 &&
                         bind(listening.get(), at, sizeof(address)) == 0 &&
                         listen(listening.get(), 1) == 0 &&
                         connect(connection.get(), at, sizeof(address)) == 0;
  const int error = errno;
  unlinkat(place.get(), "nbd", 0);
  rmdir(name.c_str());
  errno = error;
  if (!connected) return CannotStart("its socket");
  return SocketPair{listening.Release(), connection.Release()};
}

// All that the child needs is ready before fork(): between that and exec() no memory is allocated.
struct Child {
  std::vector<char*> arguments, environment;
  char listen_pid[32];
  std::optional<sandbox::FileRules> rules;
  std::vector<sock_filter> filter;
  int listening, messages, nothing;

  [[noreturn]] void Run() {
    // A Ctrl-C at the terminal is for us, and the child must live until we have closed the image.
    setsid();
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL;
    sigaction(SIGPIPE, &plain, nullptr);
    char* digit = listen_pid + sizeof(listen_pid) - 1;
    *digit = '\0';
    for (pid_t pid = getpid(); pid != 0; pid /= 10) *--digit = static_cast<char>('0' + pid % 10);
    std::memmove(listen_pid + sizeof(kListenPid) - 1, digit,
                 static_cast<std::size_t>(listen_pid + sizeof(listen_pid) - digit));
    std::memcpy(listen_pid, kListenPid, sizeof(kListenPid) - 1);
    // Above those numbers that are going to be used.
    const int from = fcntl(listening, F_DUPFD_CLOEXEC, 10);
    const int said = fcntl(messages >= 0 ? messages : nothing, F_DUPFD_CLOEXEC, 10);
    const int none = fcntl(nothing, F_DUPFD_CLOEXEC, 10);
    if (dup2(none, 0) < 0 || dup2(none, 1) < 0 || dup2(said, 2) < 0 || dup2(from, kListenFd) < 0) {
      _exit(1);
    }
    syscall(SYS_close_range, kListenFd + 1, ~0U, 1 << 2 /* CLOSE_RANGE_CLOEXEC */);
    if (rules.has_value() &&
        (!rules->Enter() || sandbox::EnterFilter(filter, /*all_threads=*/false) != 0)) {
      static constexpr char kWords[] = "the kernel refuses the sandbox; --sandbox off does without";
      [[maybe_unused]] const ssize_t written = write(2, kWords, sizeof(kWords) - 1);
      _exit(1);
    }
    execve(arguments[0], arguments.data(), environment.data());
    _exit(1);
  }
};

}  // namespace

Result<ImageServer> StartImageServer(const ServerOptions& options) {
  auto sockets = MakeSockets();
  if (!sockets.ok()) return sockets.error();
  const FileDescriptor listening(sockets->listening),
      nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  FileDescriptor connection(sockets->connection);
  Child child;
  std::vector<std::string> command = options.command;
  for (std::string& word : command) child.arguments.push_back(word.data());
  child.arguments.push_back(nullptr);
  std::string listen_fds = "LISTEN_FDS=1";
  for (char** word = environ; *word != nullptr; ++word) {
    if (std::strncmp(*word, "LISTEN_", 7) != 0) child.environment.push_back(*word);
  }
  child.environment.push_back(child.listen_pid);
  child.environment.push_back(listen_fds.data());
  child.environment.push_back(nullptr);
  child.listening = listening.get();
  child.messages = options.messages;
  child.nothing = nothing.get();
  if (options.confined) {
    AllowFiles(options,
               child.rules.emplace(sandbox::FileRules::Others{.tcp = true, .signals = true}));
    child.filter = sandbox::CompileFilter(DeniedCalls(), sandbox::kAllow);
  }
  const pid_t process = fork();
  if (process < 0) return CannotStart("fork");
  if (process == 0) child.Run();
  return ImageServer{process, connection.Release()};
}

}  // namespace alibi::block
