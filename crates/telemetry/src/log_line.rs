//! One line of a log as JSON or as text: `name=value` pairs.
//!
//! Nothing in a value can end a line or begin another pair: control characters are escaped, and texts that are not
//! plain are quoted.

use std::fmt::{Display, Write};

/// The format of the lines of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineFormat {
    /// One JSON object for each line.
    #[default]
    Json,
    /// `name=value` pairs. A value with other characters than letters, digits and `-._:/@+` is quoted as in JSON.
    Text,
}

/// The maximum length of a text in a line. The rest of a longer one is left out and replaced by `…`.
pub const LINE_TEXT_BYTES_MAX: usize = 1024;

/// A line in progress.
#[derive(Debug)]
pub struct LogLine {
    format: LineFormat,
    text: String,
}

impl LogLine {
    /// Begins a line.
    pub fn new(format: LineFormat) -> Self {
        let mut text = String::with_capacity(384);
        if format == LineFormat::Json {
            text.push('{');
        }
        Self { format, text }
    }

    fn begin(&mut self, name: &str) {
        match self.format {
            LineFormat::Json => {
                if self.text.len() > 1 {
                    self.text.push(',');
                }
                push_quoted(&mut self.text, name);
                self.text.push(':');
            }
            LineFormat::Text => {
                if !self.text.is_empty() {
                    self.text.push(' ');
                }
                self.text.push_str(name);
                self.text.push('=');
            }
        }
    }

    /// Adds a text. An empty one is left out.
    pub fn text(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        self.begin(name);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:/@+".contains(&byte);
        let (value, is_cut) = cut(value);
        match self.format {
            LineFormat::Text if !is_cut && value.bytes().all(is_plain) => self.text.push_str(value),
            _ => {
                push_quoted(&mut self.text, value);
                if is_cut {
                    // Inside of the quotes.
                    self.text.pop();
                    self.text.push_str("…\"");
                }
            }
        }
    }

    /// Adds a value whose text has only characters that need no quotes in either format, such as an address or an id.
    pub fn plain(&mut self, name: &str, value: impl Display) {
        self.begin(name);
        let quote = if self.format == LineFormat::Json { "\"" } else { "" };
        // Writing to a string does not fail.
        let _ = write!(self.text, "{quote}{value}{quote}");
    }

    /// Adds a number.
    pub fn number(&mut self, name: &str, value: u64) {
        self.begin(name);
        // Writing to a string does not fail.
        let _ = write!(self.text, "{value}");
    }

    /// Adds a duration in milliseconds with three decimal places.
    pub fn milliseconds(&mut self, name: &str, value: std::time::Duration) {
        self.begin(name);
        let micros = value.as_micros();
        let _ = write!(self.text, "{}.{:03}", micros / 1000, micros % 1000);
    }

    /// Adds true or false.
    pub fn boolean(&mut self, name: &str, value: bool) {
        self.begin(name);
        self.text.push_str(if value { "true" } else { "false" });
    }

    /// Ends the line, and returns it with its line break.
    pub fn finish(mut self) -> String {
        self.text.push_str(match self.format {
            LineFormat::Json => "}\n",
            LineFormat::Text => "\n",
        });
        self.text
    }
}

/// Returns the beginning of a text, and true if it is shorter than the text.
fn cut(value: &str) -> (&str, bool) {
    if value.len() <= LINE_TEXT_BYTES_MAX {
        return (value, false);
    }
    (&value[..value.floor_char_boundary(LINE_TEXT_BYTES_MAX)], true)
}

fn push_quoted(out: &mut String, value: &str) {
    out.push('"');
    // Nearly all values: one pass over bytes costs a fraction of one over characters.
    if value.bytes().all(|it| matches!(it, b' '..=b'~') && it != b'"' && it != b'\\') {
        out.push_str(value);
        out.push('"');
        return;
    }
    let mut rest = value;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '\\' || c.is_control()) {
        out.push_str(&rest[..at]);
        let mut characters = rest[at..].chars();
        match characters.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\n') => out.push_str("\\n"),
            Some(control) => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            None => {}
        }
        rest = characters.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn line(format: LineFormat, fields: &[(&str, &str)]) -> String {
        let mut line = LogLine::new(format);
        fields.iter().for_each(|(name, value)| line.text(name, value));
        line.finish()
    }

    #[test]
    fn each_format_has_all_kinds_of_values() {
        let fill = |format| {
            let mut line = LogLine::new(format);
            line.text("method", "POST");
            line.text("name", "");
            line.number("status", 200);
            line.milliseconds("duration_ms", Duration::from_micros(12_034));
            line.boolean("tls", true);
            line.plain("address", std::net::Ipv6Addr::LOCALHOST);
            line.text("agent", "a b=c");
            line.finish()
        };
        let json = r#"{"method":"POST","status":200,"duration_ms":12.034,"tls":true,"address":"::1","agent":"a b=c"}"#;
        assert_eq!(fill(LineFormat::Json), format!("{json}\n"));
        let text =
            r#"method=POST status=200 duration_ms=12.034 tls=true address=::1 agent="a b=c""#;
        assert_eq!(fill(LineFormat::Text), format!("{text}\n"));
    }

    #[test]
    fn no_value_ends_a_line_or_its_quotes() {
        let bad = "x\" y=1\n\u{7f}\u{85}\t\\";
        let quoted = r#""x\" y=1\n\u007f\u0085\u0009\\""#;
        assert_eq!(line(LineFormat::Json, &[("a", bad)]), format!("{{\"a\":{quoted}}}\n"));
        assert_eq!(line(LineFormat::Text, &[("a", bad)]), format!("a={quoted}\n"));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let long = "é".repeat(LINE_TEXT_BYTES_MAX);
        let cut = format!("a=\"{}…\"\n", "é".repeat(LINE_TEXT_BYTES_MAX / 2));
        assert_eq!(line(LineFormat::Text, &[("a", &long)]), cut);
    }
}
