// How many instructions a stretch of a program takes, exactly and without hardware counters, which virtual machines
// often have not: the kernel stops the program after each.
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "support.h"

namespace bench {
namespace {

constexpr std::uint64_t kMax = 100'000'000;

// Goes on by `request` until the next stop; its signal. Ends the program if the command ended.
int next_stop(pid_t pid, bool step, int deliver) {
  errno = 0;
  const auto signal = static_cast<long>(deliver);
  const long went = step ? ptrace(PTRACE_SINGLESTEP, pid, nullptr, signal) : ptrace(PTRACE_CONT, pid, nullptr, signal);
  if (went != 0) fail("cannot go on with the command");
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) fail("cannot wait for the command");
  errno = 0;
  if (!WIFSTOPPED(status)) fail("the command ended before its second SIGSTOP");
  return WSTOPSIG(status);
}

}  // namespace

int steps(const std::vector<std::string>& arguments) {
  const pid_t pid = fork();
  if (pid < 0) fail("cannot fork");
  if (pid == 0) {
    std::vector<char*> words;
    for (const std::string& argument : arguments)
      words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) fail("may not be traced");
    execvp(words[0], words.data());
    fail("cannot run " + arguments[0]);
  }
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) fail("the command did not start");
  if (ptrace(PTRACE_SETOPTIONS, pid, nullptr, PTRACE_O_EXITKILL) != 0) fail("cannot trace the command");
  for (int stopped = SIGTRAP; stopped != SIGSTOP;)
    stopped = next_stop(pid, false, stopped == SIGTRAP ? 0 : stopped);
  std::uint64_t count = 0;
  for (int stopped = SIGTRAP; stopped != SIGSTOP; ++count) {
    if (count == kMax) fail("more than 100 million instructions");
    stopped = next_stop(pid, true, stopped == SIGTRAP ? 0 : stopped);
  }
  if (ptrace(PTRACE_DETACH, pid, nullptr, nullptr) != 0) fail("cannot let go of the command");
  Line().number("instructions", count).print();
  waitpid(pid, &status, 0);
  return 0;
}

}  // namespace bench
