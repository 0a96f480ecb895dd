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

constexpr std::uint64_t kSayMs = 5'000;  // for a program to report its formats
constexpr std::uint64_t kMostSaid = 4096;
constexpr std::uint64_t kShebangBytes = 80;
constexpr std::string_view kTakesOver = " takes over ";
constexpr std::string_view kName = "entrepotd ";
constexpr std::uint32_t kFormerProgram = 0;  // beside the HeldKinds in the list

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
             line.starts_with("#!") ? concat("a script (", to_utf8(line, kShebangBytes), ")")
                                    : "no program in machine code (ELF)",
             " and not the binary entrepotd: that is bin/entrepotd in the folder of the package entrepot (the "
             "command that pip installs is a script)"));
}

}  // namespace

std::string takeover_line() { return concat(kName, ENTREPOT_VERSION, kTakesOver, formats()); }

Result<Program> open_program(const std::string& path, const std::vector<std::string>& arguments) {
  if (!path.starts_with('/')) {
    return Status(Code::kInvalidArgument, concat("'", path, "' is not an absolute path of a program"));
  }
  Program program;
  ASSIGN_OR_RETURN(program.fd, os::open_program(path));
  std::vector<std::string> words = {"entrepotd", "--role=candidate"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  RETURN_IF_ERROR(check_binary(path, program.fd));
  const Result<std::string> said = os::output_of(program.fd, words, kMostSaid, os::Deadline::after_ms(kSayMs));
  if (!said.is_ok()) return said.status().with_context(path);
  const std::string line = said->substr(0, said->find('\n'));
  const std::size_t between = line.find(kTakesOver);
  if (!line.starts_with(kName) || between == std::string::npos) {
    return Status(
        Code::kInvalidArgument,
        concat(path, " does not know how to take this store over (it said '", line,
               "'): it is no entrepotd, one older than upgrades in place, or one that does not know a setting "
               "of this store"));
  }
  program.version = line.substr(kName.size(), between - kName.size());
  const std::string theirs = line.substr(between + kTakesOver.size());
  if (theirs != formats()) {
    return Status(Code::kVersionMismatch,
                  concat(path, " is version ", program.version, " and keeps a store's memory in another format (",
                         theirs, "; this store has ", formats(),
                         "): it cannot take over what is in memory. Save what is needed (`entrepot save`), end this "
                         "store and start the other"));
  }
  return program;
}

Status become(const UniqueFd& program, const std::vector<std::string>& arguments,
              const std::map<HeldTag, UniqueFd>& held, const UniqueFd& former) {
  std::string list;
  std::vector<int> handed;
  const auto add = [&](std::uint32_t kind, std::uint64_t number, int fd) {
    list += concat(kind, " ", number, " ", fd, "\n");
    handed.push_back(fd);
  };
  for (const auto& [tag, fd] : held)
    add(static_cast<std::uint32_t>(tag.kind), tag.number, fd.get());
  if (former.valid()) add(kFormerProgram, 0, former.get());
  ASSIGN_OR_RETURN(const UniqueFd text, os::create_memfd("entrepot-estate", list.size()));
  RETURN_IF_ERROR(os::write_text(text.get(), list));
  handed.push_back(text.get());
  std::vector<std::string> words = {"entrepotd", "--role=keeper", concat("--estate-fd=", text.get())};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return os::run_in_place(program, words, handed);
}

Result<Estate> take_estate(UniqueFd list) {
  ASSIGN_OR_RETURN(const std::uint64_t bytes, os::file_bytes(list.get()));
  ASSIGN_OR_RETURN(const std::string text, os::read_file(concat("/proc/self/fd/", list.get()), bytes));
  Estate estate;
  std::istringstream lines(text);
  std::uint32_t kind = 0;
  std::uint64_t number = 0;
  int fd = -1;
  while (lines >> kind >> number >> fd) {
    UniqueFd one(fd);
    RETURN_IF_ERROR(os::set_close_on_exec(fd, true));
    if (kind == kFormerProgram) {
      estate.former = std::move(one);
    } else {
      estate.held.insert_or_assign(HeldTag{static_cast<HeldKind>(kind), number}, std::move(one));
    }
  }
  if (!lines.eof()) return Status(Code::kInternal, concat("the list of what was handed over is damaged: ", text));
  return estate;
}

}  // namespace entrepot
