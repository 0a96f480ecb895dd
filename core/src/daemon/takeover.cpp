#include "daemon/takeover.h"

#include <sstream>
#include <utility>

#include "base/text.h"
#include "base/utf8.h"
#include "os/clock.h"
#include "os/files.h"
#include "os/memfd.h"
#include "os/program.h"
#include "shm/layout.h"

namespace entrepot {

namespace {

constexpr std::uint64_t kProbeMs = 5'000;  // for a program to report its formats
constexpr std::uint64_t kMaxProbeBytes = 4096;
constexpr std::uint64_t kShebangBytes = 80;
constexpr std::string_view kTakesOver = " takes over ";
constexpr std::string_view kName = "entrepotd ";
constexpr std::uint32_t kPreviousProgram = 0;  // beside the DescriptorKinds in the list

std::string formats() {
  return concat("layout ", kLayoutVersion, " stamp ", AbiStamp::layout(kAbiStamp), " keeper ", kKeeperMagic);
}

// Scripts are refused: the interpreter could not find the script, which has no path here, only a descriptor.
Status check_binary(const std::string& path, const UniqueFd& program) {
  const Result<std::string> start = os::read_file(concat("/proc/self/fd/", program.get()), kShebangBytes);
  RETURN_IF_ERROR(start);
  if (start->starts_with("\177ELF")) return Status::ok();
  const std::string_view line = std::string_view(*start).substr(0, start->find('\n'));
  return Status(
      Code::kInvalidArgument,
      concat(path, " is ",
             line.starts_with("#!") ? concat("a script (", to_utf8(line, kShebangBytes), ")") : "not an ELF executable",
             "; expected the entrepotd binary: bin/entrepotd in the folder of the package entrepot (the "
             "command that pip installs is a script)"));
}

}  // namespace

std::string candidate_reply() { return concat(kName, ENTREPOT_VERSION, kTakesOver, formats()); }

Result<Program> open_program(const std::string& path, const std::vector<std::string>& arguments) {
  if (!path.starts_with('/')) {
    return Status(Code::kInvalidArgument, concat("'", path, "' is not the absolute path of a program"));
  }
  Program program;
  ASSIGN_OR_RETURN(program.fd, os::open_program(path));
  std::vector<std::string> argv = {"entrepotd", "--role=candidate"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  RETURN_IF_ERROR(check_binary(path, program.fd));
  const Result<std::string> reply =
      os::capture_output(program.fd, argv, kMaxProbeBytes, os::Deadline::after_ms(kProbeMs));
  if (!reply.is_ok()) return reply.status().with_context(path);
  const std::string line = reply->substr(0, reply->find('\n'));
  const std::size_t between = line.find(kTakesOver);
  if (!line.starts_with(kName) || between == std::string::npos) {
    return Status(
        Code::kInvalidArgument,
        concat(path, " cannot take over this store (it printed '", line,
               "'): it is not an entrepotd, predates in-place upgrades, or does not support one of the settings "
               "of this store"));
  }
  program.version = line.substr(kName.size(), between - kName.size());
  const std::string their_formats = line.substr(between + kTakesOver.size());
  if (their_formats != formats()) {
    return Status(Code::kVersionMismatch,
                  concat(path, " is version ", program.version, " and uses another memory format (", their_formats,
                         "; this store has ", formats(),
                         "), so it cannot adopt the objects in memory. Save what you need (`entrepot save`), stop this "
                         "store and start the new version"));
  }
  return program;
}

Status exec_successor(const UniqueFd& program, const std::vector<std::string>& arguments,
                      const std::map<DescriptorTag, UniqueFd>& descriptors, const UniqueFd& previous_program) {
  std::string list;
  std::vector<int> inherited_fds;
  const auto add = [&](std::uint32_t kind, std::uint64_t number, int fd) {
    list += concat(kind, " ", number, " ", fd, "\n");
    inherited_fds.push_back(fd);
  };
  for (const auto& [tag, fd] : descriptors)
    add(static_cast<std::uint32_t>(tag.kind), tag.number, fd.get());
  if (previous_program.valid()) add(kPreviousProgram, 0, previous_program.get());
  ASSIGN_OR_RETURN(const UniqueFd text, os::create_memfd("entrepot-handover", list.size()));
  RETURN_IF_ERROR(os::write_text(text.get(), list));
  inherited_fds.push_back(text.get());
  std::vector<std::string> argv = {"entrepotd", "--role=keeper", concat("--handover-fd=", text.get())};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return os::exec_in_place(program, argv, inherited_fds);
}

Result<HandoverState> read_handover(UniqueFd list) {
  ASSIGN_OR_RETURN(const std::uint64_t bytes, os::file_bytes(list.get()));
  ASSIGN_OR_RETURN(const std::string text, os::read_file(concat("/proc/self/fd/", list.get()), bytes));
  HandoverState handover;
  std::istringstream lines(text);
  std::uint32_t kind = 0;
  std::uint64_t number = 0;
  int fd = -1;
  while (lines >> kind >> number >> fd) {
    UniqueFd fd_owner(fd);
    RETURN_IF_ERROR(os::set_close_on_exec(fd, true));
    if (kind == kPreviousProgram) {
      handover.previous_program = std::move(fd_owner);
    } else {
      handover.descriptors.insert_or_assign(DescriptorTag{static_cast<DescriptorKind>(kind), number},
                                            std::move(fd_owner));
    }
  }
  if (!lines.eof()) return Status(Code::kInternal, concat("the handover list is damaged: ", text));
  return handover;
}

}  // namespace entrepot
