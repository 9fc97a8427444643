//! Compiles mimalloc, with sbmalloc as its operating system; see mimalloc/README.md.

fn main() {
    println!("cargo:rerun-if-changed=mimalloc");
    let mut build = cc::Build::new();
    build
        .file("mimalloc/src/static.c")
        .include("mimalloc/include")
        .include("mimalloc/src")
        // A program may have a mimalloc of its own beside this one.
        .flag("-include")
        .flag("mimalloc/include/sbmalloc-rename.h")
        // Not with hidden visibility: gcc then no longer inlines the fast path of free.
        // Thread-local variables that need no allocation at their first use, in preloaded libraries too.
        .flag("-ftls-model=initial-exec")
        .opt_level(3)
        .warnings(false)
        .define("NDEBUG", None)
        .define("MI_BUILD_RELEASE", None)
        .define("MI_DEBUG", "0")
        // Only what is used is committed, in one arena, which src/prim/prim.c hands over.
        .define("MI_DEFAULT_EAGER_COMMIT", "0")
        .define("MI_DEFAULT_ARENA_EAGER_COMMIT", "0")
        .define("MI_DEFAULT_ARENA_RESERVE", "0")
        .compile("sbmalloc_mimalloc");
}
