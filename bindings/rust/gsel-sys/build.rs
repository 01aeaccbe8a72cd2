//! Finds libgsel and tells cargo how to link it. Needs nothing outside std, so pkg-config is called by name.
//!
//! | variable         | meaning                                                                                     |
//! |------------------|---------------------------------------------------------------------------------------------|
//! | GSEL_LIB_DIR     | folder of libgsel; pkg-config is not asked, as in cross builds                              |
//! | GSEL_INCLUDE_DIR | folder that has gsel/gsel.h, passed on to dependants                                        |
//! | GSEL_STATIC      | 1: link libgsel.a, libgsel_plugins.a and what they need; with GSEL_LIB_DIR that is hwloc,    |
//! |                  | stdc++, dl, pthread and m                                                                   |
//! | DOCS_RS          | set: nothing is looked for, since documentation links nothing                               |
//! | PKG_CONFIG       | the program to ask; default pkg-config                                                      |
//!
//! Dependants read DEP_GSEL_INCLUDE, DEP_GSEL_LIB and DEP_GSEL_VERSION in their build scripts.
use std::env;
use std::fs;
use std::path::Path;
use std::process::{exit, Command};

#[path = "words.rs"]
mod words;

/// The version of the interface that src/generated.rs declares.
const DECLARED: &str = "0.1";
/// What libgsel.a needs, where pkg-config is not asked; see Libs.private of gsel.pc.
const PRIVATE: [&str; 5] = ["hwloc", "stdc++", "dl", "pthread", "m"];

fn fail(text: &str) -> ! {
    eprintln!("gsel-sys: {}", text);
    exit(1);
}

/// A variable of the environment; a change of it runs this script again. Empty is as good as unset.
fn variable(name: &str) -> Option<String> {
    println!("cargo:rerun-if-env-changed={}", name);
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// What pkg-config prints about gsel for these options.
fn ask(options: &[&str]) -> String {
    let program = variable("PKG_CONFIG").unwrap_or_else(|| "pkg-config".to_owned());
    let hint =
        "install libgsel, set PKG_CONFIG_PATH to the folder of gsel.pc, or set GSEL_LIB_DIR to that of libgsel.so";
    match Command::new(&program).args(options).arg("gsel").output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Ok(output) => fail(&format!(
            "{} {} gsel says: {}; {}",
            program,
            options.join(" "),
            String::from_utf8_lossy(&output.stderr).trim(),
            hint
        )),
        Err(error) => fail(&format!("{} cannot be run ({}); {}", program, error, hint)),
    }
}

/// Tells cargo what a flag such as -Lfolder or -lname means.
fn link(flag: &str, is_static: bool) {
    if let Some(folder) = flag.strip_prefix("-L") {
        println!("cargo:rustc-link-search=native={}", folder);
    } else if let Some(name) = flag.strip_prefix("-l") {
        let ours = is_static && name == "gsel";
        if ours {
            println!("cargo:rustc-link-lib=static=gsel_plugins");
        }
        println!(
            "cargo:rustc-link-lib={}={}",
            if ours { "static" } else { "dylib" },
            name
        );
    } else if flag == "-pthread" {
        println!("cargo:rustc-link-lib=dylib=pthread");
    }
}

/// Writes linked.rs, which src/lib.rs includes: where the list of strategies in libgsel_plugins.a begins.
fn write_linked(is_static: bool) {
    let body = if is_static {
        "    extern \"C\" {\n        static gsel_strategies_v1: *const gsel_plugin_v1;\n    }\n    \
         unsafe { &gsel_strategies_v1 }\n"
    } else {
        "    std::ptr::null()\n"
    };
    let path = Path::new(&env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("linked.rs");
    let text = format!("fn linked() -> *const *const gsel_plugin_v1 {{\n{}}}\n", body);
    fs::write(&path, text).unwrap_or_else(|error| fail(&format!("{} cannot be written: {}", path.display(), error)));
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=words.rs");
    for name in ["PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR", "PKG_CONFIG_SYSROOT_DIR"] {
        println!("cargo:rerun-if-env-changed={}", name);
    }
    let documented = variable("DOCS_RS").is_some();
    let is_static = variable("GSEL_STATIC").map_or(false, |value| value != "0");
    write_linked(is_static && !documented);
    if documented {
        return;
    }
    let include = variable("GSEL_INCLUDE_DIR");
    if let Some(folder) = variable("GSEL_LIB_DIR") {
        link(&format!("-L{}", folder), is_static);
        link("-lgsel", is_static);
        PRIVATE
            .iter()
            .filter(|_| is_static)
            .for_each(|name| link(&format!("-l{}", name), true));
        println!("cargo:lib={}", folder);
        println!("cargo:version={}", DECLARED);
        if let Some(include) = include {
            println!("cargo:include={}", include);
        }
        return;
    }
    let version = ask(&["--modversion"]);
    if version != DECLARED && !version.starts_with(&format!("{}.", DECLARED)) {
        fail(&format!(
            "libgsel {} was found, {} is declared here; use the gsel-sys of that version",
            version, DECLARED
        ));
    }
    let flags = if is_static {
        ask(&["--libs", "--static"])
    } else {
        ask(&["--libs"])
    };
    let words = words::words(&flags);
    if !words.iter().any(|word| word == "-lgsel") {
        fail(&format!(
            "pkg-config says \"{}\", without -lgsel; set GSEL_LIB_DIR to the folder of libgsel.so",
            flags
        ));
    }
    words.iter().for_each(|flag| link(flag, is_static));
    println!("cargo:lib={}", words::value(&ask(&["--variable=libdir"])));
    println!("cargo:version={}", version);
    println!(
        "cargo:include={}",
        include.unwrap_or_else(|| words::value(&ask(&["--variable=includedir"])))
    );
}
