//! A migration under way: the target so far, and the findings.

use std::time::Duration;

use config::{Content, SourceNode, print_bytes, print_duration};

use super::finding::{Finding, Outcome};
use super::form::Form;
use super::quantity::{parse_duration, parse_size, print_ratio};
use super::restriction;
use super::router::Router;
use super::setting::{Lines, Setting};
use super::target::{Source, Target, Value};
use super::variables;

/// The note about variables: their values are not rewritten.
const VARIABLE_NOTE: &str = "the value of the variable must have the form of Starling";

/// The part of the source cannot be converted, which is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused;

/// The state of a migration.
#[derive(Debug)]
pub(crate) struct Conversion<'a> {
    pub(crate) router: Router,
    pub(crate) target: Target,
    pub(crate) findings: Vec<Finding>,
    /// The whole source, for conversions that depend on another key.
    pub(crate) root: Setting<'a>,
    /// The address and the certificate of the main listener, which several keys of the source describe.
    pub(crate) listener: Listener,
    /// An issuer of tokens that has no counterpart.
    pub(crate) lost_issuer: Option<Source>,
}

/// The parts of the main listener.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    pub(crate) address: Option<(Value, Source)>,
    pub(crate) tls: Option<(Value, Source)>,
}

impl<'a> Conversion<'a> {
    pub(crate) fn new(router: Router, node: &'a SourceNode, lines: &'a Lines) -> Self {
        Self {
            router,
            target: Target::default(),
            findings: Vec::new(),
            root: Setting::new(String::new(), 1, node, lines),
            listener: Listener::default(),
            lost_issuer: None,
        }
    }

    /// Writes a setting to a key of Starling, and reports that.
    pub(crate) fn set(&mut self, setting: &Setting<'_>, to: &[String], form: Form, note: &str) {
        match self.value(setting, form) {
            Ok(value) => {
                let needs_form = form.is_of_router() && has_reference(&value);
                let note = match (needs_form, note.is_empty()) {
                    (false, _) => note.to_owned(),
                    (true, true) => VARIABLE_NOTE.to_owned(),
                    (true, false) => format!("{note}; {VARIABLE_NOTE}"),
                };
                self.write(setting, to, value, &note);
            }
            Err(reason) => {
                let name = to.join(".");
                let source = source_of(setting);
                let effect = match restriction::is_one(&name) {
                    true => restriction::close(&mut self.target, &name, None, &source),
                    false => note.to_owned(),
                };
                self.refuse(setting, &reason, &effect);
            }
        }
    }

    /// Writes a value to a key of Starling, and reports that.
    pub(crate) fn write(&mut self, setting: &Setting<'_>, to: &[String], value: Value, note: &str) {
        let source = source_of(setting);
        let comment = (!note.is_empty()).then_some(note);
        let name = to.join(".");
        let restricts = value.scalar().is_some_and(|it| restriction::restricts(&name, &it));
        if self.target.set(to, value, &source, comment) {
            self.done(setting, &name, note);
            return;
        }
        let mut note = format!("`{name}` has a value from another key already");
        if restricts {
            let effect = restriction::close(&mut self.target, &name, None, &source);
            note.push_str(&format!("; {effect}"));
        }
        self.not_converted(setting, &note);
    }

    /// Sets a key without a finding: a part of a conversion that reports as a whole.
    pub(crate) fn put(&mut self, setting: &Setting<'_>, to: &str, value: Value) {
        let source = source_of(setting);
        self.target.set(&with_names(to, &setting.names), value, &source, None);
    }

    /// Adds an element to a list, with a comment if there is a note.
    pub(crate) fn push(&mut self, setting: &Setting<'_>, to: &[String], value: Value, note: &str) {
        let source = source_of(setting);
        let comment = (!note.is_empty()).then_some(note);
        self.target.push(to, value, &source, comment);
        self.done(setting, &to.join("."), note);
    }

