// What the plug-in needs, and the dynamic linker finds beside it.
#include <stdlib.h>
#include <string.h>

char *part_copy(const char *text) { return strdup(text); }
void part_free(void *at) { free(at); }
