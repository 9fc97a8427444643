/* Whether somebody traces this process, as bdrun does one in parts. */
#include <stdio.h>

static int traced(void) {
  char line[200];
  int pid = 0;
  FILE *status = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, status)) sscanf(line, "TracerPid: %d", &pid);
  fclose(status);
  return pid != 0;
}
