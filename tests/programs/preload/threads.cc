#include <thread>
#include <vector>
#include <map>
#include <string>
#include <memory>
#include <mutex>
#include <cstdio>
#include <cstdlib>
#include <cstdint>
static uint64_t work(int t, int rounds) {
  std::map<uint64_t, std::string> m; std::vector<std::unique_ptr<uint64_t[]>> keep; uint64_t h = 1469598103934665603ull ^ t, x = t + 1;
  for (int r = 0; r < rounds; r++) {
    for (int i = 0; i < 2000; i++) { x = x * 6364136223846793005ull + 1442695040888963407ull; m[x % 20000] = std::string(16 + x % 100, 'a' + x % 26); if (x % 3 == 0) m.erase(x % 19997); }
    auto p = std::make_unique<uint64_t[]>(4096); for (int i = 0; i < 4096; i++) p[i] = x + i; keep.push_back(std::move(p)); if (keep.size() > 64) keep.erase(keep.begin());
    for (auto& k : keep) h = (h ^ k[r % 4096]) * 1099511628211ull;
    for (auto& [k, v] : m) h = (h ^ (k + v.size() + v[0])) * 1099511628211ull;
  }
  return h;
}
int main(int argc, char** argv) {
  int rounds = atoi(argv[1]); uint64_t r[4]; std::vector<std::thread> ts;
  for (int t = 0; t < 4; t++) ts.emplace_back([&, t] { r[t] = work(t, rounds); });
  for (auto& t : ts) t.join();
  printf("%016lx %016lx %016lx %016lx\n", r[0], r[1], r[2], r[3]);
}
