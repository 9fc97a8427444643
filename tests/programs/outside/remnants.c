/* Rank 1 takes 50 MiB, and 45 that it locks. Rank 0, which takes nothing before, then locks 75 and computes. Together with what of rank 1 cannot be paged
   that is 120 MiB. */
#include "held.h"

int main(int count, char **words) {
  if (count < 4 || chdir(words[2])) return 2;
  if (atoi(words[1]) == 0) {
    await("locked");
    take(75, 1);
    compute(1500 * atoi(words[3]));
    tell("computed");
  } else {
    take(50, 0);
    take(45, 1);
    tell("locked");
    await("computed");
  }
  check(words[1]);
}
