//! Settings of the labels of progressive overrides.

use prepare::LabelShare;
use serde::{Deserialize, Serialize};

/// The state of a label of progressive overrides, as written in the file: `true`, `false`, or a percentage such as
/// `5%`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabelSetting {
    text: String,
    share: LabelShare,
}

impl LabelSetting {
    /// Returns the share of requests for which the label is on.
    pub fn share(&self) -> LabelShare {
        self.share
    }

    /// Parses the text of a setting.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let share = match text {
            "true" => LabelShare::ALWAYS,
            "false" => LabelShare::NEVER,
            _ => {
                let digits = text.strip_suffix('%').ok_or("it has no `%`")?.trim_end();
                let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
                match digits.parse::<f64>() {
                    Ok(percent) if is_plain && percent <= 100.0 => LabelShare::percent(percent),
                    Ok(_) => return Err("it is not between 0% and 100%"),
                    Err(_) => return Err("it is not a number with `%`"),
                }
            }
        };
        Ok(Self { text: text.to_owned(), share })
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
        let share = |text: &str| LabelSetting::parse(text).map(|setting| setting.share());
        assert_eq!(share("true"), Ok(LabelShare::ALWAYS));
        assert_eq!(share("false"), Ok(LabelShare::NEVER));
        assert_eq!(share("0%"), Ok(LabelShare::NEVER));
        assert_eq!(share("2.5 %"), Ok(LabelShare::percent(2.5)));
        for wrong in ["", "5", "%", "101%", "-1%", "1e1%", "NaN%", "yes"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
