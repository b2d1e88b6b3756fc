//! Compiles native/ (C only). No network, no generator.

fn main() {
    println!("cargo:rerun-if-changed=native/copy.c");
    cc::Build::new()
        .file("native/copy.c")
        .std("gnu11")
        // In a static library of ours linked into somebody's shared one, they are not that one's exports.
        .flag("-fvisibility=hidden")
        .warnings(true)
        .extra_warnings(true)
        .compile("fullbore_native");
}
