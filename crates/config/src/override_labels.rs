//! Settings of the labels of progressive overrides.

use serde::{Deserialize, Serialize};

/// The state of a label of progressive overrides, as written in the file: `true`, `false`, or a percentage such as
/// `5%`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabelSetting {
    text: String,
    percent: f64,
}

impl LabelSetting {
    /// Returns the percentage of requests for which the label is on, from 0 to 100.
    pub fn percent(&self) -> f64 {
        self.percent
    }

    /// Parses the text of a setting.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let percent = match text {
            "true" => 100.0,
            "false" => 0.0,
            _ => parse_percentage(text)?,
        };
        Ok(Self { text: text.to_owned(), percent })
    }
}

/// Parses a percentage from 0 to 100.
pub(super) fn parse_percentage(text: &str) -> Result<f64, &'static str> {
    let digits = text.strip_suffix('%').ok_or("it has no `%`")?.trim_end();
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match digits.parse::<f64>() {
        Ok(percent) if is_plain && percent <= 100.0 => Ok(percent),
        Ok(_) => Err("it is not between 0% and 100%"),
        Err(_) => Err("it is not a number with `%`"),
    }
}

impl TryFrom<String> for LabelSetting {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<LabelSetting> for String {
    fn from(setting: LabelSetting) -> Self {
        setting.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_a_switch_or_a_percentage() {
        let percent = |text: &str| LabelSetting::parse(text).map(|setting| setting.percent());
        assert_eq!(percent("true"), Ok(100.0));
        assert_eq!(percent("false"), Ok(0.0));
        assert_eq!(percent("0%"), Ok(0.0));
        assert_eq!(percent("2.5 %"), Ok(2.5));
        for wrong in ["", "5", "%", "101%", "-1%", "1e1%", "NaN%", "yes"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
