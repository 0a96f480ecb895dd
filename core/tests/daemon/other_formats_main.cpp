// An entrepotd of a build with another memory format: it reports that, and is asked nothing else.
#include <cstdio>

int main() {
  std::puts("entrepotd 9.9.9 takes over layout 99 stamp 1 keeper 1");
  return 0;
}
