// new and delete in all their forms under libsbmalloc.so. Prints "ok".
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#define CHECK(what) do { if (!(what)) { std::fprintf(stderr, "line %d: %s\n", __LINE__, #what); std::exit(1); } } while (0)

struct alignas(256) Wide { char bytes[512]; };

static std::string global(1000, 'g');
static int handled;
static void* volatile kept;  // or the compiler does without the allocation

static void handler() {
  if (++handled % 3 == 0) std::set_new_handler(nullptr);
}

template <class F> static bool throws(F f) {
  try { f(); } catch (const std::bad_alloc&) { return true; }
  return false;
}

int main() {
  CHECK(global == std::string(1000, 'g'));
  const auto aligned = [](void* p, std::size_t to) { return reinterpret_cast<std::uintptr_t>(p) % to == 0; };
  for (int round = 0; round < 1000; round++) {
    int* one = new int(7);
    CHECK(*one == 7);
    delete one;
    auto many = new std::string[10];
    many[9] = "nine";
    delete[] many;
    auto wide = new Wide;
    CHECK(aligned(wide, 256));
    delete wide;
    auto wides = new Wide[3];
    CHECK(aligned(wides, 256));
    delete[] wides;
    auto quiet = new (std::nothrow) Wide;
    CHECK(quiet && aligned(quiet, 256));
    delete quiet;
  }
  void* p = ::operator new(100);
  ::operator delete(p, std::size_t{100});
  p = ::operator new[](100, std::align_val_t{4096});
  CHECK(aligned(p, 4096));
  ::operator delete[](p, std::size_t{100}, std::align_val_t{4096});
  p = ::operator new(100, std::align_val_t{64}, std::nothrow);
  CHECK(aligned(p, 64));
  ::operator delete(p, std::align_val_t{64}, std::nothrow);
  p = ::operator new[](100, std::nothrow);
  ::operator delete[](p, std::nothrow);

  volatile std::size_t huge = std::numeric_limits<std::ptrdiff_t>::max() - 100;
  CHECK(throws([&] { kept = ::operator new(huge); }));
  CHECK(throws([&] { kept = ::operator new[](huge); }));
  CHECK(throws([&] { kept = ::operator new(huge, std::align_val_t{64}); }));
  CHECK(throws([&] { kept = ::operator new[](huge, std::align_val_t{64}); }));
  CHECK(throws([&] { std::vector<char> v(huge); }));
  CHECK(!::operator new(huge, std::nothrow) && !::operator new[](huge, std::nothrow));
  CHECK(!::operator new(huge, std::align_val_t{64}, std::nothrow));
  CHECK(!::operator new[](huge, std::align_val_t{64}, std::nothrow));
  std::set_new_handler(handler);
  CHECK(throws([&] { kept = ::operator new(huge); }) && handled == 3);
  std::set_new_handler(handler);
  CHECK(!::operator new(huge, std::nothrow) && handled == 6);

  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([t] {
      std::map<int, std::unique_ptr<std::string>> m;
      for (int i = 0; i < 20000; i++) {
        m[i * 7919 % 1000] = std::make_unique<std::string>(i % 300, 'a' + t);
        if (i % 1000 == 0) {
          try { throw std::make_shared<int>(i); } catch (const std::shared_ptr<int>& e) { CHECK(*e == i); }
        }
      }
      for (auto& [k, v] : m) CHECK(v->find_first_not_of(char('a' + t)) == std::string::npos);
    });
  }
  for (auto& t : threads) t.join();
  std::puts("ok");
}
