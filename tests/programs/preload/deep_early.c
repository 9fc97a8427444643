// A library of the program that loads a plug-in before main, from a folder that only its own RUNPATH names.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static int ok;
__attribute__((constructor)) static void before_main(void) {
  void *plugin = dlopen("second.so", RTLD_LAZY | RTLD_DEEPBIND);
  if (!plugin) return;
  int (*own_blocks)(void) = (int (*)(void))dlsym(plugin, "own_blocks");
  void (*gives_back)(void *) = (void (*)(void *))dlsym(plugin, "gives_back");
  ok = own_blocks();
  gives_back(strdup("early"));
}
int early_ok(void) { return ok; }
