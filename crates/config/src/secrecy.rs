//! Masking of secrets in the excerpts that messages show.
//!
//! `check` reports which values are secret. Two cases remain: secrets inside URLs, and files so broken that no value
//! can be assigned to its key. Both are guessed here, and in doubt a word is hidden: a hidden word costs a look
//! into the file, a shown one may cost a breach.

use std::ops::Range;

use crate::diagnostic::{HIDDEN, SourceText};

/// Words in the keys of values that are likely secret.
const SECRET_WORDS: [&str; 9] =
    ["authorization", "credential", "key", "pass", "private", "pwd", "secret", "token", "value"];

/// The similarity above which a key counts as one of these words (Jaro–Winkler, 0 to 1).
const LIKENESS_MIN: f64 = 0.85;

/// Replaces the bytes of the given ranges, and of secrets in URLs, by [`HIDDEN`]. Length and line breaks stay, so
/// that places remain valid; the renderer shows no length. References such as `${NAME}` stay readable.
pub(super) fn mask(text: &str, hidden: &[Range<usize>]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for range in hidden.iter().cloned().chain(url_secrets(text)) {
        // Ranges grow to whole characters, so that the rest stays UTF-8.
        let start = text.floor_char_boundary(range.start);
        let end = text.ceil_char_boundary(range.end).max(start);
        let start = end - text[start..end].trim_start().len();
        for (at, _) in text[start..end].match_indices(|_| true) {
            hide(&mut bytes, text, start + at);
        }
    }
    for range in references(text) {
        bytes[range.clone()].copy_from_slice(text[range].as_bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the text with the credentials and the values in queries of its URLs hidden, for excerpts of a supergraph.
/// Places remain valid.
pub fn hide_url_secrets(source: &SourceText) -> SourceText {
    SourceText { name: source.name.clone(), text: mask(&source.text, &[]) }
}

/// Returns the values, line by line, of keys that sound secret.
pub(super) fn likely_secrets(text: &str) -> Vec<Range<usize>> {
    let mut hidden = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let lower = line.to_ascii_lowercase();
        let word = SECRET_WORDS.iter().filter_map(|word| lower.find(word)).min();
        if let Some(word) = word {
            let after = line[word..].find([':', '=']).map_or(word, |colon| word + colon + 1);
            hidden.push(start + after..start + line.len());
        }
        start += line.len();
    }
    hidden
}

/// True if a key, even a misspelt one, is likely to hold a secret.
pub(super) fn sounds_secret(key: &str) -> bool {
    let key = key.to_lowercase();
    SECRET_WORDS
        .iter()
        .any(|word| key.contains(word) || strsim::jaro_winkler(&key, word) >= LIKENESS_MIN)
}

fn hide(bytes: &mut [u8], text: &str, at: usize) {
    let width = text[at..].chars().next().map_or(0, char::len_utf8);
    let keeps_layout = matches!(bytes[at], b'\n' | b'\r' | b'\t');
    if !keeps_layout {
        bytes[at..at + width].fill(HIDDEN);
    }
}

/// Returns the ranges between `://` and `@` in URLs, and the values in their queries, which may be keys of an API.
fn url_secrets(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, separator) in text.match_indices("://") {
        let start = at + separator.len();
        // The query of a socket is the path of the request.
        if !text[..at].ends_with("unix") {
            found.extend(query_values(text, start));
        }
        let authority = text[start..]
            .find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'' | ',' | '?' | '#'))
            .map_or(text.len(), |end| start + end);
        if let Some(end) = text[start..authority].rfind('@') {
            found.push(start..start + end);
        }
    }
    found
}

/// Returns the values in the query of the URL around `start`. Parts without a name count as values.
fn query_values(text: &str, start: usize) -> Vec<Range<usize>> {
    let url = text[start..].split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'')).next();
    // The end of a YAML collection in one line.
    let url = url.unwrap_or_default().trim_end_matches([',', ']', '}']);
    let Some((before, query)) = url.split_once('?') else { return Vec::new() };
    let mut found = Vec::new();
    let mut part_start = start + before.len() + 1;
    for part in query.split('&') {
        let value = part.find('=').map_or(0, |equals| equals + 1);
        found.push(part_start + value..part_start + part.len());
        part_start += part.len() + 1;
    }
    found
}

/// Returns the references to variables without a default, which reveal no secret.
fn references(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, opening) in text.match_indices("${") {
        let name = at + opening.len();
        let name = name + if text[name..].starts_with("env.") { "env.".len() } else { 0 };
        let length = text[name..].bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_');
        let end = name + length.count();
        if text[end..].starts_with('}') {
            found.push(at..end + 1);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::shown_text;

    #[test]
    fn hidden_ranges_keep_their_length_and_their_references() {
        let text = "a: geheim ${NAME} ü\nb: seen\n";
        let masked = mask(text, std::slice::from_ref(&(3..20)));
        assert_eq!(shown_text(&masked).text, "a: ******${NAME}******\nb: seen\n");
        assert_eq!(masked.len(), text.len());
    }

    #[test]
    fn credentials_in_urls_are_always_hidden() {
        let shown = |text: &str| shown_text(&mask(text, &[])).text.into_owned();
        for credentials in ["me:p@ss", "m", "a-long-user-name:and-a-long-password"] {
            let text = format!("url: nats://{credentials}@host:1\n");
            assert_eq!(shown(&text), "url: nats://******@host:1\n");
        }
        assert_eq!(shown("url: http://host/@x\n"), "url: http://host/@x\n");
    }

    #[test]
    fn values_in_the_queries_of_urls_are_always_hidden() {
        let shown = |text: &str| shown_text(&mask(text, &[])).text.into_owned();
        let cases = [
            ("url: http://host/a?token=hunter2 # x\n", "url: http://host/a?token=****** # x\n"),
            ("{a: [http://host?k=hunter2]}", "{a: [http://host?k=******]}"),
            ("'http://host/?hunter2&b=&c=7,8'", "'http://host/?******&b=&c=******'"),
            ("http://host/?k=${NAME}&l=${NAME:-x}", "http://host/?k=${NAME}&l=******}"),
            ("http://host/?é=ü", "http://host/?é=******"),
            ("unix:///run/a.sock?path=/graphql", "unix:///run/a.sock?path=/graphql"),
            ("http://host/ is it? a=b", "http://host/ is it? a=b"),
        ];
        for (text, expected) in cases {
            assert_eq!(shown(text), expected);
        }
    }

    #[test]
    fn values_of_keys_that_sound_secret_are_guessed() {
        let text = "a: 1\nPassWord: \"x\n  token: y\n";
        let masked = mask(text, &likely_secrets(text));
        assert_eq!(shown_text(&masked).text, "a: 1\nPassWord: ******\n  token: ******\n");
    }
}