    /// Sets a key with another default than the other router, unless the source has set it.
    pub(crate) fn add(&mut self, key: &str, to: &[&str], value: Value, note: &str) {
        let comment = format!("The default of {}. {note}", self.router.name());
        self.insert(key, to, value, note, comment.trim());
    }

    /// Sets the file of the supergraph, which the other router gets by other means than its configuration. `key` is the
    /// variable that they depend on.
    pub(crate) fn add_supergraph(&mut self, key: &str, note: &str) {
        let file = Value::text("supergraph.graphql");
        self.insert(key, &["supergraph", "file"], file, note, note);
    }

    fn insert(&mut self, key: &str, to: &[&str], value: Value, note: &str, comment: &str) {
        let source = Source { line: None, key: key.into() };
        let path: Vec<_> = to.iter().map(|it| (*it).to_owned()).collect();
        if !self.target.has(to) && self.target.set(&path, value, &source, Some(comment)) {
            self.findings.push(Finding {
                outcome: Outcome::Added,
                line: None,
                key: key.to_owned(),
                to: to.join("."),
                note: note.to_owned(),
            });
        }
    }

    /// Makes the result refuse every operation: for a restriction that cannot be expressed yet. The finding about it
    /// says what to do.
    pub(crate) fn refuse_operations(&mut self, setting: &Setting<'_>, message: &str) {
        restriction::refuse_operations(&mut self.target, &source_of(setting), message);
    }

    /// True if a switch is on. If it is a variable or an expression, that is reported, and it counts as on. Only for
    /// switches without a counterpart.
    pub(crate) fn is_on(&mut self, switch: Option<&Setting<'_>>) -> bool {
        let Some(switch) = switch.filter(|it| it.may_be_on()) else { return false };
        if switch.truth().is_none() {
            self.refuse(switch, "is neither true nor false", "it counts as true");
        }
        true
    }

    /// Reports that a setting has a counterpart.
    pub(crate) fn done(&mut self, setting: &Setting<'_>, to: &str, note: &str) {
        let outcome = if note.is_empty() { Outcome::Converted } else { Outcome::Changed };
        self.report(outcome, setting, to, note);
    }

    /// Reports that a setting has no counterpart.
    pub(crate) fn not_converted(&mut self, setting: &Setting<'_>, note: &str) {
        self.report(Outcome::NotConverted, setting, "", note);
    }

    /// Reports that a value has no counterpart.
    pub(crate) fn refuse(&mut self, setting: &Setting<'_>, reason: &str, note: &str) {
        let note = match note.is_empty() {
            true => format!("the value {reason}"),
            false => format!("the value {reason}; {note}"),
        };
        self.report(Outcome::NotConverted, setting, "", &note);
    }

    /// Reports that a setting needs no counterpart.
    pub(crate) fn unneeded(&mut self, setting: &Setting<'_>, note: &str) {
        self.report(Outcome::NotNeeded, setting, "", note);
    }

    /// Reports a key that no rule knows.
    pub(crate) fn unknown(&mut self, setting: &Setting<'_>, note: &str) {
        self.report(Outcome::Unknown, setting, "", note);
    }

    fn report(&mut self, outcome: Outcome, setting: &Setting<'_>, to: &str, note: &str) {
        self.findings.push(Finding {
            outcome,
            line: Some(setting.line),
            key: setting.path.clone(),
            to: to.to_owned(),
            note: note.to_owned(),
        });
    }

    /// Returns the text of a setting with the references of Starling.
    ///
    /// # Errors
    /// The value is no text, or has a reference that Starling cannot have.
    pub(crate) fn text(&self, setting: &Setting<'_>) -> Result<String, String> {
        if let Some(expression) = setting.member("expression")
            && self.router == Router::Hive
        {
            let text = expression.text().unwrap_or_default();
            return variables::of_expression(text)
                .ok_or_else(|| "is an expression in VRL, which Starling does not have".into());
        }
        let text = setting.text().ok_or("is not a single value")?;
        variables::rewrite(text, self.router)
    }

