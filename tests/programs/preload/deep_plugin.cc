// The same in C++: its operators are those of the C++ library, which is loaded with it.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <new>
#include <string>

static std::string text = std::string(100, 't') + "ext";

extern "C" {
char *makes(size_t size) { return new char[size]; }
void drops(char *at) { delete[] at; }

int counts(int words) {
  std::map<std::string, int> seen;
  for (int i = 0; i < words; i++) seen[text + std::to_string(i % 97)]++;
  return static_cast<int>(seen.size());
}

int refused() {
  volatile size_t huge = PTRDIFF_MAX;
  try {
    char *volatile at = new char[huge];
    delete[] at;
  } catch (const std::bad_alloc &) {
    return 1;
  }
  return 0;
}
}
