#include "tools/process/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "policy/status_macros.h"

extern char** environ;

namespace lockstep::tools {
namespace {

absl::Status SystemError(absl::string_view what) {
  return absl::InternalError(absl::StrCat(what, ": ", strerror(errno)));
}

int Decode(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

struct Descriptors {
  int out = -1;
  int err = -1;
};

enum class AtParentsDeath { kDie, kLiveOn };

// Everything the child needs between fork and exec, made before it: another thread may hold
// the allocator's lock at the fork.
struct Prepared {
  std::vector<std::string> words;
  std::vector<std::string> environment;
  std::vector<char*> argv;
  std::vector<char*> envp;

  Prepared(absl::Span<const std::string> w, const std::vector<std::string>& more)
      : words(w.begin(), w.end()), environment(more) {
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const absl::string_view name = *absl::StrSplit(*entry, '=').begin();
      bool replaced = false;
      for (const std::string& mine : more) replaced |= name == *absl::StrSplit(mine, '=').begin();
      if (!replaced) envp.push_back(*entry);
    }
    for (std::string& entry : environment) envp.push_back(entry.data());
    envp.push_back(nullptr);
  }
};

absl::StatusOr<pid_t> Spawn(absl::Span<const std::string> words, const Descriptors& descriptors,
                            const std::vector<std::string>& environment,
                            AtParentsDeath at_parents_death) {
  if (words.empty()) return absl::InvalidArgumentError("no program to start");
  Prepared prepared(words, environment);
  if (::access(words[0].c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot start '", words[0], "': ", strerror(errno), "; build it first"));
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return SystemError("fork");
  if (pid == 0) {
    if (at_parents_death == AtParentsDeath::kDie) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(127);
    }
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    ::dup2(null, 0);
    ::dup2(descriptors.out < 0 ? null : descriptors.out, 1);
    ::dup2(descriptors.err < 0 ? null : descriptors.err, 2);
    ::execve(prepared.argv[0], prepared.argv.data(), prepared.envp.data());
    ::_exit(127);
  }
  return pid;
}

absl::StatusOr<int> OpenFor(const std::string& path, int flags) {
  if (path.empty()) return -1;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
  if (fd < 0) return SystemError(absl::StrCat("cannot write '", path, "'"));
  return fd;
}

void CloseIfOpen(int fd) {
  if (fd >= 0) ::close(fd);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    absl::Span<const std::string> words, const ProcessOptions& options) {
  Descriptors descriptors;
  const auto close_all = absl::MakeCleanup([&] {
    CloseIfOpen(descriptors.out);
    CloseIfOpen(descriptors.err);
  });
  LOCKSTEP_ASSIGN_OR_RETURN(descriptors.out, OpenFor(options.stdout_path, O_TRUNC));
  LOCKSTEP_ASSIGN_OR_RETURN(descriptors.err, OpenFor(options.stderr_path, O_APPEND));
  LOCKSTEP_ASSIGN_OR_RETURN(const pid_t pid, Spawn(words, descriptors, options.environment,
                                                   options.outlive_parent ? AtParentsDeath::kLiveOn
                                                                          : AtParentsDeath::kDie));
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid));
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0 || ExitCode().has_value()) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void ChildProcess::Signal(int signal) const {
  if (pid_ > 0 && !exit_code_) ::kill(pid_, signal);
}

std::optional<int> ChildProcess::ExitCode() {
  if (exit_code_ || pid_ < 0) return exit_code_;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == pid_) exit_code_ = Decode(status);
  return exit_code_;
}

absl::StatusOr<int> ChildProcess::Wait(absl::Duration timeout) {
  if (const std::optional<int> code = ExitCode()) return *code;
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
  if (fd < 0) return SystemError("pidfd_open");
  pollfd entry = {fd, POLLIN, 0};
  const int ready = ::poll(&entry, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  ::close(fd);
  if (ready <= 0) {
    return absl::DeadlineExceededError(
        absl::StrCat("process ", pid_, " still runs after ", absl::FormatDuration(timeout)));
  }
  int status = 0;
  if (::waitpid(pid_, &status, 0) != pid_) return SystemError("waitpid");
  exit_code_ = Decode(status);
  return *exit_code_;
}

absl::StatusOr<Finished> RunToEnd(absl::Span<const std::string> words, absl::Duration timeout,
                                  const std::vector<std::string>& environment) {
  std::array<int, 2> out = {-1, -1}, err = {-1, -1};
  const auto close_all = absl::MakeCleanup([&] {
    for (int fd : {out[0], out[1], err[0], err[1]}) CloseIfOpen(fd);
  });
  if (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(err.data(), O_CLOEXEC) != 0) {
    return SystemError("pipe");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const pid_t pid,
                            Spawn(words, {out[1], err[1]}, environment, AtParentsDeath::kDie));
  for (int* fd : {&out[1], &err[1]}) {
    ::close(*fd);
    *fd = -1;
  }
  Finished finished;
  std::array<pollfd, 2> polls = {pollfd{out[0], POLLIN, 0}, pollfd{err[0], POLLIN, 0}};
  const std::array<std::string*, 2> texts = {&finished.out, &finished.err};
  const absl::Time deadline = absl::Now() + timeout;
  std::string buffer(1 << 16, '\0');
  while (polls[0].fd >= 0 || polls[1].fd >= 0) {
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left_ms <= 0 || ::poll(polls.data(), 2, static_cast<int>(left_ms)) == 0) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      return absl::DeadlineExceededError(absl::StrCat(absl::StrJoin(words, " "), " took over ",
                                                      absl::FormatDuration(timeout),
                                                      "; it said: ", finished.out, finished.err));
    }
    for (size_t i = 0; i < 2; ++i) {
      if (polls[i].fd < 0 || polls[i].revents == 0) continue;
      const ssize_t count = ::read(polls[i].fd, buffer.data(), buffer.size());
      if (count > 0) {
        texts[i]->append(buffer.data(), static_cast<size_t>(count));
      } else if (count == 0 || errno != EINTR) {
        polls[i].fd = -1;
      }
    }
  }
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid) return SystemError("waitpid");
  finished.exit_code = Decode(status);
  return finished;
}

}  // namespace lockstep::tools
