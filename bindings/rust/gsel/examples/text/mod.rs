//! Text as numbers: 27 letters (a to z, and everything else as one), and windows of them as samples.

/// Number of different letters.
pub const LETTERS: usize = 27;

/// The letters of a file, without repeated blanks.
pub fn read(path: &str) -> std::io::Result<Vec<u8>> {
    let mut letters = Vec::new();
    for byte in std::fs::read(path)? {
        let letter = if byte.is_ascii_alphabetic() {
            byte.to_ascii_lowercase() - b'a'
        } else {
            26
        };
        if letter != 26 || letters.last() != Some(&26) {
            letters.push(letter);
        }
    }
    Ok(letters)
}

/// Where sample `id` begins in a text with `n` windows: spread over it, in an order that only depends on the id.
pub fn begin(id: i64, n: usize) -> usize {
    (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize % n
}

/// Turns scores of the letters into probabilities, and returns the loss of the right one.
pub fn softmax(scores: &mut [f32], right: usize) -> f32 {
    let most = scores.iter().copied().fold(f32::MIN, f32::max);
    let mut sum = 0.0;
    for score in scores.iter_mut() {
        *score = (*score - most).exp();
        sum += *score;
    }
    scores.iter_mut().for_each(|score| *score /= sum);
    -scores[right].ln()
}
