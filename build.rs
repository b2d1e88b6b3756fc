//! Compiles native/ (C only). No network, no generator.

fn main() {
    println!("cargo:rerun-if-changed=native");
    cc::Build::new()
        .file("native/copy.c")
        .std("gnu11")
        .warnings(true)
        .extra_warnings(true)
        .compile("fullbore_native");
}
