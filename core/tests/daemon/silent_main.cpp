// An entrepotd that never answers whether it could take a store over. Once started, it creates a file named like its
// program plus ".begun", which contains its PID.
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
