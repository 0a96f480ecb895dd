// An entrepotd that says nothing when it is asked whether it could take a store over. When it has begun there is a file
// beside it whose name ends with ".begun", with its process number.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

int main() {
  const std::string path = std::filesystem::read_symlink("/proc/self/exe");
  std::ofstream(path + ".new") << ::getpid();
  std::filesystem::rename(path + ".new", path + ".begun");
  std::this_thread::sleep_for(std::chrono::minutes(1));
  return 0;
}
