//! Gives the shared library the name by which programs find it when they run.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libholdfast.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
