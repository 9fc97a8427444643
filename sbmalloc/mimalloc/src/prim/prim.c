// The operating system under mimalloc: an sbmalloc arena. Written for bdrun, in place of mimalloc's src/prim.
//
// Segments lie in one arena that is handed to mimalloc whole at the first allocation; the data of threads are runs of
// another. What is committed and decommitted goes through sbmalloc, which charges it (sbmalloc/src/heap).
// Linux only. No environment variable is looked at: the options are those set by build.rs.

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif

#include "mimalloc.h"
#include "mimalloc/internal.h"
#include "mimalloc/prim.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// In Rust, sbmalloc/src/heap/prim.rs.
void* sbmalloc_prim_alloc(size_t size, size_t alignment);
void sbmalloc_prim_free(void* addr);
void sbmalloc_prim_reserve(void);
bool sbmalloc_prim_commit(void* addr, size_t size);
void sbmalloc_prim_decommit(void* addr, size_t size);

//---------------------------------------------
// Memory
//---------------------------------------------

void _mi_prim_mem_init(mi_os_mem_config_t* config) {
  config->page_size = 4096;
  config->alloc_granularity = 4096;
  config->large_page_size = 0;
  config->has_overcommit = true;
  config->has_partial_free = false;
  config->has_virtual_reserve = true;
}

// Hands over the only arena mimalloc ever has; called once, from Rust. The structures for it fit into mimalloc's static area.
bool sbmalloc_prim_manage(void* base, size_t size) {
  return mi_manage_os_memory_ex(base, size, false /* committed */, false /* large pages */, true /* zero */, -1, false, NULL);
}

// Committed memory is asked for to hold the data of a thread. Uncommitted is asked for a segment, when the arena is
// full, or not there yet: then it is handed over now, and mimalloc, refused, looks there when it tries again.
int _mi_prim_alloc(void* hint_addr, size_t size, size_t try_alignment, bool commit, bool allow_large, bool* is_large, bool* is_zero, void** addr) {
  MI_UNUSED(hint_addr); MI_UNUSED(allow_large);
  *is_large = false;
  *is_zero = true;
  *addr = NULL;
  if (commit) {
    *addr = sbmalloc_prim_alloc(size, try_alignment);
  }
  else {
    sbmalloc_prim_reserve();
  }
  return (*addr == NULL ? ENOMEM : 0);
}

int _mi_prim_free(void* addr, size_t size) {
  MI_UNUSED(size);
  sbmalloc_prim_free(addr);
  return 0;
}

// mimalloc commits the header of a segment, then its pages. Of the pages only what blocks are made of is charged,
// see below; they are never touched elsewhere.
int _mi_prim_commit(void* addr, size_t size, bool* is_zero) {
  *is_zero = false;  // some of it may have been committed all along
  if ((uintptr_t)addr % MI_SEGMENT_SIZE != 0) return 0;
  return (sbmalloc_prim_commit(addr, size) ? 0 : ENOMEM);
}

// Called by page.c before it makes blocks of fresh memory of a page, some 4 KiB at a time. False if the charge
// is refused.
bool _mi_prim_extend(void* addr, size_t size) {
  return sbmalloc_prim_commit(addr, size);
}

int _mi_prim_decommit(void* addr, size_t size, bool* needs_recommit) {
  *needs_recommit = true;
  sbmalloc_prim_decommit(addr, size);
  return 0;
}

int _mi_prim_reset(void* addr, size_t size) {
  MI_UNUSED(addr); MI_UNUSED(size);
  return 0;
}

int _mi_prim_reuse(void* addr, size_t size) {
  MI_UNUSED(addr); MI_UNUSED(size);
  return 0;
}

int _mi_prim_protect(void* addr, size_t size, bool protect) {
  MI_UNUSED(addr); MI_UNUSED(size); MI_UNUSED(protect);
  return ENOTSUP;  // guard pages (MI_SECURE) are not built
}

int _mi_prim_alloc_huge_os_pages(void* hint_addr, size_t size, int numa_node, bool* is_zero, void** addr) {
  MI_UNUSED(hint_addr); MI_UNUSED(size); MI_UNUSED(numa_node);
  *is_zero = false;
  *addr = NULL;
  return ENOTSUP;
}

size_t _mi_prim_numa_node(void) {
  return 0;
}

size_t _mi_prim_numa_node_count(void) {
  return 1;
}

//---------------------------------------------
// The rest, as in mimalloc's src/prim/unix
//---------------------------------------------

mi_msecs_t _mi_prim_clock_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return ((mi_msecs_t)t.tv_sec * 1000) + ((mi_msecs_t)t.tv_nsec / 1000000);
}

void _mi_prim_process_info(mi_process_info_t* pinfo) {
  MI_UNUSED(pinfo);  // statistics keep the defaults
}

void _mi_prim_out_stderr(const char* msg) {
  ssize_t n = write(STDERR_FILENO, msg, _mi_strlen(msg));  // stdio might allocate
  MI_UNUSED(n);
}

bool _mi_prim_getenv(const char* name, char* result, size_t result_size) {
  MI_UNUSED(name); MI_UNUSED(result); MI_UNUSED(result_size);
  return false;
}

// By system calls: libraries that replace open and read may allocate in them.
bool _mi_prim_random_buf(void* buf, size_t buf_len) {
  ssize_t ret = syscall(SYS_getrandom, buf, buf_len, 1 /* GRND_NONBLOCK */);
  return (ret >= 0 && (size_t)ret == buf_len);
}

static pthread_key_t sb_thread_key = (pthread_key_t)(-1);

static void mi_pthread_done(void* value) {
  if (value != NULL) {
    _mi_thread_done((mi_heap_t*)value);
  }
}

void _mi_prim_thread_init_auto_done(void) {
  pthread_key_create(&sb_thread_key, &mi_pthread_done);
}

void _mi_prim_thread_done_auto_done(void) {
  // only at the end of the process, which nothing here is told of
}

void _mi_prim_thread_associate_default_heap(mi_heap_t* heap) {
  if (sb_thread_key != (pthread_key_t)(-1)) {
    pthread_setspecific(sb_thread_key, heap);
  }
}

static void __attribute__((constructor)) mi_process_attach(void) {
  _mi_auto_process_init();
}

bool _mi_is_redirected(void) {
  return false;
}

bool _mi_allocator_init(const char** message) {
  if (message != NULL) { *message = NULL; }
  return true;
}

void _mi_allocator_done(void) {
}