    /// Returns the value of a setting in a form.
    ///
    /// # Errors
    /// The reason why it does not have this form, for a sentence after "the value".
    pub(crate) fn value(&self, setting: &Setting<'_>, form: Form) -> Result<Value, String> {
        if let Form::Texts = form {
            let items = setting.items();
            let texts: Result<Vec<_>, _> = items.iter().map(|it| self.text(it)).collect();
            return Ok(Value::texts(texts?));
        }
        if let Form::Duration = form
            && let Some(duration) = seconds_and_nanos(setting)
        {
            return Ok(Value::text(print_duration(duration)));
        }
        let text = self.text(setting)?;
        if variables::has_reference(&text) {
            return match form {
                Form::Text | Form::Duration | Form::Size | Form::Address | Form::Words(_) => {
                    Ok(Value::Text(text))
                }
                Form::Bool | Form::Number => match variables::only_reference(&text) {
                    Some(default) if default.is_none_or(|it| has_form(it, form)) => {
                        Ok(Value::Text(text))
                    }
                    Some(_) => {
                        Err("is an environment variable with a default of another form".into())
                    }
                    None => Err("has an environment variable beside other text".into()),
                },
                _ => Err("is an environment variable, which needs another form here".into()),
            };
        }
        let number = || text.parse::<f64>().map_err(|_| "is not a number".to_owned());
        Ok(match form {
            Form::Text | Form::Texts => Value::Text(text),
            Form::Bool => Value::Bool(setting.truth().ok_or("is neither true nor false")?),
            Form::Not => Value::Bool(!setting.truth().ok_or("is neither true nor false")?),
            Form::Number => {
                let number = number()?;
                if number.fract() != 0.0 || !(0.0..1e15).contains(&number) {
                    return Err("is not a whole number".into());
                }
                Value::number(number)
            }
            Form::Duration => Value::text(print_duration(parse_duration(&text)?)),
            Form::Seconds => Value::text(print_duration(parse_duration(&format!("{text}s"))?)),
            Form::Size => Value::text(print_bytes(parse_size(&text)?)),
            Form::Address => Value::text(address(&text)?),
            Form::Words(words) => {
                let word = words.iter().find(|(there, _)| there.eq_ignore_ascii_case(&text));
                Value::text(word.ok_or("has no counterpart")?.1)
            }
            Form::Share => match text.as_str() {
                "always_on" => Value::text("100%"),
                "always_off" => Value::text("0%"),
                _ => Value::text(print_ratio(number()?)),
            },
            Form::Percent => {
                let share = text.strip_suffix('%').unwrap_or(&text).trim();
                let share: f64 = share.parse().map_err(|_| "is not a percentage")?;
                Value::number(share.round())
            }
        })
    }

    /// Returns the value of a member in a form, and reports it if it does not have this form.
    pub(crate) fn optional(&mut self, setting: Option<Setting<'_>>, form: Form) -> Option<Value> {
        self.given(setting, form).unwrap_or_default()
    }

    /// Returns the value of a member in a form: `None` if it is absent.
    ///
    /// # Errors
    /// The member does not have this form, which is reported. What has no meaning without it must be left out.
    pub(crate) fn given(
        &mut self,
        setting: Option<Setting<'_>>,
        form: Form,
    ) -> Result<Option<Value>, Refused> {
        let Some(setting) = setting.filter(|it| !it.is_empty()) else { return Ok(None) };
        self.value(&setting, form).map(Some).map_err(|reason| {
            self.refuse(&setting, &reason, "");
            Refused
        })
    }

    /// Writes `listen`: an address, or a listener with its certificate.
    pub(crate) fn write_listener(&mut self) {
        let Listener { address, tls } = std::mem::take(&mut self.listener);
        let path = ["listen".to_owned()];
        match (address, tls) {
            (None, None) => {}
            (Some((address, source)), None) => {
                self.target.set(&path, address, &source, None);
            }
            (address, Some((tls, source))) => {
                let address = address.map_or_else(|| Value::text(self.router.address()), |it| it.0);
                let listener = Value::map([("address", Some(address)), ("tls", Some(tls))]);
                self.target.push(&path, listener, &source, None);
            }
        }
    }
}

