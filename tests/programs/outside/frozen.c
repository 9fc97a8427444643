/* Rank 0 takes 70 MiB and computes. Then rank 1 locks 60, piece by piece, and goes on for long enough to be looked at. */
#include "held.h"

int main(int count, char **words) {
  if (count < 4 || chdir(words[2])) return 2;
  if (atoi(words[1]) == 0) {
    take(70, 0);
    tell("taken");
    compute(3000 * atoi(words[3]));
  } else {
    await("taken");
    take(60, 1);
    compute(500 * atoi(words[3]));
  }
  check(words[1]);
}
