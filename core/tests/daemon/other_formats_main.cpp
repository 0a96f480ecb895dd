// An entrepotd of a build that keeps memory in another format: it says so, and that is all that it is asked.
#include <cstdio>

int main() {
  std::puts("entrepotd 9.9.9 takes over layout 99 stamp 1 keeper 1");
  return 0;
}
