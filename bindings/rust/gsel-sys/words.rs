//! Reads the output of pkg-config: words of a shell, with a backslash before a blank of a folder's name, or quotes.
//! Part of build.rs; tests/words.rs tests it.

/// The words of a line. Blanks end a word, except in quotes or after a backslash.
pub fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None, None);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        if quote.is_none() && letter.is_whitespace() {
            words.extend(word.take());
            continue;
        }
        let word: &mut String = word.get_or_insert_with(String::new);
        match (letter, quote) {
            ('\\', None) => word.extend(letters.next()),
            ('\\', Some('"')) => match letters.next() {
                Some(next) if "\"\\$`".contains(next) => word.push(next),
                next => word.extend(Some('\\').into_iter().chain(next)),
            },
            ('\'', None) | ('"', None) => quote = Some(letter),
            _ if quote == Some(letter) => quote = None,
            _ => word.push(letter),
        }
    }
    words.extend(word);
    words
}

/// A single value, such as a folder: blanks are part of it, with a backslash or without.
pub fn value(line: &str) -> String {
    let (mut value, mut letters) = (String::new(), line.chars());
    while let Some(letter) = letters.next() {
        value.extend(if letter == '\\' { letters.next() } else { Some(letter) });
    }
    value
}
