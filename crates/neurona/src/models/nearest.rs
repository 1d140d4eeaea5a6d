//! What somebody may have meant.

/// The known word that is nearest to a misspelt one, when it is near enough to be meant.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |word: &str| word.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let word = plain(word);
    let far = |other: &str| distance(word.as_bytes(), plain(other).as_bytes());
    let (far, best) = known.iter().map(|k| (far(k), *k)).min_by_key(|(far, _)| *far)?;
    (far * 3 <= word.len()).then_some(best)
}

/// How many letters are to be added, left out or replaced to make one word of the other.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = before + usize::from(x != y);
            before = row[j + 1];
            row[j + 1] = replaced.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_between_words() {
        assert_eq!(distance(b"kitten", b"sitting"), 3);
        assert_eq!(distance(b"", b"abc"), 3);
        assert_eq!(nearest("Dropuot", &["depth", "dropout"]), Some("dropout"));
        assert_eq!(nearest("x", &["depth", "dropout"]), None);
        assert_eq!(nearest("", &["depth"]), None);
    }
}
