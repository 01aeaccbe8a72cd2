//! Compiles calls.c with the C compiler of the system, optimised as Rust is.
use std::process::Command;

fn main() {
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let include = std::env::var("DEP_GSEL_INCLUDE").expect("gsel-sys tells its include folder");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let object = format!("{}/calls.o", out);
    let run = |command: &mut Command| assert!(command.status().expect("the command runs").success(), "{:?}", command);
    run(Command::new(compiler)
        .args(["-O3", "-fPIC", "-c", "calls.c", "-o", &object])
        .arg(format!("-I{}", include)));
    run(Command::new("ar").args(["rcs", &format!("{}/libcalls.a", out), &object]));
    println!("cargo:rustc-link-search=native={}", out);
    println!("cargo:rustc-link-lib=static=calls");
    println!("cargo:rerun-if-changed=calls.c");
}
