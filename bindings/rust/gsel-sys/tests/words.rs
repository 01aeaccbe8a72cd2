//! What build.rs reads from pkg-config: flags as words of a shell.
#[path = "../words.rs"]
mod words;
use words::{value, words};

#[test]
fn blanks_behind_a_backslash_or_in_quotes_are_part_of_a_word() {
    assert_eq!(words("-L/usr/lib  -lgsel\n"), ["-L/usr/lib", "-lgsel"]);
    assert_eq!(words(r"-L/opt/my\ libs/lib -lgsel"), ["-L/opt/my libs/lib", "-lgsel"]);
    assert_eq!(words("-L'/opt/my libs/lib' -lgsel"), ["-L/opt/my libs/lib", "-lgsel"]);
    assert_eq!(words(r#""-L/opt/my libs" -lm"#), ["-L/opt/my libs", "-lm"]);
    assert_eq!(words(r"a\\b '\' a\'b"), [r"a\b", r"\", "a'b"]);
    assert_eq!(words(r#""a\"b \c" '' d"#), ["a\"b \\c", "", "d"]);
    assert!(words(" \t\n").is_empty() && words("").is_empty());
}

#[test]
fn a_value_keeps_its_blanks() {
    assert_eq!(value(r"/opt/my\ libs/lib"), "/opt/my libs/lib");
    assert_eq!(value("/opt/my libs/lib"), "/opt/my libs/lib");
    assert_eq!(value(r"/opt/a\\b"), r"/opt/a\b");
}