/// The members of a mapping, each taken once. Those that are left are unknown.
#[derive(Debug)]
pub(crate) struct Members<'a> {
    members: Vec<Setting<'a>>,
    names: Vec<&'a str>,
}

impl<'a> Members<'a> {
    pub(crate) fn of(setting: &Setting<'a>) -> Self {
        let (names, members) = setting.members().into_iter().unzip();
        Self { members, names }
    }

    /// Takes a member. One that is null counts as absent.
    pub(crate) fn take(&mut self, name: &str) -> Option<Setting<'a>> {
        let at = self.names.iter().position(|it| *it == name)?;
        self.names.remove(at);
        let member = self.members.remove(at);
        (!member.node.is_null()).then_some(member)
    }

    /// Reports a member without a counterpart, unless it is turned off.
    pub(crate) fn absent(&mut self, conversion: &mut Conversion<'_>, name: &str, note: &str) {
        if let Some(member) = self.take(name) {
            match is_turned_off(&member) {
                true => conversion.unneeded(&member, "it is empty or turned off"),
                false => conversion.not_converted(&member, note),
            }
        }
    }

    /// Reports a member that needs no counterpart.
    pub(crate) fn unneeded(&mut self, conversion: &mut Conversion<'_>, name: &str, note: &str) {
        if let Some(member) = self.take(name) {
            conversion.unneeded(&member, note);
        }
    }

    /// Reports the members that were not taken.
    pub(crate) fn finish(self, conversion: &mut Conversion<'_>) {
        for member in self.members {
            conversion.unknown(&member, "");
        }
    }
}

/// True if the default of a reference has a form, a number or a truth value.
fn has_form(default: &str, form: Form) -> bool {
    match form {
        Form::Number => default.parse::<u64>().is_ok(),
        _ => matches!(default, "true" | "false"),
    }
}

fn has_reference(value: &Value) -> bool {
    matches!(value, Value::Text(text) if variables::has_reference(text))
}

/// Returns the source of a part of the target.
pub(crate) fn source_of(setting: &Setting<'_>) -> Source {
    Source { line: Some(setting.line), key: setting.path.as_str().into() }
}

/// Splits a path of Starling, with the names of the source in place of `<name>`.
pub(crate) fn with_names(to: &str, names: &[String]) -> Vec<String> {
    let mut names = names.iter();
    to.split('.')
        .map(|segment| match segment {
            "<name>" => names.next().cloned().unwrap_or_default(),
            segment => segment.to_owned(),
        })
        .collect()
}

/// True for values that turn a feature off, or say nothing.
pub(crate) fn is_turned_off(setting: &Setting<'_>) -> bool {
    setting.is_empty()
        || setting.truth() == Some(false)
        || setting.member("enabled").is_some_and(|it| it.truth() == Some(false))
}

/// Returns an address with an IP address: `localhost` and an absent host are replaced.
fn address(text: &str) -> Result<String, String> {
    let (host, port) = text.rsplit_once(':').ok_or("has no port")?;
    match host {
        "localhost" => Ok(format!("127.0.0.1:{port}")),
        "" | "*" => Ok(format!("0.0.0.0:{port}")),
        _ if text.parse::<std::net::SocketAddr>().is_ok() => Ok(text.to_owned()),
        _ => Err("is no IP address with a port".into()),
    }
}

/// Reads a duration of the form `{secs: 30, nanos: 0}`.
fn seconds_and_nanos(setting: &Setting<'_>) -> Option<Duration> {
    let Content::Mapping(_) = &setting.node.content else { return None };
    let member = |name| setting.member(name).and_then(|it| it.text()?.parse::<u64>().ok());
    let (seconds, nanos) = (member("secs")?, member("nanos").unwrap_or(0));
    Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanos))
}
