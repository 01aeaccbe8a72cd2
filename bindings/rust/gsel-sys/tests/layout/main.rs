//! Prints what Rust says of every struct, field and constant, in the form of tests/bindings/layout.sh, and compares it with
//! what C says: GSEL_C_LAYOUT names the file with C's lines. fields.rs is made by generate.sh.
use std::mem::{size_of, MaybeUninit};

fn size_behind<T>(_: *const T) -> usize {
    size_of::<T>()
}

fn lines() -> Vec<String> {
    let mut lines = Vec::new();
    macro_rules! fields {
        ($type:ident: $($field:ident),*) => {
            lines.push(format!("{} {}", stringify!($type), size_of::<gsel_sys::$type>()));
            let value = MaybeUninit::<gsel_sys::$type>::uninit();
            $(
                let field = unsafe { std::ptr::addr_of!((*value.as_ptr()).$field) };
                let offset = field as usize - value.as_ptr() as usize;
                let name = stringify!($field).trim_start_matches("r#");
                lines.push(format!("{}.{} {} {}", stringify!($type), name, offset, size_behind(field)));
            )*
        };
    }
    macro_rules! constant {
        ($name:ident) => {
            lines.push(format!("{} {}", stringify!($name), gsel_sys::$name as i64))
        };
    }
    macro_rules! indexed {
        ($name:ident) => {
            [0, 5, 30].iter().for_each(|&i| {
                lines.push(format!(
                    "{}({}) {}",
                    stringify!($name),
                    i,
                    gsel_sys::$name(i) as i64
                ))
            })
        };
    }
    include!("fields.rs");
    lines.sort();
    lines
}

#[test]
fn structs_and_constants_are_those_of_c() {
    let file = std::env::var("GSEL_C_LAYOUT").expect("GSEL_C_LAYOUT names what tests/bindings/layout.sh printed");
    let said = std::fs::read_to_string(&file).unwrap();
    let c: Vec<&str> = said.lines().collect();
    let rust = lines();
    let only_c: Vec<_> = c
        .iter()
        .filter(|line| !rust.iter().any(|other| other == *line))
        .collect();
    let only_rust: Vec<_> = rust.iter().filter(|line| !c.contains(&line.as_str())).collect();
    assert!(
        only_c.is_empty() && only_rust.is_empty(),
        "only C says {:#?}, only Rust says {:#?}",
        only_c,
        only_rust
    );
    assert!(c.len() > 900, "only {} lines in {}", c.len(), file);
}
