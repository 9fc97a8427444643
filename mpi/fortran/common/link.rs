//! How the libraries are linked: part of their build scripts.

use std::error::Error;
use std::path::Path;

/// Numbers of C's that `calls/` looks at.
pub const NUMBERS: [&str; 15] = [
    "ERR_NO_MEM",
    "CART",
    "GRAPH",
    "DIST_GRAPH",
    "TAG_UB",
    "HOST",
    "IO",
    "WTIME_IS_GLOBAL",
    "APPNUM",
    "LASTUSEDCODE",
    "UNIVERSE_SIZE",
    "WIN_SIZE",
    "WIN_DISP_UNIT",
    "WIN_CREATE_FLAVOR",
    "WIN_MODEL",
];

/// Gives the library its name, and lets it need C's: one that is there only by its name, as cargo does not
/// link one library of the workspace to another.
pub fn link(folder: &Path, name: &str, needed: &str) -> Result<(), Box<dyn Error>> {
    let library = folder.join(needed);
    let made = cc::Build::new()
        .get_compiler()
        .to_command()
        .args(["-shared", "-nostdlib", "-o"])
        .arg(&library)
        .arg(format!("-Wl,-soname,{needed}"))
        .args(["-x", "c", "/dev/null"])
        .status()?;
    if !made.success() {
        return Err(format!("no {needed} to link to: {made}").into());
    }
    let library = library.display();
    for argument in [&*format!("-soname,{name}"), &format!("--no-as-needed,{library}"), "--as-needed"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../common/link.rs");
    Ok(())
}
